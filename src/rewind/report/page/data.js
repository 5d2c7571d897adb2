// The study's numbers, decoded from the page when they are first asked for.

// While anything is being done that will change what is shown, the root element lacks `data-settled`: programs
// that read the page wait for it. What plays, and words that go by themselves, are not waited for.
let ongoing = 0;

/** Something has begun; the function that is given back says that it is over. */
const begin = () => {
  let over = false;
  ongoing += 1;
  document.documentElement.toggleAttribute("data-settled", false);
  return () => {
    if (!over) ongoing -= 1;
    over = true;
    document.documentElement.toggleAttribute("data-settled", ongoing === 0);
  };
};

/** A function like this one, during which the page has not settled. */
const unsettled = (action) => async (...given) => {
  const end = begin();
  try {
    return await action(...given);
  } finally {
    end();
  }
};

const started = begin();

/** Numbers from base64 of little-endian values; `Kind` is a typed array. */
const numbers = (text, Kind) => new Kind(unpacked(text).buffer);

const study = await read("explorer-data");
study.items.twin = numbers(study.items.twin, Int32Array);
study.items.strip = numbers(study.items.strip, Int32Array);
study.captions.item = numbers(study.captions.item, Int32Array);

// Of a large study the runs' numbers are in scripts next to the page, since a page from a disk may not read files: each
// script calls this function.
const arrived = new Map();
const loading = new Map();
globalThis.rewindData = (address, values) => arrived.set(address, values);

/** The values of a script next to the page; it is run once. */
const fetched = (address) => {
  if (!loading.has(address)) {
    loading.set(address, new Promise((done, failed) => {
      const script = document.createElement("script");
      const missing = () => {
        loading.delete(address);
        script.remove();
        failed(new Error(`${address} is missing: keep that folder next to this page`));
      };
      script.addEventListener("load", () => (arrived.has(address) ? done(arrived.get(address)) : missing()));
      script.addEventListener("error", missing);
      script.src = address;
      document.head.append(script);
    }));
  }
  return loading.get(address);
};

/** A promise of what is not loaded yet of some runs (`part`: ranks or top), or null where all is loaded. */
const awaited = (part, ...packed) => {
  const lacking = packed.filter((one) => one.files?.[part]);
  if (!lacking.length) return null;
  return Promise.all(lacking.map(async (one) => {
    Object.assign(one, await fetched(one.files[part]));
    delete one.files[part];
  }));
};

const awaitedRanks = (view) => awaited("ranks", ...Object.values(view.runs));
const awaitedTop = (view, method, seed) => awaited("top", view.runs[`${method}/${seed}`]);

/** Ranks and margins of one run in one view. */
const run = (view, method, seed) => {
  const packed = view.runs[`${method}/${seed}`];
  packed.ready ??= { seed, rank: numbers(packed.rank, Float32Array), margin: numbers(packed.margin, Int16Array) };
  return packed.ready;
};

/** First places of one run in one view. */
const topOf = (view, method, seed) => {
  const packed = view.runs[`${method}/${seed}`];
  packed.first ??= numbers(packed.top, view.wide ? Uint32Array : Uint16Array);
  return packed.first;
};

const runsOf = (view, method) => method.seeds.map((seed) => run(view, method.key, seed));

const queriesOf = (view) => {
  if (typeof view.queries === "string") view.queries = numbers(view.queries, Int32Array);
  return view.queries;
};

const toItems = (view) => view.direction === "text_to_item";

/** Whether a view's queries are captions; in Binary they are in both directions, a caption representing its clip. */
const asksByCaption = (view) => toItems(view) || view.setting === "binary";

const firstCaption = new Map();
study.captions.item.forEach((item, caption) => { if (!firstCaption.has(item)) firstCaption.set(item, caption); });

/** What identifies a query to a reader: its caption, or its item's first caption. */
const words = (view, query) => study.captions.text[asksByCaption(view) ? query : firstCaption.get(query)] ?? "";

/** The clip that a query is about: the truth of a search for clips, the query of a search for captions. */
const itemOfQuery = (view, query) => (asksByCaption(view) ? study.captions.item[query] : query);

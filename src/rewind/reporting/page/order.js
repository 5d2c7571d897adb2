// Which queries are listed, and in which order.

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const spread = (values) => Math.max(...values) - Math.min(...values);
const logRanks = (runs, place) => runs.map((one) => Math.log2(one.rank[place]));

/** 1 where the twin is preferred, a half where it ties, 0 where the truth is; null without a twin. */
const confusedIn = (one, place) => {
  const margin = one.margin[place];
  if (margin === study.noTwin) return null;
  return margin < 0 ? 1 : margin === 0 ? 0.5 : 0;
};

const ORDERS = {
  file: { label: "the file's order" },
  worst: { label: "rank of the truth, worst first", keys: (runs, place) => [-mean(logRanks(runs, place))] },
  best: { label: "rank of the truth, best first", keys: (runs, place) => [mean(logRanks(runs, place))] },
  twin: {
    label: "most confused with its twin",
    // Share of seeds that prefer the twin, then how far they do.
    keys: (runs, place) => {
      const confused = runs.map((one) => confusedIn(one, place));
      if (confused[0] === null) return [1, 0];
      return [-mean(confused), mean(runs.map((one) => one.margin[place]))];
    },
  },
  seeds: { label: "disagreement between seeds", keys: (runs, place) => [-spread(logRanks(runs, place))] },
  methods: {
    label: "disagreement between methods",
    // A baseline disagrees with everything that has learnt.
    keys: (runs, place, trained) => [-spread(trained.map((others) => mean(logRanks(others, place))))],
  },
};

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Texts that the filter searches, made once a view. */
const searched = (view) => {
  view.searched ??= Array.from(queriesOf(view), (query) =>
    plain(`${words(view, query)} ${study.items.id[itemOfQuery(view, query)]}`));
  return view.searched;
};

/** Places of the queries that hold every word of the filter, sorted. */
const listed = (view, method, order, filter) => {
  const wanted = plain(filter).split(/\s+/).filter(Boolean);
  const places = [];
  searched(view).forEach((text, place) => {
    if (wanted.every((word) => text.includes(word))) places.push(place);
  });
  const { keys } = ORDERS[order];
  if (!keys) return places;
  const runs = runsOf(view, method);
  const trained = study.methods.filter((one) => !one.baseline).map((one) => runsOf(view, one));
  const sortable = places.map((place) => ({ place, keys: keys(runs, place, trained.length ? trained : [runs]) }));
  const compare = (a, b) => {
    for (let i = 0; i < a.keys.length; i += 1) if (a.keys[i] !== b.keys[i]) return a.keys[i] - b.keys[i];
    return a.place - b.place;
  };
  return sortable.sort(compare).map((one) => one.place);
};

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
  change: {
    label: "change of rank from A to B, largest first",
    two: true,
    keys: (runs, place, trained, others) => [-Math.abs(climb(runs, others, place))],
  },
  rises: {
    label: "rank rises from A to B, most first", two: true, keys: (runs, place, trained, others) => [-climb(runs, others, place)],
  },
  falls: {
    label: "rank falls from A to B, most first", two: true, keys: (runs, place, trained, others) => [climb(runs, others, place)],
  },
};

/** By which factor the truth is higher up with the others, as a logarithm: 10 → 1 counts as much as 100 → 10. */
const climb = (runs, others, place) => mean(logRanks(runs, place)) - mean(logRanks(others, place));

/** Whether the truth is first in more than half of the seeds. */
const right = (runs, place) => 2 * runs.filter((one) => one.rank[place] <= 1).length > runs.length;

const SHOWN = {
  all: { label: "all queries" },
  first: { label: "A right, B wrong", keep: (a, b) => a && !b },
  second: { label: "B right, A wrong", keep: (a, b) => b && !a },
  both: { label: "both right", keep: (a, b) => a && b },
  neither: { label: "both wrong", keep: (a, b) => !a && !b },
};

const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Texts that the filter searches, made once a view. */
const searched = (view) => {
  view.searched ??= Array.from(queriesOf(view), (query) =>
    plain(`${words(view, query)} ${study.items.id[itemOfQuery(view, query)]}`));
  return view.searched;
};

/** Places of the queries that hold every word of the filter and are right or wrong as wanted, sorted. */
const listed = ({ view, method, other }, order, filter, show) => {
  const wanted = plain(filter).split(/\s+/).filter(Boolean);
  const runs = runsOf(view, method);
  const others = other ? runsOf(view, other) : null;
  const { keep } = others ? SHOWN[show] : {};
  const places = [];
  searched(view).forEach((text, place) => {
    if (!wanted.every((word) => text.includes(word))) return;
    if (!keep || keep(right(runs, place), right(others, place))) places.push(place);
  });
  const { keys, two } = ORDERS[order];
  if (!keys || (two && !others)) return places;
  const trained = study.methods.filter((one) => !one.baseline).map((one) => runsOf(view, one));
  const compared = trained.length ? trained : [runs];
  const keyed = places.map((place) => ({ place, keys: keys(runs, place, compared, others) }));
  const compare = (a, b) => {
    for (let i = 0; i < a.keys.length; i += 1) if (a.keys[i] !== b.keys[i]) return a.keys[i] - b.keys[i];
    return a.place - b.place;
  };
  return keyed.sort(compare).map((one) => one.place);
};

// What one query found: the truth's rank in every run, and the first places of the chosen run.

const rankText = (rank) => rank.toLocaleString("en", { maximumFractionDigits: 1 });

const marginText = (margin) => {
  if (margin === 0) return "tied with its twin";
  const size = (Math.abs(margin) / study.marginSteps).toFixed(2);
  return margin > 0 ? `truth ahead of its twin by ${size} sd` : `twin ahead by ${size} sd`;
};

const seedsOf = (methods) => [...new Set(methods.flatMap((method) => method.seeds))].sort((a, b) => a - b);

const rankCell = (view, method, seed, place, here) => {
  const cell = element("td", { class: `number${here}` });
  if (!method.seeds.includes(seed)) return cell;
  const one = run(view, method.key, seed);
  cell.append(rankText(one.rank[place]));
  if ((confusedIn(one, place) ?? 0) > 0) {
    cell.append(element("span", { class: "twin", title: marginText(one.margin[place]) }, " ⇄"));
  }
  return cell;
};

const rankTable = (state, place) => {
  const seeds = seedsOf(study.methods);
  const body = study.methods.map((method) => {
    const here = method === state.method || method === state.other ? " here" : "";
    const cells = seeds.map((seed) => rankCell(state.view, method, seed, place, here));
    return element("tr", {}, element("th", { scope: "row", class: here.trim() }, method.label), ...cells);
  });
  const head = seeds.map((seed) => element("th", { scope: "col", class: "number" }, `seed ${seed}`));
  const gallery = state.view.gallery.toLocaleString("en");
  const twin = runsOf(state.view, study.methods[0])[0].margin[place] === study.noTwin ? "" : "; ⇄ its twin as high or higher";
  const table = element("table", {},
    element("caption", {}, `Rank of the truth among ${gallery}${twin}`),
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "method"), ...head)),
    element("tbody", {}, ...body));
  return element("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Rank of the truth" }, table);
};

const hit = (state, candidate, place, truth) => {
  const items = toItems(state.view);
  const item = items ? candidate : study.captions.item[candidate];
  const own = item === truth;
  const twin = study.items.twin[truth] === item;
  const mark = own ? "✓ truth" : twin ? "⇄ its twin" : "";
  const line = element("li", { class: own ? "is-truth" : twin ? "is-twin" : "" }, clip(item));
  const label = element("span", { class: `mark ${own ? "truth" : twin ? "twin" : ""}` }, `${place + 1}. ${mark}`);
  const link = element("a", { class: "name", href: study.items.clip[item], title: study.items.id[item] }, study.items.id[item]);
  const text = items ? null : element("span", {}, study.captions.text[candidate]);
  line.append(items ? element("div", {}, label, link) : element("div", {}, label, text, link));
  return line;
};

/** Which seed of a method is shown; `key` is its name in the state. */
const seedChoice = (state, method, key, redraw) => {
  const name = key === "seed" ? "seed" : "seed-b";
  const choices = method.seeds.map((seed) => {
    const input = element("input", { type: "radio", name, value: seed });
    input.checked = seed === state[key];
    input.addEventListener("change", () => { state[key] = seed; redraw(`input[name="${name}"][value="${seed}"]`); });
    return element("label", {}, input, element("span", {}, `seed ${seed}`));
  });
  const letter = state.other ? (key === "seed" ? "A, " : "B, ") : "";
  return element("fieldset", {}, element("legend", {}, `${letter}${method.label}: first places of`),
    element("div", { class: "choices" }, ...choices));
};

/** The first places of one run, with its seeds to choose from. */
const firstPlaces = (state, place, method, key, redraw) => {
  const { view } = state;
  const truth = itemOfQuery(view, queriesOf(view)[place]);
  const one = run(view, method.key, state[key]);
  const top = topOf(view, method.key, state[key]);
  const first = Array.from({ length: view.top }, (_, i) => top[place * view.top + i]);
  const hits = element("ol", { class: toItems(view) ? "hits" : "hits words" }, ...first.map((c, i) => hit(state, c, i, truth)));
  const all = element("button", { type: "button", "aria-pressed": "false" }, "Play all");
  all.hidden = study.kind === "images";
  all.addEventListener("click", () => {
    const on = all.getAttribute("aria-pressed") !== "true";
    all.setAttribute("aria-pressed", String(on));
    playAll(hits, on);
  });
  const margin = one.margin[place] === study.noTwin ? "" : `; ${marginText(one.margin[place])}`;
  return element("div", { class: "found" },
    element("div", { class: "controls" }, seedChoice(state, method, key, redraw), all),
    element("p", { class: "faint" }, `Rank ${rankText(one.rank[place])}${margin}. Equal scores are in the file's order.`), hits);
};

/** The address of what is shown, as a link and as a button. */
const linkLine = (state, place) => {
  const said = element("span", { class: "faint", role: "status" });
  const link = element("a", { href: linkTo(state, place) }, "Link to this query");
  return element("p", { class: "link" }, link, copier("Copy link", () => link.href, said), said);
};

let shown = 0;

/** Fill the region with a query, or say that none is chosen. */
const showDetail = unsettled(async (region, state, place, focus) => {
  shown += 1;
  const mine = shown;
  if (place === null) {
    region.replaceChildren(element("p", { class: "faint" }, "No query matches the filter."));
    return;
  }
  const { view, method, other } = state;
  if (!method.seeds.includes(state.seed)) [state.seed] = method.seeds;
  if (other && !other.seeds.includes(state.otherSeed)) [state.otherSeed] = other.seeds;
  const coming = [awaitedTop(view, method.key, state.seed), other && awaitedTop(view, other.key, state.otherSeed)];
  if (coming.some(Boolean)) {
    try {
      await Promise.all(coming);
    } catch (error) {
      region.replaceChildren(element("p", { class: "faint" }, error.message));
      return;
    }
    if (mine !== shown) return; // another query was chosen meanwhile
  }
  const query = queriesOf(view)[place];
  const truth = itemOfQuery(view, query);
  const redraw = (selector) => showDetail(region, state, place, selector);
  const asked = toItems(view) ? null : element("div", { class: "asked" }, clip(truth));
  const title = toItems(view) ? words(view, query) : `${study.items.id[truth]}: ${words(view, query)}`;
  const found = [firstPlaces(state, place, method, "seed", redraw)];
  if (other) found.push(firstPlaces(state, place, other, "otherSeed", redraw));
  region.replaceChildren(
    element("h3", {}, title), linkLine(state, place), ...(asked ? [asked] : []), rankTable(state, place),
    element("div", { class: other ? "both" : "" }, ...found),
  );
  if (focus) region.querySelector(focus)?.focus();
});

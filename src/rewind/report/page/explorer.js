// The explorer: its controls, its list, and what a chosen query found.

const at = (id) => document.getElementById(id);
const ONE = study.kind === "images" ? "image" : "video";
const NAMES = {
  origin: "Origin", hard: "Hard", binary: "Binary", test: "Test",
  text_to_item: `text → ${ONE}`, item_to_text: `${ONE} → text`,
};
const state = {
  view: study.views[0], method: study.methods[0], seed: study.methods[0].seeds[0], other: null, otherSeed: null, place: 0,
};

const choices = (box, name, values, changed) => {
  const first = values.includes("hard") ? "hard" : values[0];
  box.append(...values.map((value) => {
    const input = element("input", { type: "radio", name, value });
    input.checked = value === first;
    input.addEventListener("change", changed);
    return element("label", {}, input, element("span", {}, NAMES[value] ?? value));
  }));
};

const radio = (name, value) => document.querySelector(`#controls input[name="${name}"][value="${value}"]`);
const chosen = (name) => document.querySelector(`#controls input[name="${name}"]:checked`).value;
const methodOf = (id) => study.methods.find((method) => method.key === at(id).value) ?? null;

const ranksOf = (method, place) => {
  const runs = runsOf(state.view, method);
  const ranks = element("span", {}, runs.map((one) => rankText(one.rank[place])).join(" · "));
  if (runs.some((one) => (confusedIn(one, place) ?? 0) > 0)) ranks.append(element("span", { class: "twin" }, " ⇄ twin"));
  return ranks;
};

const draw = (place, row) => {
  const query = queriesOf(state.view)[place];
  const item = itemOfQuery(state.view, query);
  const ranks = element("span", { class: "ranks" });
  if (state.other) ranks.append("A ", ranksOf(state.method, place), element("span", { class: "b" }, "B "), ranksOf(state.other, place));
  else ranks.append(ranksOf(state.method, place));
  const text = words(state.view, query);
  const name = toItems(state.view) ? "" : `${study.items.id[item]}: `;
  row.append(element("span", { class: "words" }, name + text), ranks);
};

const region = at("detail");
const list = new QueryList(at("list"), at("rows"), draw, (place) => {
  state.place = place;
  showDetail(region, state, place);
});

let order = "file";
let turn = 0;

/** Controls that need a second method exist only with one. */
const offer = (other) => {
  at("show-field").hidden = !other;
  at("right-help").hidden = !other;
  for (const option of at("order").options) option.disabled = option.hidden = Boolean(ORDERS[option.value].two) && !other;
  if (other) return;
  at("show").value = "all";
  if (ORDERS[at("order").value].two) at("order").value = "file";
};

/** Choose the queries again; the selected one is kept where it is still listed and the order is the same. */
const update = unsettled(async (event, wanted) => {
  turn += 1;
  const mine = turn;
  const view = study.views.find((v) => v.setting === chosen("setting") && v.direction === chosen("direction"));
  const coming = awaitedRanks(view);
  if (coming) {
    at("count").textContent = "loading …";
    try {
      await coming;
    } catch (error) {
      at("count").textContent = error.message;
      return;
    }
    if (mine !== turn) return; // something else was chosen meanwhile
  }
  const asked = state.place === null ? null : queriesOf(state.view)[state.place];
  const before = state.view;
  state.view = view;
  [state.method, state.other] = [methodOf("method"), methodOf("other")];
  offer(state.other);
  const places = listed(state, at("order").value, at("filter").value, at("show").value);
  const queries = queriesOf(state.view);
  at("count").textContent = `${places.length.toLocaleString("en")} of ${queries.length.toLocaleString("en")} queries, ` +
    `${state.view.gallery.toLocaleString("en")} ${toItems(state.view) ? `${ONE}s` : "captions"} searched by each`;
  const same = at("order").value === order && asksByCaption(before) === asksByCaption(state.view);
  order = at("order").value;
  list.show(places, wanted ?? (same && asked !== null ? queries.indexOf(asked) : places[0]));
});

/** Show what the page's address asks for, if it asks for a query. */
const follow = unsettled(async () => {
  const wanted = linked();
  if (!wanted) return false;
  if (wanted.fault) {
    await update();
    at("count").textContent = wanted.fault;
  } else {
    radio("setting", wanted.view.setting).checked = true;
    radio("direction", wanted.view.direction).checked = true;
    [at("method").value, at("other").value] = [wanted.method.key, wanted.other?.key ?? ""];
    [at("filter").value, at("show").value] = ["", "all"];
    [state.seed, state.otherSeed] = [wanted.seed, wanted.otherSeed];
    await update(null, wanted.place);
  }
  at("explorer").scrollIntoView();
  return true;
});

const options = (values) => values.map(([value, label]) => element("option", { value }, label));
const methods = study.methods.map((method) => [method.key, method.label]);
at("method").append(...options(methods));
at("other").append(...options(methods));
if (study.begin) [at("method").value, at("other").value] = study.begin;
at("other").closest(".field").hidden = methods.length < 2;
if (!study.items.twin.some((twin) => twin >= 0)) delete ORDERS.twin;
at("order").append(...options(Object.entries(ORDERS).map(([key, { label }]) => [key, label])));
at("show").append(...options(Object.entries(SHOWN).map(([key, { label }]) => [key, label])));
choices(at("settings"), "setting", [...new Set(study.views.map((view) => view.setting))], update);
choices(at("directions"), "direction", [...new Set(study.views.map((view) => view.direction))], update);
for (const id of ["method", "other", "order", "show"]) at(id).addEventListener("change", update);
let waiting = 0;
let typed = null;
at("filter").addEventListener("input", () => {
  clearTimeout(waiting);
  typed ??= begin();
  waiting = setTimeout(async () => {
    const end = typed;
    typed = null;
    await update();
    end();
  }, 80);
});
at("controls").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", follow);
if (!(await follow())) await update();
started();

// A link to a folded part opens it, also where the address names the part already (a reader has folded it again).
const unfold = (part) => {
  const folded = part.length > 1 && document.getElementById(part.slice(1))?.querySelector(":scope > details");
  if (folded) folded.open = true;
};
document.addEventListener("click", (event) => unfold(event.target.closest('a[href^="#"]')?.hash ?? ""));
addEventListener("hashchange", () => unfold(location.hash));
unfold(location.hash);
// What is folded away on the screen is printed.
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach((one) => {
  one.open = true;
  addEventListener("afterprint", () => { one.open = false; }, { once: true });
}));

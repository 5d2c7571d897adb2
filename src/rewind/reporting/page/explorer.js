// The explorer: its controls, its list, and what a chosen query found.

const at = (id) => document.getElementById(id);
const ONE = study.kind === "images" ? "image" : "video";
const NAMES = {
  origin: "Origin", hard: "Hard", binary: "Binary", test: "Test",
  text_to_item: `text → ${ONE}`, item_to_text: `${ONE} → text`,
};
const state = { view: study.views[0], method: study.methods[0], seed: study.methods[0].seeds[0], place: 0 };

const choices = (box, name, values, changed) => {
  const first = values.includes("hard") ? "hard" : values[0];
  box.append(...values.map((value) => {
    const input = element("input", { type: "radio", name, value });
    input.checked = value === first;
    input.addEventListener("change", changed);
    return element("label", {}, input, element("span", {}, NAMES[value] ?? value));
  }));
};

const chosen = (name) => document.querySelector(`#controls input[name="${name}"]:checked`).value;

const draw = (place, row) => {
  const query = queriesOf(state.view)[place];
  const item = itemOfQuery(state.view, query);
  const runs = runsOf(state.view, state.method);
  const confused = runs.some((one) => (confusedIn(one, place) ?? 0) > 0);
  const ranks = element("span", { class: "ranks" }, runs.map((one) => rankText(one.rank[place])).join(" · "));
  if (confused) ranks.append(element("span", { class: "twin" }, " ⇄ twin"));
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

/** Choose the queries anew; the selected one is kept where it is still asked and the order is the same. */
const update = async () => {
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
  state.method = study.methods.find((method) => method.key === at("method").value);
  const places = listed(state.view, state.method, at("order").value, at("filter").value);
  const queries = queriesOf(state.view);
  at("count").textContent = `${places.length.toLocaleString("en")} of ${queries.length.toLocaleString("en")} queries, ` +
    `${state.view.gallery.toLocaleString("en")} ${toItems(state.view) ? `${ONE}s` : "captions"} searched by each`;
  const same = at("order").value === order && asksByCaption(before) === asksByCaption(state.view);
  order = at("order").value;
  list.show(places, same && asked !== null ? queries.indexOf(asked) : places[0]);
};

at("method").append(...study.methods.map((method) => element("option", { value: method.key }, method.label)));
if (!study.items.twin.some((twin) => twin >= 0)) delete ORDERS.twin;
at("order").append(...Object.entries(ORDERS).map(([key, { label }]) => element("option", { value: key }, label)));
choices(at("settings"), "setting", [...new Set(study.views.map((view) => view.setting))], update);
choices(at("directions"), "direction", [...new Set(study.views.map((view) => view.direction))], update);
for (const id of ["method", "order"]) at(id).addEventListener("change", update);
let waiting = 0;
at("filter").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(update, 80);
});
at("controls").addEventListener("submit", (event) => event.preventDefault());
update();

// What is folded away on the screen is printed.
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach((one) => {
  one.open = true;
  addEventListener("afterprint", () => { one.open = false; }, { once: true });
}));

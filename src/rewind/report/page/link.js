// The address of a query: what is after the # of the page's own.

/** What identifies a query in a link: its caption's id or its item's. */
const idOfQuery = (view, query) => (asksByCaption(view) ? study.captions.id[query] : study.items.id[query]);

/** `#query=…&setting=…&direction=…&a=…&seed=…`, and `&b=…` where two methods are side by side. */
const linkTo = (state, place) => {
  const { view, method, seed, other, otherSeed } = state;
  const found = new URLSearchParams({
    query: idOfQuery(view, queriesOf(view)[place]), setting: view.setting, direction: view.direction, a: method.key, seed,
  });
  if (other) {
    found.set("b", other.key);
    found.set("seedb", otherSeed);
  }
  return `#${found}`;
};

/** What a link asks for, or null where the address is not a link; `fault` says what this page does not have. */
const linked = () => {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (!asked.has("query")) return null;
  const find = (name) => study.methods.find((method) => method.key === asked.get(name));
  const seedIn = (method, name) => method?.seeds.find((seed) => String(seed) === asked.get(name)) ?? method?.seeds[0];
  const view = study.views.find((one) =>
    one.setting === (asked.get("setting") ?? one.setting) && one.direction === (asked.get("direction") ?? one.direction));
  const missing = (what) => ({ fault: `The link asks for ${what}, which this page does not have.` });
  if (!view) return missing(`${asked.get("setting") ?? ""} ${asked.get("direction") ?? ""}`.trim());
  for (const name of ["a", "b"]) if (asked.has(name) && !find(name)) return missing(`method ${asked.get(name)}`);
  const method = find("a") ?? study.methods[0];
  const other = find("b") ?? null;
  const place = queriesOf(view).findIndex((query) => idOfQuery(view, query) === asked.get("query"));
  if (place < 0) return missing(`query ${asked.get("query")}`);
  return { view, method, other, place, seed: seedIn(method, "seed"), otherSeed: seedIn(other, "seedb") };
};

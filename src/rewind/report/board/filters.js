// Filters of the board: data set, setting and direction hide columns; kind and text hide rows, and so do columns without
// anything left to show. What is chosen is in the address, so that a filtered board can be linked.

const methods = document.getElementById("methods");
const filters = [...document.querySelectorAll("[data-filter]")];
const headings = [...methods.tHead.rows[0].cells];
const bodyRows = [...methods.tBodies[0].rows];

const apply = () => {
  const chosen = Object.fromEntries(filters.map((one) => [one.dataset.filter, one.value]));
  const shown = headings.map(({ dataset }) => ["data_set", "setting", "direction"].every(
    (key) => dataset[key] === undefined || !chosen[key] || dataset[key] === chosen[key],
  ));
  headings.forEach((head, at) => { head.hidden = !shown[at]; });
  const words = chosen.text.toLowerCase().split(/\s+/).filter(Boolean);
  const named = (text) => words.every((word) => text.toLowerCase().includes(word));
  for (const row of document.getElementById("compared").tBodies[0].rows) {
    row.hidden = ["data_set", "kind"].some((key) => chosen[key] && row.dataset[key] !== chosen[key]) || !named(row.cells[1].textContent);
  }
  let count = 0;
  for (const row of bodyRows) {
    const cells = [...row.cells];
    cells.forEach((cell, at) => { cell.hidden = !shown[at]; });
    const numbers = cells.some((cell, at) => headings[at].dataset.setting !== undefined && shown[at] && cell.textContent);
    row.hidden = !numbers || (chosen.kind && row.dataset.kind !== chosen.kind) || !named(`${cells[0].textContent} ${cells[1].textContent}`);
    count += row.hidden ? 0 : 1;
  }
  document.getElementById("shown").textContent = `${count} of ${bodyRows.length} methods`;
  const kept = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
  try {
    history.replaceState(null, "", kept ? `#?${kept}` : location.hash.startsWith("#?") ? "#board" : location.href);
  } catch { /* a browser may refuse it to a page from a disk; the filters work all the same */ }
};

if (location.hash.startsWith("#?")) {
  const given = new URLSearchParams(location.hash.slice(2));
  for (const one of filters) {
    const value = given.get(one.dataset.filter) ?? "";
    if (one.tagName === "INPUT" || [...one.options].some((option) => option.value === value)) one.value = value;
  }
}
for (const one of filters) one.addEventListener("input", apply);
document.querySelector(".filters").hidden = false;
apply();

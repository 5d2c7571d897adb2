// Tables: sorted by their headings, and copied in the markups that the workflow wrote.

const BLANK = /[\u2007\u00a0]/g;

/** What a cell is sorted by: a number, a text, or null where it holds nothing. */
const keyOf = (cell, number) => {
  if (!number) return cell.childNodes[0]?.textContent.trim() || null; // without raised letters
  const text = cell.textContent.replace(BLANK, "").replaceAll("−", "-").replaceAll(",", "");
  const found = text.match(/[-+]?\d+(\.\d+)?(e[-+]?\d+)?/i);
  if (!found) return null;
  const nudge = text.includes("<") ? -1e-9 : text.includes(">") ? 1e-9 : 0;
  return Number(found[0]) + nudge;
};

/** Rows in order of a column; what is missing comes last either way, and equal rows stay as they were. */
const inOrder = (rows, column, number, sign) => {
  const keyed = rows.map((row) => ({ row, key: keyOf(row.cells[column], number) }));
  const compare = (a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
    return sign * (number ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true }));
  };
  return keyed.sort(compare).map(({ row }) => row);
};

/** Make the headings of a table buttons: best first, worst first, the file's order again. */
const sortable = (table) => {
  const heads = [...(table.tHead?.rows[table.tHead.rows.length - 1]?.cells ?? [])];
  const bodies = [...table.tBodies].map((body) => ({
    body, rows: [...body.rows].filter((row) => row.cells.length === heads.length),
  }));
  if (bodies.every(({ rows }) => rows.length < 2)) return;
  const press = (head, column) => {
    const number = head.classList.contains("number");
    const down = number && head.querySelector(".arrow")?.textContent !== "↓"; // larger values first
    const turns = down ? ["descending", "ascending", null] : ["ascending", "descending", null];
    const turn = turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
    heads.forEach((one) => one.removeAttribute("aria-sort"));
    if (turn) head.setAttribute("aria-sort", turn);
    for (const { body, rows } of bodies) {
      body.append(...(turn ? inOrder(rows, column, number, turn === "ascending" ? 1 : -1) : rows));
    }
  };
  heads.forEach((head, column) => {
    const button = element("button", { type: "button", class: "sort", title: "Sort by this column" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => press(head, column));
  });
};

/** Put a text on the clipboard; false where the browser refuses. */
const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // a page from a disk may be refused; the older way needs no permission
    const field = element("textarea", { class: "off", "aria-hidden": "true" });
    field.value = text;
    const before = document.activeElement;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    before?.focus();
    return done;
  }
};

/** A button that copies what `text` gives when it is pressed, and says so in `said`. */
const copier = (name, text, said, label = name) => {
  const button = element("button", { type: "button", class: "small", "aria-label": label }, name);
  button.addEventListener("click", unsettled(async () => {
    const done = await copyText(text());
    said.textContent = done ? "copied" : "the browser does not let this page copy";
    setTimeout(() => { said.textContent = ""; }, 4000);
  }));
  return button;
};

/** The bar above a table: a button for each markup. */
const bar = (table, files) => {
  const said = element("span", { class: "faint", role: "status" });
  const title = table.caption?.textContent ?? "the table";
  const buttons = Object.entries(files).map(([name, text]) => copier(name, () => text, said, `Copy as ${name}: ${title}`));
  return element("div", { class: "copies" }, element("span", { class: "faint" }, "Copy as"), ...buttons, said);
};

const copies = await read("table-copies");
for (const table of document.querySelectorAll("main table")) {
  sortable(table);
  const files = copies[table.dataset.copies];
  if (files && Object.keys(files).length) table.closest(".wide").before(bar(table, files));
}

// A listbox that holds only the rows in sight.

const ROW = 64;
const BEYOND = 6;

class QueryList {
  /** `draw(place, row)` fills a row; `choose(place)` is told what is selected. */
  constructor(box, rows, draw, choose) {
    Object.assign(this, { box, rows, draw, choose, places: [], at: 0 });
    box.addEventListener("scroll", () => this.render());
    box.addEventListener("keydown", (event) => this.key(event));
    rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.select(Number(row.dataset.at));
    });
    new ResizeObserver(() => this.render()).observe(box);
  }

  show(places, keep) {
    this.places = places;
    this.rows.style.height = `${places.length * ROW}px`;
    this.drawn = null;
    const found = places.indexOf(keep);
    this.select(Math.max(0, found), true);
  }

  select(at, jump = false) {
    this.at = Math.min(Math.max(at, 0), Math.max(this.places.length - 1, 0));
    const top = this.at * ROW;
    const { scrollTop, clientHeight } = this.box;
    if (jump || top < scrollTop) this.box.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.box.scrollTop = top + ROW - clientHeight;
    this.drawn = null;
    this.render();
    this.choose(this.places.length ? this.places[this.at] : null);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const last = this.places.length - 1;
    this.select(Math.min(Math.max(this.at + steps[event.key], 0), last));
  }

  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - BEYOND);
    const last = Math.min(this.places.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + BEYOND);
    if (this.drawn === `${first} ${last}`) return;
    this.drawn = `${first} ${last}`;
    // The selected row stays, so that a screen reader's focus does.
    const shown = new Set(Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i));
    if (this.places.length) shown.add(this.at);
    this.rows.replaceChildren(...[...shown].sort((a, b) => a - b).map((at) => this.row(at)));
    if (this.places.length) this.box.setAttribute("aria-activedescendant", `row-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(at) {
    const row = element("div", {
      id: `row-${at}`, class: "row", role: "option", "data-at": at, style: `top: ${at * ROW}px`,
      "aria-selected": String(at === this.at), "aria-posinset": at + 1, "aria-setsize": this.places.length,
    });
    this.draw(this.places[at], row);
    return row;
  }
}

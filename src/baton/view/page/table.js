// A table that sorts by its heads, shows as many rows as fit a page, and says how many there are. Cells are text.

import { h, replace } from "./dom.js";
import { number } from "./text.js";

const PAGE = 200;

// columns: {name, title, of(row) -> sortable value or null, cell(row) -> text or element, numeric}
export class Table {
  constructor(host, columns, { press, empty = "Nothing here.", sort = null } = {}) {
    this.host = host;
    this.columns = columns;
    this.press = press;
    this.empty = empty;
    this.sort = sort; // [name, 1 or -1]
    this.shown = PAGE;
    this.rows = [];
  }

  set(rows) {
    this.rows = rows;
    this.draw();
  }

  order(name) {
    const column = this.columns.find((one) => one.name === name);
    const same = this.sort && this.sort[0] === name;
    this.sort = [name, same ? -this.sort[1] : column.numeric ? -1 : 1];
    this.draw();
  }

  sorted() {
    if (!this.sort) return this.rows;
    const [name, way] = this.sort;
    const { of } = this.columns.find((one) => one.name === name);
    // What was not measured goes last whichever way the rest goes.
    return [...this.rows].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
      if (y === null || y === undefined) return -1;
      return (x < y ? -1 : x > y ? 1 : 0) * way;
    });
  }

  draw() {
    const heads = this.columns.map((column) => {
      const way = this.sort?.[0] === column.name ? (this.sort[1] > 0 ? "ascending" : "descending") : "none";
      const sign = way === "ascending" ? " ▴" : way === "descending" ? " ▾" : "";
      return h("th", { scope: "col", "aria-sort": way, class: column.numeric ? "num" : "" }, h("button", { class: "plain", on: { click: () => this.order(column.name) } }, (column.title ?? column.name) + sign));
    });
    const rows = this.sorted();
    const body = rows.slice(0, this.shown).map((row) => {
      const cells = this.columns.map((column) => {
        const cell = column.cell(row);
        const none = column.of(row) === null || column.of(row) === undefined;
        return h("td", { class: `${column.numeric ? "num" : ""}${none ? " none" : ""}` }, cell);
      });
      const line = h("tr", this.press ? { tabindex: 0, class: "press", on: { click: (event) => event.target.closest("button,input,a") || this.press(row), keydown: (event) => event.key === "Enter" && this.press(row) } } : {}, cells);
      return line;
    });
    const more = rows.length > this.shown ? h("button", { on: { click: () => { this.shown += PAGE * 5; this.draw(); } } }, `show more (${number(rows.length - this.shown)} left)`) : null;
    replace(this.host, rows.length ? h("div", { class: "wide" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body))) : h("p", { class: "hint" }, this.empty), more);
  }
}

// Rows without end: of however many there are, only those on the screen exist, each laid out by itself. A grid with
// roving focus, for keys and readers: one row is a stop of Tab, with what can be pressed in it.

import { h, replace } from "./dom.js";
import { Rows } from "./grid_rows.js";

const BLOCK = 60;
const MOST_PX = 25e6; // browsers lay out no taller element
const KEPT = 40; // blocks
const AHEAD = 3; // blocks that are asked for before they are scrolled to, and one behind
const AROUND = 4; // rows above and below the screen
const AGAIN_MS = 30_000; // "3 min ago" does not stay true
const INSIDE = "a, button, input";

export class Grid {
  // load(from, rows) -> {rows, total}; columns: {name, title, cell(row), numeric, sorts, width, mark(row)}; told(what load gave), if still wanted
  constructor(host, { label, load, told = () => {}, press, order, tick, moved, empty = "Nothing here.", rowHeight = 30 }) {
    Object.assign(this, { load, told, press, order, tick, moved, empty, rowHeight, label });
    this.columns = [];
    this.sort = "";
    this.total = 0;
    this.active = 0;
    this.blocks = new Map();
    this.stale = new Map();
    this.turn = 0;
    this.head = h("thead", { role: "rowgroup" });
    this.body = h("tbody", { role: "rowgroup", on: { keydown: (event) => this.key(event), click: (event) => this.pressed(event), focusin: (event) => this.entered(event) } });
    this.rows = new Rows(this.body, rowHeight);
    this.table = h("table", { class: "list grid", role: "grid", "aria-label": label }, this.head, this.body);
    this.box = h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: -1, on: { scroll: () => this.scrolled() } }, this.table);
    replace(host, this.box);
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.box);
    this.timer = setInterval(() => this.draw(true), AGAIN_MS);
  }

  destroy() {
    this.sized.disconnect();
    clearTimeout(this.later);
    clearInterval(this.timer);
  }

  // Other rows than before; those on the screen stay until the new ones are there.
  async reset({ columns = this.columns, sort = this.sort, at = null } = {}) {
    this.columns = columns;
    this.sort = sort;
    this.turn++;
    this.stale = new Map([...this.stale, ...this.blocks]);
    this.blocks = new Map();
    this.drawHead();
    if (at !== null) this.start = at;
    const from = this.start ?? this.first();
    await this.fetch(Math.floor(from / BLOCK));
  }

  // A head stays where nothing about it is new: who leaves a field for it presses it while other rows are asked for.
  drawHead() {
    const now = JSON.stringify([this.sort, this.columns.map((column) => column.name)]);
    if (now === this.headed) return;
    this.headed = now;
    const heads = this.columns.map((column) => {
      const falling = this.sort === `-${column.name}`;
      const way = falling ? "descending" : this.sort === column.name ? "ascending" : "none";
      const sign = way === "none" ? "" : falling ? " ▾" : " ▴";
      const title = column.title ?? column.name;
      const press = column.sorts === false ? h("span", { class: title ? "" : "unseen" }, title || column.name) : h("button", { class: "plain", on: { click: () => this.order(column, way) } }, title + sign);
      return h("th", { scope: "col", role: "columnheader", "aria-sort": column.sorts === false ? null : way, class: column.numeric ? "num" : column.kind ?? "" }, press);
    });
    const widths = this.columns.map(({ width, numeric }) => `minmax(${width}px, ${numeric ? width : 2 * width}fr)`);
    this.table.style.setProperty("--columns", widths.join(" "));
    this.table.style.minWidth = `${this.columns.reduce((sum, { width }) => sum + width, 0)}px`;
    replace(this.head, h("tr", { role: "row", "aria-rowindex": 1 }, heads));
    this.table.setAttribute("aria-colcount", String(this.columns.length));
    this.rows.forget();
  }

  height() {
    return Math.min(MOST_PX, this.total * this.rowHeight);
  }

  whole() {
    return this.total * this.rowHeight <= MOST_PX;
  }

  visible() {
    return Math.ceil(this.box.clientHeight / this.rowHeight) + 1;
  }

  first() {
    if (this.whole()) return Math.max(0, Math.floor(this.box.scrollTop / this.rowHeight));
    const share = this.box.scrollTop / Math.max(1, this.height() - this.box.clientHeight);
    return Math.max(0, Math.min(this.total - 1, Math.round(share * (this.total - this.visible() + 2))));
  }

  row(at) {
    const block = Math.floor(at / BLOCK);
    return this.blocks.get(block)?.[at % BLOCK] ?? this.stale.get(block)?.[at % BLOCK] ?? null;
  }

  async fetch(block) {
    const turn = this.turn;
    this.waiting ??= new Set();
    const name = `${turn} ${block}`;
    if (this.waiting.has(name)) return;
    this.waiting.add(name);
    try {
      const found = await this.load(block * BLOCK, BLOCK).catch((error) => {
        this.failed = turn; // whoever asked for other rows is told why
        throw error;
      });
      if (turn !== this.turn) return;
      this.blocks.set(block, found.rows);
      this.stale.delete(block);
      if (this.blocks.size > KEPT) this.blocks.delete(this.blocks.keys().next().value);
      const same = this.total === found.total && this.start === undefined;
      this.total = found.total;
      this.told(found);
      if (same && !this.seen().includes(block)) return;
    } finally {
      this.waiting.delete(name);
    }
    this.draw();
    const seen = this.seen();
    for (const old of [...this.stale.keys()]) if (!seen.includes(old)) this.stale.delete(old); // rows of another order
  }

  // The blocks that are on the screen.
  seen() {
    const first = Math.min(this.first(), Math.max(0, this.total - 1));
    const blocks = [];
    for (let block = Math.floor(first / BLOCK); block * BLOCK < Math.min(this.total, first + this.visible()); block++) blocks.push(block);
    return blocks;
  }

  // Ask for what is on the screen, then for what comes next in the direction of scrolling.
  fill() {
    if (this.failed === this.turn) return;
    const seen = this.seen();
    if (!seen.length) return;
    const way = seen[0] < (this.before ?? 0) ? -1 : seen[0] > this.before ? 1 : (this.way ?? 1);
    Object.assign(this, { before: seen[0], way });
    const there = (block) => this.blocks.has(block) || block < 0 || block * BLOCK >= this.total;
    const ask = (block) => there(block) || this.fetch(block).catch(() => {});
    seen.forEach(ask);
    if (!seen.every(there)) return; // what is looked at first
    const edge = way > 0 ? seen.at(-1) : seen[0];
    for (let step = 1; step <= AHEAD; step++) ask(edge + way * step);
    ask((way > 0 ? seen[0] : seen.at(-1)) - way);
  }

  scrolled() {
    this.start = undefined;
    const first = this.first();
    if (first !== this.drawn || !this.whole()) this.draw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.moved(this.first()), 250);
  }

  // anew: also rows of which nothing is new may say something else
  draw(anew = false) {
    this.drawTotal();
    if (this.start !== undefined && this.total && this.box.clientHeight) {
      const start = this.start;
      this.to(start);
      if (this.box.scrollTop > 0 || start === 0) this.start = undefined;
    }
    const first = Math.min(this.first(), Math.max(0, this.total - 1));
    const from = Math.max(0, first - AROUND);
    const to = Math.min(this.total, first + this.visible() + AROUND);
    this.drawn = first;
    const held = this.body.contains(document.activeElement) && this.active < this.total ? this.active : null; // focus stays where it is put
    const stop = held ?? (this.active >= first && this.active < to ? this.active : first);
    const top = this.whole() ? 0 : Math.min(this.box.scrollTop, this.height() - (to - first) * this.rowHeight) - first * this.rowHeight;
    this.rows.show({ from, to, held, stop, top, columns: this.columns, row: (at) => this.row(at), anew });
    this.fill();
  }

  drawTotal() {
    const nothing = !this.total && this.blocks.size > 0;
    if (this.counted === `${this.total} ${nothing}`) return;
    this.counted = `${this.total} ${nothing}`;
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    this.body.style.height = this.total ? `${this.height()}px` : "";
    this.body.querySelector(".nothing")?.remove();
    if (nothing) this.body.append(h("tr", { class: "nothing", role: "row" }, h("td", { role: "gridcell" }, this.empty)));
  }

  pressed(event) {
    const at = Number(event.target.closest("tr[data-at]")?.dataset.at ?? Number.NaN);
    if (Number.isNaN(at) || event.target.closest("button,input,a,label") || this.row(at) === null) return;
    this.active = at;
    this.press(this.row(at), at);
  }

  entered(event) {
    const line = event.target.closest("tr[data-at]");
    if (!line || Number(line.dataset.at) === this.active) return;
    this.active = Number(line.dataset.at);
    this.rows.stop(this.active);
  }

  to(at) {
    this.box.scrollTop = this.whole() ? at * this.rowHeight : (at / Math.max(1, this.total - this.visible() + 2)) * (this.height() + this.head.offsetHeight - this.box.clientHeight);
  }

  // Focus goes to the active row, which is brought onto the screen.
  focus() {
    this.active = Math.max(0, Math.min(this.total - 1, this.active));
    const first = this.first();
    const page = Math.max(1, Math.floor((this.box.clientHeight - this.head.offsetHeight) / this.rowHeight));
    if (this.active < first) this.to(this.active);
    else if (this.active >= first + page) this.to(Math.max(0, this.active - page + 1));
    this.draw();
    this.body.querySelector(`[data-at="${this.active}"]`)?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox])")) return;
    const page = Math.max(1, this.visible() - 3);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const line = event.target.closest("tr");
    if (event.key in steps) this.active = Math.max(0, Math.min(this.total - 1, this.active + steps[event.key]));
    else if (event.key === "Enter" && event.target.matches("tr")) this.press(this.row(this.active), this.active);
    else if (event.key === " " && event.target.matches("tr") && this.tick) this.tick(this.row(this.active));
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") along(line, event.key === "ArrowRight" ? 1 : -1);
    else if (event.key === "Escape" && !event.target.matches("tr")) line.focus({ preventScroll: true });
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key in steps) this.focus();
  }
}

// From what can be pressed in a row to the next of it; before the first is the row itself.
function along(line, way) {
  const there = [line, ...line.querySelectorAll(INSIDE)];
  const at = there.indexOf(document.activeElement) + way;
  there[Math.max(0, Math.min(there.length - 1, at))].focus({ preventScroll: true });
}

// Rows without end: of however many there are, only those on the screen exist. A grid with roving focus, for keys and readers.

import { h, replace } from "./dom.js";

const BLOCK = 60;
const MOST_PX = 25e6; // browsers lay out no taller element
const KEPT = 40; // blocks
const AHEAD = 3; // blocks that are asked for before they are scrolled to, and one behind

export class Grid {
  // load(from, rows) -> {rows, total}; columns: {name, title, cell(row), numeric, sorts}; told(what load gave), if still wanted
  constructor(host, { label, load, told = () => {}, press, order, tick, moved, empty = "Nothing here.", rowHeight = 30 }) {
    Object.assign(this, { load, told, press, order, tick, moved, empty, rowHeight, label });
    this.columns = [];
    this.sort = "";
    this.total = 0;
    this.active = 0;
    this.blocks = new Map();
    this.stale = new Map();
    this.turn = 0;
    this.head = h("thead", {});
    this.body = h("tbody", { on: { keydown: (event) => this.key(event) } });
    this.above = h("tr", { class: "spacer", "aria-hidden": "true" });
    this.below = h("tr", { class: "spacer", "aria-hidden": "true" });
    this.table = h("table", { class: "list grid", role: "grid", "aria-label": label }, this.head, this.body);
    this.box = h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: -1, on: { scroll: () => this.scrolled() } }, this.table);
    replace(host, this.box);
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.box);
  }

  destroy() {
    this.sized.disconnect();
    clearTimeout(this.later);
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
      const press = column.sorts === false ? h("span", {}, title) : h("button", { class: "plain", on: { click: () => this.order(column, way) } }, title + sign);
      return h("th", { scope: "col", role: "columnheader", "aria-sort": column.sorts === false ? null : way, class: column.numeric ? "num" : column.kind ?? "" }, press);
    });
    replace(this.head, h("tr", { role: "row", "aria-rowindex": 1 }, heads));
  }

  height() {
    return Math.min(MOST_PX, this.total * this.rowHeight);
  }

  visible() {
    return Math.ceil(this.box.clientHeight / this.rowHeight) + 1;
  }

  first() {
    const whole = this.total * this.rowHeight;
    if (whole <= MOST_PX) return Math.max(0, Math.floor(this.box.scrollTop / this.rowHeight));
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
    this.draw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.moved(this.first()), 250);
  }

  draw() {
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    this.table.setAttribute("aria-colcount", String(this.columns.length));
    if (this.start !== undefined && this.total && this.box.clientHeight) {
      const start = this.start;
      this.span(0, 0);
      this.to(start);
      if (this.box.scrollTop > 0 || start === 0) this.start = undefined;
    }
    const first = Math.min(this.first(), Math.max(0, this.total - 1));
    const last = Math.min(this.total, first + this.visible());
    const rows = [];
    for (let at = first; at < last; at++) rows.push(this.line(at));
    if (!this.total && this.blocks.size) rows.push(h("tr", { class: "nothing", role: "row" }, h("td", { role: "gridcell", colspan: this.columns.length }, this.empty)));
    const focused = this.body.contains(document.activeElement) && !document.activeElement.matches("input, button, a");
    const whole = this.total * this.rowHeight <= MOST_PX;
    const top = whole ? first * this.rowHeight : Math.min(this.box.scrollTop, this.height() - rows.length * this.rowHeight);
    this.top = top;
    this.drawing = true;
    replace(this.body, this.above, rows, this.below);
    this.drawing = false;
    this.span(top, Math.max(0, this.height() - top - rows.length * this.rowHeight));
    if (focused) this.focus(false);
    this.fill();
    this.box.dataset.rows = String(this.total);
  }

  span(top, bottom) {
    const cell = (px) => h("td", { colspan: Math.max(1, this.columns.length), style: { height: `${px}px` } });
    replace(this.above, cell(top));
    replace(this.below, cell(bottom));
  }

  line(at) {
    const row = this.row(at);
    const cells = this.columns.map((column) => {
      const cell = row === null ? "…" : column.cell(row);
      const none = row !== null && (cell === null || cell === "");
      return h("td", { role: "gridcell", class: `${column.numeric ? "num" : column.kind ?? ""}${none ? " none" : ""}` }, none ? column.missing ?? "" : cell);
    });
    return h("tr", {
      role: "row", class: "press", tabindex: at === this.active ? 0 : -1, "aria-rowindex": at + 2, "data-at": at, style: { height: `${this.rowHeight}px` },
      on: {
        click: (event) => {
          if (row === null || event.target.closest("button,input,a,label")) return;
          this.active = at;
          this.press(row, at);
        },
        focus: () => {
          if (!this.drawing) this.active = at; // a browser may move focus when what has it is taken away
        },
      },
    }, cells);
  }

  to(at) {
    const whole = this.total * this.rowHeight;
    const head = this.head.offsetHeight;
    if (!this.above.isConnected) replace(this.body, this.above, this.below);
    this.span(0, this.height());
    this.box.scrollTop = whole <= MOST_PX ? at * this.rowHeight : (at / Math.max(1, this.total - this.visible() + 2)) * (this.height() + head - this.box.clientHeight);
  }

  // Focus goes to the active row, which is brought onto the screen.
  focus(scroll = true) {
    if (scroll) {
      const first = this.first();
      const page = Math.max(1, Math.floor((this.box.clientHeight - this.head.offsetHeight) / this.rowHeight));
      if (this.active < first) this.to(this.active);
      else if (this.active >= first + page) this.to(Math.max(0, this.active - page + 1));
      this.draw();
    }
    this.body.querySelector(`[data-at="${this.active}"]`)?.focus({ preventScroll: true });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox])")) return;
    const page = Math.max(1, this.visible() - 3);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) this.active = Math.max(0, Math.min(this.total - 1, this.active + steps[event.key]));
    else if (event.key === "Enter" && event.target.matches("tr")) this.press(this.row(this.active), this.active);
    else if (event.key === " " && event.target.matches("tr") && this.tick) this.tick(this.row(this.active));
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key in steps) this.focus();
  }
}

// The rows of a grid that exist. Each lies at its place by itself, so that scrolling makes those that come and takes
// those that go, and touches no other; a row is made anew only where what it says is another.

import { h, replace } from "./dom.js";

const INSIDE = "a, button, input";

export class Rows {
  constructor(body, rowHeight) {
    Object.assign(this, { body, rowHeight });
    this.there = new Map(); // number -> {line, row, said}
  }

  // Other columns: all of them are made anew.
  forget() {
    for (const one of this.there.values()) one.said = null;
  }

  // from, to: which exist; held: one more, which has the focus; stop: the one that Tab stops at; top: of number 0, in pixels
  show({ from, to, held, stop, top, columns, row, anew }) {
    for (const [at, { line }] of this.there) {
      if ((at >= from && at < to) || at === held) continue;
      line.remove();
      this.there.delete(at);
    }
    let before = null;
    for (const at of numbers(from, to, held)) {
      const one = this.there.get(at) ?? this.made(at);
      this.say(one, at, columns, row(at), anew);
      const y = `${top + at * this.rowHeight}px`;
      if (one.y !== y) one.line.style.top = one.y = y;
      if (!one.line.parentNode) this.body.insertBefore(one.line, before ? before.nextSibling : this.body.firstChild);
      before = one.line;
    }
    this.stop(stop);
  }

  made(at) {
    const line = h("tr", { role: "row", class: "press", tabindex: -1, "aria-rowindex": at + 2, "data-at": at });
    const one = { line, row: undefined, said: null };
    this.there.set(at, one);
    return one;
  }

  say(one, at, columns, row, anew) {
    const marks = columns.map((column) => (row !== null && column.mark ? column.mark(row) : null));
    if (!anew && one.said !== null && one.row === row && marks.every((mark, k) => mark === one.marks[k])) return;
    const said = row === null ? "" : `${JSON.stringify(row)}${marks}`;
    const same = !anew && said === one.said;
    Object.assign(one, { row, said, marks });
    if (!same) replace(one.line, columns.map((column) => cell(column, row)));
    if (!same && at !== this.at) still(one.line, -1);
  }

  // One row is a stop of Tab, with what can be pressed in it; the others are reached by arrows.
  stop(at) {
    if (at !== this.at && this.there.has(this.at)) {
      this.there.get(this.at).line.tabIndex = -1;
      still(this.there.get(this.at).line, -1);
    }
    this.at = at;
    const line = this.there.get(at)?.line;
    if (!line || line.tabIndex === 0) return;
    line.tabIndex = 0;
    still(line, 0);
  }
}

function* numbers(from, to, held) {
  if (held !== null && held < from) yield held;
  for (let at = from; at < to; at++) yield at;
  if (held !== null && held >= to) yield held;
}

function still(line, tabIndex) {
  for (const each of line.querySelectorAll(INSIDE)) each.tabIndex = tabIndex;
}

function cell(column, row) {
  const shown = row === null ? "…" : column.cell(row);
  const none = row !== null && (shown === null || shown === "");
  return h("td", { role: "gridcell", class: `${column.numeric ? "num" : column.kind ?? ""}${none ? " none" : ""}` }, none ? column.missing ?? "" : shown);
}

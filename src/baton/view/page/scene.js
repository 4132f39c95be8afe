// What is being looked at and how, shared by all views of a trace. A view listens; whoever changes it says what.

import { makeAxis } from "./axis.js";
import { makeColouring } from "./colouring.js";
import { makeRows } from "./rows.js";

export class Scene {
  constructor(model, given = {}) {
    this.model = model;
    this.selected = null;
    this.hovered = null;
    this.cursor = null; // how many events have begun, while the scrubber is in use; null: all of them
    this.axisKind = model.timed ? "time" : "sequence";
    this.compress = false;
    this.showCritical = false;
    this.arrows = "auto";
    this.byRole = false;
    this.collapsed = new Set();
    this.openRoles = new Set();
    this.colourBy = "type";
    this.ledger = null;
    this.taint = null;
    this.found = null; // Set of events that fit the search; null: nobody searches
    this.marks = null; // in a diff: what became of each event
    Object.assign(this, given);
    this.listeners = new Set();
    this.derive();
  }

  on(run) {
    this.listeners.add(run);
    return () => this.listeners.delete(run);
  }

  set(changes) {
    Object.assign(this, changes);
    const names = new Set(Object.keys(changes));
    if (["model", "axisKind", "compress", "byRole", "collapsed", "openRoles", "colourBy", "ledger"].some((name) => names.has(name))) this.derive();
    for (const run of [...this.listeners]) run(names);
  }

  derive() {
    this.axis = makeAxis(this.model, this.axisKind, this.compress);
    this.colouring = makeColouring(this.model, this.colourBy, this.ledger);
    const { rows, rowOf } = makeRows(this.model, this);
    for (const row of rows) {
      if (row.lanes.length > 1) row.events.sort((a, b) => this.axis.start[a] - this.axis.start[b]);
      layers(row, this.model, this.axis);
      row.longest = row.events.reduce((most, i) => Math.max(most, this.axis.end[i] - this.axis.start[i]), 0);
    }
    this.rows = rows;
    this.rowOf = rowOf;
  }

  // Whether the scrubber has not come to this event yet.
  isLater(i) {
    return this.cursor !== null && i >= this.cursor;
  }

  toggleRow(row) {
    if (row.kind === "role") {
      const open = new Set(this.openRoles);
      if (!open.delete(row.key)) open.add(row.key);
      this.set({ openRoles: open });
    } else {
      const collapsed = new Set(this.collapsed);
      if (!collapsed.delete(row.key)) collapsed.add(row.key);
      this.set({ collapsed });
    }
  }
}

const MOST_LAYERS = 4;

// What one agent did at the same time is drawn one above the other, where that is few things.
function layers(row, model, axis) {
  row.layer = null;
  if (row.lanes.length !== 1 || axis.kind !== "time") return;
  const busy = [];
  const found = new Map();
  for (const i of row.events) {
    if (!(model.duration[i] > 0)) continue;
    let at = busy.findIndex((until) => until <= axis.start[i] + 1e-9);
    if (at < 0) at = busy.push(0) - 1;
    busy[at] = axis.end[i];
    found.set(i, at);
  }
  if (busy.length < 2) return;
  row.layer = found;
  row.layers = Math.min(MOST_LAYERS, busy.length);
  // Alone at its time, a bar keeps the whole row.
  const ends = row.events.filter((i) => found.has(i));
  row.shares = new Set();
  for (let k = 0; k + 1 < ends.length; k++) {
    for (let m = k + 1; m < ends.length && axis.start[ends[m]] < axis.end[ends[k]] - 1e-9; m++) row.shares.add(ends[k]).add(ends[m]);
  }
}

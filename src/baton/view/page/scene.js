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

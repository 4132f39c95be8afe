// Swim-lanes: a row for each agent, its events from left to right, arrows between agents. Only what is on the screen is drawn.

import { say, tip } from "./dom.js";
import { drawLanes, layout } from "./lanes_draw.js";
import { Surface, gestures } from "./surface.js";
import { NOT_MEASURED, number, seconds, visible } from "./text.js";

const TALLEST = 40;
const CLOSEST_PIXELS = 60000; // of the whole trace, times its width on the screen

// As tall as there is room for, and never too low to read.
function comfortable(rows, height) {
  const least = rows > 150 ? 15 : rows > 40 ? 20 : 26;
  return Math.max(least, Math.min(TALLEST, Math.floor((height - 40) / Math.max(1, rows))));
}

export class Lanes {
  constructor(host, scene, { label = "Swim-lanes", choose = (i) => scene.set({ selected: i }) } = {}) {
    this.scene = scene;
    this.choose = choose;
    this.view = { from: 0, zoom: 1, top: 0, rowHeight: comfortable(scene.rows.length, host.clientHeight) };
    this.surface = new Surface(host, `${label}. Arrow keys move between events, plus and minus zoom.`, (ctx, width, height) => {
      this.clamp();
      const first = !this.drawn;
      this.drawn = drawLanes(ctx, width, height, this.scene, this.view);
      if (first) performance.mark("baton-drawn"); // what the benchmark waits for
      this.surface.canvas.dataset.arrows = this.drawn.arrowsDrawn;
      this.surface.canvas.dataset.cursor = this.drawn.cursor ?? "";
      this.onView?.();
    });
    gestures(this.surface.canvas, {
      pan: (dx, dy) => this.pan(dx, dy),
      zoom: (factor, x) => this.zoom(factor, x),
      hover: (x, y) => this.hover(x, y),
      press: (x, y) => this.press(x, y),
      wheelZooms: () => this.fitsDown(),
    });
    this.surface.canvas.addEventListener("keydown", (event) => this.key(event));
    this.off = scene.on((names) => {
      if (names.has("axisKind") || names.has("compress")) Object.assign(this.view, { from: 0, zoom: 1 });
      if (names.has("byRole")) Object.assign(this.view, { top: 0, rowHeight: comfortable(scene.rows.length, this.surface.height) });
      if (names.has("selected")) this.show(scene.selected);
      this.surface.ask();
    });
  }

  destroy() {
    this.off();
    tip();
    this.surface.destroy();
  }

  get frame() {
    return layout(this.surface.width, this.surface.height, this.scene, this.view);
  }

  fitsDown() {
    const { bodyHeight } = this.frame;
    return this.scene.rows.length * this.view.rowHeight <= bodyHeight;
  }

  clamp() {
    const { bodyHeight } = this.frame;
    const view = this.view;
    view.zoom = Math.max(1, Math.min(CLOSEST_PIXELS, view.zoom));
    const span = this.scene.axis.total / view.zoom;
    view.from = Math.max(0, Math.min(this.scene.axis.total - span, view.from));
    view.top = Math.max(0, Math.min(this.scene.rows.length * view.rowHeight - bodyHeight, view.top));
  }

  pan(dx, dy) {
    this.view.from -= dx / this.frame.scale;
    this.view.top -= dy;
    this.surface.ask();
  }

  zoom(factor, x) {
    const before = this.frame;
    const at = x === undefined ? before.gutter + before.bodyWidth / 2 : Math.max(before.gutter, x);
    const unit = this.view.from + (at - before.gutter) / before.scale;
    this.view.zoom *= factor;
    this.clamp();
    this.view.from = unit - (at - before.gutter) / this.frame.scale;
    this.surface.ask();
  }

  fit() {
    const { bodyHeight } = this.frame;
    Object.assign(this.view, { from: 0, zoom: 1, top: 0 });
    this.view.rowHeight = Math.max(4, Math.min(TALLEST, Math.floor(bodyHeight / Math.max(1, this.scene.rows.length))));
    this.surface.ask();
  }

  taller(factor) {
    this.view.rowHeight = Math.max(4, Math.min(48, Math.round(this.view.rowHeight * factor)));
    this.surface.ask();
  }

  // Bring an event into view, moving no more than needed.
  show(i) {
    if (i === null) return;
    const { gutter, scale, bodyWidth, bodyHeight } = this.frame;
    const { axis, rowOf, model } = this.scene;
    const x = (axis.start[i] - this.view.from) * scale;
    if (x < 0 || x > bodyWidth - 12) this.view.from = axis.start[i] - bodyWidth / 3 / scale;
    const row = rowOf[model.lane[i]];
    const y = row * this.view.rowHeight - this.view.top;
    if (row >= 0 && (y < 0 || y > bodyHeight - this.view.rowHeight)) this.view.top = row * this.view.rowHeight - bodyHeight / 2;
    say(`${this.scene.model.agentOf(i)}: ${this.scene.model.title(i)}, ${this.scene.model.ids[i]}`);
    return gutter;
  }

  at(x, y) {
    const hits = this.drawn?.hits ?? [];
    for (let k = hits.length - 1; k >= 0; k--) {
      const [i, left, top, width, height] = hits[k];
      if (x >= left - 1 && x <= left + Math.max(width, 4) + 1 && y >= top - 1 && y <= top + height + 1) return i;
    }
    return null;
  }

  rowAt(x, y) {
    const { gutter, head } = this.frame;
    if (x > gutter || y < head) return null;
    return this.scene.rows[Math.floor((y - head + this.view.top) / this.view.rowHeight)] ?? null;
  }

  hover(x, y) {
    const scene = this.scene;
    const i = x === null ? null : this.at(x, y);
    if (i !== scene.hovered) scene.set({ hovered: i });
    const row = x === null ? null : this.rowAt(x, y);
    this.surface.canvas.style.cursor = i !== null || (row && row.open !== null) ? "pointer" : "grab";
    const box = this.surface.canvas.getBoundingClientRect();
    if (i !== null) tip(box.left + x, box.top + y, ...describe(scene, i));
    else if (row) tip(box.left + x, box.top + y, ...describeRow(scene, row));
    else tip();
  }

  press(x, y) {
    this.surface.canvas.focus({ preventScroll: true });
    const row = this.rowAt(x, y);
    if (row) {
      if (row.open !== null) this.scene.toggleRow(row);
      else if (row.events.length) this.choose(row.events[0]);
      return;
    }
    this.choose(this.at(x, y));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { bodyWidth } = this.frame;
    const keys = {
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      ArrowDown: () => this.leap(1),
      ArrowUp: () => this.leap(-1),
      "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      0: () => this.fit(),
      f: () => this.fit(),
      w: () => this.pan(0, 80),
      s: () => this.pan(0, -80),
      a: () => this.pan(bodyWidth / 5, 0),
      d: () => this.pan(-bodyWidth / 5, 0),
      "]": () => this.taller(1.25),
      "[": () => this.taller(0.8),
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
    event.stopPropagation();
  }

  step(by) {
    const { scene } = this;
    if (scene.selected === null) return this.choose(scene.rows.find((row) => row.events.length)?.events[0] ?? null);
    const row = scene.rows[scene.rowOf[scene.model.lane[scene.selected]]];
    const next = row?.events[row.events.indexOf(scene.selected) + by];
    if (next !== undefined) this.choose(next);
  }

  // To the row above or below, at the event nearest in time.
  leap(by) {
    const { scene } = this;
    if (scene.selected === null) return this.step(1);
    const here = scene.axis.start[scene.selected];
    let at = scene.rowOf[scene.model.lane[scene.selected]] + by;
    while (scene.rows[at] && !scene.rows[at].events.length) at += by;
    if (!scene.rows[at]) return;
    let best = scene.rows[at].events[0];
    for (const i of scene.rows[at].events) {
      if (Math.abs(scene.axis.start[i] - here) < Math.abs(scene.axis.start[best] - here)) best = i;
    }
    this.choose(best);
  }
}

export function describe(scene, i) {
  const { model, colouring } = scene;
  const lines = [`${visible(model.agentOf(i), 60)} · ${visible(model.title(i), 90)}`];
  const facts = [`at ${seconds(model.t[i])}`];
  facts.push(Number.isNaN(model.duration[i]) ? "duration not measured" : `took ${seconds(model.duration[i])}`);
  if (!Number.isNaN(model.tokens[i])) facts.push(`${number(model.tokens[i])} tokens`);
  lines.push(facts.join(", "));
  if (colouring.values) lines.push(`value: ${Number.isNaN(colouring.values[i]) ? NOT_MEASURED : number(colouring.values[i])}`);
  if (model.statusOf(i) !== "ok") lines.push(model.statusOf(i));
  if (model.isInferred(i)) lines.push("inferred by an importer, not recorded");
  const tainted = scene.taint?.labels.get(i);
  if (tainted) lines.push(tainted.join(", "));
  if (scene.marks?.[i]) lines.push(scene.marks[i]);
  return lines;
}

function describeRow(scene, row) {
  const { model } = scene;
  const lines = [visible(row.label, 80)];
  if (row.role && row.kind !== "role") lines.push(`role ${visible(row.role, 60)}`);
  if (row.hidden) lines.push(row.kind === "role" ? `${row.hidden} agents of this role` : `${row.hidden} agents below`);
  if (row.open !== null) lines.push(row.open ? "press to fold" : "press to unfold");
  const ending = row.lanes.length === 1 ? model.agents.ending[row.lanes[0]] : null;
  if (ending) lines.push(ending);
  return lines;
}

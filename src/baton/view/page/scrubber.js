// The team through time: drag to any moment, or let it play. Above the handle, how many agents are at work.

import { positionOf, unitOf } from "./axis.js";
import { h, replace } from "./dom.js";
import { ink } from "./palette.js";
import { Surface } from "./surface.js";
import { count, number, seconds } from "./text.js";

const EDGE = 8; // pixels on either side of the bar, for the thumb
const SPEEDS = [1, 2, 5, 10, 50];

export class Scrubber {
  constructor(host, scene, window) {
    this.host = host;
    this.scene = scene;
    this.window = window; // () => [from, to] in units of the axis: what the lanes show
    this.playing = 0;
    this.speed = 0;
    this.range = h("input", { type: "range", min: 0, max: scene.model.n, step: 1, "aria-label": "Moment of the trace", on: { input: () => this.go(Number(this.range.value)) } });
    this.range.value = scene.model.n;
    this.button = h("button", { class: "plain", "aria-label": "Play", title: "Play (space)", on: { click: () => this.toggle() } }, "▶");
    this.fast = h("button", { class: "plain", title: "Speed", on: { click: () => this.faster() } }, "1×");
    this.label = h("div", { class: "moment" });
    this.strip = h("div", { class: "strip" });
    replace(host, h("div", { class: "player" }, this.button, this.fast), h("div", { class: "track" }, this.strip, this.range), this.label);
    this.surface = new Surface(this.strip, "", (ctx, width, height) => this.draw(ctx, width, height));
    this.surface.canvas.tabIndex = -1;
    this.surface.canvas.removeAttribute("role");
    this.surface.canvas.removeAttribute("aria-label");
    this.surface.canvas.setAttribute("aria-hidden", "true");
    this.dragged();
    this.off = scene.on((names) => {
      if (names.has("cursor")) this.tell();
      if (names.has("model")) {
        this.range.max = scene.model.n;
        this.tell();
      }
      this.surface.ask();
    });
    this.tell();
  }

  // The bar is by the axis, as the lanes are; the range beneath it counts events, for keys.
  dragged() {
    const { canvas } = this.surface;
    const go = (event) => {
      const box = canvas.getBoundingClientRect();
      const share = Math.max(0, Math.min(1, (event.clientX - box.left - EDGE) / Math.max(1, box.width - 2 * EDGE)));
      this.go(share >= 1 ? this.scene.model.n : Math.max(1, positionOf(this.scene.axis, share * this.scene.axis.total)));
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.range.focus({ preventScroll: true });
      go(event);
    });
    canvas.addEventListener("pointermove", (event) => canvas.hasPointerCapture(event.pointerId) && go(event));
  }

  // As wide as the lanes above it, where there are lanes: then a moment stands in one place.
  align(frame) {
    this.host.classList.toggle("aligned", frame !== null);
    if (frame === null) return;
    this.host.style.setProperty("--gutter", `${frame.gutter - EDGE}px`);
    this.host.style.setProperty("--body", `${frame.bodyWidth + 2 * EDGE}px`);
  }

  destroy() {
    this.stop();
    this.off();
    this.surface.destroy();
  }

  go(position) {
    const at = Math.max(0, Math.min(this.scene.model.n, position));
    this.scene.set({ cursor: at === this.scene.model.n ? null : at });
  }

  toggle() {
    if (this.playing) return this.stop();
    if (this.scene.cursor === null) this.go(0);
    let last = performance.now();
    const perSecond = Math.max(4, this.scene.model.n / 30);
    const step = (now) => {
      const due = ((now - last) / 1000) * perSecond * SPEEDS[this.speed];
      if (due >= 1) {
        last = now;
        this.go((this.scene.cursor ?? this.scene.model.n) + Math.floor(due));
      }
      if (this.scene.cursor === null) this.stop();
      else this.playing = requestAnimationFrame(step);
    };
    this.playing = requestAnimationFrame(step);
    this.button.textContent = "❚❚";
    this.button.setAttribute("aria-label", "Pause");
  }

  stop() {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.button.textContent = "▶";
    this.button.setAttribute("aria-label", "Play");
  }

  faster() {
    this.speed = (this.speed + 1) % SPEEDS.length;
    this.fast.textContent = `${SPEEDS[this.speed]}×`;
  }

  tell() {
    const { model, cursor } = this.scene;
    const at = cursor ?? model.n;
    if (Number(this.range.value) !== at) this.range.value = at;
    this.range.setAttribute("aria-valuetext", `${at} of ${model.n} events`);
    const now = momentOf(this.scene);
    replace(this.label, h("b", {}, `${number(at)} / ${number(model.n)}`), ` events · ${seconds(now.t)} · ${count(now.alive.length, "agent")} alive · ${now.tokens === null ? "tokens not measured" : `${number(now.tokens)} tokens`}`);
  }

  draw(ctx, width, height) {
    const { scene } = this;
    const room = Math.max(1, width - 2 * EDGE);
    const floor = height - 6;
    const xOf = (unit) => EDGE + (unit / scene.axis.total) * room;
    ctx.clearRect(0, 0, width, height);
    const busy = concurrency(scene, Math.max(20, Math.floor(room / 2)));
    const most = Math.max(1, ...busy);
    ctx.fillStyle = ink("density");
    busy.forEach((n, k) => {
      const tall = (n / most) * (floor - 3);
      ctx.fillRect(EDGE + (k / busy.length) * room, floor - tall, room / busy.length + 0.5, tall);
    });
    const [from, to] = this.window() ?? [0, scene.axis.total];
    if (to - from < scene.axis.total * 0.999) {
      ctx.fillStyle = ink("window");
      ctx.fillRect(xOf(from), 0, xOf(to) - xOf(from), floor);
    }
    const x = xOf(unitOf(scene.axis, scene.cursor ?? scene.model.n));
    ctx.fillStyle = ink("line");
    ctx.fillRect(EDGE, floor, room, 2);
    ctx.fillStyle = ink("accent");
    ctx.fillRect(EDGE, floor, x - EDGE, 2);
    if (scene.cursor !== null) ctx.fillRect(x - 1, 0, 2, floor);
    ctx.beginPath();
    ctx.arc(x, floor + 0.5, 5.5, 0, Math.PI * 2);
    ctx.fill();
    this.host.dataset.x = Math.round(this.surface.canvas.getBoundingClientRect().left + x);
  }
}

// What the team is at the moment the scrubber stands at.
export function momentOf(scene) {
  const { model, cursor } = scene;
  const at = cursor ?? model.n;
  const latest = new Map();
  const gone = new Set();
  let tokens = null;
  for (let i = 0; i < at; i++) {
    const type = model.typeOf(i);
    latest.set(model.lane[i], i);
    if (type === "spawn" && model.to[i] >= 0) {
      gone.delete(model.to[i]);
      if (!latest.has(model.to[i])) latest.set(model.to[i], null);
    }
    if (type === "return") gone.add(model.lane[i]);
    else if (type !== "despawn") gone.delete(model.lane[i]);
    if (type === "despawn" && model.to[i] >= 0) gone.add(model.to[i]);
    if (!Number.isNaN(model.tokens[i])) tokens = (tokens ?? 0) + model.tokens[i];
  }
  const alive = [...latest].filter(([lane]) => !gone.has(lane) && model.agents.is_agent[lane]);
  return { t: at >= model.n ? model.latest : model.t[at - 1] ?? 0, alive, tokens };
}

function concurrency(scene, buckets) {
  if (scene.busy?.axis === scene.axis && scene.busy.list.length === buckets) return scene.busy.list;
  const list = new Array(buckets).fill(0);
  const { axis, model } = scene;
  for (let i = 0; i < model.n; i++) {
    const from = Math.floor((axis.start[i] / axis.total) * buckets);
    const to = Math.min(buckets - 1, Math.floor((axis.end[i] / axis.total) * buckets));
    for (let k = from; k <= to; k++) list[k]++;
  }
  scene.busy = { axis, list };
  return list;
}

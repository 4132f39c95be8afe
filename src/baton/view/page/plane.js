// A plane to move about on: nodes with a place, drawn in their own units, panned and zoomed.

import { say, tip } from "./dom.js";
import { ink } from "./palette.js";
import { Surface, gestures } from "./surface.js";

export class Plane {
  // calls: draw(ctx, plane), hit(x, y), press(thing), describe(thing), key(event)
  constructor(host, label, calls) {
    this.calls = calls;
    this.x = 0;
    this.y = 0;
    this.scale = 1;
    this.fitted = false;
    this.bounds = [0, 0, 1, 1];
    this.surface = new Surface(host, label, (ctx, width, height) => this.draw(ctx, width, height));
    gestures(this.surface.canvas, {
      pan: (dx, dy) => {
        this.x += dx;
        this.y += dy;
        this.surface.ask();
      },
      zoom: (factor, x, y) => this.zoom(factor, x, y),
      hover: (x, y) => this.hover(x, y),
      press: (x, y) => calls.press(this.at(x, y)),
      wheelZooms: () => true,
    });
    this.surface.canvas.addEventListener("keydown", (event) => {
      const keys = { "+": () => this.zoom(1.4), "=": () => this.zoom(1.4), "-": () => this.zoom(1 / 1.4), f: () => this.fit(), 0: () => this.fit() };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (keys[event.key]) keys[event.key]();
      else if (!calls.key?.(event) && !this.walk(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  destroy() {
    tip();
    this.surface.destroy();
  }

  zoom(factor, x = this.surface.width / 2, y = this.surface.height / 2) {
    const next = Math.max(0.02, Math.min(6, this.scale * factor));
    this.x = x - ((x - this.x) * next) / this.scale;
    this.y = y - ((y - this.y) * next) / this.scale;
    this.scale = next;
    this.surface.ask();
  }

  // All of it, but never larger than life; what is too large to read starts at its beginning.
  fit(least = 0) {
    const [left, top, right, bottom] = this.bounds;
    const { width, height } = this.surface;
    const margin = 28;
    const whole = Math.min((width - 2 * margin) / Math.max(1, right - left), (height - 2 * margin) / Math.max(1, bottom - top), 1.15);
    this.scale = Math.max(least, whole);
    this.x = whole < least && (right - left) * this.scale > width ? margin - left * this.scale : (width - (right + left) * this.scale) / 2;
    this.y = whole < least && (bottom - top) * this.scale > height ? margin - top * this.scale : (height - (bottom + top) * this.scale) / 2;
    const home = whole < least ? this.calls.home?.() : null;
    if (home && !this.sees(home.x, home.y)) this.centre(home.x, home.y);
    this.surface.ask();
  }

  centre(x, y) {
    this.x = this.surface.width / 2 - x * this.scale;
    this.y = this.surface.height / 2 - y * this.scale;
    this.surface.ask();
  }

  sees(x, y) {
    const [left, top] = [x * this.scale + this.x, y * this.scale + this.y];
    return left > 10 && top > 10 && left < this.surface.width - 10 && top < this.surface.height - 10;
  }

  at(x, y) {
    return this.calls.hit((x - this.x) / this.scale, (y - this.y) / this.scale);
  }

  // By keys from node to node, to the nearest one that way; Enter presses it.
  walk(key) {
    const nodes = this.calls.nodes?.() ?? [];
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
    if (key === "Enter" && this.focused !== undefined) {
      this.calls.press(this.focused);
      return true;
    }
    if (!way || !nodes.length) return false;
    const here = nodes.find(({ thing }) => thing === this.focused);
    const far = ({ x, y }) => {
      const [along, across] = [(x - here.x) * way[0] + (y - here.y) * way[1], Math.abs((x - here.x) * way[1]) + Math.abs((y - here.y) * way[0])];
      return along > 1 ? along + 2 * across : Infinity;
    };
    const next = here ? nodes.reduce((best, node) => (far(node) < far(best) ? node : best), here) : nodes[0];
    this.focused = next.thing;
    if (!this.sees(next.x, next.y)) this.centre(next.x, next.y);
    say(this.calls.describe(next.thing).join(", "));
    this.surface.canvas.dataset.focused = this.calls.describe(next.thing)[0];
    this.surface.ask();
    return true;
  }

  hover(x, y) {
    const thing = x === null ? null : this.at(x, y);
    this.surface.canvas.style.cursor = thing === null ? "grab" : "pointer";
    const box = this.surface.canvas.getBoundingClientRect();
    if (thing === null) tip();
    else tip(box.left + x, box.top + y, ...this.calls.describe(thing));
    this.calls.hover?.(thing);
  }

  draw(ctx, width, height) {
    if (!this.fitted && width > 1) {
      this.fitted = true;
      this.fit(this.calls.least ?? 0);
    }
    ctx.clearRect(0, 0, width, height);
    ctx.save();
    ctx.translate(this.x, this.y);
    ctx.scale(this.scale, this.scale);
    this.calls.draw(ctx, this);
    const at = this.focused === undefined ? null : this.calls.nodes().find(({ thing }) => thing === this.focused);
    if (at && document.activeElement === this.surface.canvas) {
      ctx.strokeStyle = ink("accent");
      ctx.lineWidth = 2.5;
      ctx.setLineDash([]);
      ctx.beginPath();
      ctx.roundRect(at.x - at.wide / 2 - 4, at.y - at.tall / 2 - 4, at.wide + 8, at.tall + 8, 8);
      ctx.stroke();
    }
    ctx.restore();
  }
}

export function arrowHead(ctx, x, y, angle, size) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x - size * Math.cos(angle - 0.4), y - size * Math.sin(angle - 0.4));
  ctx.lineTo(x - size * Math.cos(angle + 0.4), y - size * Math.sin(angle + 0.4));
  ctx.fill();
}

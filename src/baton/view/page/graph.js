// The graph of dependencies. A long trace is shown as what an event depends on and what it led to, nearest first; the page says what is left out.

import { fitted } from "./fit.js";
import { h, replace } from "./dom.js";
import { describe } from "./lanes.js";
import { edgeInk } from "./lanes_arrows.js";
import { ink } from "./palette.js";
import { Plane, arrowHead } from "./plane.js";
import { number, visible } from "./text.js";

const MOST = 160;
const MOST_BRANCHES = 6; // followed from one event, where not all can be shown
const [WIDE, TALL] = [148, 34];

export class GraphView {
  constructor(host, scene) {
    this.scene = scene;
    this.note = h("div", { class: "remark" });
    this.centre = scene.selected ?? scene.model.about.answer ?? 0;
    this.plane = new Plane(host, "Graph of events. Arrow keys follow dependencies.", {
      draw: (ctx, plane) => this.draw(ctx, plane),
      hit: (x, y) => this.hit(x, y),
      press: (i) => scene.set({ selected: i }),
      hover: (i) => i !== scene.hovered && scene.set({ hovered: i }),
      describe: (i) => describe(scene, i),
      key: (event) => this.key(event),
      least: 0.8,
      home: () => this.places.get(this.scene.selected ?? this.centre),
    });
    host.append(this.note);
    this.build();
    this.off = scene.on((names) => {
      if (names.has("model")) this.build();
      if (names.has("selected") && scene.selected !== null) this.show(scene.selected);
      this.plane.surface.ask();
    });
  }

  zoom(factor) {
    this.plane.zoom(factor);
  }

  fit() {
    this.plane.fit();
  }

  destroy() {
    this.off();
    this.plane.destroy();
    this.note.remove();
  }

  show(i) {
    if (!this.places.has(i)) {
      this.centre = i;
      this.build();
    }
    const place = this.places.get(i);
    if (!this.plane.sees(place.x, place.y)) this.plane.centre(place.x, place.y);
  }

  build() {
    const { model } = this.scene;
    const kept = model.n <= MOST ? new Set(Array(model.n).keys()) : around(model, Math.min(this.centre, model.n - 1));
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "LR", nodesep: 10, ranksep: 34, edgesep: 6 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const i of kept) graph.setNode(String(i), { width: WIDE, height: TALL });
    this.edges = [];
    for (const i of kept) {
      for (let k = model.out.start[i]; k < model.out.start[i + 1]; k++) {
        const e = model.out.list[k];
        if (!kept.has(model.dst[e])) continue;
        // An agent's own line is pulled straight; what crosses between agents bends.
        graph.setEdge(String(i), String(model.dst[e]), { weight: model.lane[i] === model.lane[model.dst[e]] ? 6 : 1 });
        this.edges.push(e);
      }
    }
    dagre.layout(graph);
    this.places = new Map([...kept].map((i) => [i, graph.node(String(i))]));
    this.bend = new Map(this.edges.map((e) => [e, graph.edge(String(model.src[e]), String(model.dst[e]))?.points ?? []]));
    const { width = 1, height = 1 } = graph.graph();
    this.plane.bounds = [0, 0, width, height];
    this.plane.fitted = false;
    replace(this.note, kept.size < model.n ? `${number(kept.size)} of ${number(model.n)} events: those nearest to ${visible(model.ids[this.centre], 40)}, at most ${MOST_BRANCHES} branches each. Choose another in any view.` : "");
    this.note.hidden = kept.size === model.n;
    this.plane.surface.ask();
  }

  hit(x, y) {
    for (const [i, place] of this.places) {
      if (Math.abs(x - place.x) < WIDE / 2 && Math.abs(y - place.y) < TALL / 2) return i;
    }
    return null;
  }

  key(event) {
    const { scene } = this;
    const { model } = scene;
    if (!["ArrowRight", "ArrowLeft"].includes(event.key)) return false;
    const from = scene.selected ?? this.centre;
    const side = event.key === "ArrowRight" ? model.out : model.into;
    if (side.start[from] < side.start[from + 1]) {
      const e = side.list[side.start[from]];
      scene.set({ selected: event.key === "ArrowRight" ? model.dst[e] : model.src[e] });
    }
    return true;
  }

  draw(ctx, plane) {
    const { scene } = this;
    const { model } = scene;
    const focus = scene.hovered ?? scene.selected;
    const dim = (i) => scene.isLater(i) || (scene.found && !scene.found.has(i)) || (scene.taint && !scene.taint.labels.has(i)) || (scene.showCritical && !model.onCritical[i]);
    for (const e of this.edges) {
      const [src, dst] = [model.src[e], model.dst[e]];
      const near = src === focus || dst === focus;
      const critical = scene.showCritical && model.isCriticalEdge(e);
      ctx.globalAlpha = dim(src) || dim(dst) ? 0.12 : near ? 1 : 0.6;
      ctx.strokeStyle = ctx.fillStyle = critical ? ink("critical") : edgeInk(scene, e, model.words.edges[model.edgeType[e]]);
      ctx.lineWidth = near || critical ? 2.4 : 1.3;
      ctx.setLineDash(model.edgeInferred[e] || model.isInferred(dst) ? [5, 4] : []);
      this.edge(ctx, this.bend.get(e));
    }
    ctx.setLineDash([]);
    for (const [i, place] of this.places) {
      ctx.globalAlpha = dim(i) ? 0.16 : 1;
      this.node(ctx, i, place, plane);
    }
    ctx.globalAlpha = 1;
  }

  edge(ctx, points) {
    if (points.length < 2) return;
    ctx.beginPath();
    ctx.moveTo(points[0].x, points[0].y);
    for (let k = 1; k < points.length - 1; k++) {
      const [here, next] = [points[k], points[k + 1]];
      ctx.quadraticCurveTo(here.x, here.y, (here.x + next.x) / 2, (here.y + next.y) / 2);
    }
    const last = points[points.length - 1];
    ctx.lineTo(last.x, last.y);
    ctx.stroke();
    const before = points[points.length - 2];
    ctx.setLineDash([]);
    arrowHead(ctx, last.x, last.y, Math.atan2(last.y - before.y, last.x - before.x), 7);
  }

  node(ctx, i, { x, y }, plane) {
    const { scene } = this;
    const { model } = scene;
    const colour = scene.colouring.colour(i);
    ctx.beginPath();
    ctx.roundRect(x - WIDE / 2, y - TALL / 2, WIDE, TALL, 6);
    ctx.fillStyle = ink("panel");
    ctx.fill();
    ctx.strokeStyle = colour ?? ink("muted");
    ctx.setLineDash(colour === null || model.isInferred(i) ? [3, 3] : []);
    ctx.lineWidth = 1.4;
    ctx.stroke();
    ctx.setLineDash([]);
    if (colour !== null) {
      ctx.beginPath();
      ctx.roundRect(x - WIDE / 2, y - TALL / 2, 7, TALL, [6, 0, 0, 6]);
      ctx.fillStyle = colour;
      ctx.fill();
    }
    const ring = scene.selected === i ? "accent" : scene.taint?.labels.has(i) ? "taint" : model.status[i] !== 0 ? "bad" : null;
    if (ring) {
      ctx.strokeStyle = ink(ring);
      ctx.lineWidth = 2.6;
      ctx.beginPath();
      ctx.roundRect(x - WIDE / 2 - 3, y - TALL / 2 - 3, WIDE + 6, TALL + 6, 8);
      ctx.stroke();
    }
    if (plane.scale < 0.3) return;
    ctx.textBaseline = "middle";
    ctx.fillStyle = ink("text");
    ctx.font = "600 11px system-ui, sans-serif";
    ctx.fillText(fitted(ctx, visible(model.title(i), 60), WIDE - 22), x - WIDE / 2 + 13, y - 7);
    ctx.font = "10px system-ui, sans-serif";
    ctx.fillStyle = ink("muted");
    ctx.fillText(fitted(ctx, visible(model.agentOf(i), 60), WIDE - 22), x - WIDE / 2 + 13, y + 8);
  }
}

// The events nearest to one, along edges in both directions.
function around(model, centre) {
  const kept = new Set([centre]);
  let edge = [centre];
  while (edge.length && kept.size < MOST) {
    const next = [];
    for (const i of edge) {
      for (const [side, other] of [[model.into, model.src], [model.out, model.dst]]) {
        const end = Math.min(side.start[i + 1], side.start[i] + MOST_BRANCHES);
        for (let k = side.start[i]; k < end && kept.size < MOST; k++) {
          const j = other[side.list[k]];
          if (!kept.has(j)) {
            kept.add(j);
            next.push(j);
          }
        }
      }
    }
    edge = next;
  }
  return kept;
}

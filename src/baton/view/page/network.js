// Who speaks to whom: agents as circles, all messages between two of them as one arrow as wide as they are many. Large teams are drawn by role.

import { h, replace, toggle } from "./dom.js";
import { ink } from "./palette.js";
import { Plane, arrowHead } from "./plane.js";
import { NOT_MEASURED, count, number, visible } from "./text.js";

const BY_ROLE_FROM = 80;
const KINDS = new Set(["message", "return", "spawn"]);

export class NetworkView {
  constructor(host, scene) {
    this.scene = scene;
    this.byRole = scene.model.lanes > BY_ROLE_FROM;
    this.kinds = new Set(["message", "return"]);
    this.plane = new Plane(host, "Message network of the agents. Arrow keys go from agent to agent, Enter chooses.", {
      draw: (ctx, plane) => this.draw(ctx, plane),
      hit: (x, y) => this.nodes.find((node) => Math.hypot(x - node.x, y - node.y) < node.r + 3) ?? null,
      press: (node) => this.press(node),
      hover: (node) => this.hover(node),
      describe: (node) => this.describe(node),
      nodes: () => this.nodes.map((node) => ({ thing: node, x: node.x, y: node.y, wide: 2 * node.r, tall: 2 * node.r })),
    });
    this.controls = h("div", { class: "floating" });
    host.append(this.controls);
    replace(this.controls,
      toggle("by role", this.byRole, (on) => this.change({ byRole: on })),
      [...KINDS].map((kind) => toggle(`${kind}s`, this.kinds.has(kind), (on) => this.change({ kinds: new Set(on ? [...this.kinds, kind] : [...this.kinds].filter((one) => one !== kind)) }))));
    this.build();
    this.off = scene.on((names) => {
      if (names.has("model") || names.has("cursor") || names.has("colourBy")) this.build(!names.has("model"));
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
    this.controls.remove();
  }

  change(what) {
    Object.assign(this, what);
    this.build();
  }

  build(keepPlaces = false) {
    const { scene } = this;
    const { model } = scene;
    const before = new Map((this.nodes ?? []).map((node) => [node.key, node]));
    const keyOf = (lane) => (this.byRole ? model.agents.role[lane] ?? "no role" : lane);
    const nodes = new Map();
    for (let lane = 0; lane < model.lanes; lane++) {
      const key = keyOf(lane);
      if (!nodes.has(key)) nodes.set(key, { key, lanes: [] });
      nodes.get(key).lanes.push(lane);
    }
    const links = new Map();
    for (let i = 0; i < model.n; i++) {
      const kind = model.typeOf(i);
      if (model.to[i] < 0 || !this.kinds.has(kind) || scene.isLater(i)) continue;
      const [from, to] = [keyOf(model.lane[i]), keyOf(model.to[i])];
      const name = `${kind}|${from}|${to}`;
      if (!links.has(name)) links.set(name, { source: from, target: to, kind, n: 0, worth: null });
      const link = links.get(name);
      link.n++;
      const value = scene.colouring.shade ? scene.colouring.values[i] : NaN;
      if (!Number.isNaN(value)) link.worth = (link.worth ?? 0) + value;
    }
    // Who is no agent is there where it spoke to somebody.
    const linked = new Set([...links.values()].flatMap(({ source, target }) => [source, target]));
    this.nodes = [...nodes.values()].filter(({ key, lanes }) => linked.has(key) || lanes.some((lane) => model.agents.is_agent[lane]));
    for (const node of this.nodes) {
      node.r = 12 + 1.5 * Math.sqrt(Math.min(900, node.lanes.length - 1));
      const old = before.get(node.key);
      if (old) Object.assign(node, { x: old.x, y: old.y });
    }
    this.links = [...links.values()];
    this.mostSent = Math.max(1, ...this.links.map((link) => link.n));
    const known = new Map(this.nodes.map((node) => [node.key, node]));
    if (keepPlaces && this.nodes.every((node) => node.x !== undefined)) {
      for (const link of this.links) Object.assign(link, { source: known.get(link.source), target: known.get(link.target) });
      return;
    }
    const pulls = [...this.links, ...spawnLinks(model, keyOf)];
    const simulation = d3.forceSimulation(this.nodes)
      .force("charge", d3.forceManyBody().strength(this.nodes.length > 200 ? -80 : -900))
      .force("links", d3.forceLink(pulls).id((node) => node.key).distance((link) => 105 + link.source.r + link.target.r).strength(0.4))
      .force("apart", d3.forceCollide((node) => node.r + (this.nodes.length > 200 ? 10 : 44)))
      .force("x", d3.forceX().strength(0.05))
      .force("y", d3.forceY().strength(0.09))
      .stop();
    simulation.tick(this.nodes.length > 300 ? 60 : 220);
    const [xs, ys] = [this.nodes.map((node) => node.x), this.nodes.map((node) => node.y)];
    const margin = 50;
    this.plane.bounds = [Math.min(...xs) - margin, Math.min(...ys) - margin, Math.max(...xs) + margin, Math.max(...ys) + margin];
    this.plane.fitted = false;
    this.plane.surface.ask();
  }

  press(node) {
    this.scene.set({ selected: node === null ? null : this.scene.model.byLane[node.lanes[0]][0] ?? null });
  }

  hover(node) {
    if (node !== this.near) {
      this.near = node;
      this.plane.surface.ask();
    }
  }

  describe(node) {
    const { agents } = this.scene.model;
    const said = (side, kind) => this.links.filter((link) => link[side] === node && link.kind === kind).reduce((sum, link) => sum + link.n, 0);
    const value = this.scene.colouring.agentValues?.[node.lanes[0]];
    return [
      this.byRole ? `${visible(node.key, 60)}: ${count(node.lanes.length, "agent")}` : visible(agents.name[node.lanes[0]], 60),
      `sent ${number(said("source", "message"))} messages, received ${number(said("target", "message"))}; returned ${number(said("source", "return"))} times`,
      ...(this.scene.colouring.agentValues && !this.byRole ? [`value: ${Number.isNaN(value) ? NOT_MEASURED : number(value)}`] : []),
    ];
  }

  draw(ctx, plane) {
    this.heads = []; // drawn last: under a name, an arrow would read the wrong way round
    const inks = { message: "t-message", return: "t-return", spawn: "t-spawn" };
    for (const link of this.links) {
      const near = !this.near || link.source === this.near || link.target === this.near;
      ctx.globalAlpha = !near ? 0.04 : this.near || this.links.length < 400 ? 0.75 : 0.12;
      const { shade } = this.scene.colouring;
      ctx.strokeStyle = ctx.fillStyle = !shade ? ink(inks[link.kind]) : link.worth === null ? ink("line") : shade(link.worth / link.n);
      ctx.lineWidth = 1.1 + 5 * Math.sqrt(link.n / this.mostSent) * (this.mostSent > 1 ? 1 : 0.2);
      this.link(ctx, link, plane);
    }
    for (const node of this.nodes) this.node(ctx, node, plane);
    for (const head of this.heads) this.head(ctx, head);
    ctx.globalAlpha = 1;
  }

  link(ctx, { source, target, n, kind }, plane) {
    ctx.beginPath();
    if (source === target) {
      const r = source.r * 0.8 + 6;
      ctx.arc(source.x, source.y - source.r - r * 0.55, r, Math.PI * 0.75, Math.PI * 2.25);
      ctx.stroke();
      return;
    }
    const [dx, dy] = [target.x - source.x, target.y - source.y];
    const far = Math.hypot(dx, dy) || 1;
    const side = kind === "return" ? 0.26 : kind === "spawn" ? -0.04 : 0.1;
    const [mx, my] = [(source.x + target.x) / 2 - dy * side, (source.y + target.y) / 2 + dx * side];
    const angle = Math.atan2(target.y - my, target.x - mx);
    const [ex, ey] = [target.x - Math.cos(angle) * (target.r + 2), target.y - Math.sin(angle) * (target.r + 2)];
    ctx.moveTo(source.x, source.y);
    ctx.quadraticCurveTo(mx, my, ex, ey);
    ctx.stroke();
    this.heads.push({ ex, ey, angle, size: 6 + ctx.lineWidth * 1.4, colour: ctx.fillStyle, alpha: ctx.globalAlpha });
    if (n > 1 && plane.scale > 0.5 && far > 60) {
      ctx.font = "10.5px system-ui, sans-serif";
      ctx.fillText(number(n), mx * 0.5 + (source.x + target.x) * 0.25 + 3, my * 0.5 + (source.y + target.y) * 0.25 - 3);
    }
  }

  head(ctx, { ex, ey, angle, size, colour, alpha }) {
    ctx.globalAlpha = alpha;
    ctx.fillStyle = colour;
    arrowHead(ctx, ex, ey, angle, size);
  }

  node(ctx, node, plane) {
    const { scene } = this;
    const { agents } = scene.model;
    const lane = node.lanes[0];
    const colour = scene.colouring.agentColour(lane);
    const tainted = scene.taint && node.lanes.some((one) => scene.taint.agentSet.has(agents.name[one]));
    const near = !this.near || this.near === node || this.links.some((link) => (link.source === this.near && link.target === node) || (link.target === this.near && link.source === node));
    ctx.globalAlpha = (scene.taint && !tainted) || !near ? 0.25 : 1;
    ctx.beginPath();
    ctx.arc(node.x, node.y, node.r, 0, Math.PI * 2);
    ctx.fillStyle = colour ?? ink("panel");
    ctx.fill();
    const chosen = scene.selected !== null && node.lanes.includes(scene.model.lane[scene.selected]);
    ctx.setLineDash(colour === null ? [3, 3] : []);
    ctx.strokeStyle = chosen ? ink("accent") : tainted ? ink("taint") : colour === null ? ink("muted") : ink("panel");
    ctx.lineWidth = chosen || tainted ? 3 : 1.5;
    ctx.stroke();
    ctx.setLineDash([]);
    const crowded = this.nodes.length > 150 && plane.scale < 0.9;
    if (node.lanes.length === 1 && (plane.scale < 0.35 || crowded) && node !== this.near && !chosen) return;
    ctx.font = "11.5px system-ui, sans-serif";
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    ctx.fillStyle = ink("text");
    const label = node.lanes.length > 1 ? `${visible(node.key, 24)} ×${node.lanes.length}` : visible(agents.name[lane], 22);
    ctx.lineWidth = 3;
    ctx.strokeStyle = ink("canvas");
    ctx.strokeText(label, node.x, node.y + node.r + 4);
    ctx.fillText(label, node.x, node.y + node.r + 4);
    ctx.textAlign = "left";
  }
}

// Those who never speak still stand near whoever spawned them.
function spawnLinks(model, keyOf) {
  const found = new Map();
  for (let lane = 0; lane < model.lanes; lane++) {
    const parent = model.agents.parent[lane];
    if (parent < 0 || keyOf(parent) === keyOf(lane)) continue;
    found.set(`${keyOf(parent)}|${keyOf(lane)}`, { source: keyOf(parent), target: keyOf(lane) });
  }
  return [...found.values()];
}

// Who spawned whom. Each agent's bar is as long as its tokens; many siblings of one role fold into one node.

import { fitted } from "./fit.js";
import { ink } from "./palette.js";
import { Plane } from "./plane.js";
import { NOT_MEASURED, count, number, seconds, visible } from "./text.js";

const FOLD_FROM = 14;
const [ROW, LEVEL, WIDE] = [30, 216, 172];

export class SpawnTree {
  constructor(host, scene) {
    this.scene = scene;
    this.open = new Set();
    this.plane = new Plane(host, "Spawn tree of the agents. Arrow keys go from agent to agent, Enter chooses or unfolds.", {
      draw: (ctx, plane) => this.draw(ctx, plane),
      hit: (x, y) => this.hit(x, y),
      press: (node) => this.press(node),
      describe: (node) => this.describe(node),
      nodes: () => this.nodes.filter((node) => !node.data.hidden).map((node) => ({ thing: node, x: node.y + WIDE / 2, y: node.x, wide: WIDE, tall: ROW - 8 })),
      least: 0.6,
    });
    this.build();
    this.off = scene.on((names) => {
      if (names.has("model")) this.build();
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
  }

  build() {
    const { model } = this.scene;
    const node = (lane) => ({ lane, lanes: [lane], children: grouped(model.children[lane], lane) });
    const grouped = (lanes, parent) => {
      const roles = new Map();
      for (const lane of lanes) {
        const role = model.agents.role[lane];
        roles.set(role, [...(roles.get(role) ?? []), lane]);
      }
      return [...roles].flatMap(([role, same]) => {
        const key = `${parent}/${role}`;
        if (same.length < FOLD_FROM || this.open.has(key)) return same.map(node);
        return [{ key, role, lanes: same.flatMap((lane) => [lane, ...model.below(lane)]), size: same.length, children: [] }];
      });
    };
    const roots = grouped(model.roots.filter((lane) => model.agents.is_agent[lane]), -1);
    const top = roots.length === 1 ? roots[0] : { lanes: [], children: roots, hidden: true };
    const root = d3.hierarchy(top);
    d3.tree().nodeSize([ROW, LEVEL]).separation((a, b) => (a.parent === b.parent ? 1 : 1.25))(root);
    this.nodes = root.descendants();
    const ys = this.nodes.map((one) => one.x);
    this.plane.bounds = [0, Math.min(...ys) - ROW, Math.max(...this.nodes.map((one) => one.y)) + WIDE, Math.max(...ys) + ROW];
    this.plane.fitted = false;
    this.mostTokens = Math.max(1, ...model.agents.tokens.map((tokens) => tokens ?? 0));
    this.plane.surface.ask();
  }

  hit(x, y) {
    return this.nodes.find((node) => !node.data.hidden && x >= node.y && x <= node.y + WIDE && Math.abs(y - node.x) < ROW / 2 - 2) ?? null;
  }

  press(node) {
    if (!node) return this.scene.set({ selected: null });
    if (node.data.key) {
      this.open.add(node.data.key);
      return this.build();
    }
    return this.scene.set({ selected: this.scene.model.byLane[node.data.lane][0] ?? null });
  }

  describe({ data }) {
    const { agents } = this.scene.model;
    if (data.key) return [`${count(data.size, "agent")} of role ${visible(data.role ?? "none", 40)}`, "press to unfold"];
    const lane = data.lane;
    const value = this.scene.colouring.agentValues?.[lane];
    return [
      visible(agents.name[lane], 80),
      `${count(this.scene.model.byLane[lane].length, "event")}, ${agents.tokens[lane] === null ? "tokens not measured" : `${number(agents.tokens[lane])} tokens`}, from ${seconds(agents.start[lane])} to ${seconds(agents.end[lane])}`,
      ...(this.scene.colouring.agentValues ? [`value: ${Number.isNaN(value) ? NOT_MEASURED : number(value)}`] : []),
      ...(agents.ending[lane] ? [agents.ending[lane]] : []),
    ];
  }

  draw(ctx, plane) {
    const { scene } = this;
    ctx.strokeStyle = ink("t-spawn");
    ctx.lineWidth = 1.3;
    for (const node of this.nodes) {
      if (!node.parent || node.parent.data.hidden) continue;
      ctx.globalAlpha = this.dim(node) ? 0.15 : 0.55;
      ctx.beginPath();
      const from = node.parent.y + WIDE;
      ctx.moveTo(from, node.parent.x);
      ctx.bezierCurveTo(from + 22, node.parent.x, node.y - 22, node.x, node.y, node.x);
      ctx.stroke();
    }
    for (const node of this.nodes) {
      if (node.data.hidden) continue;
      ctx.globalAlpha = this.dim(node) ? 0.2 : 1;
      this.node(ctx, node, plane);
    }
    ctx.globalAlpha = 1;
  }

  dim({ data }) {
    const { scene } = this;
    if (data.key || data.lane === undefined) return false;
    if (scene.taint && !scene.taint.agentSet.has(scene.model.agents.name[data.lane])) return true;
    return scene.cursor !== null && (scene.model.byLane[data.lane][0] ?? Infinity) >= scene.cursor;
  }

  node(ctx, { x, y, data }, plane) {
    const { scene } = this;
    const { agents } = scene.model;
    const tall = ROW - 8;
    const colour = data.key ? ink("muted") : scene.colouring.agentColour(data.lane);
    ctx.beginPath();
    ctx.roundRect(y, x - tall / 2, WIDE, tall, 6);
    ctx.fillStyle = ink("panel");
    ctx.fill();
    const tokens = data.key ? null : agents.tokens[data.lane];
    if (tokens) {
      ctx.save();
      ctx.clip();
      ctx.fillStyle = colour ?? ink("line");
      ctx.globalAlpha *= 0.28;
      ctx.fillRect(y, x - tall / 2, (tokens / this.mostTokens) * WIDE, tall);
      ctx.restore();
    }
    const chosen = scene.selected !== null && !data.key && scene.model.lane[scene.selected] === data.lane;
    ctx.strokeStyle = chosen ? ink("accent") : colour ?? ink("muted");
    ctx.lineWidth = chosen ? 2.6 : 1.4;
    ctx.setLineDash(colour === null ? [3, 3] : []);
    ctx.beginPath();
    ctx.roundRect(y, x - tall / 2, WIDE, tall, 6);
    ctx.stroke();
    ctx.setLineDash([]);
    if (plane.scale < 0.25) return;
    ctx.font = "600 12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    ctx.fillStyle = ink("text");
    const label = data.key ? `${visible(data.role ?? "no role", 30)} ×${data.size}` : visible(agents.name[data.lane], 40);
    const shown = fitted(ctx, label, WIDE - 16);
    ctx.fillText(shown, y + 9, x + 0.5);
    const used = ctx.measureText(shown).width;
    const beside = data.key ? "▸" : tokens === null ? "" : `${number(tokens)} tok`;
    ctx.font = "10.5px system-ui, sans-serif";
    const wide = ctx.measureText(beside).width;
    if (used + wide + 26 < WIDE) {
      ctx.fillStyle = ink("muted");
      ctx.fillText(beside, y + WIDE - wide - 8, x + 0.5);
    }
  }
}

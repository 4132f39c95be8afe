// Arrows between the swim-lanes, the critical path, and frames around what is chosen. Arrows give way when there would be too many to follow.

import { barHeight } from "./lanes_bars.js";
import { EDGE_INK, ink } from "./palette.js";

const MOST_ARROWS = 260;
// Drawn unasked: what agents do with each other. Other dependencies are drawn on demand.
const TEAM_EDGES = new Set(["spawn", "message", "return", "aggregate", "safety_flow"]);

export function drawArrows(ctx, width, height, scene, view, yOf, xOf, boxes, gutter) {
  const { model, rowOf, arrows } = scene;
  const focus = scene.hovered ?? scene.selected;
  const near = [];
  let candidates = [];
  for (const e of model.arrows) {
    const [src, dst] = [model.src[e], model.dst[e]];
    if (src === focus || dst === focus) near.push(e);
    else if (arrows !== "selected" && (arrows === "all" || TEAM_EDGES.has(model.words.edges[model.edgeType[e]])) && !scene.isLater(dst) && (boxes.has(src) || boxes.has(dst)) && rowOf[model.lane[src]] !== rowOf[model.lane[dst]]) candidates.push(e);
  }
  if (scene.found) candidates = candidates.filter((e) => scene.found.has(model.src[e]) && scene.found.has(model.dst[e]));
  if (scene.taint) candidates = candidates.filter((e) => scene.taint.labels.has(model.src[e]) && scene.taint.labels.has(model.dst[e]));
  if (scene.showCritical) candidates = candidates.filter((e) => model.isCriticalEdge(e));
  const quiet = arrows === "auto" && candidates.length > MOST_ARROWS;
  const shown = quiet ? [] : candidates;
  ctx.lineWidth = 1.3;
  for (const e of shown) arrow(ctx, scene, e, view, yOf, xOf, boxes, focus === null ? 0.75 : 0.22);
  ctx.lineWidth = 2.2;
  for (const e of near) arrow(ctx, scene, e, view, yOf, xOf, boxes, 1);
  return { drawn: shown.length + near.length, hidden: quiet ? candidates.length : 0 };
}

// By what it carries; where events have a worth, by that, and pale where it was not measured.
export function edgeInk(scene, e, type) {
  const { edgeColour } = scene.colouring;
  return edgeColour ? edgeColour(e) ?? ink("line") : ink(EDGE_INK[type]);
}

function arrow(ctx, scene, e, view, yOf, xOf, boxes, alpha) {
  const { model, axis, rowOf } = scene;
  const [src, dst] = [model.src[e], model.dst[e]];
  const [from, to] = [rowOf[model.lane[src]], rowOf[model.lane[dst]]];
  if (from < 0 || to < 0) return;
  const down = to > from ? 1 : -1;
  // From the moment one ended to the moment the other began, and up to the edge of its bar: no head lies on words.
  const half = barHeight(view) / 2;
  const x1 = xOf(axis.end[src]);
  const x2 = xOf(axis.start[dst]);
  const y1 = yOf(from) + view.rowHeight / 2 + down * half * 0.6;
  const y2 = yOf(to) + view.rowHeight / 2 - down * (half + 1.5);
  const type = model.words.edges[model.edgeType[e]];
  ctx.globalAlpha = alpha;
  ctx.strokeStyle = ctx.fillStyle = edgeInk(scene, e, type);
  ctx.setLineDash(model.edgeInferred[e] || model.isInferred(src) || model.isInferred(dst) ? [4, 3] : []);
  // Down (or up) first, then across: arrows of one event to many share their stem.
  const bend = Math.max(0, Math.min(26, Math.abs(x2 - x1)));
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  if (bend < 3) ctx.lineTo(x2, y2);
  else ctx.bezierCurveTo(x1 + Math.sign(x2 - x1) * bend * 0.6, y1 + (y2 - y1) * 0.25, x2, y1 + (y2 - y1) * 0.45, x2, y2);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(x2, y2 + down * 1.5);
  ctx.lineTo(x2 - 3.6, y2 - down * 5);
  ctx.lineTo(x2 + 3.6, y2 - down * 5);
  ctx.fill();
  ctx.globalAlpha = 1;
}

export function criticalPath(ctx, scene, boxes, view, yOf, xOf) {
  const { model } = scene;
  const path = model.critical ?? [];
  ctx.strokeStyle = ink("critical");
  ctx.lineWidth = 2.5;
  ctx.lineJoin = "round";
  ctx.beginPath();
  path.forEach((i, k) => {
    const y = yOf(scene.rowOf[scene.model.lane[i]]) + view.rowHeight / 2;
    const [x, right] = [xOf(scene.axis.start[i]), xOf(scene.axis.end[i])];
    if (k > 0) ctx.lineTo(x, y);
    ctx.moveTo(right, y);
  });
  ctx.globalAlpha = 0.55;
  ctx.stroke();
  ctx.globalAlpha = 1;
  ctx.fillStyle = ink("critical");
  ctx.beginPath();
  for (const i of path) {
    const box = boxes.get(i);
    if (!box) continue;
    // Around what is wide enough to be read, under what is not.
    if (box[2] > 14 || model.duration[i] === 0) ctx.rect(box[0] - 0.5, box[1] - 0.5, box[2] + 1, box[3] + 1);
    else ctx.fillRect(box[0], box[1] + box[3], Math.max(4, box[2]), 3);
  }
  ctx.stroke();
}

export function accents(ctx, scene, boxes) {
  for (const [i, name, wide] of [[scene.hovered, "text", 1.5], [scene.selected, "accent", 2.5]]) {
    const box = i === null ? null : boxes.get(i);
    if (!box) continue;
    ctx.strokeStyle = ink(name);
    ctx.lineWidth = wide;
    ctx.beginPath();
    ctx.roundRect(box[0] - 2, box[1] - 2, Math.max(5, box[2]) + 4, box[3] + 4, 4);
    ctx.stroke();
  }
}

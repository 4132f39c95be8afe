// Drawing the swim-lanes. Bars of one colour are drawn together; arrows give way when there would be too many to follow.

import { EDGE_INK, ink, inkOn } from "./palette.js";
import { visible } from "./text.js";

const MOST_ARROWS = 260;
const LEAST_BAR = 3;
// Drawn unasked: what agents do with each other. Other dependencies are drawn on demand.
const TEAM_EDGES = new Set(["spawn", "message", "return", "aggregate", "safety_flow"]);
const FONT = "12px system-ui, sans-serif";
const SMALL = "11px system-ui, sans-serif";

export function layout(width, height, scene, view) {
  const gutter = width < 560 ? 104 : Math.min(230, Math.max(150, width * 0.17));
  const head = 26;
  const bodyWidth = Math.max(10, width - gutter - 14);
  const scale = (bodyWidth * view.zoom) / scene.axis.total;
  return { gutter, head, bodyWidth, bodyHeight: height - head, scale };
}

export function drawLanes(ctx, width, height, scene, view) {
  const frame = layout(width, height, scene, view);
  const { gutter, head, scale } = frame;
  const { rows } = scene;
  const first = Math.max(0, Math.floor(view.top / view.rowHeight));
  const last = Math.min(rows.length - 1, Math.ceil((view.top + height - head) / view.rowHeight));
  const yOf = (row) => head + row * view.rowHeight - view.top;
  const xOf = (unit) => gutter + (unit - view.from) * scale;
  ctx.clearRect(0, 0, width, height);
  ctx.save();
  ctx.beginPath();
  ctx.rect(gutter, head, width - gutter, height - head);
  ctx.clip();
  bands(ctx, width, scene, first, last, yOf, view, gutter);
  idleBreaks(ctx, height, scene, xOf, head);
  lives(ctx, scene, first, last, yOf, xOf, view, width);
  const drawn = bars(ctx, width, scene, view, first, last, yOf, xOf, gutter);
  if (scene.showCritical) criticalPath(ctx, scene, drawn.boxes, view, yOf, xOf);
  const arrows = drawArrows(ctx, width, height, scene, view, yOf, xOf, drawn.boxes, gutter);
  accents(ctx, scene, drawn.boxes, view);
  if (scene.cursor !== null) cursor(ctx, height, scene, xOf, head);
  ctx.restore();
  axis(ctx, width, scene, view, frame, xOf);
  names(ctx, scene, view, first, last, yOf, gutter, height, head);
  if (arrows.hidden) remark(ctx, width, height, `${arrows.hidden.toLocaleString("en-US")} arrows not drawn: zoom in, or choose an event`);
  return { hits: drawn.hits, arrowsDrawn: arrows.drawn };
}

function bands(ctx, width, scene, first, last, yOf, view, gutter) {
  for (let r = first; r <= last; r++) {
    if (r % 2) continue;
    ctx.fillStyle = ink("band");
    ctx.fillRect(gutter, yOf(r), width, view.rowHeight);
  }
}

function idleBreaks(ctx, height, scene, xOf, head) {
  ctx.fillStyle = ink("idle");
  for (const gap of scene.axis.breaks) {
    const [x, right] = [xOf(gap.from), xOf(gap.to)];
    ctx.fillRect(x, head, Math.max(3, right - x), height);
  }
}

function lives(ctx, scene, first, last, yOf, xOf, view, width) {
  ctx.strokeStyle = ink("line");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (let r = first; r <= last; r++) {
    const row = scene.rows[r];
    if (!row.events.length) continue;
    const y = Math.round(yOf(r) + view.rowHeight / 2) + 0.5;
    const ends = scene.axis.kind === "time"
      ? [scene.axis.place(row.start), scene.axis.place(row.end)]
      : [scene.axis.start[row.events[0]], scene.axis.end[row.events[row.events.length - 1]]];
    ctx.moveTo(Math.max(-5, xOf(ends[0])), y);
    ctx.lineTo(Math.min(width + 5, xOf(ends[1])), y);
  }
  ctx.stroke();
}

function lowerBound(scene, row, unit) {
  let low = 0;
  let high = row.events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scene.axis.start[row.events[middle]] < unit) low = middle + 1;
    else high = middle;
  }
  return low;
}

function strength(scene, i) {
  if (scene.isLater(i)) return 0.1;
  if (scene.found && !scene.found.has(i)) return 0.14;
  if (scene.marks) return scene.marks[i] ? 1 : 0.28;
  if (scene.taint && !scene.taint.labels.has(i)) return 0.22;
  if (scene.showCritical && !scene.model.onCritical[i]) return 0.32;
  return 1;
}

function bars(ctx, width, scene, view, first, last, yOf, xOf, gutter) {
  const { axis, colouring, model } = scene;
  const tall = Math.max(2, Math.min(22, view.rowHeight - (view.rowHeight > 28 ? 12 : view.rowHeight > 10 ? 7 : 1)));
  const hits = [];
  const boxes = new Map();
  const fills = new Map();
  const hollow = [];
  const words = [];
  const rightEdge = width + 4;
  for (let r = first; r <= last; r++) {
    const row = scene.rows[r];
    const whole = yOf(r) + (view.rowHeight - tall) / 2;
    const late = [];
    let k = lowerBound(scene, row, view.from - row.longest);
    let taken = -Infinity;
    for (; k < row.events.length; k++) {
      const i = row.events[k];
      let x = xOf(axis.start[i]);
      if (x > rightEdge) break;
      const own = xOf(axis.end[i]) - x;
      if (x + own < gutter - 4) continue;
      const untimed = axis.kind === "time" && !(model.duration[i] > 0);
      // Things that took no time and fall on one spot are set side by side, a little.
      if (untimed && x < taken && taken - x < 44 && view.rowHeight > 8) x = taken;
      const wide = untimed ? Math.min(7, tall) : Math.max(LEAST_BAR, own - 1);
      if (!untimed && own < 1 && x + wide <= taken + 0.3 && i !== scene.selected) {
        boxes.set(i, [x, whole, wide, tall]);
        continue; // covered by the bar before
      }
      taken = Math.max(taken, x + wide + (untimed ? 1.5 : 0));
      const shared = row.layer && row.shares.has(i) && tall >= 6;
      const high = shared ? tall / row.layers : tall;
      const y = shared ? whole + Math.min(row.layers - 1, row.layer.get(i)) * high : whole;
      const box = [x, y, wide, shared ? high - 0.7 : tall];
      boxes.set(i, box);
      (untimed ? late : hits).push([i, ...box]);
      const colour = colouring.colour(i);
      const alpha = strength(scene, i);
      if (colour === null) hollow.push([box, alpha]);
      else {
        const name = `${alpha}|${model.isInferred(i) ? "i" : ""}|${colour}|${untimed ? 0 : 1}`;
        let list = fills.get(name);
        if (!list) fills.set(name, (list = []));
        list.push(box, untimed);
      }
      if (own > 46 && box[3] >= 13 && alpha > 0.3) words.push([i, x, y, own, colour]);
    }
    hits.push(...late);
  }
  // Marks that took no time lie over bars.
  for (const [name, list] of fills) if (!name.endsWith("|0")) fillBars(ctx, name, list, tall);
  for (const [name, list] of fills) if (name.endsWith("|0")) fillBars(ctx, name, list, tall);
  hollowBars(ctx, hollow);
  if (view.rowHeight >= 8) flagged(ctx, scene, hits);
  labels(ctx, scene, words, tall, gutter);
  return { hits, boxes };
}

function fillBars(ctx, name, list, tall) {
  const [alpha, inferred, colour] = name.split("|");
  ctx.globalAlpha = inferred ? Number(alpha) * 0.45 : Number(alpha);
  ctx.fillStyle = colour;
  const round = tall >= 10;
  if (!round) for (let k = 0; k < list.length; k += 2) ctx.fillRect(...list[k]);
  else {
    ctx.beginPath();
    for (let k = 0; k < list.length; k += 2) {
      const [x, y, w, h] = list[k];
      if (list[k + 1]) diamond(ctx, x, y, w, h);
      else if (w > 5) ctx.roundRect(x, y, w, h, 3);
      else ctx.rect(x, y, w, h);
    }
    ctx.fill();
  }
  ctx.globalAlpha = 1;
  if (inferred && round) {
    ctx.strokeStyle = colour;
    ctx.setLineDash([3, 2]);
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let k = 0; k < list.length; k += 2) ctx.rect(list[k][0] + 0.5, list[k][1] + 0.5, Math.max(1, list[k][2] - 1), list[k][3] - 1);
    ctx.stroke();
    ctx.setLineDash([]);
  }
}

function diamond(ctx, x, y, w, h) {
  const middle = y + h / 2;
  const half = Math.min(h / 2, w * 0.95);
  ctx.moveTo(x + w / 2, middle - half);
  ctx.lineTo(x + w, middle);
  ctx.lineTo(x + w / 2, middle + half);
  ctx.lineTo(x, middle);
  ctx.closePath();
}

// Not measured: an outline with nothing in it, which no measured value looks like.
function hollowBars(ctx, list) {
  ctx.strokeStyle = ink("muted");
  ctx.lineWidth = 1;
  ctx.setLineDash([2, 2]);
  for (const strong of [true, false]) {
    ctx.globalAlpha = strong ? 0.8 : 0.15;
    ctx.beginPath();
    for (const [[x, y, w, h], alpha] of list) if (alpha > 0.4 === strong) ctx.rect(x + 0.5, y + 0.5, Math.max(2, w - 1), h - 1);
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
  ctx.setLineDash([]);
}

// What went wrong, what strangers wrote, what taint reached.
function flagged(ctx, scene, hits) {
  const { model, taint, marks } = scene;
  for (const [i, x, y, w, h] of hits) {
    if (model.status[i] !== 0 && !scene.isLater(i)) {
      ctx.fillStyle = ink("bad");
      ctx.fillRect(x, y + h - 2.5, Math.max(4, w), 2.5);
    }
    if (marks?.[i]) {
      ctx.strokeStyle = ink(marks[i] === "gone" ? "bad" : marks[i] === "new" ? "good" : "warn");
      ctx.lineWidth = 2;
      ctx.strokeRect(x - 1, y - 1, Math.max(4, w) + 2, h + 2);
    }
    const labels = taint?.labels.get(i);
    if (!labels) continue;
    ctx.fillStyle = ink("taint");
    ctx.fillRect(x, y - 3, Math.max(4, w), 3);
    if (labels.includes("violation")) {
      ctx.strokeStyle = ink("bad");
      ctx.lineWidth = 2;
      ctx.strokeRect(x - 2, y - 4, Math.max(4, w) + 4, h + 7);
    }
    if (labels.includes("source")) {
      ctx.beginPath();
      ctx.moveTo(x - 1, y - 7);
      ctx.lineTo(x + 9, y - 7);
      ctx.lineTo(x + 4, y + 2);
      ctx.fill();
    }
  }
}

function labels(ctx, scene, words, tall, gutter) {
  ctx.font = SMALL;
  ctx.textBaseline = "middle";
  for (const [i, x, y, own, colour] of words) {
    const left = Math.max(gutter + 2, x) + 5;
    const room = x + own - left - 4;
    if (room < 34) continue;
    ctx.fillStyle = colour === null || scene.model.isInferred(i) ? ink("text") : inkOn(colour);
    ctx.fillText(fitted(ctx, visible(scene.model.title(i), 80), room), left, y + tall / 2 + 0.5);
  }
}

const widths = new Map();

function fitted(ctx, text, room) {
  const measured = (given) => {
    const name = ctx.font + given;
    if (widths.size > 20000) widths.clear();
    if (!widths.has(name)) widths.set(name, ctx.measureText(given).width);
    return widths.get(name);
  };
  if (measured(text) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measured(text.slice(0, middle) + "…") <= room) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}

function criticalPath(ctx, scene, boxes, view, yOf, xOf) {
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

function drawArrows(ctx, width, height, scene, view, yOf, xOf, boxes, gutter) {
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
  const [start, end] = [boxes.get(src), boxes.get(dst)];
  const half = Math.min(9, view.rowHeight / 2 - 2);
  const x1 = start ? start[0] + start[2] - 1 : xOf(axis.end[src]);
  const x2 = (end ? end[0] : xOf(axis.start[dst])) + 2;
  const y1 = yOf(from) + view.rowHeight / 2 + down * half * 0.6;
  const y2 = yOf(to) + view.rowHeight / 2 - down * (half + 1);
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

function accents(ctx, scene, boxes) {
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

function cursor(ctx, height, scene, xOf, head) {
  const i = Math.min(scene.cursor, scene.model.n - 1);
  const unit = scene.cursor >= scene.model.n ? scene.axis.total : scene.axis.start[i];
  ctx.strokeStyle = ink("accent");
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(xOf(unit), head);
  ctx.lineTo(xOf(unit), height);
  ctx.stroke();
}

function axis(ctx, width, scene, view, frame, xOf) {
  const { gutter, head, bodyWidth, scale } = frame;
  ctx.fillStyle = ink("panel");
  ctx.fillRect(0, 0, width, head);
  ctx.font = SMALL;
  ctx.textBaseline = "middle";
  const { step, at } = scene.axis.ticks(view.from, view.from + bodyWidth / scale, bodyWidth / 90);
  ctx.strokeStyle = ink("line");
  ctx.fillStyle = ink("muted");
  ctx.fillText(scene.axis.kind === "sequence" ? "event" : step >= 60 ? "time, min:s" : "time", 12, head / 2);
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const unit of at) {
    const x = Math.round(xOf(unit)) + 0.5;
    ctx.moveTo(x, head - 6);
    ctx.lineTo(x, head);
    ctx.fillText(scene.axis.label(unit, step), Math.min(x + 3, width - 40), head / 2);
  }
  ctx.moveTo(0, head - 0.5);
  ctx.lineTo(width, head - 0.5);
  ctx.stroke();
}

function names(ctx, scene, view, first, last, yOf, gutter, height, head) {
  ctx.save();
  ctx.fillStyle = ink("panel");
  ctx.fillRect(0, head, gutter, height - head);
  ctx.beginPath();
  ctx.rect(0, head, gutter, height - head);
  ctx.clip();
  ctx.textBaseline = "middle";
  const readable = view.rowHeight >= 11;
  for (let r = first; r <= last; r++) {
    const row = scene.rows[r];
    const y = yOf(r) + view.rowHeight / 2;
    const x = 8 + Math.min(row.depth, 8) * (gutter < 150 ? 8 : 13);
    if (scene.selected !== null && scene.rowOf[scene.model.lane[scene.selected]] === r) {
      ctx.fillStyle = ink("chosen");
      ctx.fillRect(0, yOf(r), gutter, view.rowHeight);
    }
    ctx.fillStyle = row.lanes.length ? scene.colouring.agentColour(row.lanes[0]) ?? ink("line") : ink("line");
    ctx.fillRect(x - 5, yOf(r) + 2, 2.5, view.rowHeight - 4);
    if (!readable) continue;
    let left = x + 2;
    if (row.open !== null) {
      ctx.fillStyle = ink("muted");
      ctx.beginPath();
      if (row.open) ctx.moveTo(left, y - 2.5), ctx.lineTo(left + 8, y - 2.5), ctx.lineTo(left + 4, y + 3.5);
      else ctx.moveTo(left + 1, y - 4.5), ctx.lineTo(left + 7, y), ctx.lineTo(left + 1, y + 4.5);
      ctx.fill();
      left += 12;
    }
    const more = row.kind === "role" ? ` ×${row.hidden}` : row.hidden ? ` +${row.hidden}` : "";
    ctx.font = row.depth === 0 || row.kind === "role" ? "600 " + FONT : FONT;
    if (view.rowHeight < 15) ctx.font = ctx.font.replace("12px", "10px");
    ctx.fillStyle = ink("text");
    const label = fitted(ctx, visible(row.label, 60), gutter - left - 6 - more.length * 7);
    ctx.fillText(label, left, y + 0.5);
    const used = ctx.measureText(label).width;
    if (more) ctx.fillStyle = ink("muted"), ctx.fillText(more, left + used, y + 0.5);
    if (row.role && row.kind === "agent" && row.role !== row.label && gutter > 150) {
      ctx.font = SMALL;
      ctx.fillStyle = ink("muted");
      const room = gutter - left - used - 14;
      if (room > 26) ctx.fillText(fitted(ctx, visible(row.role, 40), room), left + used + 7, y + 0.5);
    }
  }
  ctx.restore();
  ctx.strokeStyle = ink("line");
  ctx.beginPath();
  ctx.moveTo(gutter - 0.5, 0);
  ctx.lineTo(gutter - 0.5, height);
  ctx.stroke();
}

function remark(ctx, width, height, text) {
  ctx.font = SMALL;
  const wide = ctx.measureText(text).width + 16;
  ctx.fillStyle = ink("panel");
  ctx.globalAlpha = 0.92;
  ctx.beginPath();
  ctx.roundRect(width - wide - 10, height - 30, wide, 22, 6);
  ctx.fill();
  ctx.globalAlpha = 1;
  ctx.fillStyle = ink("muted");
  ctx.textBaseline = "middle";
  ctx.fillText(text, width - wide - 2, height - 19);
}

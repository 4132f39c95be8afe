// The bars of the swim-lanes. Those of one colour are drawn together, and only those on the screen.

import { fitted } from "./fit.js";
import { ink, inkOn } from "./palette.js";
import { visible } from "./text.js";

const LEAST_BAR = 3;
const PILE = [0, -7, 7]; // pixels from the middle of the row, for what falls on one spot

export function barHeight(view) {
  return Math.max(2, Math.min(22, view.rowHeight - (view.rowHeight > 28 ? 12 : view.rowHeight > 10 ? 7 : 1)));
}

export function bars(ctx, width, scene, view, first, last, yOf, xOf, gutter) {
  const { axis, colouring, model } = scene;
  const tall = barHeight(view);
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
    let spot = -Infinity;
    let pile = 0;
    for (; k < row.events.length; k++) {
      const i = row.events[k];
      let x = xOf(axis.start[i]);
      if (x > rightEdge + 4) break;
      const own = xOf(axis.end[i]) - x;
      if (x + own < gutter - 4) continue;
      const untimed = axis.kind === "time" && !(model.duration[i] > 0);
      const wide = untimed ? Math.min(7, tall) : Math.max(LEAST_BAR, own - 1);
      let lift = 0;
      if (untimed) {
        // What took no time stands on its own time; what falls on one spot is set one above the other.
        pile = x - spot < 3 ? pile + 1 : 0;
        if (pile === 0) spot = x;
        lift = view.rowHeight > 20 ? PILE[pile % PILE.length] : 0;
        x -= wide / 2;
      }
      if (!untimed && own < 1 && x + wide <= taken + 0.3 && i !== scene.selected) {
        boxes.set(i, [x, whole, wide, tall]);
        continue; // covered by the bar before
      }
      if (!untimed) taken = Math.max(taken, x + wide);
      const shared = row.layer && row.shares.has(i) && tall >= 6;
      const high = shared ? tall / row.layers : tall;
      const y = untimed ? whole + lift : shared ? whole + Math.min(row.layers - 1, row.layer.get(i)) * high : whole;
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
    if (scene.noted?.has(model.ids[i])) {
      ctx.fillStyle = ink("note");
      ctx.beginPath();
      ctx.moveTo(x + Math.max(4, w) - 7, y - 1);
      ctx.lineTo(x + Math.max(4, w) + 1, y - 1);
      ctx.lineTo(x + Math.max(4, w) + 1, y + 7);
      ctx.fill();
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
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  for (const [i, x, y, own, colour] of words) {
    const left = Math.max(gutter + 2, x) + 5;
    const room = x + own - left - 4;
    if (room < 34) continue;
    ctx.fillStyle = colour === null || scene.model.isInferred(i) ? ink("text") : inkOn(colour);
    ctx.fillText(fitted(ctx, visible(scene.model.title(i), 80), room), left, y + tall / 2 + 0.5);
  }
}

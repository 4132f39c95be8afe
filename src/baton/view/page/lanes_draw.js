// Drawing the swim-lanes: rows and lives, bars and arrows, names on the left, time on top.

import { unitOf } from "./axis.js";
import { fitted } from "./fit.js";
import { accents, criticalPath, drawArrows } from "./lanes_arrows.js";
import { bars } from "./lanes_bars.js";
import { ink } from "./palette.js";
import { visible } from "./text.js";

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
  return { hits: drawn.hits, arrowsDrawn: arrows.drawn, cursor: scene.cursor === null ? null : Math.round(xOf(unitOf(scene.axis, scene.cursor))) };
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

function cursor(ctx, height, scene, xOf, head) {
  const unit = unitOf(scene.axis, scene.cursor);
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

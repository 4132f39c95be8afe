// Where an event is from left to right: by time, with stretches where nobody does anything drawn short if asked for, or by sequence.

const BREAK_SHARE = 0.012; // of the whole width: what an idle stretch keeps
const IDLE_SHARE = 0.03; // of the time: what counts as one

export function makeAxis(model, kind, compress) {
  return kind === "sequence" ? bySequence(model) : byTime(model, compress);
}

function bySequence(model) {
  const start = Float64Array.from({ length: model.n }, (_, i) => i + 0.08);
  const end = Float64Array.from({ length: model.n }, (_, i) => i + 0.92);
  return {
    kind: "sequence",
    total: Math.max(1, model.n),
    start,
    end,
    breaks: [],
    ofMoment: (position) => position,
    label: (unit) => `${Math.round(unit) + 1}`,
    ticks: (from, to, most) => steps(from, to, most, true),
    place: (i) => i + 1,
    begun: highest(start),
  };
}

function byTime(model, compress) {
  const whole = model.endOfAll || 1;
  const gaps = compress ? idle(model, whole * IDLE_SHARE) : [];
  const saved = gaps.reduce((sum, [from, to]) => sum + (to - from), 0);
  const kept = (whole - saved) * BREAK_SHARE;
  // Piecewise: knots[k] is a moment, units[k] its place.
  const knots = [0];
  const units = [0];
  for (const [from, to] of gaps) {
    const last = knots.length - 1;
    knots.push(from, to);
    units.push(units[last] + from - knots[last], units[last] + from - knots[last] + kept);
  }
  const place = (t) => {
    let low = 0;
    let high = knots.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (knots[middle] <= t) low = middle;
      else high = middle - 1;
    }
    if (low % 2 === 1) return units[low] + ((t - knots[low]) / (knots[low + 1] - knots[low])) * kept;
    return units[low] + t - knots[low];
  };
  const moment = (unit) => {
    let k = 0;
    while (k + 1 < units.length && units[k + 1] <= unit) k++;
    if (k % 2 === 1) return knots[k] + ((unit - units[k]) / kept) * (knots[k + 1] - knots[k]);
    return knots[k] + unit - units[k];
  };
  const start = Float64Array.from(model.t, place);
  return {
    kind: "time",
    total: place(whole) || 1,
    start,
    begun: highest(start),
    end: Float64Array.from(model.end, place),
    breaks: gaps.map(([from, to]) => ({ from: place(from), to: place(to), seconds: to - from })),
    ofMoment: place,
    moment,
    label: (unit, step) => clock(moment(unit), step),
    ticks: (from, to, most) => steps(from, to, most, false, true),
    place,
  };
}

// How far the trace had come as each event began, which may be recorded a little out of order.
function highest(start) {
  let most = 0;
  return start.map((unit) => (most = Math.max(most, unit)));
}

// Where the moment is that `position` events have begun by, and how many have begun by a place: one is the other's inverse.
export function unitOf(axis, position) {
  if (position >= axis.begun.length) return axis.total;
  return position <= 0 ? 0 : axis.begun[position - 1];
}

export function positionOf(axis, unit) {
  let low = 0;
  let high = axis.begun.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (axis.begun[middle] <= unit) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Stretches of at least `least` seconds in which no event is under way.
function idle(model, least) {
  const order = [...model.t.keys()].sort((a, b) => model.t[a] - model.t[b]);
  const gaps = [];
  let busyUntil = 0;
  for (const i of order) {
    if (model.t[i] - busyUntil > least) gaps.push([busyUntil, model.t[i]]);
    busyUntil = Math.max(busyUntil, model.end[i]);
  }
  return gaps;
}

const CLOCK = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

function steps(from, to, most, whole, clockwise = false) {
  const rough = Math.max((to - from) / Math.max(1, most), 1e-9);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  if (clockwise && rough > 5) step = CLOCK.find((n) => n >= rough) ?? step;
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return { step, at: found };
}

function clock(t, step) {
  if (step >= 60) {
    const whole = Math.round(t);
    return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  }
  const [scale, unit] = step < 0.001 ? [1e6, "µs"] : step < 0.1 && t < 10 ? [1000, "ms"] : [1, "s"];
  const digits = Math.max(0, Math.min(4, -Math.floor(Math.log10(step * scale || 1) + 1e-9)));
  return `${(t * scale).toFixed(digits)} ${unit}`;
}

// Training curves, drawn by uPlot: one cursor over all of them. A value that was not measured leaves a gap.

import { h, replace } from "./dom.js";
import { hue, ink, onTheme } from "./palette.js";
import { number, spoken, visible } from "./text.js";

const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
const DECISIONS = ["spawn", "delegate", "communicate", "aggregate", "stop"];

function plots(run, steps, evals) {
  const of = (name, get, more = {}) => ({ label: name, values: steps.map((step) => finite(get(step))), ...more });
  const named = (get) => [...new Set(steps.flatMap((step) => Object.keys(get(step) ?? {})))];
  const found = [
    {
      title: "Return",
      series: [of("team", (step) => step.return?.mean, { half: steps.map((step) => finite(step.return?.half)) }), ...evaluated(steps, evals)],
      levels: references(run, evals),
    },
    { title: "Regret by decision", stacked: true, series: DECISIONS.map((name) => of(name, (step) => step.regret?.[name])) },
    { title: "Rewards", series: named((step) => step.rewards).map((name) => of(name, (step) => step.rewards?.[name])) },
    { title: "Credit by unit, mean size", series: named((step) => step.credit).map((name) => of(name, (step) => step.credit?.[name]?.mean_abs)) },
    { title: "Team size", series: ["agents", "messages", "events"].map((name) => of(name, (step) => step.sizes?.[name])) },
    { title: "Entropy", series: [of("entropy", (step) => step.entropy)] },
    { title: "Loss", series: [of("loss", (step) => step.loss)] },
    { title: "Gradient norm", series: [of("gradient norm", (step) => step.grad_norm)] },
    { title: "Divergence and clipping", series: [of("KL", (step) => step.kl), of("clipped", (step) => step.clip_fraction), of("KL of a step", (step) => step.moved)] },
    { title: "Invalid answers", series: [of("invalid", (step) => step.sizes?.invalid)] },
    { title: "Tokens a second", series: [of("tokens a second", (step) => step.tokens_per_second)] },
  ];
  for (const plot of found) plot.series = plot.series.filter((one) => one.values.some((value) => value !== null));
  return found.filter((plot) => plot.series.length);
}

// What the team's return is to be held against, each where it is known.
function references(run, evals) {
  const of = (who) => evals.find((one) => one.who === who)?.return?.mean;
  return [["optimum", run.optimum ?? of("optimum")], ["random play", run.floor ?? of("random")], ["single agent", of("single-agent")], ["untrained", of("untrained")]];
}

function finite(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function evaluated(steps, evals) {
  const place = new Map(steps.map((step, k) => [step.step, k]));
  const found = new Map();
  for (const one of evals) {
    if (["optimum", "untrained", "random", "single-agent"].includes(one.who) || !place.has(one.step)) continue;
    if (!found.has(one.who)) found.set(one.who, steps.map(() => null));
    found.get(one.who)[place.get(one.step)] = finite(one.return?.mean);
  }
  return [...found].map(([who, values]) => ({ label: `evaluated: ${who}`, values, points: true }));
}

export function curves(host) {
  const box = h("div", { class: "plots" });
  host.append(box);
  let made = [];
  let last = null;
  const draw = () => {
    for (const plot of made) plot.destroy();
    made = [];
    replace(box);
    if (last) for (const plot of plots(...last)) made.push(onePlot(box, plot, last[1]));
  };
  const sizes = new ResizeObserver(() => {
    for (const plot of made) plot.setSize({ width: plot.root.parentElement.clientWidth, height: 190 });
  });
  sizes.observe(box);
  const off = onTheme(draw);
  return {
    set(run, steps, evals) {
      last = [run, steps, evals];
      draw();
    },
    destroy() {
      off();
      sizes.disconnect();
      for (const plot of made) plot.destroy();
      box.remove();
    },
  };
}

function onePlot(box, plot, steps) {
  const xs = steps.map((step) => step.step);
  const levels = (plot.levels ?? []).filter(([, value]) => typeof value === "number");
  const shown = plot.stacked ? stack(plot.series) : plot.series;
  const data = [xs, ...shown.map((one) => one.values)];
  const series = [{ label: "step" }];
  const bands = [];
  shown.forEach((one, k) => {
    const colour = hue(k);
    series.push({ label: one.label, stroke: colour, width: one.points ? 0 : 1.8, fill: plot.stacked && k === 0 ? colour + "88" : undefined, points: { show: Boolean(one.points) || xs.length < 2, size: 7, fill: colour }, spanGaps: false });
  });
  if (plot.stacked) for (let k = 1; k < shown.length; k++) bands.push({ series: [k + 1, k], fill: hue(k) + "88" });
  const first = plot.series[0];
  if (first.half?.some((value) => value !== null)) {
    for (const way of [1, -1]) {
      data.push(first.values.map((value, k) => (value === null || first.half[k] === null ? null : value + way * first.half[k])));
      series.push({ stroke: "transparent", points: { show: false } });
    }
    bands.push({ series: [data.length - 2, data.length - 1], fill: hue(0) + "33" });
  }
  const legend = h("div", { class: "plot-legend" });
  const card = h("figure", { class: "plot" }, h("figcaption", {}, plot.title), legend);
  box.append(card);
  const tell = (at) => replace(legend, at === null ? null : h("span", { class: "muted" }, `step ${number(xs[at])}`), plot.series.map((one, k) => {
    const dot = h("i", { class: "swatch" });
    dot.style.backgroundColor = hue(k);
    return h("span", { class: "key" }, dot, spoken(visible(one.label, 40)), at === null ? null : h("b", {}, ` ${number(one.values[at])}`));
  }), levels.map(([name, value], k) => h("span", { class: "key" }, levelKey(k), `${name} ${number(value)}`)));
  tell(null);
  const axis = () => ({ stroke: ink("muted"), grid: { stroke: ink("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui", size: 46 });
  const drawn = new uPlot({
    width: card.clientWidth || 360,
    height: 190,
    legend: { show: false },
    cursor: { sync: { key: "steps" }, points: { size: 6 }, drag: { x: true, y: false } },
    scales: { x: { time: false }, y: { range: (_, low, high) => padded(low, high, levels.map(([, value]) => value)) } },
    axes: [{ ...axis(), size: 26, incrs: WHOLE }, axis()],
    series,
    bands,
    hooks: {
      setCursor: [(one) => tell(one.cursor.idx ?? null)],
      draw: [(one) => levels.forEach(([, value], k) => level(one, value, k))],
    },
  }, data, card);
  return drawn;
}

const LEVELS = ["good", "muted", "t-human", "t-aggregate"];

function levelKey(k) {
  const made = h("i", { class: "level" });
  made.style.borderTopColor = ink(LEVELS[k % LEVELS.length]);
  return made;
}

function stack(series) {
  const sums = series[0].values.map(() => 0);
  const stacked = series.map((one) => ({ ...one, values: one.values.map((value, k) => (value === null ? null : (sums[k] += value))) }));
  return stacked;
}

function padded(low, high, levels) {
  const [least, most] = [Math.min(low ?? 0, ...levels), Math.max(high ?? 1, ...levels)];
  const room = (most - least || Math.abs(most) || 1) * 0.06;
  return [least >= 0 && least < most * 0.3 ? 0 : least - room, most + room];
}

function level(plot, value, k) {
  const { ctx } = plot;
  const y = Math.round(plot.valToPos(value, "y", true)) + 0.5;
  ctx.save();
  ctx.strokeStyle = ink(LEVELS[k % LEVELS.length]);
  ctx.setLineDash([6, 5]);
  ctx.lineWidth = devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(plot.bbox.left, y);
  ctx.lineTo(plot.bbox.left + plot.bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

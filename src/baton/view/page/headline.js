// What training did, in a sentence and a few numbers, from the run's own lines.

import { h } from "./dom.js";
import { tile } from "./heading.js";
import { NOT_MEASURED, number, seconds, signed, spoken, visible } from "./text.js";

const DECISIONS = ["spawn", "delegate", "communicate", "aggregate", "stop"];

export function headline(run, steps, evals, pairs) {
  const last = steps[steps.length - 1];
  const status = run.status ?? "unknown";
  const made = last ? last.step + (steps[0].step === 0 ? 1 : 0) : 0; // some count from 0, some from 1
  const done = last ? Math.min(1, made / (run.steps || made)) : 0;
  const chips = h("div", { class: "title" },
    h("span", { class: `chip ${status === "running" ? "live" : status === "diverged" ? "bad" : ""}` }, visible(status, 20)),
    h("span", { class: "muted" }, visible([run.recipe, run.task, run.seed === undefined ? null : `seed ${run.seed}`].filter(Boolean).join(" · "), 160)),
    run.why ? h("span", { class: "bad" }, visible(run.why, 300)) : null);
  const bar = status === "running" ? h("div", { class: "bar progress", role: "progressbar", "aria-valuenow": Math.round(done * 100) }, h("i", { style: { width: `${done * 100}%` } })) : null;
  if (!last) return h("div", {}, chips, run.about ? h("p", {}, visible(run.about, 400)) : null, bar, h("p", { class: "hint" }, "No step has been finished yet."));
  const [early, late] = [average(steps.slice(0, few(steps))), average(steps.slice(-few(steps)))];
  const tiles = h("div", { class: "tiles" },
    tile("return lately", number(mean(late)), "worth"),
    tile("since the beginning", signed(mean(late) - mean(early))),
    tile("optimum", number(run.optimum)),
    tile("regret lately", late.regret ? number(late.regret.total) : NOT_MEASURED),
    tile("steps", `${number(made)}${run.steps ? ` / ${number(run.steps)}` : ""}`),
    tile("tokens", number(last.total_tokens)),
    tile("time", seconds(last.seconds)),
    tile("warnings", number(steps.reduce((sum, step) => sum + (step.warnings?.length ?? 0), 0))));
  return h("div", {}, chips, run.about ? h("p", {}, visible(run.about, 400)) : null, bar, h("p", { class: "lead" }, measured(evals), sentence(run, early, late, few(steps))), tiles,
    pairs.length ? h("p", {}, "The same instance before and after training: ", pairs.flatMap((pair, k) => (k ? [", ", pair] : [pair]))) : null,
    warnings(steps));
}

// One step is a handful of episodes; a tenth of the run at either end is less a matter of luck.
function few(steps) {
  return Math.max(1, Math.min(10, Math.round(steps.length / 10)));
}

function average(steps) {
  const of = (get) => {
    const known = steps.map(get).filter((value) => typeof value === "number");
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  };
  const regret = Object.fromEntries(["total", ...DECISIONS].map((name) => [name, of((step) => step.regret?.[name])]).filter(([, value]) => value !== null).map(([name, value]) => [name, Math.abs(value) < 1e-9 ? 0 : value]));
  return { return: { mean: of((step) => step.return?.mean) }, regret: "total" in regret ? regret : null };
}

function mean(step) {
  return step.return?.mean ?? NaN;
}

// Held-out episodes say more than those it trained on.
function measured(evals) {
  const latest = (who) => evals.filter((one) => one.who === who).pop();
  const [before, after] = [latest("untrained"), latest("team")];
  if (!before?.return || !after?.return) return "";
  const with_ = (one) => `${number(one.return.mean)}${one.return.half ? ` ± ${number(one.return.half)}` : ""}`;
  return `Measured apart, the team returns ${with_(after)}; before training it returned ${with_(before)}. `;
}

function sentence(run, early, late, n) {
  const said = [`While it trained, the team’s return went from ${number(mean(early))} in the first ${n === 1 ? "step" : `${n} steps`} to ${number(mean(late))} in the last`];
  const { optimum, floor } = run;
  if (typeof optimum === "number") said.push(`; the best there is, on average, is ${number(optimum)}${typeof floor === "number" ? `, and random play earns ${number(floor)}` : ""}`);
  said.push(".");
  if (late.regret) {
    const left = DECISIONS.map((name) => [name, late.regret[name] ?? 0]).sort((a, b) => b[1] - a[1]);
    said.push(` Regret went from ${number(early.regret?.total)} to ${number(late.regret.total)}`);
    said.push(late.regret.total > 0 ? `; most of what is left is in ${left[0][0]} (${number(left[0][1])}).` : ".");
  }
  return said.join("");
}

export function evaluations(evals) {
  if (!evals.length) return null;
  const latest = new Map();
  for (const one of evals) latest.set(one.who, one);
  const rows = [...latest.values()].sort((a, b) => (b.return?.mean ?? -Infinity) - (a.return?.mean ?? -Infinity)).map((one) => h("tr", {},
    h("td", {}, visible(one.who, 40)),
    h("td", { class: "num" }, number(one.return?.mean), one.return?.half ? ` ± ${number(one.return.half)}` : ""),
    h("td", { class: one.regret ? "num" : "num none" }, one.regret ? number(one.regret.total) : NOT_MEASURED),
    h("td", { class: typeof one.tokens === "number" ? "num" : "num none" }, number(one.tokens)),
    h("td", { class: typeof one.episodes === "number" ? "num" : "num none" }, typeof one.episodes === "number" ? number(one.episodes) : "exact"),
    h("td", { class: "num" }, number(one.step))));
  return h("section", {}, h("h2", {}, "Evaluations"), h("div", { class: "wide" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["who", "return", "regret", "tokens an episode", "episodes", "at step"].map((name, k) => h("th", { class: k ? "num" : "" }, name)))), h("tbody", {}, rows))));
}

function warnings(steps) {
  const found = steps.flatMap((step) => (step.warnings ?? []).map((warning) => ({ step: step.step, ...warning })));
  if (!found.length) return null;
  const latest = found.slice(-8).reverse();
  return h("section", {}, h("h2", {}, "Monitors"), h("ul", { class: "warnings" }, latest.map((one) => h("li", {}, h("b", {}, `step ${number(one.step)}, ${spoken(visible(one.monitor, 40))}: `), visible(one.message, 300)))),
    found.length > latest.length ? h("p", { class: "hint" }, `and ${number(found.length - latest.length)} before`) : null);
}

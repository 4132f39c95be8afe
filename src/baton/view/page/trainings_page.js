// Training runs beside each other: what differs between their recipes, what came out, and their curves in one plot.
// Which are drawn is in the address.

import { h, replace } from "./dom.js";
import { watch } from "./live.js";
import { made } from "./report.js";
import { ask } from "./source.js";
import { Table } from "./table.js";
import { number, visible } from "./text.js";
import { term } from "./traces_columns.js";

const MOST = 8;

export class TrainingsPage {
  constructor(host, params, context) {
    this.host = host;
    this.context = context;
    this.drawn = chosen(params.get("runs"));
    this.step = null; // of which traces are wanted
  }

  async open() {
    this.plots = h("div", { class: "plots three", on: { step: (event) => this.toStep(event.detail) } });
    this.told = h("p", { class: "hint", role: "status" });
    this.list = h("div", {});
    replace(this.host, h("div", { class: "page" }, h("h1", {}, "Training runs"), this.told, h("div", { class: "report" }, this.plots), h("section", {}, h("h2", {}, "Recipes tried"), this.list)));
    await this.update();
    this.unwatch = watch("trainings", {}, () => this.update());
  }

  destroy() {
    this.unwatch?.();
  }

  async update() {
    try {
      const turn = (this.turn = (this.turn ?? 0) + 1);
      let found = await ask("trainings", { runs: JSON.stringify(this.drawn ?? []) });
      if (this.drawn === null) { // at first those that worked on the same task as the newest
        const first = found.runs.find((run) => run.done) ?? found.runs[0];
        this.drawn = found.runs.filter((run) => run.done && run.task === first?.task).slice(0, MOST).map((run) => run.key);
        found = await ask("trainings", { runs: JSON.stringify(this.drawn) });
      }
      if (turn === this.turn) this.show(found);
    } catch (error) {
      this.told.textContent = error.message;
    }
  }

  show({ runs, plots }) {
    this.tell();
    replace(this.plots, plots.map(made));
    const names = Object.keys(runs[0]?.differs ?? {});
    const numeric = (name, title, of = (run) => run[name]) => ({ name, title, numeric: true, of, cell: (run) => number(of(run)) });
    this.table = new Table(this.list, [
      { name: "draw", of: (run) => (this.drawn.includes(run.key) ? 1 : 0), cell: (run) => h("input", { type: "checkbox", "aria-label": `Draw ${visible(run.key, 60)}`, checked: this.drawn.includes(run.key), on: { change: () => this.pick(run.key) } }) },
      { name: "run", of: (run) => run.key, cell: (run) => h("a", { href: `#place?${new URLSearchParams({ place: run.key })}` }, visible(run.key, 80)) },
      { name: "recipe", of: (run) => run.recipe, cell: (run) => visible(run.recipe, 40) },
      { name: "task", of: (run) => run.task, cell: (run) => visible(run.task, 50) },
      { name: "status", of: (run) => run.status, cell: (run) => h("span", { class: `chip ${run.status === "running" ? "live" : run.status === "diverged" ? "bad" : ""}` }, visible(run.status, 20)) },
      numeric("done", "steps"),
      numeric("before", "untrained"),
      { name: "after", title: "trained", numeric: true, of: (run) => run.after, cell: (run) => (run.half === null || run.after === null ? number(run.after) : `${number(run.after)} ± ${number(run.half)}`) },
      numeric("gain", "gain", (run) => (run.after === null || run.before === null ? null : run.after - run.before)),
      numeric("regret", "regret"),
      numeric("tokens", "tokens"),
      ...names.map((name) => ({ name: `differs ${name}`, title: visible(name, 40), of: (run) => run.differs[name], cell: (run) => (run.differs[name] === null ? "not set" : visible(run.differs[name], 60)) })),
    ], { press: (run) => this.context.go("place", { place: run.key }), sort: this.table?.sort ?? ["after", -1], empty: "No training run is open here. Type: baton train grpo --out runs/grpo" });
    this.table.set(runs);
  }

  pick(key) {
    this.step = null;
    this.drawn = this.drawn.includes(key) ? this.drawn.filter((one) => one !== key) : [...this.drawn, key].slice(-MOST);
    this.context.remember({ runs: JSON.stringify(this.drawn) });
    this.update();
  }

  // One run: its traces of that step. Several: they are named, and one is chosen, whatever is told meanwhile.
  toStep(step) {
    this.step = step;
    if (this.drawn.length === 1) this.toTraces(this.drawn[0]);
    else this.tell();
  }

  toTraces(key) {
    this.context.go("place", { place: key, q: term("step", this.step) });
  }

  tell() {
    const said = this.drawn.length ? "Press a step in a plot to see its traces. A band is a 95 % interval." : "Tick runs to draw them.";
    const runs = () => this.drawn.flatMap((key, k) => [k ? ", " : "", h("button", { class: "link", on: { click: () => this.toTraces(key) } }, visible(key, 60))]);
    replace(this.told, this.step === null ? said : [`Traces of step ${number(this.step)}: `, runs()]);
  }
}

function chosen(text) {
  try {
    const found = JSON.parse(text);
    return Array.isArray(found) ? found.filter((one) => typeof one === "string").slice(0, MOST) : null;
  } catch {
    return null;
  }
}

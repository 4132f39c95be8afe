// A training run: its report, and the traces in it with search, filter and sort. Live while it is written.

import { h, replace, select } from "./dom.js";
import { watch } from "./live.js";
import { forget, pair, pick, picked } from "./picks.js";
import { Report } from "./report.js";
import { ask } from "./source.js";
import { Table } from "./table.js";
import { number, seconds, visible } from "./text.js";

export class RunPage {
  constructor(host, params, context) {
    this.host = host;
    this.place = params.get("place") ?? "";
    this.context = context;
    this.filter = { words: "", state: "all", step: params.get("step") ?? "" };
  }

  async open() {
    const first = await ask("rows", { place: this.place }).catch((error) => ({ rows: [], complete: true, problem: error.message }));
    this.build();
    this.showRows(first);
    await this.update();
    this.unwatch = [watch("rows", { place: this.place }, (told) => this.rowsChanged(told))];
    this.unwatch.push(watch("training", { place: this.place }, ({ stamp }) => stamp !== this.seen && this.tried(this.update())));
  }

  destroy() {
    this.unwatch?.forEach((end) => end());
  }

  build() {
    this.above = h("div", {});
    this.told = h("div", { on: { step: (event) => this.fromCurve(event.detail) } });
    this.list = h("div", {});
    this.state = h("span", { class: "muted", role: "status" });
    this.filters = h("div", { class: "toolbar" });
    this.problem = h("div", {});
    replace(this.host, h("div", { class: "page" },
      this.told,
      h("section", { id: "report-traces" }, h("h2", {}, "Traces ", this.state), this.problem, this.filters, this.list)));
    this.table = new Table(this.list, this.columns(), {
      press: (row) => this.context.go("trace", { place: this.place, id: row.id }),
      empty: "No trace fits.",
    });
    this.drawFilters();
  }

  columns() {
    const numeric = (name, title, show = number) => ({ name, title, numeric: true, of: (row) => row[name], cell: (row) => show(row[name]) });
    return [
      { name: "pick", title: "diff", of: (row) => (picked(this.place, row.id) ? 1 : 0), cell: (row) => h("input", { type: "checkbox", "aria-label": `Compare ${visible(row.id, 60)}`, checked: picked(this.place, row.id), on: { change: () => this.pick(row.id) } }) },
      { name: "id", title: "trace", of: (row) => row.id, cell: (row) => h("a", { href: `#trace?${new URLSearchParams({ place: this.place, id: row.id })}` }, visible(row.id, 80)) },
      numeric("step", "step"),
      numeric("reward", "reward"),
      numeric("agents", "agents"),
      numeric("events", "events"),
      numeric("tokens", "tokens"),
      numeric("seconds", "took", seconds),
      { name: "state", of: (row) => (row.finished ? "finished" : "live"), cell: (row) => (row.forked_from ? "fork" : row.finished ? "finished" : h("span", { class: "chip live" }, "not finished")) },
    ];
  }

  drawFilters() {
    const search = h("input", { type: "search", placeholder: "find traces…", "aria-label": "Find traces", value: this.filter.words, on: { input: (event) => this.narrow({ words: event.target.value }) } });
    const state = select("State", [{ value: "all", label: "all" }, { value: "finished", label: "finished" }, { value: "live", label: "not finished" }, { value: "best", label: "best tenth" }, { value: "worst", label: "worst tenth" }], this.filter.state, (value) => this.narrow({ state: value }));
    const step = h("label", { class: "field" }, "step ", h("input", { type: "number", min: 0, size: 6, "aria-label": "Step", value: this.filter.step, on: { input: (event) => this.atStep(event.target.value) } }));
    this.compare = h("button", { disabled: true, on: { click: () => this.diff() } }, "compare two");
    replace(this.filters, search, h("label", { class: "field" }, "show ", state), step, this.compare, h("span", { class: "muted small" }, "tick two traces, here or in two places, to compare them"));
  }

  narrow(changes) {
    Object.assign(this.filter, changes);
    this.fillTable();
  }

  // The traces that one step played: from its number, or from a press on a curve above.
  atStep(step) {
    this.context.remember({ step: step === "" ? null : step });
    this.narrow({ step: String(step) });
  }

  fromCurve(step) {
    this.atStep(step);
    this.drawFilters();
    this.fillTable();
    document.getElementById("report-traces").scrollIntoView({ block: "start" });
  }

  pick(id) {
    pick(this.place, id);
    this.fillTable();
  }

  diff() {
    const both = pair();
    forget();
    this.context.go("diff", both);
  }

  showRows({ rows, complete, problem, stamp }) {
    this.rows = rows;
    this.stamp = stamp;
    this.state.textContent = `${number(rows.length)}${complete ? "" : ", reading more…"}`;
    replace(this.problem, problem ? h("p", { class: "bad", role: "alert" }, visible(problem, 600)) : null);
    this.fillTable();
  }

  fillTable() {
    const words = this.filter.words.toLowerCase().split(/\s+/).filter(Boolean);
    let rows = this.rows.filter((row) => words.every((word) => `${row.id} ${row.task} ${row.topology} ${row.step ?? ""}`.toLowerCase().includes(word)));
    if (this.filter.step !== "") rows = rows.filter((row) => row.step === Number(this.filter.step));
    if (this.filter.state === "finished") rows = rows.filter((row) => row.finished);
    if (this.filter.state === "live") rows = rows.filter((row) => !row.finished);
    if (["best", "worst"].includes(this.filter.state)) {
      const way = this.filter.state === "best" ? -1 : 1;
      rows = rows.filter((row) => row.reward !== null).sort((a, b) => (a.reward - b.reward) * way);
      rows = rows.slice(0, Math.max(1, Math.ceil(rows.length / 10)));
    }
    this.compare.disabled = pair() === null;
    this.table.set(rows);
  }

  // What is told while one question is out is asked for after it.
  async rowsChanged({ error }) {
    if (error) {
      this.state.textContent = error;
      return;
    }
    this.again = this.busy;
    if (this.busy) return;
    this.busy = true;
    await this.tried(ask("rows", { place: this.place, stamp: this.stamp ?? "" }).then((found) => {
      if (!found.unchanged) this.showRows(found);
      else this.state.textContent = number(this.rows.length);
    }));
    this.busy = false;
    if (this.again) this.rowsChanged({});
  }

  async tried(work) {
    try {
      await work;
    } catch (error) {
      this.state.textContent = error.message;
    }
  }

  async update() {
    const found = await ask("training", { place: this.place, stamp: this.seen ?? "" });
    if (found.unchanged) return;
    this.seen = found.stamp;
    this.report ??= new Report(this.told, this.above, { key: "traces", title: "Traces" });
    this.report.set(found);
    const share = found.steps ? Math.min(100, Math.round((100 * found.done) / found.steps)) : 0;
    const pairs = this.pairs();
    replace(this.above,
      found.status === "running" ? h("div", { class: "bar progress", role: "progressbar", "aria-label": "Steps done", "aria-valuenow": share }, h("i", { style: { width: `${share}%` } })) : null,
      pairs.length ? h("p", {}, "The same instance before and after training: ", pairs.flatMap((pair, k) => (k ? [", ", pair] : [pair]))) : null);
    this.above.dataset.steps = found.done;
  }

  // Links to the same instance before and after training.
  pairs() {
    const ids = new Set((this.rows ?? []).map((row) => row.id));
    const found = [...ids].filter((id) => id.startsWith("before-") && ids.has(id.replace("before-", "after-"))).slice(0, 6);
    return found.map((id) => h("button", { class: "link", on: { click: () => this.context.go("diff", { place: this.place, id, place2: this.place, id2: id.replace("before-", "after-") }) } }, visible(id.replace("before-", "example "), 40)));
  }
}

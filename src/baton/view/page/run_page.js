// A training run: its report, and its traces in the one table. Live while it is written.

import { h, replace } from "./dom.js";
import { watch } from "./live.js";
import { Report } from "./report.js";
import { ask } from "./source.js";
import { visible } from "./text.js";
import { term } from "./traces_columns.js";
import { TracesTable } from "./traces_table.js";

const COLUMNS = ["trace", "step", "reward", "regret", "success", "tokens", "took", "agents", "events", "stop"];
const MOST_PAIRS = 6;

export class RunPage {
  constructor(host, params, context) {
    this.host = host;
    this.place = params.get("place") ?? "";
    this.context = context;
    this.params = params;
  }

  async open() {
    this.build();
    await Promise.all([this.table.open(), this.tried(this.update())]);
    this.unwatch = watch("training", { place: this.place }, ({ stamp }) => stamp !== this.seen && this.tried(this.update()));
  }

  destroy() {
    this.unwatch?.();
    this.table?.destroy();
  }

  key(event) {
    return this.table.key(event);
  }

  build() {
    this.above = h("div", {});
    this.told = h("div", { on: { step: (event) => this.fromCurve(event.detail) } });
    this.problem = h("p", { class: "bad", role: "alert", hidden: true });
    const list = h("div", { class: "inset" });
    this.section = h("section", { id: "report-traces" }, h("h2", {}, "Traces"), list);
    replace(this.host, h("div", { class: "page" }, this.told, this.problem, this.section));
    this.table = new TracesTable(list, this.params, this.context, { place: this.place, columns: COLUMNS, sort: "-step", side: false });
  }

  // The traces that one step played: from a press on a curve above.
  fromCurve(step) {
    this.table.only("step", step);
    this.section.scrollIntoView({ block: "start" });
  }

  async tried(work) {
    try {
      await work;
      this.problem.hidden = true;
    } catch (error) {
      this.problem.hidden = false;
      this.problem.textContent = visible(error.message, 400);
    }
  }

  async update() {
    const found = await ask("training", { place: this.place, stamp: this.seen ?? "" });
    if (found.unchanged) return;
    this.seen = found.stamp;
    this.report ??= new Report(this.told, this.above, { key: "traces", title: "Traces" });
    this.report.set(found);
    const share = found.steps ? Math.min(100, Math.round((100 * found.done) / found.steps)) : 0;
    const pairs = await this.pairs();
    replace(this.above,
      found.status === "running" ? h("div", { class: "bar progress", role: "progressbar", "aria-label": "Steps done", "aria-valuenow": share }, h("i", { style: { width: `${share}%` } })) : null,
      pairs.length ? h("p", {}, "The same instance before and after training: ", pairs.flatMap((pair, k) => (k ? [", ", pair] : [pair]))) : null);
    this.above.dataset.steps = found.done;
  }

  // Links to the same instance before and after training.
  async pairs() {
    const named = async (words) => (await ask("table", { q: `${term("place", this.place)} (${words})`, sort: "trace", rows: 2 * MOST_PAIRS })).rows.map((row) => row.id);
    const before = (await named("trace:before-")).filter((id) => id.startsWith("before-"));
    if (!before.length) return [];
    const after = new Set(await named(before.map((id) => term("trace", id.replace("before-", "after-"))).join(" or ")));
    const found = before.filter((id) => after.has(id.replace("before-", "after-"))).slice(0, MOST_PAIRS);
    return found.map((id) => h("button", { class: "link", on: { click: () => this.context.go("diff", { place: this.place, id, place2: this.place, id2: id.replace("before-", "after-") }) } }, visible(id.replace("before-", "example "), 40)));
  }
}

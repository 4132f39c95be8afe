// What to do with traces: with those that are ticked, or, where none is, with all that the query finds.

import { h, replace } from "./dom.js";
import { ask, download, post } from "./source.js";
import { count, number, seconds, visible } from "./text.js";

const MOST = 400; // a longer list fits no address
const BY = ["", "topology", "task", "instance", "place", "policy", "stop", "step", "system", "label"];
const FIGURES = [["reward"], ["regret"], ["success"], ["tokens"], ["price"], ["took", seconds], ["agents"], ["events"]];

export class Chosen {
  // scope() -> what the table shows: {query, sort, total}
  constructor(params, context, { changed, scope }) {
    Object.assign(this, { context, changed, scope });
    this.picks = new Map();
    for (const [place, id] of given(params.get("picks"))) this.picks.set(`${place}\n${id}`, [place, id]);
    this.by = params.get("measure"); // null: closed
    this.said = h("span", { class: "muted small", role: "status" });
    this.who = h("b", {});
    this.measures = h("div", {});
    this.label = h("input", { type: "text", "aria-label": "Label", placeholder: "label", size: 12, on: { keydown: (event) => event.key === "Enter" && this.write() } });
    this.clear = h("button", { class: "link", on: { click: () => this.forget() } }, "untick all");
    this.measure = h("button", { class: "toggle", "aria-pressed": String(this.by !== null), on: { click: () => this.open(this.by === null ? "" : null) } }, "measure");
    this.bar = h("div", {}, h("div", { class: "toolbar chosen" }, this.who, this.clear,
      h("button", { on: { click: () => this.compare() } }, "compare"), this.measure,
      h("span", { class: "group" }, this.label, h("button", { on: { click: () => this.write() } }, "label")),
      h("button", { title: "The lines of the table, for a spreadsheet", on: { click: () => download("export", { ...this.query(), as: "csv" }) } }, "export table"),
      h("button", { title: "The traces themselves, as JSON Lines", on: { click: () => download("export", { ...this.query(), as: "jsonl" }) } }, "export traces"),
      this.said), this.measures);
  }

  column() {
    return {
      name: "chosen", title: "", width: 42, sorts: false, kind: "tick", mark: (row) => this.has(row),
      cell: (row) => h("input", { type: "checkbox", "aria-label": `Choose ${visible(row.id, 60)}`, checked: this.has(row), on: { change: () => this.toggle(row) } }),
    };
  }

  has(row) {
    return this.picks.has(`${row.place}\n${row.id}`);
  }

  toggle(row) {
    const name = `${row.place}\n${row.id}`;
    if (this.picks.has(name)) this.picks.delete(name);
    else if (this.picks.size >= MOST) this.tell(`At most ${MOST} can be ticked. A query finds as many as there are.`);
    else this.picks.set(name, [row.place, row.id]);
    this.kept();
  }

  forget() {
    this.picks.clear();
    this.kept();
  }

  kept() {
    this.context.remember({ picks: this.picks.size ? JSON.stringify([...this.picks.values()]) : null });
    this.draw();
    this.figures();
    this.changed();
  }

  query() {
    const { query, sort } = this.scope();
    return this.picks.size ? { picks: JSON.stringify([...this.picks.values()]), sort } : { q: query, sort };
  }

  draw() {
    const { total } = this.scope();
    this.who.textContent = this.picks.size ? `${number(this.picks.size)} ticked` : `all ${count(total, "trace")}`;
    this.clear.hidden = !this.picks.size;
  }

  tell(text) {
    this.said.textContent = text;
  }

  compare() {
    this.context.go("compare", this.query());
  }

  async write() {
    const label = this.label.value.trim();
    if (!label) return this.label.focus();
    try {
      const { labelled, had_it: had } = await post("label", { ...this.query(), label });
      this.tell(`${count(labelled, "trace")} labelled${had ? `, ${number(had)} had it` : ""}`);
      this.label.value = "";
    } catch (error) {
      this.tell(visible(error.message, 200));
    }
    return undefined;
  }

  open(by) {
    this.by = by;
    this.measure.setAttribute("aria-pressed", String(by !== null));
    this.context.step({ measure: by });
    this.figures();
  }

  // Means and spreads, whole or by a column.
  async figures() {
    if (this.by === null) return replace(this.measures);
    const turn = (this.turn = (this.turn ?? 0) + 1);
    const { groups } = await ask("figures", { ...this.query(), by: this.by });
    if (turn !== this.turn || this.by === null) return undefined;
    const choice = h("select", { "aria-label": "By", on: { change: (event) => this.open(event.target.value) } }, BY.map((name) => h("option", { value: name, selected: name === this.by }, name || "all together")));
    const known = FIGURES.filter(([name]) => groups.some((group) => group[name]));
    const cell = (figure, show = number) => h("td", { class: figure ? "num" : "num none", title: figure ? `of ${number(figure.n)}: from ${show(figure.min)} to ${show(figure.max)}, deviation ${show(figure.sd)}` : "" },
      figure ? [show(figure.mean), h("span", { class: "muted" }, figure.n > 1 ? ` ± ${show((1.96 * figure.sd) / Math.sqrt(figure.n))}` : "")] : "–");
    replace(this.measures, h("section", { class: "measures" },
      h("p", { class: "small" }, h("label", { class: "field" }, "means by ", choice), h("span", { class: "muted" }, " ± half of a 95 % interval of the mean; deviation and extremes under the pointer")),
      h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Means" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, this.by || "traces"), h("th", { scope: "col", class: "num" }, "traces"), known.map(([name]) => h("th", { scope: "col", class: "num" }, name)))),
        h("tbody", {}, groups.slice(0, 60).map((group) => h("tr", {}, h("th", { scope: "row" }, this.by ? visible(group.value ?? "none", 60) : "all"), h("td", { class: "num" }, number(group.traces)), known.map(([name, show]) => cell(group[name], show))))))),
      groups.length > 60 ? h("p", { class: "hint" }, `and ${number(groups.length - 60)} more`) : null));
    return undefined;
  }
}

export function given(text) {
  try {
    const found = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found.filter((one) => Array.isArray(one) && one.length === 2 && one.every((each) => typeof each === "string")).slice(0, MOST) : [];
  } catch {
    return [];
  }
}

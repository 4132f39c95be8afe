// Beside the table: what stands in its columns of words, with how many traces, to narrow it by a press.

import { h, replace } from "./dom.js";
import { ask } from "./source.js";
import { number, visible } from "./text.js";
import { term } from "./traces_columns.js";

const NAMES = { place: "place", task: "task", topology: "topology", stop: "why it ended", policy: "policy", label: "label" };

export class Side {
  constructor(host, narrow) {
    this.host = host;
    this.narrow = narrow;
    this.turn = 0;
  }

  async set(query) {
    const turn = ++this.turn;
    const { columns } = await ask("values", { q: query });
    if (turn !== this.turn) return;
    replace(this.host, Object.entries(columns).map(([name, found]) => this.group(name, found, query)));
  }

  group(name, { values, kinds }, query) {
    const told = values.filter(([value]) => value !== null);
    if (!told.length || (told.length === 1 && values.length === 1 && !query)) return null;
    const most = Math.max(...values.map(([, traces]) => traces));
    const lines = values.map(([value, traces]) => {
      const shown = name === "label" && value !== null ? value.split("\n").join(", ") : value;
      const one = name === "label" && value !== null ? value.split("\n").map((label) => term(name, label)).join(" ") : term(name, value);
      return h("li", {}, h("button", { class: "facet", title: `${shown === null ? "none" : visible(shown, 400)}\nOnly these (with Shift: all but these)`, on: { click: (event) => this.narrow(one, event.shiftKey) } },
        h("span", { class: "facet-name" }, shown === null ? "none" : visible(shown, 40) || "(empty)"), h("span", { class: "muted" }, number(traces)),
        h("span", { class: "bar", "aria-hidden": "true" }, h("i", { style: { width: `${(100 * traces) / most}%` } }))));
    });
    const more = kinds > told.length ? h("p", { class: "hint small" }, `and ${number(kinds - told.length)} more: type ${name}:…`) : null;
    return h("section", {}, h("h3", {}, NAMES[name]), h("ul", { class: "facets" }, lines), more);
  }
}

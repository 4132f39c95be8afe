// Many traces side by side: their figures against the first, and what their teams did on one axis.

import { h, replace } from "./dom.js";
import { Lanes } from "./lanes.js";
import { Model } from "./model.js";
import { Scene } from "./scene.js";
import { ask } from "./source.js";
import { NOT_MEASURED, count, number, seconds, signed, visible } from "./text.js";

const MOST = 24;
const DRAWN = 8;
const MOST_DRAWN_EVENTS = 60_000;
const FIGURES = [
  ["reward", "reward", number, 1], ["success", "success", number, 1], ["regret", "regret", number, -1], ["tokens", "tokens", number, -1],
  ["price", "price", number, -1], ["seconds", "took", seconds, -1], ["agents", "agents", number, 0], ["events", "events", number, 0],
];
const WORDS = [["place", "place"], ["task", "task"], ["instance", "instance"], ["topology", "topology"], ["stop", "why it ended"], ["policies", "policy"], ["step", "step"], ["forked_from", "fork of"]];

export class ComparePage {
  constructor(host, params, context) {
    this.host = host;
    this.context = context;
    this.query = Object.fromEntries(["picks", "q", "sort"].filter((name) => params.has(name)).map((name) => [name, params.get(name)]));
    this.drawn = [];
  }

  async open() {
    const found = await ask("table", { ...this.query, from: 0, rows: MOST });
    this.rows = found.rows;
    const left = found.total - found.rows.length;
    const many = this.rows.length > 1;
    const lanes = h("section", { class: "many", "aria-label": "What their teams did" });
    replace(this.host, h("div", { class: "page wide-page" },
      h("h1", {}, `${count(this.rows.length, "trace")} side by side`),
      left > 0 ? h("p", { class: "hint", role: "status" }, `The first ${number(MOST)} of ${number(found.total)}, in the order of the table. `, h("a", { href: `#table?${new URLSearchParams({ ...this.query, measure: "topology" })}` }, "Means of all of them")) : null,
      this.rows.length ? null : h("p", { class: "hint" }, "No trace fits."),
      many ? h("p", { class: "hint" }, "Differences are against the first. A press on a name makes it the first; ⇄ shows two of them event by event.") : null,
      h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Figures" }, this.table()), lanes));
    this.lanes(lanes);
  }

  destroy() {
    this.gone = true;
    this.drawn.forEach((lanes) => lanes.destroy());
  }

  table() {
    const [base] = this.rows;
    const heads = this.rows.map((row, k) => h("th", { scope: "col" },
      k ? h("button", { class: "link", title: `${visible(row.id, 300)}\nMake it the first`, on: { click: () => this.first(k) } }, visible(row.id, 32)) : h("span", { title: visible(row.id, 300) }, visible(row.id, 32)),
      h("div", { class: "small" }, h("a", { href: this.address(row) }, "open"), k ? [" · ", h("a", { href: `#diff?${new URLSearchParams({ place: base.place, id: base.id, place2: row.place, id2: row.id })}`, "aria-label": `Event by event against ${visible(base.id, 60)}` }, "⇄")] : null)));
    const words = WORDS.filter(([field]) => this.rows.some((row) => row[field] !== null && row[field] !== undefined)).map(([field, name]) =>
      h("tr", {}, h("th", { scope: "row" }, name), this.rows.map((row) => h("td", { class: row[field] === base[field] ? "muted" : "" }, row[field] === null ? "–" : visible(row[field], 60)))));
    const figures = FIGURES.filter(([field]) => this.rows.some((row) => row[field] !== null)).map(([field, name, show, good]) =>
      h("tr", {}, h("th", { scope: "row" }, name), this.rows.map((row) => this.figure(row[field], row === base ? null : base[field], show, good))));
    const labels = this.rows.some((row) => row.labels.length) ? h("tr", {}, h("th", { scope: "row" }, "labels"), this.rows.map((row) => h("td", {}, row.labels.map((label) => visible(label, 30)).join(", ")))) : null;
    return h("table", { class: "list sides" }, h("thead", {}, h("tr", {}, h("td", {}), heads)), h("tbody", {}, figures, words, labels));
  }

  figure(value, base, show, good) {
    if (value === null) return h("td", { class: "num none" }, NOT_MEASURED);
    const change = base === null ? null : value - base;
    const tone = !change || !good ? "muted" : change * good > 0 ? "good" : "bad";
    const told = !change ? null : h("div", { class: `small ${tone}` }, show === seconds ? `${change > 0 ? "+" : "−"}${seconds(Math.abs(change))}` : signed(change));
    return h("td", { class: "num" }, show(value), told);
  }

  address(row) {
    return `#trace?${new URLSearchParams({ place: row.place, id: row.id })}`;
  }

  first(k) {
    const rows = [this.rows[k], ...this.rows.filter((_, i) => i !== k)];
    this.context.go("compare", { picks: JSON.stringify(rows.map((row) => [row.place, row.id])) }); // in this order
  }

  // Drawn one after the other, on one axis.
  async lanes(host) {
    let events = 0;
    const shown = this.rows.slice(0, DRAWN).filter((row) => (events += row.events) <= MOST_DRAWN_EVENTS);
    const stages = [];
    for (const row of shown) {
      const stage = h("div", { class: "stage" });
      const head = h("h2", { class: "diff-name" }, h("a", { href: this.address(row) }, visible(row.id, 100)));
      host.append(head, stage);
      const place = { place: row.place, id: row.id };
      try {
        const model = new Model(await ask("trace", place), place);
        if (this.gone) return;
        const scene = new Scene(model);
        const lanes = new Lanes(stage, scene, { label: visible(row.id, 80), choose: (i) => i !== null && this.context.go("trace", { ...place, event: model.ids[i] }) });
        lanes.onView = () => this.follow(lanes);
        this.drawn.push(lanes);
        stages.push(scene);
        const total = Math.max(...stages.map((one) => one.axis.total));
        for (const one of stages) one.axis.total = total;
        this.drawn.forEach((one) => one.fit());
      } catch (error) {
        replace(stage, h("p", { class: "bad" }, visible(error.message, 200)));
      }
    }
    if (shown.length < this.rows.length) host.append(h("p", { class: "hint" }, `The lanes of ${count(this.rows.length - shown.length, "more trace")} are not drawn.`));
  }

  // Moving one moves all.
  follow(from) {
    for (const one of this.drawn) {
      if (one === from || (one.view.from === from.view.from && one.view.zoom === from.view.zoom)) continue;
      Object.assign(one.view, { from: from.view.from, zoom: from.view.zoom });
      one.surface.ask();
    }
  }
}

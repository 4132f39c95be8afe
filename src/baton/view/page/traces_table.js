// All traces, or some of them, in one table that is live: a query, what stands in the columns, rows without end, and
// what can be done with the ticked ones, or with all that fit. Everything on it is in the address.

import { h, replace, say } from "./dom.js";
import { Grid } from "./grid.js";
import { watch } from "./live.js";
import { Chosen } from "./traces_chosen.js";
import { USUAL, columnsOf, narrowed, term, without } from "./traces_columns.js";
import { Side } from "./traces_side.js";
import { ask } from "./source.js";
import { number, visible } from "./text.js";

const TYPED_MS = 250;
const NARROW_PX = 760; // there the filters lie over the rows
const AT_MOST_EVERY_MS = 900; // while traces are read the table changes all the time
const HELP = [
  ["shard swarm", "both words in the name, task, topology, place or policy"],
  ["topology=swarm task:shard", "is; contains. A press on a word does the same"],
  ["reward>0.5 tokens<10k took>2m", "numbers; also regret, success, price, agents, events, step"],
  ["when>2h when>2026-11-18", "in the last two hours; since a day or a moment"],
  ["is:unfinished is:fork is:noted", "how it stands"],
  ["regret:none reward:any", "not measured; measured"],
  ["-topology=swarm not (a or b)", "what does not fit; either"],
];

export class TracesTable {
  // place: of one place alone; columns and sort: what is shown of it unless the address says otherwise; side: with filters
  constructor(host, params, context, { place = null, heading = null, columns = null, sort = "-when", side = innerWidth > NARROW_PX } = {}) {
    Object.assign(this, { host, context, place });
    this.fixed = place === null ? "" : term("place", place);
    this.usual = columns ?? USUAL.filter((name) => !(place !== null && name === "place"));
    this.usualSide = side;
    this.query = params.get("q") ?? "";
    this.sort = params.get("sort") ?? sort;
    this.shown = (params.get("columns") ?? "").split(",").filter(Boolean);
    this.at = Math.max(0, Number.parseInt(params.get("at") ?? "0", 10) || 0);
    this.sideOpen = params.has("side") ? params.get("side") !== "off" : side;
    this.version = null; // of the rows that are there
    this.all = columnsOf((one, away) => this.narrow(one, away));
    this.chosen = new Chosen(params, context, {
      changed: () => this.redraw(),
      scope: () => ({ query: this.whole(), sort: this.sort, total: this.grid?.total ?? 0 }),
    });
    this.build(heading);
  }

  async open() {
    await this.load({ at: this.at });
    this.unwatch = watch("table", {}, (told) => this.changed(told));
  }

  destroy() {
    this.gone = true;
    this.unwatch?.();
    this.grid.destroy();
    clearTimeout(this.typing);
    clearTimeout(this.soon);
  }

  // The query with what this table is of in any case.
  whole() {
    if (!this.fixed) return this.query;
    return this.query.trim() ? `${this.fixed} (${this.query})` : this.fixed;
  }

  build(heading) {
    this.input = h("input", { type: "search", class: "query", "aria-label": "Filter traces", placeholder: "reward>0.5 topology=swarm -is:unfinished any words", value: this.query, autocomplete: "off", spellcheck: "false", on: { input: () => this.typed(), change: () => this.step(), keydown: (event) => event.key === "ArrowDown" && (this.grid.focus(), event.preventDefault()) } });
    this.problem = h("p", { class: "bad small", role: "alert", hidden: true });
    this.state = h("span", { class: "muted small", role: "status" });
    this.places = h("div", {});
    this.side = h("aside", { class: "side", "aria-label": "Filters" });
    const rows = h("div", { class: "rows" });
    this.columnsBox = h("details", { class: "menu" });
    const search = h("button", { title: "Search in what was said in these traces", on: { click: () => this.context.go("search", { words: "", q: this.whole() }) } }, "search in content");
    this.toggle = h("button", { class: "toggle", "aria-pressed": String(this.sideOpen), on: { click: () => this.showSide(!this.sideOpen) } }, "filters");
    replace(this.host, h("div", { class: "traces-page" }, heading,
      h("div", { class: "toolbar" }, this.toggle, this.input, this.help(), this.columnsBox, search, this.state),
      this.problem, this.places, this.chosen.bar,
      h("div", { class: "beside" }, this.side, rows)));
    this.grid = new Grid(rows, {
      label: "Traces",
      empty: "No trace fits.",
      load: (from, rows) => ask("table", { q: this.whole(), sort: this.sort, from, rows, ...(this.place === null ? {} : { place: this.place }) }),
      told: (found) => this.tell(found),
      press: (row) => row && this.context.go("trace", { place: row.place, id: row.id }),
      order: (column, way) => this.order(column, way),
      tick: (row) => row && this.chosen.toggle(row),
      moved: (at) => this.context.remember({ at: at ? String(at) : null }),
    });
    this.sides = new Side(this.side, (one, away) => this.narrow(one, away));
    this.drawColumns();
    this.showSide(this.sideOpen, false);
  }

  help() {
    return h("details", { class: "menu" }, h("summary", { title: "How to filter" }, "?"),
      h("div", { class: "pop" }, h("h3", {}, "How to filter"), h("dl", { class: "facts" }, HELP.map(([what, means]) => [h("dt", {}, h("code", {}, what)), h("dd", {}, means)]))));
  }

  drawColumns() {
    const shown = new Set(this.names());
    const boxes = this.all.map(({ name, title }) => h("label", {}, h("input", { type: "checkbox", checked: shown.has(name), disabled: name === "trace", on: { change: (event) => this.column(name, event.target.checked) } }), ` ${title ?? name}`));
    replace(this.columnsBox, h("summary", {}, "columns"), h("div", { class: "pop ticks" }, boxes));
  }

  names() {
    return this.shown.length ? this.shown : this.usual;
  }

  columns() {
    const names = new Set(["trace", ...this.names()]);
    return [this.chosen.column(), ...this.all.filter(({ name }) => names.has(name))];
  }

  column(name, on) {
    const names = new Set(this.names());
    if (on) names.add(name);
    else names.delete(name);
    this.shown = this.all.map((one) => one.name).filter((one) => names.has(one));
    this.context.step({ columns: this.shown.join(",") });
    this.grid.reset({ columns: this.columns() });
  }

  showSide(on, told = true) {
    this.sideOpen = on;
    this.side.hidden = !on;
    this.toggle.setAttribute("aria-pressed", String(on));
    if (told) this.context.remember({ side: on === this.usualSide ? null : on ? "on" : "off" });
  }

  tell({ total, of, progress, version }) {
    const other = this.version !== null && this.version !== version; // than that of the rows around it
    this.version = version;
    if (other) this.again();
    const left = progress.left ? `, ${number(progress.left)} more to read` : progress.reading ? ", reading more" : "";
    this.state.textContent = `${total === of ? number(total) : `${number(total)} of ${number(of)}`}${progress.complete ? "" : left || ", looking"}`;
    this.state.dataset.complete = String(progress.complete);
    const bad = progress.problems;
    replace(this.places, bad.length ? h("details", { class: "notes" }, h("summary", {}, `${number(bad.length)} ${bad.length === 1 ? "place" : "places"} cannot be read`), h("ul", {}, bad.map(({ place, why }) => h("li", {}, h("b", {}, visible(place, 80)), ` ${visible(why, 300)}`)))) : null);
    this.chosen.draw();
  }

  // Ask again for what is shown. A mistake in the query is told, and what was found before stays.
  async load({ at = null } = {}) {
    this.version = null;
    try {
      await this.grid.reset({ columns: this.columns(), sort: this.sort, at });
      this.problem.hidden = true;
      this.chosen.figures();
      await this.sides.set(this.whole());
    } catch (error) {
      this.problem.hidden = false;
      this.problem.textContent = visible(error.message, 400);
    }
  }

  changed({ stamp, error }) {
    if (error || stamp?.split(" ")[0] === String(this.version)) {
      if (!error && this.state.dataset.complete === "false") this.again();
      return;
    }
    this.again();
  }

  // Soon, and not more often than a person can follow or the server answers: a question takes the place of the one before.
  again() {
    this.missed = true;
    if (this.soon) return;
    this.soon = setTimeout(async () => {
      this.missed = false;
      await this.load();
      this.soon = null;
      if (this.missed && !this.gone) this.again();
    }, AT_MOST_EVERY_MS);
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      const first = !this.writing;
      this.writing = true;
      this.ask(first);
    }, TYPED_MS);
  }

  step() {
    clearTimeout(this.typing);
    const asked = this.writing && this.query === this.input.value;
    this.writing = false;
    if (!asked) this.ask(true);
  }

  // What was typed in one go is one step that one can go back from.
  ask(step) {
    this.query = this.input.value;
    const changes = { q: this.query || null, at: null };
    if (step) this.context.step(changes);
    else this.context.remember(changes);
    this.load({ at: 0 });
  }

  narrow(one, away) {
    this.input.value = narrowed(this.query, one, away);
    this.step();
    say(`Filter: ${this.input.value || "none"}`);
  }

  // Those that have one value in a column, whichever they had to have before.
  only(name, value) {
    this.input.value = `${without(this.query, name)} ${term(name, value)}`.trim();
    this.step();
  }

  order({ name, numeric }, way) {
    const falls = numeric ? way !== "descending" : way === "ascending";
    this.sort = `${falls ? "-" : ""}${name}`;
    this.context.step({ sort: this.sort, at: null });
    this.load({ at: 0 });
  }

  redraw() {
    this.grid.draw();
  }

  key(event) {
    if (event.key !== "/") return false;
    this.input.focus();
    this.input.select();
    return true;
  }
}

// Every run that goes on, side by side, each with what can be done to it; and a form to start another.

import { h, replace } from "./dom.js";
import { watch } from "./live.js";
import { ask } from "./source.js";
import { startForm, startedList } from "./start.js";
import { SteerPanel } from "./steer.js";
import { count, visible } from "./text.js";

export class LivePage {
  constructor(host, _params, context) {
    this.host = host;
    this.context = context;
    this.cards = new Map(); // place and id -> {box, panel, head, run}
  }

  async open() {
    if (!this.context.setup.steer) throw new Error("Runs are not steered from here. Type: baton view PATH --steer");
    const found = await ask("live");
    this.grid = h("div", { class: "live-grid" });
    this.none = h("p", { class: "hint" });
    this.started = h("div", {});
    replace(this.host, h("div", { class: "page" }, h("h1", {}, "Live runs"), startForm(found.choices, () => this.context.renew()), this.started, this.none, this.grid));
    this.show(found);
    this.unwatch = watch("live", {}, ({ error }) => (error ? this.none.textContent = error : ask("live").then((now) => this.show(now), (problem) => { this.none.textContent = problem.message; })));
  }

  destroy() {
    this.unwatch?.();
    for (const { panel } of this.cards.values()) panel.destroy();
  }

  show({ runs, started }) {
    this.none.textContent = runs.length ? "" : "No run is going on. What is started here, or by `baton run` into a folder that is open here, appears by itself.";
    startedList(this.started, started);
    const there = new Set();
    for (const run of runs) {
      const key = JSON.stringify([run.place, run.id]);
      there.add(key);
      if (!this.cards.has(key)) this.cards.set(key, this.card(run));
      this.cards.get(key).head.textContent = `${visible(run.task, 60)} · ${count(run.events, "event")} · ${visible(run.place, 60)}`;
    }
    for (const [key, { box, panel, head, run }] of this.cards) {
      if (there.has(key) || box.classList.contains("over")) continue;
      box.classList.add("over"); // it stays until the page is left, so that who watched it sees how it ended
      head.textContent = `${visible(run.task, 60)} · ${visible(run.place, 60)} · ended`;
      panel.changed({});
    }
  }

  card(run) {
    const place = { place: run.place, id: run.id };
    const head = h("p", { class: "muted small" });
    const inside = h("div", {});
    const box = h("article", { class: "card" }, h("h2", {}, h("a", { href: `#trace?${new URLSearchParams(place)}` }, visible(run.id, 100))), head, inside);
    this.grid.append(box);
    return { box, head, run, panel: new SteerPanel(inside, place) };
  }
}

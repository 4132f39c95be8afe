// One trace: its views, what they have in common, and the panel with what was chosen.

import { colourChoices } from "./colouring.js";
import { showDetail } from "./detail.js";
import { h, replace, select, toggle } from "./dom.js";
import { Finder } from "./finder.js";
import { GraphView } from "./graph.js";
import { Lanes } from "./lanes.js";
import { legend } from "./legend.js";
import { watch } from "./live.js";
import { Model } from "./model.js";
import { loadNotes } from "./notes.js";
import { NetworkView } from "./network.js";
import { Scene } from "./scene.js";
import { Scrubber, momentOf } from "./scrubber.js";
import { ask, exported } from "./source.js";
import { SummaryView } from "./summary.js";
import { taintOf, taintPanel } from "./taint.js";
import { SteerPanel } from "./steer.js";
import { fromAddress, toAddress, usualOf, windowOf } from "./trace_address.js";
import { SpawnTree } from "./tree.js";
import { heading } from "./heading.js";
import { headline } from "./headline.js";
import { visible } from "./text.js";
import { TranscriptView } from "./transcript.js";

const STILL_MS = 300;
const VIEWS = {
  lanes: ["Lanes", Lanes],
  graph: ["Graph", GraphView],
  tree: ["Spawn tree", SpawnTree],
  network: ["Messages", NetworkView],
  summary: ["Who earned what", SummaryView],
  transcript: ["Transcript", TranscriptView],
};
const BY_ROLE_FROM = 100; // agents: more rows than anybody looks through

export class TracePage {
  constructor(host, params, context) {
    this.host = host;
    this.params = params;
    this.context = context;
    this.place = exported ? {} : { place: params.get("place") ?? "", id: params.get("id") ?? "" };
    this.asked = ask("trace", this.place);
    this.asked.catch(() => {}); // told when it is opened
  }

  async open() {
    const model = new Model(await this.asked, this.place);
    this.scene = new Scene(model, { byRole: model.lanes > BY_ROLE_FROM });
    this.usual = usualOf(this.scene);
    this.scene.set(fromAddress(this.params, model));
    this.build();
    const wanted = this.params.get("event");
    const at = wanted === null ? -1 : model.ids.indexOf(wanted);
    if (at >= 0) this.scene.set({ selected: at });
    this.show(VIEWS[this.params.get("view")] ? this.params.get("view") : "lanes");
    const shown = windowOf(this.params.get("window"));
    if (shown && this.view instanceof Lanes) Object.assign(this.view.view, shown);
    this.colour(this.params.get("colour"));
    if (this.params.get("taint") === "on") this.setTaint(true, at >= 0 ? at : null);
    ask("ledger", this.place).then((ledger) => {
      this.scene.set({ ledger });
      this.colour(this.params.get("colour"));
      this.tools();
    }).catch(() => {});
    if (!model.about.finished) this.unwatch = watch("trace", this.place, (found) => this.grown(found));
  }

  // What the address says to colour by, once that is known.
  colour(colourBy) {
    const { model, ledger } = this.scene;
    if (colourBy && this.scene.colourBy === this.usual.colourBy && colourChoices(model, ledger).some(({ value }) => value === colourBy)) this.scene.set({ colourBy });
  }

  destroy() {
    clearTimeout(this.still);
    this.finder?.destroy();
    this.unwatch?.();
    this.unheard?.();
    this.steer?.destroy();
    this.view?.destroy();
    this.scrubber?.destroy();
    this.off?.();
  }

  build() {
    const { scene } = this;
    this.head = h("div", { class: "head" });
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views", on: { keydown: (event) => this.turn(event) } }, Object.entries(VIEWS).map(([key, [label]], k) =>
      h("button", { role: "tab", "data-view": key, title: `${k + 1}`, on: { click: () => this.show(key) } }, label)));
    this.steering = h("div", {});
    this.bar = h("div", { class: "toolbar" });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "What the colours mean", tabindex: 0 });
    this.stage = h("div", { class: "stage", role: "tabpanel" });
    this.notice = h("div", {});
    this.detail = h("aside", { class: "detail", "aria-label": "Detail", tabindex: 0 });
    this.scrub = h("div", { class: "scrubber" });
    replace(this.host, h("div", { class: "trace-page" }, this.head, this.steering, this.tabs, this.bar, this.legend, this.notice, h("div", { class: "split" }, this.stage, this.detail), this.scrub));
    this.titled();
    this.notes();
    loadNotes(scene);
    this.unheard = watch("notes", this.place, ({ stamp }) => stamp && scene.notesStamp && stamp !== scene.notesStamp && loadNotes(scene));
    if (this.context.setup.steer && !scene.model.about.finished) this.steer = new SteerPanel(this.steering, this.place);
    this.scrubber = new Scrubber(this.scrub, scene, () => this.window());
    this.off = scene.on((names) => this.changed(names));
    this.finder = new Finder(scene, this.place, {
      words: this.params.get("find") ?? "",
      remember: (changes) => this.context.remember(changes),
      found: (rows) => scene.set({ found: rows && new Set(rows) }),
      go: (i, chosen) => {
        if (chosen) scene.set({ selected: i });
        this.view?.show?.(i);
      },
    });
    this.tools();
    this.showDetail();
  }

  titled() {
    heading(this.head, this.scene.model, this.context);
    const told = h("p", { class: "headline" });
    this.head.querySelector(".title").after(told);
    headline(told, this.scene);
  }

  notes(problem = null) {
    const notes = [...this.scene.model.notes, ...(problem ? [problem] : [])];
    replace(this.notice, notes.length ? h("ul", { class: "notes" }, notes.map((note) => h("li", {}, visible(note, 400)))) : null);
  }

  window() {
    if (!(this.view instanceof Lanes) || !this.view.surface) return null;
    const { from, zoom } = this.view.view;
    return [from, from + this.scene.axis.total / zoom];
  }

  changed(names) {
    if (names.has("wantedView") && this.scene.wantedView !== this.name) this.show(this.scene.wantedView);
    const inShort = this.scene.selected === null && (names.has("ledger") || names.has("colourBy"));
    const { selected, model } = this.scene;
    const moved = names.has("selected") && (this.detail.dataset.event ?? "") !== (selected === null ? "" : model.ids[selected]);
    const other = moved || names.has("taint") || names.has("noteKept"); // what is being written stays as the trace grows
    if (other || ((inShort || names.has("model") || names.has("notes")) && !this.isWritten())) this.showDetail();
    else if (names.has("cursor") && this.scene.selected === null) this.showMoment();
    if (names.has("colourBy") || names.has("ledger") || names.has("taint")) legend(this.legend, this.scene, this.name);
    if (names.has("colourBy")) this.bar.querySelector("select").value = this.scene.colourBy;
    if (names.has("selected")) this.context.remember({ event: this.scene.selected === null ? null : this.scene.model.ids[this.scene.selected] });
    const told = toAddress(this.scene, names, this.usual);
    if (Object.keys(told).length) this.context.remember(told);
  }

  isWritten() {
    const fields = [...this.detail.querySelectorAll("textarea, input")];
    return fields.some((field) => field === document.activeElement || (field.closest(".note-form") && field.value));
  }

  showDetail() {
    if (this.scene.selected !== null) this.sheet = false;
    this.detail.classList.toggle("open", this.scene.selected !== null || this.sheet === true);
    if (this.scene.selected === null && this.scene.taint) taintPanel(this.detail, this.scene);
    else if (this.scene.selected === null && this.scene.cursor !== null) this.showMoment();
    else showDetail(this.detail, this.scene, { fork: this.context.setup.fork, open: (id) => this.context.go("diff", { ...this.place, place2: this.place.place, id2: id }) });
    if (this.scene.selected === null) this.detail.prepend(h("button", { class: "plain close", "aria-label": "Close", on: { click: () => this.lay(false) } }, "✕"));
  }

  // On a phone, what stands beside the views lies over them when it is asked for.
  lay(open) {
    this.sheet = open;
    this.detail.classList.toggle("open", open);
    if (open) this.detail.focus();
  }

  // While the scrubber is in use and nothing is chosen: who is alive, and what each does.
  showMoment() {
    const { scene } = this;
    if (scene.cursor === null) return this.showDetail();
    const now = momentOf(scene);
    const rows = now.alive.slice(0, 60).map(([lane, i]) => h("li", {},
      h("b", {}, visible(scene.model.agents.name[lane], 40)), " ",
      i === null ? h("span", { class: "muted" }, "has just been spawned") : h("button", { class: "link", on: { click: () => scene.set({ selected: i }) } }, visible(scene.model.title(i), 60))));
    replace(this.detail, h("div", { class: "detail-body" }, h("h2", {}, "At this moment"), h("ul", { class: "edges" }, rows), now.alive.length > 60 ? h("p", { class: "hint" }, `and ${now.alive.length - 60} more`) : null));
  }

  show(name) {
    const focused = this.stage.contains(document.activeElement);
    this.view?.destroy();
    this.name = this.scene.wantedView = name;
    replace(this.stage);
    const [, View] = VIEWS[name];
    this.view = new View(this.stage, this.scene, this.context);
    const align = () => this.scrubber.align(this.view instanceof Lanes ? this.view.frame : null);
    this.view.onView = () => {
      align();
      this.scrubber.surface.ask();
      clearTimeout(this.still);
      this.still = setTimeout(() => this.kept(), STILL_MS);
    };
    if (!(this.view instanceof Lanes)) align();
    for (const tab of this.tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.view === name));
      tab.tabIndex = tab.dataset.view === name ? 0 : -1;
    }
    this.stage.setAttribute("aria-label", VIEWS[name][0]);
    this.tools();
    this.context.remember({ view: name });
    this.stage.dataset.view = name;
    if (focused) this.stage.querySelector("canvas, [tabindex]")?.focus();
  }

  // What part of the lanes is on the screen, once it stands still.
  kept() {
    if (!(this.view instanceof Lanes)) return;
    const { from, zoom, top } = this.view.view;
    const whole = from === 0 && zoom === 1 && top === 0;
    this.context.remember({ window: whole ? null : [from, zoom, top].map((one) => Number(one.toPrecision(6))).join(",") });
  }

  // Left and right go from tab to tab, as in any row of tabs.
  turn(event) {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const names = Object.keys(VIEWS);
    this.show(names[(names.indexOf(this.name) + way + names.length) % names.length]);
    this.tabs.querySelector("[aria-selected=true]").focus();
    event.preventDefault();
    event.stopPropagation();
  }

  tools() {
    const { scene } = this;
    const lanes = this.name === "lanes";
    const colour = h("label", { class: "field" }, "colour ", select("Colour by", colourChoices(scene.model, scene.ledger), scene.colourBy, (colourBy) => scene.set({ colourBy })));
    const wide = scene.model.lanes > scene.model.roots.length + 1;
    const simple = lanes ? [
      h("label", { class: "field" }, "axis ", select("Axis", [{ value: "time", label: "time" }, { value: "sequence", label: "sequence" }], scene.axisKind, (axisKind) => {
        scene.set({ axisKind });
        this.tools();
      })),
      scene.axisKind === "time" ? toggle("compress idle", scene.compress, (compress) => scene.set({ compress }), "Draw stretches where nobody works short (i)") : null,
      h("label", { class: "field" }, "arrows ", select("Arrows", [{ value: "auto", label: "as they fit" }, { value: "all", label: "all" }, { value: "selected", label: "of the chosen" }], scene.arrows, (arrows) => scene.set({ arrows }))),
      wide ? toggle("fold roles", scene.byRole, (byRole) => scene.set({ byRole, openRoles: new Set() }), "One row for all siblings of a role (r)") : null,
    ] : [];
    const near = this.view?.zoom ? h("span", { class: "group" },
      h("button", { title: "Zoom in (+)", "aria-label": "Zoom in", on: { click: () => this.view.zoom(1.6) } }, "+"),
      h("button", { title: "Zoom out (−)", "aria-label": "Zoom out", on: { click: () => this.view.zoom(1 / 1.6) } }, "−"),
      h("button", { title: "All of it (f)", on: { click: () => this.view.fit() } }, "fit")) : null;
    const critical = scene.model.critical ? toggle("critical path", scene.showCritical, (showCritical) => scene.set({ showCritical }), "The chain that no amount of parallelism shortens (c)") : null;
    const tainted = toggle("taint", scene.taint !== null, (on) => this.setTaint(on), "What strangers’ words may have touched (t)");
    const sheet = h("button", { class: "sheet", on: { click: () => this.lay(true) } }, "in short, notes");
    replace(this.bar, sheet, colour, ["summary", "transcript"].includes(this.name) ? [] : [simple, near, critical, tainted], this.finder.box);
    legend(this.legend, scene, this.name);
  }

  async setTaint(on, selected = null) {
    if (!on) return this.scene.set({ taint: null });
    try {
      this.sheet = true;
      this.scene.set({ taint: taintOf(await ask("taint", this.place)), selected });
    } catch (error) {
      this.notes(`No taint: ${error.message}`);
    }
    return undefined;
  }

  key(event) {
    const names = Object.keys(VIEWS);
    const keys = {
      c: () => this.scene.model.critical && this.scene.set({ showCritical: !this.scene.showCritical }),
      x: () => this.scene.set({ axisKind: this.scene.axisKind === "time" ? "sequence" : "time" }),
      i: () => this.scene.set({ compress: !this.scene.compress }),
      r: () => this.scene.set({ byRole: !this.scene.byRole, openRoles: new Set() }),
      t: () => this.setTaint(this.scene.taint === null),
      " ": () => this.scrubber.toggle(),
      ",": () => this.scrubber.go((this.scene.cursor ?? this.scene.model.n) - 1),
      ".": () => this.scrubber.go((this.scene.cursor ?? this.scene.model.n) + 1),
      Escape: () => this.scene.set({ selected: null, cursor: null, found: null }),
      "/": () => this.bar.querySelector("input[type=search]").focus(),
    };
    if (names[Number(event.key) - 1]) this.show(names[Number(event.key) - 1]);
    else if (keys[event.key]) {
      keys[event.key]();
      if (["c", "x", "i", "r", "t"].includes(event.key)) this.tools();
    } else return false;
    return true;
  }

  // A trace that is still being written: when it has grown, draw what there is now.
  async grown({ stamp, error }) {
    if (error) return this.notes(error);
    this.latest = stamp;
    if (this.busy) return undefined;
    this.busy = true;
    try {
      while (this.latest !== this.scene.model.stamp) {
        const wanted = this.latest;
        const model = new Model(await ask("trace", this.place), this.place);
        const chosen = this.scene.selected === null ? -1 : model.ids.indexOf(this.scene.model.ids[this.scene.selected]);
        this.scene.set({ model, selected: chosen < 0 ? null : chosen });
        this.titled();
        this.notes();
        if (model.about.finished) return this.unwatch();
        if (this.latest === wanted) break; // it may have grown again since it was read: that is told as well
      }
    } catch (problem) {
      this.notes(problem.message);
    } finally {
      this.busy = false;
    }
    return undefined;
  }
}

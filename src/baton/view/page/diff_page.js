// Two traces, one above the other on the same axis: what is the same steps back, what changed stands out, and the price of it.

import { showDetail } from "./detail.js";
import { h, replace, select } from "./dom.js";
import { Lanes } from "./lanes.js";
import { Model } from "./model.js";
import { Scene } from "./scene.js";
import { ask } from "./source.js";
import { NOT_MEASURED, block, count, number, seconds, signed, spoken, visible } from "./text.js";

const LISTED = 60;
const SECONDS = new Set(["seconds", "work_s", "span_s"]);
const NAMES = { seconds: "took", work_s: "work", span_s: "span" };

export class DiffPage {
  constructor(host, params, context) {
    this.host = host;
    this.context = context;
    this.left = { place: params.get("place"), id: params.get("id") };
    this.right = { place: params.get("place2"), id: params.get("id2") };
  }

  async open() {
    const [before, after, diff] = await Promise.all([ask("trace", this.left), ask("trace", this.right), ask("diff", { ...this.left, place2: this.right.place, id2: this.right.id })]);
    this.diff = diff;
    this.before = new Scene(new Model(before, this.left), { marks: marks(before, diff.changed.map(([a]) => a), diff.removed, "gone") });
    this.after = new Scene(new Model(after, this.right), { marks: marks(after, diff.changed.map(([, b]) => b), diff.added, "new") });
    this.build();
  }

  destroy() {
    this.lanes?.forEach((lanes) => lanes.destroy());
    this.offs?.forEach((off) => off());
  }

  build() {
    const { before, after } = this;
    const [above, below] = [h("div", { class: "stage" }), h("div", { class: "stage" })];
    this.detail = h("aside", { class: "detail", "aria-label": "Detail", tabindex: 0 });
    const head = (scene, name) => h("h2", { class: "diff-name" }, h("span", { class: "chip" }, name), h("a", { href: `#trace?${new URLSearchParams(scene.model.place)}` }, visible(scene.model.about.id, 100)));
    replace(this.host, h("div", { class: "diff-page" }, this.deltas(), this.toolbar(),
      h("div", { class: "split" }, h("div", { class: "two" }, head(before, "before"), above, head(after, "after"), below), this.detail)));
    this.lanes = [new Lanes(above, before, { label: "Before", choose: (i) => this.choose(before, i) }), new Lanes(below, after, { label: "After", choose: (i) => this.choose(after, i) })];
    // One axis: the longer of the two sets it, and moving one moves the other.
    const total = Math.max(before.axis.total, after.axis.total);
    this.share = (scene) => {
      scene.axis.total = Math.max(total, scene.axis.total);
    };
    [before, after].forEach(this.share);
    this.lanes.forEach((lanes, k) => {
      lanes.onView = () => this.follow(lanes, this.lanes[1 - k]);
    });
    this.list();
  }

  follow(from, to) {
    if (from.view.from === to.view.from && from.view.zoom === to.view.zoom) return;
    Object.assign(to.view, { from: from.view.from, zoom: from.view.zoom });
    to.surface.ask();
  }

  toolbar() {
    const kinds = [{ value: "time", label: "time" }, { value: "sequence", label: "sequence" }];
    const axis = select("Axis", kinds, this.before.axisKind, (axisKind) => {
      for (const scene of [this.before, this.after]) scene.set({ axisKind });
      const total = Math.max(this.before.axis.total, this.after.axis.total);
      for (const scene of [this.before, this.after]) scene.axis.total = total;
      for (const lanes of this.lanes) lanes.fit();
    });
    const swap = h("button", { on: { click: () => this.context.go("diff", { place: this.right.place, id: this.right.id, place2: this.left.place, id2: this.left.id }) } }, "swap");
    const fit = h("button", { on: { click: () => this.lanes.forEach((lanes) => lanes.fit()) } }, "fit");
    return h("div", { class: "toolbar" }, h("label", { class: "field" }, "axis ", axis), fit, swap,
      h("span", { class: "key" }, h("i", { class: "frame warn" }), "changed"), h("span", { class: "key" }, h("i", { class: "frame good" }), "new"), h("span", { class: "key" }, h("i", { class: "frame bad" }), "gone"),
      h("button", { on: { click: () => this.all() } }, "all changes"));
  }

  deltas() {
    const { diff } = this;
    // Luck is nobody's doing: a better policy may still draw worse.
    const tiles = diff.deltas.filter(({ values }) => values.some((value) => value !== null)).map(({ what, kind, values: [a, b] }) => {
      const show = SECONDS.has(what) ? seconds : number;
      const change = a === null || b === null ? null : b - a;
      // More reward is better; more cost is worse; the rest is neither.
      const good = kind === "reward" ? 1 : kind === "regret" ? -1 : ["tokens", "seconds", "calls"].includes(what) ? -1 : 0;
      const tone = !change || !good ? "" : change * good > 0 ? "plus" : "minus";
      const delta = change === null ? NOT_MEASURED : change === 0 ? "same" : SECONDS.has(what) ? (change > 0 ? "+" : "−") + seconds(Math.abs(change)) : signed(change);
      return h("div", { class: `tile ${kind === "reward" ? "worth" : ""}` }, h("div", { class: `value ${tone}` }, delta), h("div", { class: "name" }, `${kind === "reward" ? "reward: " : ""}${NAMES[what] ?? spoken(visible(what, 24))}`), h("div", { class: "name" }, `${show(a)} → ${show(b)}`));
    });
    return h("div", { class: "head" }, h("p", { class: "lead" }, sentence(diff)), h("div", { class: "tiles", role: "group", "aria-label": "Differences", tabindex: 0 }, tiles));
  }

  choose(scene, i) {
    const other = scene === this.before ? this.after : this.before;
    const partner = i === null ? null : this.partner(scene, i);
    other.set({ selected: partner });
    scene.set({ selected: i });
    if (i === null) return this.list();
    this.detail.classList.add("open");
    if (partner !== null && scene.marks[i]) this.pair(scene === this.before ? i : partner, scene === this.before ? partner : i);
    else showDetail(this.detail, scene, { fork: false });
    return undefined;
  }

  partner(scene, i) {
    const [mine, theirs] = scene === this.before ? [0, 1] : [1, 0];
    const found = [...this.diff.changed, ...this.diff.same].find((row) => row[mine] === i);
    return found ? found[theirs] : null;
  }

  // The same event in both: what it said before and after.
  async pair(a, b) {
    const changed = this.diff.changed.find((row) => row[0] === a && row[1] === b);
    const title = visible(this.after.model.title(b), 100);
    const body = h("div", { class: "detail-body" }, h("h2", {}, title), h("p", { class: "hint" }, `${visible(this.after.model.agentOf(b), 60)}; different: ${changed ? changed[2].join(", ") : "nothing"}`));
    replace(this.detail, h("button", { class: "plain close", "aria-label": "Close", on: { click: () => this.list() } }, "✕"), body);
    const [was, is, { words }] = await Promise.all([ask("event", { ...this.left, at: a }), ask("event", { ...this.right, at: b }), ask("words", { ...this.left, at: a, place2: this.right.place, id2: this.right.id, at2: b })]);
    const told = (found) => `${found.fields.decision ?? ""} ${found.fields.status ?? ""}`.trim();
    const piece = ([kind, text]) => (kind === "same" ? block(text) : h(kind === "gone" ? "del" : "ins", {}, block(text)));
    body.append(h("section", {}, h("h3", {}, "What it said"), h("pre", { class: "said changed", tabindex: 0, role: "group", "aria-label": "What it said" }, words.length ? words.map(piece) : "(nothing)"),
      told(was) === told(is) ? null : h("div", { class: "muted small" }, `${told(was)} → ${told(is)}`)),
    h("button", { class: "link", on: { click: () => { this.after.set({ selected: b }); showDetail(this.detail, this.after, { fork: false }); } } }, "all about it after"));
  }

  all() {
    this.before.set({ selected: null });
    this.after.set({ selected: null });
    this.list();
    this.detail.classList.add("open");
  }

  list() {
    this.detail.classList.remove("open");
    const close = h("button", { class: "plain close", "aria-label": "Close", on: { click: () => this.detail.classList.remove("open") } }, "✕");
    const { diff, before, after } = this;
    const line = (scene, i, kind, what) => h("li", {}, h("span", { class: `badge ${kind}` }, kind), " ", h("button", { class: "link", on: { click: () => this.choose(scene, i) } }, `${visible(scene.model.agentOf(i), 40)}: ${visible(scene.model.title(i), 60)}`), what ? h("span", { class: "muted small" }, ` ${what}`) : null);
    const rows = [
      ...diff.changed.map(([, b, what]) => [after.model.t[b], line(after, b, "changed", what.join(", "))]),
      ...diff.added.map((b) => [after.model.t[b], line(after, b, "new")]),
      ...diff.removed.map((a) => [before.model.t[a], line(before, a, "gone")]),
    ].sort((x, y) => x[0] - y[0]);
    replace(this.detail, h("div", { class: "detail-body" }, close, h("h2", {}, rows.length ? "What changed" : "Nothing changed"), h("ul", { class: "edges" }, rows.slice(0, LISTED).map(([, made]) => made)), rows.length > LISTED ? h("p", { class: "hint" }, `and ${number(rows.length - LISTED)} more`) : null));
  }

  key(event) {
    if (event.key !== "Escape") return false;
    this.before.set({ selected: null });
    this.after.set({ selected: null });
    this.list();
    return true;
  }
}

function marks(picture, changed, alone, word) {
  const found = new Array(picture.events.id.length).fill("");
  for (const i of changed) found[i] = "changed";
  for (const i of alone) found[i] = word;
  return found;
}

function sentence(diff) {
  const reward = diff.deltas.find((one) => one.kind === "reward" && one.values.every((value) => value !== null));
  const said = reward ? `${spoken(visible(reward.what, 24))} reward ${number(reward.values[0])} → ${number(reward.values[1])}. ` : "";
  const agents = [diff.agents_added.length ? `${count(diff.agents_added.length, "agent")} more: ${diff.agents_added.slice(0, 4).map((name) => visible(name, 30)).join(", ")}` : "", diff.agents_removed.length ? `${count(diff.agents_removed.length, "agent")} fewer: ${diff.agents_removed.slice(0, 4).map((name) => visible(name, 30)).join(", ")}` : ""].filter(Boolean).join("; ");
  return `${said}${number(diff.same.length)} events are the same, ${number(diff.changed.length)} changed, ${number(diff.added.length)} are new, ${number(diff.removed.length)} are gone.${agents ? ` ${agents}.` : ""}`;
}

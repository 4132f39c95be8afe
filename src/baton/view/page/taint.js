// The taint overlay: which events strangers’ words may have touched, and how far that got.

import { h, replace } from "./dom.js";
import { NOT_MEASURED, count, number, visible } from "./text.js";

export function taintOf(found) {
  const labels = new Map();
  const add = (rows, label) => {
    for (const i of rows) {
      if (!labels.has(i)) labels.set(i, []);
      labels.get(i).push(label);
    }
  };
  add(found.sources, "source");
  add(found.data, "data taint");
  add(found.control, "control taint");
  add(found.violations, "violation");
  add(found.cut, "guard here");
  return { ...found, labels, agentSet: new Set(found.agents) };
}

export function taintPanel(host, scene) {
  const { taint, model } = scene;
  const figure = (value) => (typeof value === "number" ? number(value) : value.value === null ? NOT_MEASURED : number(value.value));
  const rows = Object.entries(taint.figures).map(([name, value]) => [h("dt", {}, name), h("dd", { class: figure(value) === NOT_MEASURED ? "none" : "", title: value.why_not }, figure(value))]);
  const list = (title, events) => events.length === 0 ? null : h("section", {}, h("h3", {}, title), h("ul", { class: "edges" }, events.slice(0, 20).map((i) =>
    h("li", {}, h("button", { class: "link", on: { click: () => scene.set({ selected: i }) } }, `${visible(model.agentOf(i), 40)}: ${visible(model.title(i), 60)}`)))));
  replace(host, h("div", { class: "detail-body" },
    h("h2", {}, "Taint"),
    h("p", { class: "hint" }, taint.labels.size ? `${count(taint.labels.size, "event")} of ${number(model.n)} may have been touched by what strangers wrote.` : "Nothing in this trace is marked as coming from strangers."),
    taint.num_results && taint.num_unlabelled_results ? h("p", { class: "hint" }, `${number(taint.num_unlabelled_results)} of ${count(taint.num_results, "tool result")} do not say whether they are trusted; they were taken as trusted.`) : null,
    h("dl", { class: "facts" }, rows),
    list("Violations", taint.violations),
    list("Guard these to stop it", taint.cut),
    list("Sources", taint.sources)));
}

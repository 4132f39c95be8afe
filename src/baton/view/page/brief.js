// Nothing chosen: the trace in short. Who was in the team and what they cost, what the time went into, who earned most.

import { spread } from "./colouring.js";
import { h, replace } from "./dom.js";
import { notesOf } from "./notes.js";
import { hue } from "./palette.js";
import { count, number, seconds, signed, spoken, visible } from "./text.js";

export function brief(host, scene) {
  replace(host, h("div", { class: "detail-body" },
    h("h2", {}, "In short"),
    roles(scene),
    regret(scene),
    earners(scene),
    path(scene),
    troubles(scene),
    notesOf(scene, null),
    h("p", { class: "hint" }, "Choose an event to see what was said, what else could have been chosen, what it cost and what it earned. ", h("kbd", {}, "?"), " lists the keys.")));
}

function roles(scene) {
  const { model } = scene;
  const all = model.agents.tokens.reduce((sum, tokens) => sum + (tokens ?? 0), 0);
  const rows = model.roles.map((role, k) => {
    const lanes = model.team.filter((lane) => model.agents.role[lane] === role);
    if (!lanes.length) return null;
    const known = lanes.filter((lane) => model.agents.tokens[lane] !== null);
    const tokens = known.reduce((sum, lane) => sum + model.agents.tokens[lane], 0);
    const fill = h("i", { style: { width: `${all ? (tokens / all) * 100 : 0}%` } });
    fill.style.backgroundColor = hue(k);
    return h("tr", {}, h("td", {}, role === null ? "no role" : visible(role, 30), lanes.length > 1 ? h("span", { class: "muted" }, ` ×${number(lanes.length)}`) : null),
      h("td", { class: "bar-cell" }, known.length ? h("div", { class: "bar" }, fill) : null),
      h("td", { class: known.length ? "num" : "num none" }, known.length ? `${number(tokens)} tok` : "not measured"));
  }).filter(Boolean);
  return h("section", {}, h("h3", {}, "The team"), h("table", { class: "tight" }, h("tbody", {}, rows.slice(0, 12))));
}

function regret(scene) {
  const { ledger } = scene;
  if (!ledger?.parts) return null;
  const parts = Object.entries(ledger.parts);
  const most = Math.max(1e-12, ...parts.map(([, part]) => part));
  return h("section", {}, h("h3", {}, "Lost against the optimum"),
    h("table", { class: "tight" }, h("tbody", {}, parts.map(([decision, part]) => h("tr", {}, h("td", {}, decision), h("td", { class: "bar-cell" }, h("div", { class: "bar bad" }, h("i", { style: { width: `${(part / most) * 100}%` } }))), h("td", { class: "num" }, number(part)))))),
    h("p", { class: "hint" }, `return ${number(ledger.value)}, optimum ${number(ledger.optimum)}, luck ${signed(ledger.luck)}`));
}

function earners(scene) {
  const { model } = scene;
  const k = model.channels.findIndex((channel) => channel.kind === "credit" && channel.unit !== "team");
  if (k < 0) return null;
  const channel = model.channels[k];
  const { agentValues } = spread(model, channel);
  const known = [...agentValues.keys()].filter((lane) => !Number.isNaN(agentValues[lane])).sort((a, b) => agentValues[b] - agentValues[a]);
  const shown = known.length > 7 ? [...known.slice(0, 4), ...known.slice(-3)] : known;
  return h("section", {}, h("h3", {}, `Who earned it: ${visible(channel.name, 24)} · ${spoken(channel.unit)}`),
    h("table", { class: "tight" }, h("tbody", {}, shown.map((lane) => h("tr", {},
      h("td", {}, h("button", { class: "link", on: { click: () => scene.set({ selected: model.byLane[lane][0] ?? null }) } }, visible(model.agents.name[lane], 40))),
      h("td", { class: agentValues[lane] < 0 ? "num minus" : "num plus" }, signed(agentValues[lane])))))),
    scene.colourBy === `channel:${k}` ? null : h("button", { class: "link", on: { click: () => scene.set({ colourBy: `channel:${k}` }) } }, "colour by it"));
}

function path(scene) {
  const { model } = scene;
  if (!model.critical?.length) return null;
  const by = new Map();
  for (const i of model.critical) by.set(model.lane[i], (by.get(model.lane[i]) ?? 0) + (model.duration[i] || 0));
  const worst = [...by].sort((a, b) => b[1] - a[1]).slice(0, 3);
  return h("section", {}, h("h3", {}, "What the time went into"),
    h("p", {}, `The critical path takes ${seconds(model.picture.span_s)}: `, worst.map(([lane, sum], k) => `${k ? ", " : ""}${visible(model.agents.name[lane], 30)} ${seconds(sum)}`).join(""), by.size > 3 ? ` and ${count(by.size - 3, "more agent")}` : "", "."));
}

function troubles(scene) {
  const { model } = scene;
  const bad = [...model.status.keys()].filter((i) => model.status[i] !== 0);
  if (!bad.length) return null;
  return h("section", {}, h("h3", {}, "Not ok"), h("ul", { class: "edges" }, bad.slice(0, 6).map((i) => h("li", {}, h("span", { class: "badge bad" }, spoken(model.statusOf(i))), " ", h("button", { class: "link", on: { click: () => scene.set({ selected: i }) } }, `${visible(model.agentOf(i), 30)}: ${visible(model.title(i), 40)}`))), bad.length > 6 ? h("li", { class: "muted" }, `and ${number(bad.length - 6)} more`) : null));
}

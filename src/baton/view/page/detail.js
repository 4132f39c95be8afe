// One event, with everything known of it: what was said, chosen, spent and earned, and the call behind it.

import { h, replace } from "./dom.js";
import { forkForm } from "./fork.js";
import { ask } from "./source.js";
import { brief } from "./brief.js";
import { callView } from "./call.js";
import { content, pairs } from "./detail_parts.js";
import { notesOf } from "./notes.js";
import { NOT_MEASURED, block, number, seconds, signed, spoken, visible } from "./text.js";

export function showDetail(host, scene, context) {
  const i = scene.selected;
  host.dataset.event = i === null ? "" : scene.model.ids[i];
  if (i === null) {
    brief(host, scene);
    return;
  }
  const { model } = scene;
  const close = h("button", { class: "plain", "aria-label": "Close", on: { click: () => scene.set({ selected: null }) } }, "✕");
  const head = h("div", { class: "detail-head" },
    h("div", {}, h("h2", {}, visible(model.title(i), 120)), h("div", { class: "muted" }, `${visible(model.agentOf(i), 80)} · `, h("code", {}, visible(model.ids[i], 60))),
      scene.wantedView === undefined ? null : h("button", { class: "link small", on: { click: () => scene.set({ wantedView: scene.wantedView === "transcript" ? "lanes" : "transcript" }) } }, scene.wantedView === "transcript" ? "in the lanes" : "in the transcript")),
    close);
  const body = h("div", { class: "detail-body" }, h("p", { class: "hint" }, "Loading…"));
  replace(host, head, body);
  const query = { ...model.place, at: i };
  ask("event", query)
    .then((found) => {
      if (scene.selected === i) replace(body, parts(scene, i, found, context));
    })
    .catch((error) => replace(body, h("p", { class: "bad" }, error.message)));
}

function parts(scene, i, found, context) {
  const { model } = scene;
  const fields = found.fields;
  return [
    badges(scene, i),
    content("Said", found.content, model),
    choices(fields),
    facts(model, i, fields),
    worth(found.worth),
    notesOf(scene, i),
    edges(scene, found),
    model.call[i] >= 0 ? callView(scene, model.call[i]) : null,
    context.fork ? forkForm(scene, i, found, context) : null,
    extra(fields.extra),
  ];
}

function badges(scene, i) {
  const { model } = scene;
  const list = [];
  const status = model.statusOf(i);
  if (status !== "ok") list.push(h("span", { class: "badge bad" }, spoken(status)));
  if (model.isUntrusted(i)) list.push(h("span", { class: "badge taint" }, "untrusted"));
  if (model.isInferred(i)) list.push(h("span", { class: "badge dashed" }, "inferred"));
  if (model.onCritical[i]) list.push(h("span", { class: "badge critical" }, "critical path"));
  for (const label of scene.taint?.labels.get(i) ?? []) list.push(h("span", { class: "badge taint" }, label));
  if (scene.marks?.[i]) list.push(h("span", { class: "badge" }, scene.marks[i]));
  return list.length ? h("div", { class: "badges" }, list) : null;
}

function choices(fields) {
  const options = fields.options;
  if (!options) return null;
  const rows = options.slice(0, 40).map((option, k) => {
    const chance = fields.option_propensities?.[k] ?? (k === fields.choice ? fields.propensity : undefined);
    const bar = h("div", { class: "bar" }, h("i", { style: { width: `${(chance ?? 0) * 100}%` } }));
    return h("tr", { class: k === fields.choice ? "chosen" : "" },
      h("td", {}, k === fields.choice ? "● " : "", visible(option, 140)),
      h("td", { class: "bar-cell" }, chance === undefined ? null : bar),
      h("td", { class: chance === undefined ? "num none" : "num" }, chance === undefined ? NOT_MEASURED : number(chance)));
  });
  const more = options.length > 40 ? h("p", { class: "hint" }, `and ${options.length - 40} more options`) : null;
  return h("section", {}, h("h3", {}, "Options and propensities"), h("table", { class: "tight" }, h("tbody", {}, rows)), more);
}

function facts(model, i, fields) {
  const role = model.agents.role[model.lane[i]]; // on a spawn, the event's own role is the child's
  const rows = [
    ["decision", fields.decision && fields.decision !== "none" ? fields.decision : null],
    ["agent", `${fields.agent}${role ? ` (${role})` : ""}`],
    ["to", fields.type === "spawn" && fields.role ? `${fields.to} (${fields.role})` : fields.to],
    ["tool", fields.tool],
    ["a person’s act", fields.type === "human_intervention" ? fields.extra?.do : null],
    ["done by", fields.type === "human_intervention" ? fields.extra?.by : null],
    ["done at", fields.type === "human_intervention" ? fields.extra?.when : null],
    ["began", seconds(fields.t)],
    ["took", fields.duration_s === undefined ? NOT_MEASURED : seconds(fields.duration_s)],
    ["tokens", fields.tokens === undefined ? NOT_MEASURED : number(fields.tokens)],
    ["propensity", fields.propensity === undefined ? NOT_MEASURED : number(fields.propensity)],
    ["pure", fields.pure === undefined || fields.pure === null ? null : String(fields.pure)],
    ["sequence", number(fields.seq)],
    ["random key", fields.seed_key],
    ["inferred, for", fields.why],
  ].filter(([, value]) => value !== null && value !== undefined);
  return h("section", {}, h("h3", {}, "Facts"), pairs(rows));
}

function worth(records) {
  if (!records.length) return null;
  const rows = records.map((record) =>
    h("tr", {},
      h("td", {}, record.kind),
      h("td", {}, visible(record.name, 50)),
      h("td", {}, spoken(record.unit)),
      h("td", { class: record.value < 0 ? "num minus" : "num plus" }, signed(record.value), record.stderr === null ? "" : ` ± ${number(record.stderr)}`)));
  return h("section", {}, h("h3", {}, "Worth"), h("table", { class: "tight" }, h("tbody", {}, rows)));
}

function edges(scene, found) {
  const line = ([other, type, inferred]) =>
    h("li", {},
      h("button", { class: "link", on: { click: () => scene.set({ selected: other }) } }, `${visible(scene.model.agentOf(other), 40)}: ${visible(scene.model.title(other), 60)}`),
      h("span", { class: "muted small" }, ` ${spoken(type)}${inferred ? ", inferred" : ""}${typeof inferred === "string" ? `: ${visible(inferred, 120)}` : ""}`));
  const list = (title, rows) => {
    if (!rows.length) return null;
    const more = rows.length > 12 ? h("li", { class: "muted" }, `and ${rows.length - 12} more`) : null;
    return h("section", {}, h("h3", {}, title), h("ul", { class: "edges" }, rows.slice(0, 12).map(line), more));
  };
  return [list("Depends on", found.into), list("Led to", found.out)];
}

function extra(given) {
  if (!given || !Object.keys(given).length) return null;
  return h("section", {}, h("h3", {}, "Further properties"), h("pre", { class: "said", tabindex: 0, role: "group", "aria-label": "Further properties" }, block(JSON.stringify(given, null, 2)).slice(0, 8000)));
}

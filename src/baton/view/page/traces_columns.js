// The columns of the table of all traces: what each shows of a line, and what a press on it filters by.

import { h } from "./dom.js";
import { ago, number, seconds, visible } from "./text.js";

export const USUAL = ["trace", "place", "task", "topology", "reward", "regret", "success", "tokens", "price", "took", "agents", "stop", "when"];
const NOT_READ = "not read yet";
const TAIL = 8; // characters

// narrow(term, away): only those that fit a term, or all but those
export function columnsOf(narrow) {
  const words = (name, field, most = 40, width = 96) => ({
    name,
    width,
    kind: "words",
    cell: (row) => (row[field] === null || row[field] === undefined ? null
      : h("button", { class: "link quiet", title: `${visible(row[field], 400)}\nOnly these (with Shift: all but these)`, on: { click: (event) => narrow(term(name, row[field]), event.shiftKey) } }, visible(row[field], most))),
  });
  const numeric = (name, field, show = number, width = 66) => ({
    name,
    width,
    numeric: true,
    cell: (row) => (row[field] === null ? h("span", { class: "none", title: row.read ? "not measured" : NOT_READ }, row.read ? "–" : "…") : show(row[field], row)),
  });
  return [
    { name: "trace", width: 130, kind: "name", cell: (row) => h("a", { href: `#trace?${new URLSearchParams({ place: row.place, id: row.id })}`, title: visible(row.id, 400), "aria-label": visible(row.id, 400) }, inTwo(row.id)) },
    words("place", "place", 34),
    words("task", "task", 34, 150),
    words("instance", "instance", 34),
    words("topology", "topology"),
    numeric("reward", "reward"),
    numeric("regret", "regret"),
    numeric("success", "success", number, 76),
    numeric("tokens", "tokens", (value, row) => `${row.estimated ? "~" : ""}${number(value)}`, 84),
    numeric("price", "price"),
    numeric("took", "seconds", seconds, 100),
    numeric("agents", "agents"),
    numeric("events", "events"),
    numeric("step", "step", (value) => h("button", { class: "link quiet", title: "Only these (with Shift: all but these)", on: { click: (event) => narrow(term("step", value), event.shiftKey) } }, number(value))),
    { ...words("stop", "stop", 40, 112), title: "why it ended" },
    { name: "when", width: 80, numeric: true, cell: (row) => (row.changed === null ? null : h("span", { title: new Date(row.changed * 1000).toLocaleString() }, ago(Date.now() / 1000 - row.changed))) },
    words("policy", "policies", 30),
    words("system", "system"),
    { ...words("fork", "forked_from"), title: "fork of" },
    {
      name: "label",
      width: 96,
      kind: "words",
      cell: (row) => (row.labels.length ? row.labels.map((label) => h("button", { class: "chip quiet", title: "Only these (with Shift: all but these)", on: { click: (event) => narrow(term("label", label), event.shiftKey) } }, visible(label, 24))) : null),
    },
  ];
}

// What tells names apart is mostly at their end, which stays where the rest is cut.
function inTwo(name) {
  const all = [...String(name)];
  if (all.length <= 2 * TAIL) return visible(name);
  return [h("span", { class: "start" }, visible(all.slice(0, -TAIL).join(""), 60)), h("span", { class: "tail" }, visible(all.slice(-TAIL).join("")))];
}

export function term(name, value) {
  if (value === null) return `${name}:none`;
  const text = String(value).replaceAll('"', "");
  return /^[\p{L}\p{N}_./:~#@+-]+$/u.test(text) && !["none", "any"].includes(text) ? `${name}=${text}` : `${name}="${text}"`;
}

// A query without its terms that say what a column is.
export function without(query, name) {
  return termsOf(query).filter((each) => !each.startsWith(`${name}=`)).join(" ");
}

function termsOf(query) {
  return query.match(/(?:[^\s"]|"[^"]*")+/g) ?? [];
}

// A query with one more term, or without it where it is there.
export function narrowed(query, one, away) {
  const wanted = away ? `-${one}` : one;
  const other = away ? one : `-${one}`;
  const terms = termsOf(query);
  const kept = terms.filter((each) => each !== wanted && each !== other);
  const either = kept.some((each) => each.toLowerCase() === "or");
  const rest = either ? `(${kept.join(" ")})` : kept.join(" ");
  return terms.includes(wanted) ? kept.join(" ") : `${rest} ${wanted}`.trim();
}

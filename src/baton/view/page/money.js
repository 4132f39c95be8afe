// What a trace cost in money, by the price table that the viewer was given: in all, by role, by agent and by model.

import { h, replace } from "./dom.js";
import { ask } from "./source.js";
import { number, visible } from "./text.js";

const UNKNOWN = "unknown";
const MOST = 50;

export function amount(value, currency) {
  if (value === null || value === undefined) return UNKNOWN;
  const shown = value === 0 || Math.abs(value) >= 1 ? value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) : String(Number(value.toPrecision(3)));
  return `${shown} ${visible(currency, 8)}`;
}

export function money(model) {
  const host = h("section", { class: "money" }, h("h2", {}, "What it cost"));
  ask("cost", model.place)
    .then((found) => replace(host, h("h2", {}, "What it cost"), lead(found), ["roles", "agents", "models"].map((name) => table(name, found))))
    .catch((error) => replace(host, h("h2", {}, "What it cost"), h("p", { class: "hint" }, visible(error.message, 300))));
  return host;
}

function lead({ cost, known, currency, estimated, why_not: why }) {
  const about = estimated ? "~" : "";
  if (cost.total !== null) {
    return h("p", {}, h("b", {}, about + amount(cost.total, currency)), `: prompts ${amount(cost.prompt, currency)}, ${cost.cached === null ? "" : `from a cache ${amount(cost.cached, currency)}, `}completions ${amount(cost.completion, currency)}.`, cost.cached_tokens === null ? " No call says how much of its prompt a cache gave." : "", estimated ? " Some counts of tokens are estimates." : "");
  }
  return h("p", {}, h("b", {}, UNKNOWN), known === null ? "" : `, and at least ${about}${amount(known, currency)}`, `: ${visible(why, 400)}.`, h("span", { class: "hint" }, " Prices come from a table of yours: baton view PATH --prices FILE."));
}

function table(name, found) {
  const rows = Object.entries(found[name]).sort((a, b) => (b[1].total ?? -1) - (a[1].total ?? -1));
  if (!rows.length) return null;
  const cell = (value) => h("td", { class: value === UNKNOWN ? "num none" : "num" }, value);
  const count = (value) => cell(value === null ? UNKNOWN : number(value));
  const heads = [name.slice(0, -1), "calls", "prompt tokens", "of a cache", "completion tokens", "cost"];
  return h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": `Cost by ${name.slice(0, -1)}` }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, heads.map((head, k) => h("th", { class: k ? "num" : "" }, head)))),
    h("tbody", {}, rows.slice(0, MOST).map(([who, one]) => h("tr", {}, h("td", {}, who === "" ? "not told" : visible(who, 60)), count(one.calls), count(one.prompt_tokens), count(one.cached_tokens), count(one.completion_tokens), cell(amount(one.total, found.currency)))))),
    rows.length > MOST ? h("p", { class: "hint" }, `and ${number(rows.length - MOST)} more, which cost less`) : null);
}

// The LLM call behind an event: its prompt, its completion token by token, and how the tokens were judged.

import { h, replace, select } from "./dom.js";
import { content, pairs } from "./detail_parts.js";
import { diverging, inkOn, rising } from "./palette.js";
import { ask } from "./source.js";
import { block, number, seconds, spoken, visible } from "./text.js";

const MOST_TOKENS = 4000;

// `keep`: whether the next one that is shown is open where this one was.
export function callView(scene, at, keep = true) {
  const box = h("details", { class: "call" }, h("summary", {}, `LLM call `, h("code", {}, visible(scene.model.picture.calls.id[at], 60))));
  const body = h("div", {}, h("p", { class: "hint" }, "Loading…"));
  box.append(body);
  let asked = false;
  const load = () => {
    if (asked) return;
    asked = true;
    ask("call", { ...scene.model.place, at })
      .then((found) => replace(body, parts(scene, found)))
      .catch((error) => replace(body, h("p", { class: "bad" }, error.message)));
  };
  box.addEventListener("toggle", load);
  if (keep && callView.open) {
    box.open = true;
    load();
  }
  box.addEventListener("toggle", () => {
    if (keep) callView.open = box.open;
  });
  return box;
}

function parts(scene, found) {
  const fields = found.fields;
  const rows = [
    ["policy", [fields.policy, fields.policy_version].filter(Boolean).join(" version ") || "not recorded"],
    ...(fields.versions ? [["drawn by", fields.versions.map((span) => `version ${span.version} up to token ${number(span.end)}`).join(", ")]] : []),
    ["prompt tokens", `${fields.estimated ? "~" : ""}${number(fields.prompt_tokens)}`],
    ["completion tokens", `${fields.estimated ? "~" : ""}${number(fields.completion_tokens)}`],
    ["temperature", fields.sampling ? number(fields.sampling.temperature ?? 1) : "not recorded"],
    ["ended by", fields.finish_reason ?? "not recorded"],
    ["took", seconds(fields.duration_s)],
  ];
  return [tokens(found), prompt(scene, found), pairs(rows)];
}

function prompt(scene, found) {
  const given = found.prompt;
  const kept = found.parent === null ? null
    : h("p", { class: "hint" }, `The prompt begins with the first ${number(found.fields.keep ?? 0)} tokens of call `, h("code", {}, visible(scene.model.picture.calls.id[found.parent], 60)), ", then:");
  let entries = null;
  try {
    entries = given?.text ? JSON.parse(given.text) : null;
  } catch {
    // Cut, or no list of entries: shown as it is.
  }
  if (!Array.isArray(entries)) return [kept, content("Prompt", given, scene.model)];
  const list = entries.map((entry) =>
    h("div", { class: `turn ${["system", "user", "assistant"].includes(entry.speaker) ? entry.speaker : "other"}` },
      h("div", { class: "speaker" }, visible(entry.speaker ?? "", 40)), h("pre", { tabindex: 0, role: "group", "aria-label": `Said by ${visible(entry.speaker ?? "", 40)}` }, block(entry.text ?? ""))));
  return h("section", {}, h("h3", {}, "Prompt"), kept, list);
}

function tokens(found) {
  if (!found.tokens) return content("Completion", found.completion, null);
  const scales = [];
  for (const one of found.advantages) {
    const label = `${visible(one.name, 40)} · ${spoken(one.unit)}`;
    if (one.values) scales.push({ label: `advantage: ${label}`, values: one.values, signed: true });
  }
  if (found.logprobs) scales.push({ label: "surprise (−log-probability)", values: found.logprobs.map((value) => -value), signed: false });
  const body = h("div", { class: "tokens", tabindex: 0, role: "group", "aria-label": "Completion by tokens" });
  const legend = h("div", { class: "muted small" });
  const paint = (k) => {
    const scale = scales[k];
    const most = scale ? Math.max(1e-9, ...scale.values.slice(0, MOST_TOKENS).map((value) => Math.abs(value))) : 0;
    replace(body, found.tokens.slice(0, MOST_TOKENS).map((token, n) => {
      const value = scale?.values[n];
      const made = h("span", { title: value === undefined ? `token ${n}` : `token ${n}: ${number(value)}` }, block(token));
      if (value === undefined) made.className = "unmeasured";
      else if (value !== 0) {
        const colour = scale.signed ? diverging(value, most) : rising(value, most);
        made.style.backgroundColor = colour;
        made.style.color = inkOn(colour);
        made.className = "judged";
      }
      return made;
    }));
    if (found.tokens.length > MOST_TOKENS) body.append(h("span", { class: "hint" }, ` … ${number(found.tokens.length - MOST_TOKENS)} more tokens`));
    legend.textContent = !scale ? "no log-probabilities and no credit on this call"
      : scale.signed ? `from −${number(most)} to +${number(most)}; no colour is exactly 0` : `darker is less expected; most ${number(most)}`;
  };
  const choice = scales.length > 1 ? select("Colour tokens by", scales.map((scale, k) => ({ value: String(k), label: scale.label })), "0", (value) => paint(Number(value))) : null;
  paint(0);
  const why = found.advantages.filter((one) => one.why_not).map((one) => h("p", { class: "hint" }, `${visible(one.name, 40)}: ${visible(one.why_not, 300)}`));
  return h("section", {}, h("h3", {}, "Completion, ", `${number(found.tokens.length)} ${found.fields.estimated ? "bytes" : "tokens"}`), choice, body, legend, why);
}

// Pieces of detail: content that may be long, withheld or damaged, and names with their values.

import { h } from "./dom.js";
import { ask } from "./source.js";
import { NOT_MEASURED, block, number, visible } from "./text.js";

export function content(title, given, model) {
  if (!given) return null;
  const body = h("pre", { class: "said", tabindex: 0, role: "group", "aria-label": title });
  const note = h("div", { class: "muted small" });
  const section = h("section", {}, h("h3", {}, title), given.why_not ? h("p", { class: "hint" }, given.why_not) : body, note);
  if (given.why_not) return section;
  const fill = (text) => {
    body.textContent = block(given.media_type === "application/json" ? pretty(text) : text) || "(empty)";
  };
  fill(given.text);
  if (given.characters) {
    const more = h("button", { class: "plain" }, `show all ${number(given.characters)} characters`);
    more.addEventListener("click", async () => {
      more.disabled = true;
      fill((await ask("content", { ...model.place, ref: given.ref })).text);
      note.remove();
    });
    note.append("cut; ", more);
  }
  return section;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function pairs(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", { class: value === NOT_MEASURED ? "none" : "" }, visible(value, 300))]));
}

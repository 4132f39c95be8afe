// Change one thing and run the team again from there; the result opens beside the original.

import { h, replace } from "./dom.js";
import { post } from "./source.js";
import { count, number } from "./text.js";

const HAS_TEXT = new Set(["spawn", "message", "return"]);
const CHANGEABLE = new Set(["spawn", "message", "return", "tool_call", "orchestrator_decision", "aggregate", "tool_result"]);

export function forkForm(scene, i, found, { open }) {
  const { model } = scene;
  const type = model.typeOf(i);
  if (!CHANGEABLE.has(type)) return null;
  const isResult = type === "tool_result";
  const text = h("textarea", { rows: 4, "aria-label": "New content" });
  text.value = found.content?.text ?? "";
  const answer = h("input", { type: "text", placeholder: "answer", "aria-label": "Answer to stop with" });
  const state = h("p", { class: "hint", role: "status" });
  const box = h("details", { class: "fork" }, h("summary", {}, "What if…"));
  const run = async (change) => {
    for (const button of box.querySelectorAll("button")) button.disabled = true;
    state.className = "hint";
    state.textContent = "Running the team again; only what depends on the change is done anew…";
    try {
      const made = await post("fork", model.place, { at: model.ids[i], ...change });
      state.textContent = `${count(made.calls_run, "call")} (${made.estimated_run ? "~" : ""}${number(made.tokens_run)} tokens) ran again, ${number(made.calls_reused)} were reused; ${count(made.invalidated.length, "event")} changed.`;
      open(made.id);
    } catch (error) {
      state.className = "bad";
      state.textContent = error.message;
    } finally {
      for (const button of box.querySelectorAll("button")) button.disabled = false;
    }
  };
  const button = (label, change) => h("button", { on: { click: () => run(change()) } }, label);
  const edit = HAS_TEXT.has(type) || isResult || ["stop", "spawn", "delegate", "communicate"].includes(model.decisionOf(i));
  replace(box,
    h("summary", {}, "What if…"),
    edit ? [h("p", { class: "hint" }, "it had said this instead:"), text, button("Edit and run again", () => ({ do: "replace", text: text.value }))] : null,
    isResult ? null : [
      h("div", { class: "row" }, button("Drop it and run again", () => ({ do: "drop" }))),
      h("div", { class: "row" }, answer, button("Stop here and run again", () => ({ do: "stop", text: answer.value }))),
    ],
    state);
  return box;
}

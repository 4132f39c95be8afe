// Change one thing and run the team again from there; the result opens beside the original.

import { h, replace } from "./dom.js";
import { ask, post } from "./source.js";
import { count, number, seconds, visible } from "./text.js";

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
    const job = Array.from(crypto.getRandomValues(new Uint32Array(2)), (part) => part.toString(36)).join("");
    const cancel = h("button", { class: "link", on: { click: () => post("cancel", { job }).catch(() => {}) } }, "call it off");
    const told = h("span", {}, "Running the team again; only what depends on the change is done anew…");
    state.className = "hint";
    replace(state, told, " ", cancel);
    const watching = setInterval(() => ask("forking", { job }).then((found) => { told.textContent = far(found) ?? told.textContent; }).catch(() => {}), 1000);
    try {
      const made = await post("fork", { ...model.place, job }, { at: model.ids[i], ...change });
      const took = `${count(made.calls_run, "call")} (${made.estimated_run ? "~" : ""}${number(made.tokens_run)} tokens) ran again, ${number(made.calls_reused)} were reused; ${count(made.invalidated.length, "event")} changed.`;
      replace(state, took, made.note ? h("b", { class: "bad" }, ` ${visible(made.note, 400)} `) : null, made.note ? h("button", { class: "link", on: { click: () => open(made.id) } }, "look at it") : null);
      if (!made.note) open(made.id);
    } catch (error) {
      state.className = "bad";
      state.textContent = error.message;
    } finally {
      clearInterval(watching);
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

function far(found) {
  if (found.state === "waiting") return `Waiting for ${count(found.before, "other fork")}…`;
  return found.state === "running" ? `Running the team again: ${count(found.events, "event")} so far, ${seconds(found.seconds)}…` : null;
}

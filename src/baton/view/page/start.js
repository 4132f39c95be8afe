// A form for a new run: a team on a task, or a recipe to train by. What can be chosen comes from the server; nothing of
// a trace is in it.

import { h, replace, select } from "./dom.js";
import { post } from "./source.js";
import { ago, visible } from "./text.js";

export function startForm(choices, begun) {
  const order = { kind: "run", name: "", task: choices.tasks[0], topology: "", policy: "reference", clock: "virtual", seed: 0, rollouts: 1, recipe: choices.recipes[0], steps: null };
  const fields = h("div", { class: "toolbar" });
  const state = h("span", { class: "small muted", role: "status" });
  const field = (label, inside) => h("label", { class: "field" }, `${label} `, inside);
  const text = (key, label, kind = "text") => field(label, h("input", { type: kind, value: order[key] ?? "", size: kind === "number" ? 5 : 14, min: kind === "number" ? 0 : null, "aria-label": label, on: { input: (event) => { order[key] = kind === "number" ? (event.target.value === "" ? null : Number(event.target.value)) : event.target.value; } } }));
  const pick = (key, label, values) => field(label, select(label, values.map((value) => ({ value, label: value || "the task’s own" })), order[key], (value) => { order[key] = value; }));
  const draw = () => replace(fields,
    field("start", select("What to start", [{ value: "run", label: "a team on a task" }, { value: "train", label: "training by a recipe" }], order.kind, (kind) => { order.kind = kind; draw(); fields.querySelector("select").focus(); })),
    order.kind === "run" ? [pick("task", "task", choices.tasks), pick("topology", "topology", ["", ...choices.topologies]), pick("policy", "policy", choices.policies), pick("clock", "clock", ["virtual", "real"]), text("seed", "seed", "number"), text("rollouts", "rollouts", "number")] : [pick("recipe", "recipe", choices.recipes), text("steps", "steps", "number")],
    text("name", "folder"),
    h("button", { on: { click: () => start() } }, "start"),
    state);
  async function start() {
    state.className = "small muted";
    state.textContent = "starting…";
    try {
      const made = await post("start", {}, { ...order, seed: order.seed ?? 0, rollouts: order.rollouts ?? 1 });
      state.textContent = visible(made.command.join(" "), 300);
      begun();
    } catch (error) {
      state.className = "small bad";
      state.textContent = visible(error.message, 400);
    }
  }
  draw();
  return h("details", { class: "start", open: true }, h("summary", {}, "Start a run"), h("p", { class: "hint" }, `It goes into a folder below ${visible(choices.folder, 120)}, as the command that is shown; it goes on when this viewer ends.`), fields);
}

export function startedList(host, started) {
  const now = Date.now() / 1000;
  replace(host, started.length ? [h("h2", {}, "Started here"), h("ul", { class: "edges" }, started.map((one) => h("li", {},
    h("b", {}, visible(one.name, 60)), " ",
    h("span", { class: `chip ${one.code === null ? "live" : one.code ? "bad" : ""}` }, one.code === null ? "at work" : one.code ? `ended with ${one.code}` : "done"), " ",
    h("span", { class: "muted small" }, ago(now - one.began)), " ",
    one.code === null ? h("button", { class: "link", on: { click: () => post("end", { name: one.name }, {}).catch(() => {}) } }, "end it") : null,
    h("div", {}, h("code", {}, visible(one.command.join(" "), 300))),
    one.said ? h("pre", { class: "said" }, visibleLines(one.said)) : null)))] : []);
}

function visibleLines(text) {
  return text.split("\n").slice(-6).map((line) => visible(line, 300)).join("\n");
}

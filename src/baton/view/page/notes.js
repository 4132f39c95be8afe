// Notes and labels that people keep on a trace and on its events. They are written beside the trace, never into it.

import { h, replace, say } from "./dom.js";
import { ask, exported, post } from "./source.js";
import { block, count, number, signed, visible } from "./text.js";

// All notes of the trace, and which events have some: asked for once, and again after every change.
export async function loadNotes(scene) {
  if (exported) return;
  const { model } = scene;
  try {
    take(scene, await ask("notes", model.place));
  } catch {
    // The trace itself says what is wrong with its place.
  }
}

function take(scene, found, mine = false) {
  const noted = new Map();
  for (const note of found.notes) {
    if (note.event !== null) noted.set(note.event, [...(noted.get(note.event) ?? []), note]);
  }
  scene.set({ notes: found.notes, noted, labels: found.labels, notesStamp: found.stamp, ...(mine ? { noteKept: true } : {}) });
}

// What is noted on one event; with null, on the trace as a whole.
export function notesOf(scene, row) {
  if (exported || !scene.notes) return null;
  const event = row === null ? null : scene.model.ids[row];
  const mine = scene.notes.filter((note) => note.event === event);
  const events = row === null ? [...scene.noted].map(([id, some]) => [scene.model.ids.indexOf(id), some]).filter(([at]) => at >= 0) : [];
  return h("section", { class: "notebook" }, h("h3", {}, "Notes"),
    mine.map((note) => shown(scene, note)),
    events.length ? h("ul", { class: "edges" }, events.map(([at, some]) => h("li", {}, h("button", { class: "link", on: { click: () => scene.set({ selected: at }) } }, visible(scene.model.title(at), 60)), h("span", { class: "muted small" }, ` ${count(some.length, "note")}: ${visible(some.flatMap((note) => note.labels.length ? note.labels : [note.text]).join(", "), 80)}`)))) : null,
    form(scene, event, null));
}

function shown(scene, note) {
  const host = h("div", { class: "note" });
  const edit = () => replace(host, form(scene, note.event, note, () => replace(host, body())));
  const body = () => [
    h("div", { class: "badges" }, note.labels.map((label) => h("span", { class: "badge label" }, visible(label, 60))), note.score === null ? null : h("span", { class: "badge" }, signed(note.score))),
    note.text ? h("div", { class: "words" }, block(note.text)) : null,
    note.answer === null ? null : h("div", {}, h("span", { class: "muted" }, "right answer "), visible(note.answer, 2000)),
    h("div", { class: "muted small" }, `${visible(note.by, 40)} ${visible(note.at, 20)} `, h("button", { class: "link small", on: { click: edit } }, "edit"), " ", h("button", { class: "link small", on: { click: () => send(scene, { note: note.id, remove: true }) } }, "remove")),
  ];
  replace(host, body());
  return host;
}

function form(scene, event, note, close) {
  const words = h("textarea", { rows: 2, "aria-label": event === null ? "Note on the trace" : "Note on the event" });
  words.value = note?.text ?? "";
  const labels = h("input", { type: "text", placeholder: "labels, with commas", "aria-label": "Labels", value: note?.labels.join(", ") ?? "" });
  const score = h("input", { type: "text", inputmode: "decimal", placeholder: "score", "aria-label": "Score", value: note?.score === null || !note ? "" : String(note.score) });
  const answer = event === null ? h("input", { type: "text", placeholder: "right answer", "aria-label": "Right answer", value: note?.answer ?? "" }) : null;
  const state = h("p", { class: "bad", role: "status" });
  const used = (scene.labels ?? []).slice(0, 8).map((label) => h("button", { class: "badge label", title: "Add this label", on: { click: () => {
    const given = split(labels.value);
    if (!given.includes(label)) labels.value = [...given, label].join(", ");
  } } }, visible(label, 40)));
  const save = async () => {
    const value = score.value.trim().replace("−", "-").replace(",", ".");
    if (value && !Number.isFinite(Number(value))) {
      state.textContent = `${visible(score.value, 20)} is no score; expected a number, such as 1 or -0.5.`;
      return;
    }
    try {
      await send(scene, { ...(note ? { note: note.id } : { event }), text: words.value, labels: split(labels.value), score: value ? Number(value) : null, answer: answer?.value.trim() ? answer.value : null });
    } catch (error) {
      state.textContent = error.message;
    }
  };
  return h("div", { class: "note-form" }, words, h("div", { class: "row" }, labels, score), answer ? h("div", { class: "row" }, answer) : null, used.length ? h("div", { class: "badges" }, used) : null,
    h("div", { class: "row" }, h("button", { on: { click: save } }, note ? "Save" : "Add note"), close ? h("button", { class: "plain", on: { click: close } }, "Leave it") : null), state);
}

function split(text) {
  return [...new Set(text.split(",").map((one) => one.trim()).filter(Boolean))];
}

async function send(scene, change) {
  const found = await post("note", scene.model.place, change);
  take(scene, found, true);
  say(change.remove ? "note removed" : `noted; ${number(found.notes.length)} notes on this trace`);
}

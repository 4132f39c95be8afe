// Everything that was said, in order: of all agents or of one, with what was thought folded, and each entry beside its event.

import { callView } from "./call.js";
import { copyButton } from "./copy.js";
import { h, replace, select, toggle } from "./dom.js";
import { ask, exported } from "./source.js";
import { NOT_MEASURED, block, count, number, seconds, visible } from "./text.js";

const PAGE = 200;

export class TranscriptView {
  constructor(host, scene, context) {
    this.scene = scene;
    this.context = context;
    this.agent = new URLSearchParams(location.hash.split("?")[1]).get("agent") ?? "";
    this.unfolded = false;
    this.total = 0;
    this.bar = h("div", { class: "transcript-bar" });
    this.list = h("div", { class: "entries", tabindex: 0, role: "feed", "aria-label": "Transcript", on: { keydown: (event) => this.key(event) } });
    this.host = h("div", { class: "transcript" }, this.bar, this.list);
    host.append(this.host);
    this.off = scene.on((names) => {
      if (names.has("selected") && scene.selected !== null && scene.selected !== this.pressed) this.show(scene.selected);
      if (names.has("selected") || names.has("found") || names.has("cursor")) this.mark();
      if (names.has("model")) this.load({ start: this.start ?? 0 });
    });
    this.tools();
    this.load(scene.selected === null ? { start: 0 } : { around: scene.selected });
  }

  destroy() {
    this.off();
    this.host.remove();
  }

  tools() {
    const { model } = this.scene;
    const agents = [{ value: "", label: `all ${count(model.team.length, "agent")}` }, ...model.agents.name.map((name) => ({ value: name, label: visible(name, 60) }))];
    replace(this.bar,
      h("label", { class: "field" }, "of ", select("Agent", agents, this.agent, (agent) => {
        this.agent = agent;
        this.context.remember?.({ agent: agent || null });
        this.load({ start: 0 });
      })),
      toggle("thoughts", this.unfolded, (on) => {
        this.unfolded = on;
        for (const box of this.list.querySelectorAll("details.thought")) box.open = on;
      }, "Open what was thought beside what was said"),
      copyButton("copy what is shown", () => this.asText()),
      this.said = h("span", { class: "muted small", role: "status" }));
  }

  async load(query) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const found = await this.page(query);
      if (turn !== this.turn) return;
      this.start = found.start;
      this.end = found.start + found.entries.length;
      this.total = found.total;
      this.entries = found.entries;
      this.draw();
      this.mark();
      if (query.around !== undefined) this.reveal(query.around);
    } catch (error) {
      replace(this.list, h("p", { class: "bad" }, visible(error.message, 300)));
    }
  }

  // A file holds the whole transcript; the server sends it page by page.
  async page({ start, around }) {
    if (!exported) return ask("transcript", { ...this.scene.model.place, ...(this.agent ? { agent: this.agent } : {}), ...(around === undefined ? { start } : { around }) });
    const every = (await ask("transcript")).entries.filter((entry) => !this.agent || entry.agent === this.agent);
    const before = around === undefined ? start : every.findIndex((entry) => entry.row >= around);
    const from = Math.floor(Math.max(0, before) / PAGE) * PAGE;
    const entries = every.slice(from, from + PAGE); // their words stand with their events
    return { start: from, total: every.length, entries: await Promise.all(entries.map(async (entry) => ({ ...entry, said: (await ask("event", { at: entry.row })).content }))) };
  }

  draw() {
    const turn = (label, start) => h("button", { class: "turn-page", on: { click: () => this.load({ start }).then(() => this.list.focus()) } }, label);
    replace(this.list,
      this.start > 0 ? turn(`earlier (${number(this.start)})`, Math.max(0, this.start - PAGE)) : null,
      this.entries.length ? this.entries.map((entry) => this.entry(entry)) : h("p", { class: "hint" }, "Nothing was said."),
      this.end < this.total ? turn(`later (${number(this.total - this.end)})`, this.end) : null);
    this.list.scrollTop = 0;
    this.said.textContent = this.end - this.start < this.total ? `${number(this.start + 1)} to ${number(this.end)} of ${count(this.total, "entry").replace("entrys", "entries")}` : "";
  }

  entry(entry) {
    const { model, colouring } = this.scene;
    const { row } = entry;
    const dot = h("i", { class: "dot" });
    dot.style.backgroundColor = colouring.colour(row) ?? "transparent";
    const counts = [
      entry.tokens === null ? null : `${entry.estimated ? "~" : ""}${number(entry.tokens)} tokens`,
      entry.prompt_tokens === null && entry.completion_tokens === null ? null : `asked ${number(entry.prompt_tokens)}, said ${number(entry.completion_tokens)}`,
      seconds(model.t[row]),
    ].filter(Boolean).join(" · ");
    const status = model.statusOf(row);
    return h("article", { class: "entry", "data-row": row, "aria-label": `${visible(entry.agent, 60)}: ${visible(model.title(row), 80)}` },
      entry.system === null ? null : fold("system prompt", entry.system, false),
      h("header", {}, dot, h("b", {}, visible(entry.agent, 60)), " ",
        h("button", { class: "link", title: "All about this event", on: { click: () => this.choose(row) } }, visible(model.title(row), 100)),
        status === "ok" ? null : h("span", { class: "badge bad" }, visible(status, 20)),
        model.isUntrusted(row) ? h("span", { class: "badge taint" }, "untrusted") : null,
        h("span", { class: "grow" }), h("span", { class: "muted small" }, counts), " ",
        h("button", { class: "link small", on: { click: () => this.scene.set({ selected: row, wantedView: "lanes" }) } }, "in the lanes"), " ",
        copyButton("copy", () => plain(model, entry), "link small")),
      entry.thought === null ? null : fold("thought", entry.thought, this.unfolded),
      this.words(entry),
      entry.call !== null && entry.completion_tokens !== null ? callView(this.scene, entry.call, false) : null);
  }

  words({ said }) {
    if (!said) return null;
    if (said.why_not) return h("p", { class: "hint" }, visible(said.why_not, 300));
    const body = h("pre", { class: "said" }, block(said.text) || "(empty)");
    if (!said.characters) return body;
    const more = h("button", { class: "link small", on: { click: async () => {
      more.disabled = true;
      body.textContent = block((await ask("content", { ...this.scene.model.place, ref: said.ref })).text);
      more.remove();
    } } }, `cut; show all ${number(said.characters)} characters`);
    return [body, more];
  }

  choose(row) {
    this.pressed = row;
    this.scene.set({ selected: row });
    this.pressed = null;
  }

  show(row) {
    if (this.list.querySelector(`[data-row="${row}"]`)) return this.reveal(row);
    if (this.agent && this.agent !== this.scene.model.agentOf(row)) {
      this.agent = "";
      this.context.remember?.({ agent: null });
      this.tools();
    }
    return this.load({ around: row });
  }

  reveal(row) {
    this.list.querySelector(`[data-row="${row}"]`)?.scrollIntoView({ block: "nearest" });
  }

  mark() {
    const { scene } = this;
    for (const one of this.list.querySelectorAll(".entry")) {
      const row = Number(one.dataset.row);
      one.classList.toggle("chosen", row === scene.selected);
      one.classList.toggle("later", scene.isLater(row) || (scene.found !== null && !scene.found.has(row)));
    }
  }

  key(event) {
    const way = { ArrowDown: 1, ArrowRight: 1, j: 1, ArrowUp: -1, ArrowLeft: -1, k: -1 }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("pre, select, input, summary, .tokens")) return;
    const at = this.entries.findIndex((entry) => entry.row === this.scene.selected);
    const next = this.entries[at < 0 ? 0 : at + way];
    if (next) {
      this.choose(next.row);
      this.reveal(next.row);
    } else if (way > 0 ? this.end < this.total : this.start > 0) {
      this.load({ start: way > 0 ? this.end : Math.max(0, this.start - PAGE) });
    }
    event.preventDefault();
    event.stopPropagation();
  }

  asText() {
    return this.entries.map((entry) => plain(this.scene.model, entry)).join("\n\n");
  }
}

function fold(name, text, open) {
  const box = h("details", { class: name === "thought" ? "thought" : "system" }, h("summary", {}, name), h("pre", { class: "said" }, block(text)));
  box.open = open;
  return box;
}

// An entry as somebody would paste it. Its words are as they were said: what pastes them decides what they are.
function plain(model, entry) {
  const words = entry.said?.text ?? entry.said?.why_not ?? "";
  const head = `[${model.ids[entry.row]} · ${entry.agent} · ${model.title(entry.row)} · ${entry.tokens === null ? `tokens ${NOT_MEASURED}` : `${number(entry.tokens)} tokens`}]`;
  return [head, entry.system && `(system prompt) ${entry.system}`, entry.thought && `(thought) ${entry.thought}`, words].filter(Boolean).join("\n");
}

// Find in one trace: by the names of events, and in what was said, in prompts and in answers; with counts, next and previous.

import { h, replace } from "./dom.js";
import { marked } from "./search_page.js";
import { ask, exported } from "./source.js";
import { count, number } from "./text.js";

const TYPED_MS = 250;
const WHERE = { said: "said", prompt: "prompt", answer: "answer" };

export class Finder {
  // found(rows or null): which events; go(row): to one of them
  constructor(scene, place, { found, go, words = "", remember }) {
    Object.assign(this, { scene, place, found, go, remember });
    this.rows = [];
    this.hits = new Map();
    this.at = -1;
    this.input = h("input", {
      type: "search", placeholder: "find…", "aria-label": "Find events", title: "In names and in what was said (/)", value: words,
      on: { input: () => this.typed(), keydown: (event) => event.key === "Enter" && (event.preventDefault(), this.step(event.shiftKey ? -1 : 1)) },
    });
    this.told = h("span", { class: "muted small", role: "status" });
    this.steps = h("span", { class: "group", hidden: true },
      h("button", { "aria-label": "Previous found", title: "Previous (Shift Enter)", on: { click: () => this.step(-1) } }, "↑"),
      h("button", { "aria-label": "Next found", title: "Next (Enter)", on: { click: () => this.step(1) } }, "↓"));
    this.excerpt = h("span", { class: "excerpt small" });
    this.box = h("span", { class: "finder" }, this.input, this.steps, this.told, this.excerpt);
    if (words) this.look(words, false);
  }

  destroy() {
    clearTimeout(this.typing);
    this.gone = true;
  }

  typed() {
    clearTimeout(this.typing);
    const words = this.input.value;
    this.found(words.trim() ? this.scene.model.find(words) : null);
    this.typing = setTimeout(() => this.look(words), TYPED_MS);
  }

  async look(words, go = true) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    this.remember({ find: words.trim() ? words : null });
    this.hits = new Map();
    this.at = -1;
    if (!words.trim()) return this.tell(null);
    const named = this.scene.model.find(words);
    this.rows = named;
    this.tell("looking in what was said…");
    let problem = exported ? "by name alone: this file cannot be searched" : "";
    if (!exported) {
      try {
        const { hits } = await ask("find", { ...this.place, words });
        if (turn !== this.turn || this.gone) return undefined;
        for (const hit of hits) this.hits.set(hit.at, [...(this.hits.get(hit.at) ?? []), hit]);
      } catch (error) {
        problem = error.message;
      }
    }
    if (turn !== this.turn || this.gone) return undefined;
    this.rows = [...new Set([...named, ...this.hits.keys()])].sort((a, b) => a - b);
    const times = [...this.hits.values()].flat().reduce((sum, hit) => sum + hit.times, 0);
    this.sum = `${count(this.rows.length, "event")}${this.hits.size ? `, ${count(times, "time")} in what was said` : ""}${problem ? ` (${problem})` : ""}`;
    this.tell(this.sum);
    this.found(this.rows);
    if (this.rows.length && go) this.go(this.rows[0], false);
    if (!go) this.at = this.rows.indexOf(this.scene.selected);
    this.shown();
    return undefined;
  }

  tell(text) {
    this.told.textContent = text ?? "";
    this.steps.hidden = text === null || !this.rows.length;
    if (text === null) {
      this.rows = [];
      this.found(null);
      replace(this.excerpt);
    }
  }

  step(way) {
    if (!this.rows.length) return;
    const n = this.rows.length;
    this.at = this.at < 0 ? (way > 0 ? 0 : n - 1) : (this.at + way + n) % n;
    this.go(this.rows[this.at], true);
    this.shown();
  }

  // Which of them this is, and the words there.
  shown() {
    if (this.at < 0) return;
    this.told.textContent = `${number(this.at + 1)} of ${this.sum}`;
    const [hit] = this.hits.get(this.rows[this.at]) ?? [];
    replace(this.excerpt, hit ? [`${WHERE[hit.where]}: `, marked(hit.excerpt)] : null);
  }
}

// Words in what was said, in all traces or in those a query finds: found while they are read, with how far that is.

import { h, replace } from "./dom.js";
import { watch } from "./live.js";
import { ask } from "./source.js";
import { count, number, visible } from "./text.js";

const ROWS = 100;
const WHERE = { said: "said", prompt: "in a prompt", answer: "in an answer" };

export class SearchPage {
  constructor(host, params, context) {
    this.host = host;
    this.context = context;
    this.words = params.get("words") ?? "";
    this.query = params.get("q") ?? "";
    this.shown = Math.max(ROWS, Number.parseInt(params.get("rows") ?? "0", 10) || 0);
    this.at = Number.parseInt(params.get("at") ?? "-1", 10);
  }

  async open() {
    this.input = h("input", { type: "search", "aria-label": "Words to find", placeholder: "words that stand together", value: this.words, on: { keydown: (event) => event.key === "Enter" && this.again() } });
    this.filter = h("input", { type: "search", class: "query", "aria-label": "Only in traces that fit", placeholder: "all traces, or: topology=swarm reward<0.5", value: this.query, on: { keydown: (event) => event.key === "Enter" && this.again() } });
    this.state = h("p", { class: "lead", role: "status" });
    this.bar = h("div", { class: "bar progress", role: "progressbar", "aria-label": "Traces read", hidden: true }, h("i", {}));
    this.problems = h("div", {});
    this.list = h("ol", { class: "hits" });
    this.more = h("div", {});
    this.steps = h("span", { class: "group", hidden: true },
      h("button", { "aria-label": "Previous trace", title: "Previous (p)", on: { click: () => this.step(-1) } }, "↑"),
      h("button", { "aria-label": "Next trace", title: "Next (n)", on: { click: () => this.step(1) } }, "↓"));
    replace(this.host, h("div", { class: "page" }, h("h1", {}, "Search in what was said"),
      h("div", { class: "toolbar" }, this.input, h("label", { class: "field grow" }, "in ", this.filter), h("button", { on: { click: () => this.again() } }, "search"), this.steps),
      this.state, this.bar, this.problems, this.list, this.more));
    if (!this.words.trim()) {
      this.state.textContent = "What was said is kept nowhere but in the traces: a search reads those in which the words may stand, and shows what it finds while it does.";
      this.input.focus();
      return;
    }
    await this.load();
    this.unwatch = watch("search", this.asked(), () => this.load());
  }

  destroy() {
    this.gone = true;
    this.unwatch?.();
  }

  asked() {
    return { words: this.words, ...(this.query ? { q: this.query } : {}) };
  }

  again() {
    const [words, q] = [this.input.value, this.filter.value];
    if (words === this.words && q === this.query && words.trim()) return this.fresh();
    this.context.go("search", { words, ...(q ? { q } : {}) });
    return undefined;
  }

  // The same words once more: files may have changed since.
  async fresh() {
    await ask("search", { ...this.asked(), again: 1, rows: 0 });
    replace(this.list);
    await this.load();
  }

  async load() {
    if (this.busy) {
      this.missed = true;
      return;
    }
    this.busy = true;
    try {
      const have = this.list.children.length;
      const found = await ask("search", { ...this.asked(), from: have, rows: Math.min(500, Math.max(0, this.shown - have)) });
      if (!this.gone) this.tell(found, have);
    } catch (error) {
      this.state.textContent = visible(error.message, 400);
    } finally {
      this.busy = false;
    }
    if (this.missed) {
      this.missed = false;
      this.load();
    }
  }

  tell({ read, total, ruled_out: out, unsaid, found, times, done, rows, problems, unread }, have) {
    const where = this.query ? " that fit" : "";
    const told = found ? `${count(times, "time")} in ${count(found, "trace")}` : done ? "Found in none" : "Nothing yet";
    const left = total - out; // in the others, as the index knows, the words cannot be
    const which = out ? `${count(left, "trace")} of ${number(total)}${where} in which the words may stand` : `${count(left, "trace")}${where}`;
    const unknown = out && unsaid ? ` Of ${number(unsaid)} the index does not know the words, or not yet.` : "";
    this.state.textContent = `${told}; ${done ? (left === 1 ? `${which} was read` : `all ${which} were read`) : `${number(read)} of ${which} read`}.${unknown}`;
    const share = left ? Math.round((100 * read) / left) : 100;
    this.bar.hidden = done;
    this.bar.setAttribute("aria-valuenow", String(share));
    this.bar.firstChild.style.width = `${share}%`;
    replace(this.problems, unread ? h("details", { class: "notes" }, h("summary", {}, `${count(unread, "place")} could not be read to the end`), h("ul", {}, problems.map(([place, why]) => h("li", {}, h("b", {}, visible(place, 80)), ` ${visible(why, 300)}`)))) : null);
    this.list.append(...rows.map((row, k) => this.line(row, have + k)));
    this.steps.hidden = found === 0;
    const shown = this.list.children.length;
    replace(this.more, found > shown ? h("button", { on: { click: () => this.longer() } }, `show more (${number(found - shown)} left)`) : null);
    if (this.at >= have && this.at < shown) this.list.children[this.at].scrollIntoView({ block: "nearest" });
    this.mark();
  }

  line(row, k) {
    const address = `#trace?${new URLSearchParams({ place: row.place, id: row.id, event: row.first, find: this.words })}`;
    return h("li", { "data-at": k }, h("a", { href: address, on: { click: () => this.context.remember({ at: String(k), rows: String(this.shown) }) } }, visible(row.id, 80)),
      h("span", { class: "muted small" }, ` ${visible(row.place, 60)} · ${count(row.times, "time")} in ${count(row.events, "event")}`),
      row.excerpts.map(([where, excerpt]) => h("div", { class: "excerpt" }, h("span", { class: "muted small" }, `${WHERE[where] ?? where}: `), marked(excerpt))));
  }

  longer() {
    this.shown += 5 * ROWS;
    this.context.remember({ rows: String(this.shown) });
    this.load();
  }

  step(way) {
    const last = this.list.children.length - 1;
    this.at = Math.max(0, Math.min(last, this.at + way));
    this.context.remember({ at: String(this.at) });
    this.mark();
    const line = this.list.children[this.at];
    line.scrollIntoView({ block: "nearest" });
    line.querySelector("a").focus({ preventScroll: true });
  }

  mark() {
    for (const [k, line] of [...this.list.children].entries()) line.classList.toggle("chosen", k === this.at);
  }

  key(event) {
    const keys = { n: () => this.step(1), p: () => this.step(-1), "/": () => this.input.focus() };
    if (!keys[event.key]) return false;
    keys[event.key]();
    return true;
  }
}

export function marked([before, words, after]) {
  return [`…${visible(before)}`, h("mark", {}, visible(words)), `${visible(after)}…`];
}

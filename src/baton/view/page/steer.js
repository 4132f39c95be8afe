// What a person does to a run that goes on: pause it, speak, edit what was said or will be, stop a branch, approve, go on.
// Each act is kept for the run and shown with what came of it; the trace says it as well.

import { h, replace, select } from "./dom.js";
import { watch } from "./live.js";
import { ask, post } from "./source.js";
import { block, count, visible } from "./text.js";

const EVERYBODY = " "; // no agent is called so

export class SteerPanel {
  constructor(host, place) {
    this.host = host;
    this.place = place;
    this.to = "@root";
    this.drafts = new Map(); // event or request -> what is being written
    this.state = h("span", { class: "chip", role: "status" }, "…");
    this.hold = h("button", { on: { click: () => this.act({ do: this.found?.paused ? "go" : "pause" }) } }, "pause");
    this.words = h("input", { type: "text", placeholder: "say…", "aria-label": "What to say", on: { keydown: (event) => event.key === "Enter" && this.speak() } });
    this.whom = h("span", {});
    this.said = h("span", { class: "muted small", role: "status" });
    this.lists = h("div", { class: "steer-lists", tabindex: -1 });
    this.hint = h("p", { class: "hint", hidden: true }, "Paused, a run shows what its agents have decided and what was not read yet: both can be edited.");
    this.lists.append(this.hint);
    this.parts = new Map(); // title -> {box, lines, known: what it is of -> {said, line}}
    replace(host, h("section", { class: "steer", "aria-label": "Steering" },
      h("div", { class: "toolbar" }, this.state, this.hold, this.whom, this.words, h("button", { on: { click: () => this.speak() } }, "say"), this.said),
      this.lists));
    this.unwatch = watch("standing", place, (found) => this.changed(found));
  }

  destroy() {
    this.unwatch();
  }

  async changed({ error }) {
    if (error) return this.tell(error, true);
    try {
      this.show(await ask("standing", this.place));
    } catch (problem) {
      this.tell(problem.message, true);
    }
    return undefined;
  }

  show(found) {
    this.found = found;
    const ended = found.finished;
    this.state.textContent = ended ? "finished" : found.paused ? "paused" : found.working ? "at work" : "not at work";
    this.state.className = `chip ${found.paused ? "paused" : found.working ? "live" : ""}`;
    this.hold.textContent = found.paused ? "go on" : "pause";
    for (const each of this.host.querySelectorAll("button, input, select")) each.disabled = ended;
    const agents = JSON.stringify(found.agents?.map((agent) => agent.id));
    if (agents !== this.agents) this.choose(found);
    this.agents = agents;
    this.draw(found);
  }

  choose(found) {
    const agents = found.agents ?? [];
    const options = [{ value: "@root", label: "to who leads" }, { value: EVERYBODY, label: "to everybody" }, ...agents.map((agent) => ({ value: agent.id, label: `to ${visible(agent.id, 40)}` }))];
    if (!options.some((option) => option.value === this.to)) this.to = "@root";
    replace(this.whom, select("To whom", options, this.to, (to) => { this.to = to; }));
  }

  draw(found) {
    const inside = this.lists.contains(document.activeElement);
    const list = (title, items, idOf, item) => this.list(title, (found.finished ? null : items) ?? [], idOf, item);
    list("Waiting for approval", found.requests, (each) => each.id, (each) => this.request(each));
    list("Decided, not done yet", found.coming, (each) => each.event, (each) => this.editable(each, `${visible(each.from, 30)}: ${each.do} ${visible(each.to, 40)}`));
    list("Said, not read yet", found.unread, (each) => each.event, (each) => this.editable(each, `${visible(each.from, 30)} → ${visible(each.to, 30)}`));
    list("Agents", found.agents, (agent) => agent.id, (agent) => [h("b", {}, visible(agent.id, 40)), " ", h("span", { class: "muted" }, visible(agent.doing, 80), agent.unread ? `, ${count(agent.unread, "thing")} to read` : ""), " ",
      agent.doing === "idle" ? null : h("button", { class: "link", on: { click: () => this.act({ do: "stop", to: agent.id }) } }, "stop this branch")]);
    this.hint.hidden = found.finished || found.paused || !found.working;
    if (inside && !this.lists.contains(document.activeElement)) this.lists.focus({ preventScroll: true });
  }

  // What is as it was stays where it is, so that it can be pressed and written in while other lines change.
  list(title, items, idOf, item) {
    if (!this.parts.has(title)) {
      const lines = h("ul", { class: "edges" });
      const part = { box: h("div", {}, h("h3", {}, title), lines), lines, known: new Map() };
      this.parts.set(title, part);
      this.lists.insertBefore(part.box, this.hint);
    }
    const { box, lines, known } = this.parts.get(title);
    box.hidden = !items.length;
    const there = new Map(items.map((each) => [idOf(each), this.line(known.get(idOf(each)), each, item)]));
    settle(lines, [...there.values()].map(({ line }) => line));
    this.parts.get(title).known = there;
  }

  line(old, each, item) {
    const said = JSON.stringify(each);
    const written = old?.line.contains(document.activeElement) && document.activeElement.matches("textarea, input");
    return old && (old.said === said || written) ? old : { said, line: h("li", {}, item(each)) };
  }

  // What somebody writes there is kept until it is sent, whatever is drawn anew.
  drafted(field, id, given) {
    field.value = this.drafts.get(id) ?? given;
    field.addEventListener("input", () => this.drafts.set(id, field.value));
    return field;
  }

  editable(each, title) {
    if (each.text === undefined) return [h("b", {}, title), " ", h("code", {}, visible(each.event, 60))];
    const text = this.drafted(h("textarea", { rows: 2, "aria-label": `What ${visible(each.event, 60)} says` }), each.event, each.text);
    return [h("b", {}, title), " ", h("code", {}, visible(each.event, 60)), text, h("button", { on: { click: () => this.act({ do: "edit", to: each.event, text: text.value }) } }, "edit")];
  }

  request(each) {
    const why = this.drafted(h("input", { type: "text", placeholder: "why", "aria-label": "Why" }), each.id, "");
    const button = (label, what) => h("button", { on: { click: () => this.act({ do: what, to: each.id, text: why.value }) } }, label);
    return [h("b", {}, visible(each.agent ?? "", 40)), " wants ", h("code", {}, visible(each.tool ?? each.id, 60)), " ", h("span", { class: "muted" }, visible(each.why ?? "", 300)),
      h("pre", { class: "said" }, block(typeof each.arguments === "string" ? each.arguments : JSON.stringify(each.arguments ?? {}, null, 1))),
      h("div", { class: "row" }, why, button("approve", "approve"), button("refuse", "refuse"))];
  }

  speak() {
    const text = this.words.value;
    if (!text.trim()) return;
    this.words.value = "";
    this.act({ do: "say", to: this.to === EVERYBODY ? "" : this.to, text });
  }

  async act(wish) {
    this.tell(`${wish.do}…`);
    try {
      const made = await post("steer", this.place, wish);
      if (["edit", "approve", "refuse"].includes(wish.do)) this.drafts.delete(wish.to);
      this.tell({ done: `${wish.do}: ${visible(made.event ?? "", 40)}`, stands: "edited: it says so when it happens", kept: "kept; the run has not come to it yet" }[made.state]);
    } catch (error) {
      this.tell(error.message, true);
    }
  }

  tell(text, bad = false) {
    this.said.textContent = visible(text, 300);
    this.said.className = bad ? "bad small" : "muted small";
  }
}

// These children in this order, touching none that is in its place.
function settle(where, wanted) {
  const keep = new Set(wanted);
  for (const child of [...where.children]) if (!keep.has(child)) child.remove();
  wanted.forEach((child, k) => where.children[k] !== child && where.insertBefore(child, where.children[k] ?? null));
}

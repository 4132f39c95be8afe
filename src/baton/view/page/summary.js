// Who did what and who earned what, in numbers: agents with every channel of worth, the regret ledger, what was decided.

import { spread } from "./colouring.js";
import { h, replace } from "./dom.js";
import { money } from "./money.js";
import { diverging } from "./palette.js";
import { Table } from "./table.js";
import { NOT_MEASURED, count, number, seconds, signed, spoken, visible } from "./text.js";

const MOST_CHANNELS = 6;

export class SummaryView {
  constructor(host, scene) {
    this.host = h("div", { class: "summary", tabindex: 0, role: "group", "aria-label": "Who earned what" });
    host.append(this.host);
    this.scene = scene;
    this.off = scene.on((names) => (names.has("ledger") || names.has("model")) && this.draw());
    this.draw();
  }

  destroy() {
    this.off();
    this.host.remove();
  }

  draw() {
    const agents = h("div", {});
    replace(this.host, this.team(), this.ledger(), this.cost(), h("section", {}, h("h2", {}, "Agents"), agents), this.decisions());
    this.agents(agents);
  }

  team() {
    const { channels } = this.scene.model;
    if (!channels.length) return h("section", {}, h("h2", {}, "Reward and credit"), h("p", { class: "hint" }, "This trace carries neither. `baton reward` and `baton credit --out` add them."));
    const rows = channels.map((channel, k) => {
      const values = channel.value;
      const sum = values.reduce((total, value) => total + value, 0);
      return h("tr", {},
        h("td", {}, channel.kind),
        h("td", {}, visible(channel.name, 50)),
        h("td", {}, channel.family ? spoken(channel.family) : ""),
        h("td", {}, spoken(channel.unit)),
        h("td", { class: "num" }, number(channel.num_records)),
        h("td", { class: "num" }, values.length ? signed(sum) : NOT_MEASURED),
        h("td", {}, h("button", { class: "link", on: { click: () => this.scene.set({ colourBy: `channel:${k}` }) } }, "colour by it")));
    });
    return h("section", {}, h("h2", {}, "Reward and credit"), h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Reward and credit" }, h("table", { class: "list" },
      h("thead", {}, h("tr", {}, ["", "name", "family", "unit", "records", "sum", ""].map((name) => h("th", { class: ["records", "sum"].includes(name) ? "num" : "" }, name)))), h("tbody", {}, rows))));
  }

  // Asked for once: the price of a trace does not change while it is looked at.
  cost() {
    if (this.priced?.model !== this.scene.model) this.priced = { model: this.scene.model, made: money(this.scene.model) };
    return this.priced.made;
  }

  ledger() {
    const { ledger } = this.scene;
    if (!ledger) return null;
    if (ledger.why_not) return h("section", {}, h("h2", {}, "Regret ledger"), h("p", { class: "hint" }, `Only games with a solver have one. ${visible(ledger.why_not, 300)}`));
    const parts = Object.entries(ledger.parts);
    const regret = parts.reduce((sum, [, part]) => sum + part, 0);
    const most = Math.max(1e-12, ...parts.map(([, part]) => part));
    const bars = parts.map(([decision, part]) => h("tr", {},
      h("td", {}, decision),
      h("td", { class: "num" }, number(ledger.visits[decision])),
      h("td", { class: "bar-cell wide-bar" }, h("div", { class: "bar bad" }, h("i", { style: { width: `${(part / most) * 100}%` } }))),
      h("td", { class: "num" }, number(part))));
    const losses = ledger.losses.filter((loss) => loss.regret > 1e-9);
    const list = losses.slice(0, 20).map((loss) => h("li", {},
      h("button", { class: "link", on: { click: () => this.scene.set({ selected: loss.row }) } }, visible(loss.event, 40)),
      ` chose “${visible(loss.option, 60)}”, best was “${visible(loss.best, 60)}”: lost ${number(loss.regret)}`));
    return h("section", {}, h("h2", {}, "Regret ledger"),
      h("p", {}, `Return ${number(ledger.value)} = optimum ${number(ledger.optimum)} − regret ${number(regret - (ledger.charge ?? 0))} ${ledger.luck < 0 ? "−" : "+"} luck ${number(Math.abs(ledger.luck))}.`, ledger.charge ? ` Invalid answers are charged ${number(ledger.charge)} more, which no return shows.` : ""),
      h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Regret by decision" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["decision", "made", "", "regret"].map((name) => h("th", { class: ["made", "regret"].includes(name) ? "num" : "" }, name)))), h("tbody", {}, bars))),
      losses.length ? h("ul", { class: "edges" }, list) : h("p", { class: "hint" }, "Every choice was the best one."));
  }

  agents(host) {
    const { model } = this.scene;
    const worths = model.channels.slice(0, MOST_CHANNELS).filter((channel) => channel.on !== "team").map((channel) => ({ channel, values: spread(model, channel).agentValues }));
    const columns = [
      { name: "agent", of: (lane) => model.agents.name[lane], cell: (lane) => visible(model.agents.name[lane], 50) },
      { name: "role", of: (lane) => model.agents.role[lane], cell: (lane) => (model.agents.role[lane] === null ? "none" : visible(model.agents.role[lane], 30)) },
      { name: "spawned by", of: (lane) => model.agents.parent[lane], cell: (lane) => (model.agents.parent[lane] < 0 ? "nobody" : visible(model.agents.name[model.agents.parent[lane]], 40)) },
      { name: "events", numeric: true, of: (lane) => model.byLane[lane].length, cell: (lane) => number(model.byLane[lane].length) },
      { name: "tokens", numeric: true, of: (lane) => model.agents.tokens[lane], cell: (lane) => number(model.agents.tokens[lane]) },
      { name: "seconds", numeric: true, of: (lane) => model.agents.end[lane] - model.agents.start[lane], cell: (lane) => seconds(model.agents.end[lane] - model.agents.start[lane]) },
      { name: "ended", of: (lane) => model.agents.ending[lane] ?? "", cell: (lane) => model.agents.ending[lane] ?? "" },
      ...worths.map(({ channel, values }, k) => {
        const most = Math.max(1e-12, ...values.map((value) => (Number.isNaN(value) ? 0 : Math.abs(value))));
        return {
          name: `worth ${k}`,
          title: `${visible(channel.name, 24)} · ${spoken(channel.unit)}`,
          numeric: true,
          of: (lane) => (Number.isNaN(values[lane]) ? null : values[lane]),
          cell: (lane) => {
            if (Number.isNaN(values[lane])) return NOT_MEASURED;
            const dot = h("i", { class: "dot" });
            dot.style.backgroundColor = diverging(values[lane], most);
            return h("span", {}, dot, signed(values[lane]));
          },
        };
      }),
    ];
    new Table(host, columns, { press: (lane) => this.scene.set({ selected: model.byLane[lane][0] ?? null }) }).set(model.team);
  }

  decisions() {
    const { model } = this.scene;
    const counts = new Map();
    for (let i = 0; i < model.n; i++) {
      const name = model.decisionOf(i);
      if (name !== "none") counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const bad = [...model.status].filter((status) => status !== 0).length;
    return h("section", {}, h("h2", {}, "Decisions"),
      h("p", {}, [...counts].map(([name, n]) => `${spoken(name)} ${number(n)}`).join(" · ") || "none recorded", bad ? ` · ${count(bad, "event")} not ok` : ""));
  }
}

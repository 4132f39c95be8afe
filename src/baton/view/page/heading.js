// What a trace is, above its views: its name, how it came out, what it took.

import { h, replace } from "./dom.js";
import { amount } from "./money.js";
import { forget, pair, pick, picked } from "./picks.js";
import { ask, exported, post } from "./source.js";
import { NOT_MEASURED, block, number, seconds, spoken, visible } from "./text.js";

export function heading(host, model, context) {
  const { about } = model;
  const { figures } = about;
  const chips = [
    h("span", { class: "chip" }, visible(about.topology, 30)),
    about.finished ? null : h("span", { class: "chip live" }, "not finished"),
    about.train ? h("span", { class: "chip" }, `step ${number(about.train.step)}`) : null,
  ];
  const team = model.channels.filter((channel) => channel.kind === "reward" && channel.unit === "team" && channel.value.length);
  const tiles = [
    ...team.slice(0, 3).map((channel) => tile(`reward: ${visible(channel.name, 24)}`, number(channel.value[0]), channel.value[0] < 0 ? "loss" : "worth")),
    team.length ? null : tile("reward", NOT_MEASURED),
    tile("agents", number(figures.agents)),
    tile("events", number(model.n)),
    tile("messages", number(figures.messages)),
    tile("tool calls", number(figures.tool_calls)),
    tile(figures.estimated_tokens ? "tokens, estimated" : "tokens", `${figures.estimated_tokens ? "~" : ""}${number(figures.tokens)}`),
    tile("took", seconds(figures.seconds)),
    h("div", { class: "tile price", hidden: true }),
    tile("parallelism", figures.parallelism === null ? NOT_MEASURED : `${figures.parallelism.toFixed(2)}×`),
  ];
  const answer = h("div", { class: "answer" });
  const compare = exported ? null : h("button", { class: "link", title: "Press it on two traces", on: { click: () => choose(model.place, compare, context) } }, picked(model.place.place, model.place.id) ? MARKED : "compare");
  const forked = about.forked_from && context.go ? h("button", { class: "link", on: { click: () => origin(model, context, forked) } }, "compare with what it was forked from") : null;
  replace(host, h("div", { class: "title" }, h("h1", {}, visible(about.id, 120)), chips, h("span", { class: "muted" }, "task ", visible(about.task, 80)), forked, kept(model, context), compare, answer), h("div", { class: "tiles", role: "group", "aria-label": "Figures", tabindex: 0 }, tiles));
  ask("cost", model.place)
    .then((found) => {
      const total = found.cost.total ?? found.known;
      const least = found.cost.total === null ? "at least " : "";
      const box = host.querySelector(".tile.price");
      if (total === null || !box) return; // nobody gave a price: the page of who earned what says so
      replace(box, h("div", { class: "value" }, `${least}${found.estimated ? "~" : ""}${amount(total, found.currency)}`), h("div", { class: "name" }, "cost"));
      box.hidden = false;
    })
    .catch(() => {});
  if (about.answer !== null) {
    ask("event", { ...model.place, at: about.answer })
      .then((found) => {
        const text = found.content?.text;
        if (text) replace(answer, h("span", { class: "muted" }, "answer "), h("b", {}, visible(block(text), 160)));
      })
      .catch(() => {});
  }
}

// What a fork was made of may be in another folder than the fork.
async function origin(model, context, button) {
  const id = model.about.forked_from;
  const { places } = await ask("where", { id });
  const place = places.includes(model.place.place) ? model.place.place : places[0];
  if (place === undefined) replace(button, `${visible(id, 60)} is in none of the places that are open here`);
  else context.go("diff", { place, id, place2: model.place.place, id2: model.place.id });
}

// A fork that was made on this page lives as long as the viewer, unless it is kept.
function kept(model, context) {
  if (exported || !context.setup?.fork || !model.about.forked_from || model.stamp !== "fork") return null;
  const button = h("button", { class: "link", on: { click: () => post("save", model.place).then(({ saved }) => replace(button, `kept in ${visible(saved, 120)}`), (error) => replace(button, visible(error.message, 200))) } }, "keep this fork on disk");
  return button;
}

const MARKED = "marked; open another trace and press compare there";

function choose(place, button, context) {
  pick(place.place, place.id);
  const both = pair();
  if (both) {
    forget();
    context.go("diff", both);
  } else button.textContent = picked(place.place, place.id) ? MARKED : "compare";
}

export function tile(name, value, kind = "") {
  return h("div", { class: `tile ${kind}` }, h("div", { class: value === NOT_MEASURED ? "value none" : "value" }, value), h("div", { class: "name" }, spoken(name)));
}

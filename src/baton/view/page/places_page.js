// Everything that was given to look at, newest first. One place alone is opened at once.

import { h, replace } from "./dom.js";
import { ask } from "./source.js";
import { Table } from "./table.js";
import { ago, visible } from "./text.js";

export class PlacesPage {
  constructor(host, _params, context) {
    this.host = host;
    this.context = context;
  }

  async open() {
    const { places } = await ask("setup");
    if (places.length === 1) {
      history.replaceState(null, "", `#place?${new URLSearchParams({ place: places[0].key })}`);
      dispatchEvent(new HashChangeEvent("hashchange"));
      return;
    }
    const list = h("div", {});
    replace(this.host, h("div", { class: "page" }, h("h1", {}, "Runs and traces"), list));
    const now = Date.now() / 1000;
    new Table(list, [
      { name: "place", of: (place) => place.key, cell: (place) => h("a", { href: `#place?${new URLSearchParams({ place: place.key })}` }, visible(place.key, 120)) },
      { name: "what", of: what, cell: what },
      { name: "about", of: about, cell: (place) => visible(about(place), 120) },
      { name: "state", of: (place) => place.run?.status ?? "", cell: (place) => state(place.run) },
      { name: "changed", numeric: true, of: (place) => place.modified, cell: (place) => (place.modified === null ? "" : ago(now - place.modified)) },
    ], { press: (place) => this.context.go("place", { place: place.key }), sort: ["changed", -1], empty: "There is nothing here that holds traces. Type: baton run shard-sum --out runs/sum" }).set(places);
  }

  destroy() {}
}

function what(place) {
  return place.training ? "training run" : "traces";
}

function about(place) {
  const run = place.run ?? {};
  return [run.recipe, run.task, typeof run.steps === "number" ? `${run.steps} steps` : null].filter((one) => typeof one === "string").join(" · ");
}

function state(run) {
  if (typeof run?.status !== "string") return "";
  return h("span", { class: `chip ${run.status === "running" ? "live" : run.status === "diverged" ? "bad" : ""}` }, visible(run.status, 20));
}

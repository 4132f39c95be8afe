// Everything that was given to look at. One place alone is opened at once.

import { h, replace } from "./dom.js";
import { ask } from "./source.js";
import { Table } from "./table.js";
import { visible } from "./text.js";

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
    new Table(list, [
      { name: "place", of: (place) => place.key, cell: (place) => visible(place.key, 120) },
      { name: "what", of: (place) => (place.training ? "training run" : "traces"), cell: (place) => (place.training ? "training run" : "traces") },
    ], { press: (place) => this.context.go("place", { place: place.key }), empty: "There is nothing here that holds traces. Type: baton run shard-sum --out runs/sum" }).set(places);
  }

  destroy() {}
}

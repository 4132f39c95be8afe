// A place: a training run with its report, or the traces of a file, a store or a folder; of one trace alone, that trace.

import { h } from "./dom.js";
import { RunPage } from "./run_page.js";
import { ask } from "./source.js";
import { visible } from "./text.js";
import { term } from "./traces_columns.js";
import { TracesTable } from "./traces_table.js";

export class PlacePage {
  constructor(host, params, context) {
    Object.assign(this, { host, params, context, place: params.get("place") ?? "" });
  }

  async open() {
    const known = this.context.setup.places.find((place) => place.key === this.place);
    if (known?.training) return this.show(new RunPage(this.host, this.params, this.context));
    const { rows, total, progress } = await ask("table", { q: term("place", this.place), place: this.place, rows: 1 });
    if (progress.problems.length && !total) throw new Error(progress.problems[0].why);
    if (progress.complete && total === 1) {
      history.replaceState(null, "", `#trace?${new URLSearchParams({ place: this.place, id: rows[0].id })}`);
      dispatchEvent(new HashChangeEvent("hashchange"));
      return undefined;
    }
    const heading = h("h1", { class: "place-name" }, visible(this.place, 100));
    return this.show(new TracesTable(this.host, this.params, this.context, { place: this.place, heading }));
  }

  show(page) {
    this.page = page;
    return page.open();
  }

  destroy() {
    this.page?.destroy();
  }

  key(event) {
    return this.page?.key?.(event) ?? false;
  }
}

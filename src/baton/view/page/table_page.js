// Every trace of every place that was given to look at.

import { h } from "./dom.js";
import { TracesTable } from "./traces_table.js";

export class TablePage {
  constructor(host, params, context) {
    this.table = new TracesTable(host, params, context, { heading: h("h1", { class: "unseen" }, "All traces") });
  }

  open() {
    return this.table.open();
  }

  destroy() {
    this.table.destroy();
  }

  key(event) {
    return this.table.key(event);
  }
}

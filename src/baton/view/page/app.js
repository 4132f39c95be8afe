// The page: which part of it the address names, what is on top, and the keys that work everywhere.

import { ComparePage } from "./compare_page.js";
import { DiffPage } from "./diff_page.js";
import { h, replace, say, tip } from "./dom.js";
import { whenCutOff } from "./live.js";
import { LivePage } from "./live_page.js";
import { nextTheme, restoreTheme, theme } from "./palette.js";
import { PlacePage } from "./place_page.js";
import { PlacesPage } from "./places_page.js";
import { SearchPage } from "./search_page.js";
import { ask, exported } from "./source.js";
import { TablePage } from "./table_page.js";
import { visible } from "./text.js";
import { TracePage } from "./trace_page.js";
import { TrainingsPage } from "./trainings_page.js";

const PAGES = { places: PlacesPage, place: PlacePage, trace: TracePage, diff: DiffPage, table: TablePage, search: SearchPage, compare: ComparePage, live: LivePage, runs: TrainingsPage };
const KEYS = [
  ["← →", "along an agent’s events"], ["↑ ↓", "to the agent above or below"], ["+ −", "zoom"], ["a d w s", "pan"],
  ["f", "all of it"], ["[ ]", "lower or taller rows"], ["1 … 6", "views"], ["c", "critical path"], ["x", "time or sequence"],
  ["i", "compress idle time"], ["r", "fold roles"], ["t", "taint"], ["space", "play"], [", .", "one event back or on"],
  ["/", "find"], ["Esc", "choose nothing"], ["?", "these keys"],
];

let current = null;
let setup = null;
let opened = 0;

function address() {
  const [name, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { name: PAGES[name] ? name : exported ? "trace" : "places", params: new URLSearchParams(query) };
}

// The address with some of it otherwise; null: without.
function changed(changes) {
  const { name, params } = address();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) params.delete(key);
    else params.set(key, value);
  }
  return `#${name}?${params}`;
}

const context = {
  get setup() {
    return setup;
  },
  // There may be more places than there were.
  renew() {
    ask("setup").then((found) => { setup = found; }, () => {});
  },
  go(name, query) {
    location.hash = `${name}?${new URLSearchParams(query)}`;
  },
  // Keep what is looked at in the address, so that it can be sent to somebody, without a step in the history.
  remember(changes) {
    history.replaceState(null, "", changed(changes));
  },
  // The same, as a step that one can go back from.
  step(changes) {
    if (changed(changes) !== changed({})) history.pushState(null, "", changed(changes));
  },
};

async function open() {
  const turn = ++opened;
  const { name, params } = address();
  const main = document.getElementById("main");
  current?.destroy();
  current = null;
  tip();
  top(name, params);
  // A place of its own: what a page that was left still draws is seen by nobody.
  const host = h("div", { class: "host" }, h("p", { class: "hint" }, "Loading…"));
  replace(main, host);
  try {
    const page = new PAGES[name](host, params, context); // which may ask for what it needs at once
    setup ??= await ask("setup");
    top(name, params);
    await page.open();
    if (turn !== opened) page.destroy();
    else current = page;
    document.title = `${visible(params.get("id") ?? params.get("place") ?? setup.file ?? "traces", 60)} – Baton`;
  } catch (error) {
    if (turn === opened) replace(main, failure(error));
  }
}

function failure(error) {
  say(error.message);
  return h("div", { class: "failure", role: "alert" },
    h("h1", {}, "This cannot be shown"),
    h("p", {}, visible(error.message, 2000)),
    exported ? null : h("p", {}, h("a", { href: "#places" }, "All traces"), " · ", h("button", { on: { click: open } }, "Try again")));
}

function top(name, params) {
  const crumbs = [];
  if (!exported) {
    const part = (to, label) => h("a", { href: `#${to}`, "aria-current": to === name ? "page" : null }, label);
    crumbs.push(part("places", "runs"), " · ", part("table", "traces"), " · ", part("search", "search"));
    if (setup?.places?.filter((place) => place.training).length > 1) crumbs.push(" · ", part("runs", "training runs"));
    if (setup?.steer) crumbs.push(" · ", part("live", "live runs"));
    if (params.get("place") && name !== "place") crumbs.push(" / ", h("a", { href: `#place?${new URLSearchParams({ place: params.get("place") })}` }, visible(params.get("place"), 60)));
    else if (params.get("place")) crumbs.push(" / ", visible(params.get("place"), 60));
  }
  const mode = h("button", { class: "plain", title: "Light, dark, or as the system has it", on: { click: () => { nextTheme(); mode.textContent = `◐ ${theme()}`; } } }, `◐ ${theme()}`);
  replace(document.getElementById("top"),
    h("span", { class: "brand" }, h("span", { class: "mark", "aria-hidden": "true" }), "Baton"),
    h("nav", { class: "crumbs", "aria-label": "Place" }, crumbs),
    h("span", { class: "grow" }),
    mode,
    h("button", { class: "plain", title: "Keys (?)", on: { click: help } }, "keys"));
}

function help() {
  const box = h("dialog", { class: "help", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("p", { class: "hint" }, "Drag to move. Wheel scrolls; with Ctrl it zooms. Dashed is inferred, hollow is not measured."),
    h("button", { on: { click: () => box.close() } }, "Close"));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest?.("input:not([type=range], [type=checkbox]), select, textarea, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.target.closest?.("button") && [" ", "Enter"].includes(event.key)) return;
  if (event.key === "?") help();
  else if (!current?.key?.(event)) return;
  event.preventDefault();
});

const lost = h("div", { class: "lost", role: "alert", hidden: true }, "The viewer does not answer. Is `baton view` still running? What is shown may be old.");
document.body.prepend(lost);
whenCutOff((answers) => {
  lost.hidden = answers;
});
restoreTheme();
addEventListener("hashchange", open);
open();

// A training run as the report draws it. The server sends elements, not markup: each is made here, and only of the
// tags and attributes named here, so that nothing a run says can become more than text.

import { h, replace } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "line", "path", "rect", "circle", "text", "title"]);
const WRITTEN = new Set(["p", "span", "b", "div", "h1", "h2", "h3", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "code"]);
const ATTRIBUTES = new Set(["class", "d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "viewBox", "role", "aria-label", "aria-hidden", "text-anchor", "colspan", "open", "tabindex", "data-step"]);

export function made(element) {
  if (typeof element === "string") return element;
  const [tag, attributes, children] = element;
  const inside = children.map(made);
  if (tag === "a") return h("button", { class: "link", on: { click: () => show(attributes.href) } }, inside);
  if (!DRAWN.has(tag) && !WRITTEN.has(tag)) return null;
  const one = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (ATTRIBUTES.has(name)) one.setAttribute(name, value);
  if (attributes["data-step"] !== undefined && tag === "rect") one.addEventListener("click", () => one.dispatchEvent(new CustomEvent("step", { bubbles: true, detail: Number(attributes["data-step"]) })));
  one.append(...inside.filter((child) => child !== null));
  return one;
}

function show(address) {
  document.getElementById(`report-${String(address).replace(/^#/, "")}`)?.scrollIntoView({ block: "start" });
}

export class Report {
  // `between` stands below the heading; `first` is a part of the page that is not the report's.
  constructor(host, between, first) {
    this.top = h("div", { class: "report" });
    this.sections = new Map();
    this.links = h("nav", { class: "toolbar small", "aria-label": "Parts of this page" }, made(["a", { href: first.key }, [first.title]]));
    this.body = h("div", { class: "report" });
    replace(host, this.top, between, this.links, this.body);
  }

  // Only what changed is made anew, so that what is open or looked at stays.
  set({ heading, sections }) {
    replace(this.top, heading.map(made));
    for (const { key, title, body } of sections) {
      if (!this.sections.has(key)) {
        const place = h("div", {});
        this.body.append(h("section", { id: `report-${key}` }, h("h2", {}, title), place));
        this.links.append(made(["a", { href: key }, [title]]));
        this.sections.set(key, { place, last: "" });
      }
      const section = this.sections.get(key);
      const now = JSON.stringify(body);
      if (now !== section.last) replace(section.place, body.map(made));
      section.last = now;
    }
  }
}

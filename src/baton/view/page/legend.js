// What the colours and marks mean.

import { makeColouring } from "./colouring.js";
import { h, replace } from "./dom.js";
import { ink } from "./palette.js";

export function legend(host, scene, view) {
  // Trees and networks draw agents, which by event type have none: their colour is their role.
  const agents = (view === "tree" || view === "network") && scene.colourBy === "type";
  const items = (agents ? makeColouring(scene.model, "role", null) : scene.colouring).legend().map(({ label, colour }) => h("span", { class: "key" }, swatch(colour), label));
  const marks = [];
  if (view === "lanes" || view === "graph") {
    if (scene.model.picture.edges.inferred.length || scene.model.flags.some((flag) => flag & 1)) marks.push(h("span", { class: "key" }, h("i", { class: "dash" }), "inferred, not recorded"));
    if (scene.model.status.some((status) => status !== 0)) marks.push(h("span", { class: "key" }, h("i", { class: "under" }), "not ok"));
  }
  if (scene.taint) marks.push(h("span", { class: "key" }, swatch(ink("taint")), "tainted"));
  replace(host, items, marks);
}

function swatch(colour) {
  const made = h("i", { class: colour === null ? "swatch hollow" : "swatch" });
  if (colour !== null) made.style.backgroundColor = colour;
  return made;
}

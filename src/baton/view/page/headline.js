// What a trace comes to, in sentences whose words lead to the events they are about.

import { h, replace } from "./dom.js";
import { ask } from "./source.js";
import { visible } from "./text.js";

export function headline(host, scene) {
  const { model } = scene;
  ask("headline", model.place)
    .then(({ sentences }) => {
      if (scene.model !== model) return;
      replace(host, sentences.map(({ about, pieces }) => [h("span", { class: `told ${about}` }, pieces.map(([text, row]) => piece(scene, text, row)), "."), " "]));
    })
    .catch(() => replace(host)); // the picture says what is wrong with the trace
}

function piece(scene, text, row) {
  if (row === null) return visible(text, 400);
  return h("button", { class: "link", on: { click: () => scene.set({ selected: row }) } }, visible(text, 200));
}

// What the server says of its own accord: one channel (Server-Sent Events) for everything the page watches.
// A topic's stamp comes at once and whenever it changes. Nothing is watched while the page cannot be seen: a browser
// has few connections to one server, and on the way back the stamps tell what was missed.

import { exported } from "./source.js";

const AGAIN_MS = 3000;
const watched = new Map(); // topic -> functions
const stamps = new Map(); // topic -> what was said last
let channel = null;
let listening = "";
let asked = false;
let tell = () => {};

// changed({stamp} or {error}); returns what ends it.
export function watch(name, query, changed) {
  if (exported) return () => {};
  const topic = `${name}?${new URLSearchParams(query)}`;
  const one = (found) => changed(found); // the same function may watch twice
  if (!watched.has(topic)) watched.set(topic, new Set());
  watched.get(topic).add(one);
  if (stamps.has(topic)) queueMicrotask(() => watched.get(topic)?.has(one) && one(stamps.get(topic)));
  later();
  return () => {
    watched.get(topic)?.delete(one);
    if (!watched.get(topic)?.size) {
      watched.delete(topic);
      stamps.delete(topic);
    }
    later();
  };
}

// told(whether the server answers)
export function whenCutOff(told) {
  tell = told;
}

// Pages end what they watched and begin to watch in one go: one connection for what is left.
function later() {
  if (asked) return;
  asked = true;
  setTimeout(() => {
    asked = false;
    listen();
  }, 0);
}

function listen() {
  const topics = document.hidden ? [] : [...watched.keys()].sort();
  const wanted = topics.map((topic) => `watch=${encodeURIComponent(topic)}`).join("&");
  if (wanted === listening) return;
  channel?.close();
  channel = null;
  listening = wanted;
  if (!wanted) return;
  const mine = new EventSource(`api/stream?${wanted}`);
  channel = mine;
  mine.onopen = () => tell(true);
  mine.onmessage = (event) => heard(JSON.parse(event.data));
  mine.onerror = () => {
    tell(false);
    if (mine.readyState !== EventSource.CLOSED || channel !== mine) return; // the browser tries again by itself
    channel = null;
    listening = "";
    setTimeout(later, AGAIN_MS);
  };
}

function heard({ topic, ...found }) {
  const before = stamps.get(topic);
  if (before && before.stamp === found.stamp && before.error === found.error) return;
  stamps.set(topic, found);
  for (const changed of [...(watched.get(topic) ?? [])]) changed(found);
}

document.addEventListener("visibilitychange", later);

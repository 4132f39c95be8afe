// Colours, for canvas as for CSS: taken from the style sheet, so that light and dark are defined once.

const cache = new Map();

export function ink(name) {
  if (!cache.has(name)) cache.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return cache.get(name);
}

const listeners = new Set();

export function onTheme(run) {
  listeners.add(run);
  return () => listeners.delete(run);
}

function changed() {
  cache.clear();
  for (const run of [...listeners]) run();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);

const ORDER = ["auto", "light", "dark"];

export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  setTheme(next);
  try {
    localStorage.setItem("baton-theme", next);
  } catch {
    // Files opened from disk may have no storage; the choice then lasts as long as the page.
  }
}

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  changed();
}

export function restoreTheme() {
  try {
    const kept = localStorage.getItem("baton-theme");
    if (ORDER.includes(kept)) setTheme(kept);
  } catch {
    // As above.
  }
}

export const TYPE_INK = {
  orchestrator_decision: "t-decision",
  spawn: "t-spawn",
  despawn: "t-despawn",
  message: "t-message",
  tool_call: "t-tool",
  tool_result: "t-result",
  return: "t-return",
  aggregate: "t-aggregate",
  human_intervention: "t-human",
  safety_event: "t-safety",
};

export const EDGE_INK = {
  spawn: "t-spawn",
  message: "t-message",
  return: "t-return",
  aggregate: "t-aggregate",
  causal: "t-decision",
  tool_dependency: "t-tool",
  safety_flow: "t-safety",
  temporal: "muted",
};

function rgb(text) {
  const hex = text.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function mixed(a, b, share) {
  const [x, y] = [rgb(a), rgb(b)];
  return "#" + x.map((one, i) => Math.round(one + (y[i] - one) * share).toString(16).padStart(2, "0")).join("");
}

const STEPS = 12;

// Worth from -most to most: from one hue over grey to the other, in steps so that bars of one colour can be drawn together.
export function diverging(value, most) {
  if (!(most > 0)) return ink("zero");
  const share = Math.max(-1, Math.min(1, value / most));
  const step = Math.round(share * STEPS);
  const name = `d${step}`;
  if (!cache.has(name)) {
    const end = step < 0 ? ink("minus") : ink("plus");
    cache.set(name, step === 0 ? ink("zero") : mixed(ink("zero"), end, 0.25 + (0.75 * Math.abs(step)) / STEPS));
  }
  return cache.get(name);
}

export function rising(value, most) {
  const step = most > 0 ? Math.round((Math.max(0, Math.min(most, value)) / most) * STEPS) : 0;
  const name = `r${step}`;
  if (!cache.has(name)) cache.set(name, mixed(ink("low"), ink("high"), step / STEPS));
  return cache.get(name);
}

// Dark or light text, whichever is easier to read on a colour.
export function inkOn(colour) {
  const [r, g, b] = rgb(colour).map((one) => (one / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.3 ? "#10141a" : "#ffffff";
}

const HUES = ["t-message", "t-spawn", "t-tool", "t-aggregate", "t-return", "t-decision", "t-human", "t-despawn"];

export function hue(number) {
  return ink(HUES[number % HUES.length]);
}

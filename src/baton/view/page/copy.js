// A button that puts text where it can be pasted from, and says so.

import { h, say } from "./dom.js";

export function copyButton(label, text, kind = "") {
  const button = h("button", { class: kind, on: { click: async () => {
    const done = await copied(text());
    button.textContent = done ? "copied" : "cannot be copied here";
    say(button.textContent);
    setTimeout(() => { button.textContent = label; }, 1500);
  } } }, label);
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A file that was opened from disk may not: there, what is selected can be copied.
  }
  const box = h("textarea", { class: "unseen", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  return done;
}

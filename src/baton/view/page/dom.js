// Elements, made so that nothing given to them can be markup: children are elements or text, attributes are
// set one by one, handlers are functions, and a link leads only to another part of this page.

export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    else if (name === "style") for (const [key, one] of Object.entries(value)) made.style.setProperty(key, one);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") made[name] = value;
    else if (name.startsWith("on")) throw new Error(`handlers go under "on": ${name}`);
    else if (name === "href" && !String(value).startsWith("#")) throw new Error("links stay on this page");
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// Whoever is at work in what is replaced goes on in its likeness there, and never falls out of the page.
export function replace(where, ...children) {
  const active = document.activeElement;
  const inside = active && active !== where && where.contains(active);
  const name = inside ? likeness(active) : null;
  where.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if (!inside || where.contains(document.activeElement)) return;
  const same = [...where.querySelectorAll("a, button, input, select, summary, textarea, [tabindex]")].find((one) => likeness(one) === name && !one.disabled);
  (same ?? where.closest("[tabindex]"))?.focus({ preventScroll: true });
}

function likeness(element) {
  return `${element.tagName} ${element.getAttribute("aria-label") ?? (element.tagName === "SELECT" ? "" : element.textContent)}`;
}

export function say(text) {
  document.getElementById("said").textContent = text;
}

export function tip(x, y, ...lines) {
  const box = document.getElementById("tip");
  if (!lines.length) {
    box.hidden = true;
    return;
  }
  replace(box, lines.map((line) => h("div", {}, line)));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
  box.style.top = `${y + 18 + height > innerHeight ? y - height - 12 : y + 18}px`;
}

export function select(label, options, value, change) {
  const list = h("select", { "aria-label": label, on: { change: (event) => change(event.target.value) } });
  const groups = new Map();
  for (const option of options) {
    const made = h("option", { value: option.value, selected: option.value === value }, option.label);
    if (!option.group) list.append(made);
    else {
      if (!groups.has(option.group)) {
        groups.set(option.group, h("optgroup", { label: option.group }));
        list.append(groups.get(option.group));
      }
      groups.get(option.group).append(made);
    }
  }
  return list;
}

export function toggle(label, on, change, title) {
  const made = h("button", { class: "toggle", "aria-pressed": String(on), title }, label);
  made.addEventListener("click", () => {
    const next = made.getAttribute("aria-pressed") !== "true";
    made.setAttribute("aria-pressed", String(next));
    change(next);
  });
  return made;
}

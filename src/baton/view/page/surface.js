// A canvas as sharp as the screen, which draws at most once a frame, and fingers and mice on it.

import { onTheme } from "./palette.js";

export class Surface {
  constructor(host, label, draw) {
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", label);
    this.ctx = this.canvas.getContext("2d");
    this.draw = draw;
    this.asked = 0;
    host.append(this.canvas);
    this.sizes = new ResizeObserver(() => this.resize(host));
    this.sizes.observe(host);
    this.offTheme = onTheme(() => this.ask());
    this.resize(host);
  }

  resize(host) {
    const ratio = Math.min(3, devicePixelRatio || 1);
    this.width = Math.max(1, host.clientWidth);
    this.height = Math.max(1, host.clientHeight);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.ask();
  }

  ask() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.draw(this.ctx, this.width, this.height);
    });
  }

  destroy() {
    cancelAnimationFrame(this.asked);
    this.sizes.disconnect();
    this.offTheme();
    this.canvas.remove();
  }
}

// Calls: pan(dx, dy), zoom(factor, x, y), hover(x, y) or hover(null), press(x, y).
export function gestures(canvas, calls) {
  const fingers = new Map();
  let moved = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    moved = fingers.size > 1 ? Infinity : 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event);
    const last = fingers.get(event.pointerId);
    if (!last) {
      calls.hover?.(...here);
      return;
    }
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
      const after = Math.hypot(here[0] - other[0], here[1] - other[1]);
      if (before > 0 && after > 0) calls.zoom?.(after / before, (here[0] + other[0]) / 2, (here[1] + other[1]) / 2);
    } else {
      moved += Math.hypot(here[0] - last[0], here[1] - last[1]);
      if (moved > 3) calls.pan?.(here[0] - last[0], here[1] - last[1]);
    }
    fingers.set(event.pointerId, here);
  });
  const lift = (event) => {
    if (fingers.delete(event.pointerId) && event.type === "pointerup" && moved <= 3) calls.press?.(...at(event));
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => calls.hover?.(null));
  canvas.addEventListener(
    "wheel",
    (event) => {
      const scale = event.deltaMode === 1 ? 16 : 1;
      const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
      if (event.ctrlKey || event.metaKey || event.altKey || calls.wheelZooms?.()) calls.zoom?.(Math.exp(-dy * 0.0022), ...at(event));
      else if (event.shiftKey && !dx) calls.pan?.(-dy, 0);
      else calls.pan?.(-dx, -dy);
      event.preventDefault();
    },
    { passive: false },
  );
}

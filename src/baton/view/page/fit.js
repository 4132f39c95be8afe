// Text cut to the room there is on a canvas. Widths are remembered: measuring is what takes time.

const widths = new Map();

export function fitted(ctx, text, room) {
  const measured = (given) => {
    const name = ctx.font + given;
    if (widths.size > 20000) widths.clear();
    if (!widths.has(name)) widths.set(name, ctx.measureText(given).width);
    return widths.get(name);
  };
  if (measured(text) <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measured(text.slice(0, middle) + "…") <= room) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}

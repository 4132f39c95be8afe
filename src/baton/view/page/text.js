// Text and numbers as people read them. What came from a trace may hold anything: characters that cannot be
// seen are shown by their codes, so that nothing hides, reorders or imitates what stands beside it.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const HIDDEN_IN_BLOCK = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const SHORT = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e" };

function escaped(char) {
  const code = char.codePointAt(0);
  return SHORT[char] ?? (code < 0x100 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0"));
}

export function visible(text, most = Infinity) {
  const given = String(text);
  const cut = given.length > most ? given.slice(0, most) + "…" : given;
  return cut.replace(HIDDEN, escaped);
}

export function block(text) {
  return String(text).replace(/\r\n/g, "\n").replace(HIDDEN_IN_BLOCK, escaped);
}

export const NOT_MEASURED = "not measured";

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOT_MEASURED;
  if (!Number.isFinite(value)) return String(value);
  if (value < 0) return "−" + number(-value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(size < 1 ? 3 : 4)));
}

export function signed(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOT_MEASURED;
  return value > 0 ? "+" + number(value) : value < 0 ? "−" + number(-value) : "0";
}

export function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOT_MEASURED;
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 0.01) return `${Number((value * 1000).toPrecision(2))} ms`;
  if (size < 60) return `${Number(value.toPrecision(3))} s`;
  const whole = Math.round(size);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

export function ago(past) {
  if (past < 60) return "just now";
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  return past < 129600 ? `${Math.round(past / 3600)} h ago` : `${Math.round(past / 86400)} days ago`;
}

export function count(n, noun) {
  return `${n.toLocaleString("en-US")} ${noun}${n === 1 ? "" : "s"}`;
}

export function spoken(word) {
  return String(word).replaceAll("_", " ");
}

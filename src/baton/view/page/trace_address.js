// What is looked at on the page of a trace, in its address: read when it opens, written when it changes.

const PLAIN = { axis: ["axisKind", ["time", "sequence"]], arrows: ["arrows", ["auto", "all", "selected"]] };
const FLAGS = { idle: "compress", critical: "showCritical", roles: "byRole" };

// What the scene is to show by the address; what makes no sense is left as it is.
export function fromAddress(params, model) {
  const found = {};
  for (const [name, [field, words]] of Object.entries(PLAIN)) if (words.includes(params.get(name))) found[field] = params.get(name);
  if (!model.timed) delete found.axisKind;
  for (const [name, field] of Object.entries(FLAGS)) if (["on", "off"].includes(params.get(name))) found[field] = params.get(name) === "on";
  const moment = Number.parseInt(params.get("moment") ?? "", 10);
  if (moment >= 0 && moment <= model.n) found.cursor = moment;
  return found;
}

// `usual`: how the scene began; what is as it was then is not in the address.
export function toAddress(scene, names, usual) {
  const told = {};
  const tell = (name, field, value) => {
    if (names.has(field)) told[name] = scene[field] === usual[field] ? null : value;
  };
  for (const [name, [field]] of Object.entries(PLAIN)) tell(name, field, scene[field]);
  for (const [name, field] of Object.entries(FLAGS)) tell(name, field, scene[field] ? "on" : "off");
  tell("moment", "cursor", String(scene.cursor));
  tell("colour", "colourBy", scene.colourBy);
  tell("taint", "taint", "on");
  return told;
}

export function usualOf(scene) {
  const fields = [...Object.values(PLAIN).map(([field]) => field), ...Object.values(FLAGS), "cursor", "colourBy", "taint"];
  return Object.fromEntries(fields.map((field) => [field, scene[field]]));
}

// The part of the lanes that is on the screen: where it begins, how far it is zoomed, how far down it is.
export function windowOf(text) {
  const [from, zoom, top] = (text ?? "").split(",").map(Number);
  return [from, zoom, top].every(Number.isFinite) && zoom > 0 ? { from, zoom, top } : null;
}

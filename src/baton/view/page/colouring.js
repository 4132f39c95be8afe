// What colour an event and an agent have: by what they are, or by what they are said to be worth. A value that
// was not measured is NaN here and drawn hollow; zero is a value and drawn grey.

import { TYPE_INK, diverging, hue, ink, rising } from "./palette.js";
import { number, spoken, visible } from "./text.js";

export function colourChoices(model, ledger) {
  const found = [
    { value: "type", label: "event type" },
    { value: "role", label: "role" },
    { value: "tokens", label: "tokens" },
    { value: "duration", label: "seconds" },
    { value: "propensity", label: "propensity" },
  ];
  model.channels.forEach((channel, k) => {
    const label = `${visible(channel.name, 40)} · ${spoken(channel.unit)}`;
    found.push({ value: `channel:${k}`, label, group: channel.kind === "reward" ? "reward (family · unit)" : "credit (estimator · unit)" });
  });
  if (ledger && ledger.losses) found.push({ value: "regret", label: "regret of each decision", group: "against the optimum" });
  return found;
}

export function makeColouring(model, key, ledger) {
  if (key === "role") return byRole(model);
  if (key === "tokens") return byAmount(model, "tokens", model.tokens, sums(model, model.tokens));
  if (key === "duration") return byAmount(model, "seconds", model.duration, sums(model, model.duration));
  if (key === "propensity") return byAmount(model, "propensity", model.propensity, new Float64Array(model.lanes).fill(NaN));
  if (key === "regret" && ledger?.losses) return byRegret(model, ledger);
  if (key.startsWith("channel:")) {
    const channel = model.channels[Number(key.slice(8))];
    if (channel) return byChannel(model, channel);
  }
  return byType(model);
}

function byType(model) {
  const types = [...new Set(model.type)].sort((a, b) => a - b);
  return {
    values: null,
    colour: (i) => ink(TYPE_INK[model.words.types[model.type[i]]]),
    agentColour: (lane) => hue(model.roleNumber.get(model.agents.role[lane]) ?? 0),
    legend: () => types.map((type) => ({ label: spoken(model.words.types[type]), colour: ink(TYPE_INK[model.words.types[type]]) })),
  };
}

function byRole(model) {
  const of = (lane) => hue(model.roleNumber.get(model.agents.role[lane]) ?? 0);
  return {
    values: null,
    colour: (i) => of(model.lane[i]),
    agentColour: of,
    legend: () => model.roles.slice(0, 12).map((role, k) => ({ label: role === null ? "no role" : visible(role, 30), colour: hue(k) })),
  };
}

function byAmount(model, name, values, agentValues) {
  const [most, mostOfAgents] = [largest(values), largest(agentValues)];
  return {
    values,
    agentValues,
    colour: (i) => (Number.isNaN(values[i]) ? null : rising(values[i], most)),
    agentColour: (lane) => (Number.isNaN(agentValues[lane]) ? null : rising(agentValues[lane], mostOfAgents)),
    legend: () => [
      { label: "0", colour: rising(0, 1) },
      { label: `${number(most)} ${name}`, colour: rising(1, 1) },
      { label: "not measured", colour: null },
    ],
  };
}

function byRegret(model, ledger) {
  const values = new Float64Array(model.n).fill(NaN);
  for (const loss of ledger.losses) if (loss.row !== null) values[loss.row] = loss.regret;
  return byAmount(model, "regret", values, sums(model, values));
}

function byChannel(model, channel) {
  const { values, agentValues } = spread(model, channel);
  const heard = new Map(channel.receivers.map(([event, lane, value]) => [`${event}>${lane}`, value]));
  const [most, mostOfAgents] = [Math.max(largest(values), largest(heard.values())), largest(agentValues)];
  // What an edge is worth: the message to this receiver, or the event it comes from. Only events have edges to colour.
  const edgeValue = (e) => heard.get(`${model.src[e]}>${model.lane[model.dst[e]]}`) ?? values[model.src[e]];
  return {
    channel,
    values,
    agentValues,
    edgeColour: channel.on !== "event" ? null : (e) => (Number.isNaN(edgeValue(e)) ? null : diverging(edgeValue(e), most)),
    shade: channel.on !== "event" ? null : (value) => diverging(value, most),
    colour: (i) => (Number.isNaN(values[i]) ? null : diverging(values[i], most)),
    agentColour: (lane) => (Number.isNaN(agentValues[lane]) ? null : diverging(agentValues[lane], mostOfAgents)),
    legend: () => [
      { label: `−${number(most)}`, colour: diverging(-1, 1) },
      { label: "0", colour: diverging(0, 1) },
      { label: `+${number(most)}`, colour: diverging(1, 1) },
      { label: "not measured", colour: null },
    ],
  };
}

// A channel's values for every event and every agent. What is said of an agent, a role or the team holds for
// their events; an agent's own value, where records name events, is the sum over them.
export function spread(model, channel) {
  const named = new Map(channel.index.map((target, k) => [target, channel.value[k]]));
  const value = (target) => named.get(target) ?? NaN;
  const values = new Float64Array(model.n);
  for (let i = 0; i < model.n; i++) {
    if (channel.on === "event") values[i] = value(i);
    else if (channel.on === "call") values[i] = model.call[i] < 0 ? NaN : value(model.call[i]);
    else if (channel.on === "agent") values[i] = value(model.lane[i]);
    else if (channel.on === "role") values[i] = value(model.agents.role[model.lane[i]]);
    else values[i] = value(0);
  }
  let agentValues;
  if (channel.on === "event") agentValues = sums(model, values);
  else if (channel.on === "call") agentValues = sumsOfCalls(model, named);
  else {
    agentValues = new Float64Array(model.lanes);
    for (let lane = 0; lane < model.lanes; lane++) {
      agentValues[lane] = channel.on === "agent" ? value(lane) : channel.on === "role" ? value(model.agents.role[lane]) : value(0);
    }
  }
  return { values, agentValues };
}

function sums(model, values) {
  const found = new Float64Array(model.lanes).fill(NaN);
  for (let i = 0; i < model.n; i++) {
    if (!Number.isNaN(values[i])) found[model.lane[i]] = (found[model.lane[i]] || 0) + values[i];
  }
  return found;
}

// A call may have said several events; its worth counts once.
function sumsOfCalls(model, named) {
  const found = new Float64Array(model.lanes).fill(NaN);
  const seen = new Set();
  for (let i = 0; i < model.n; i++) {
    const call = model.call[i];
    if (call < 0 || seen.has(call) || !named.has(call)) continue;
    seen.add(call);
    found[model.lane[i]] = (found[model.lane[i]] || 0) + named.get(call);
  }
  return found;
}

function largest(values) {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}

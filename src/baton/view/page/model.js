// A trace in the browser: typed columns, events by lane, edges by event. Row i of everything is event i.

export class Model {
  constructor(picture, place) {
    this.place = place;
    this.picture = picture;
    this.about = picture.trace;
    this.words = picture.words;
    this.agents = picture.agents;
    this.channels = picture.channels;
    this.notes = picture.notes;
    this.stamp = picture.stamp;
    const events = picture.events;
    this.n = events.id.length;
    this.ids = events.id;
    this.tools = events.tool;
    this.chosen = events.chosen; // in words, of a decision
    this.t = Float64Array.from(events.t);
    this.duration = Float64Array.from(events.duration, (value) => (value === null ? NaN : value));
    this.tokens = Float64Array.from(events.tokens, (value) => (value === null ? NaN : value));
    this.propensity = Float64Array.from(events.propensity, (value) => (value === null ? NaN : value));
    this.type = Uint8Array.from(events.type);
    this.decision = Uint8Array.from(events.decision);
    this.status = Uint8Array.from(events.status);
    this.lane = Int32Array.from(events.lane);
    this.to = Int32Array.from(events.to);
    this.call = Int32Array.from(events.call);
    this.flags = Uint8Array.from(events.flags);
    this.lanes = this.agents.name.length;
    this.team = [...Array(this.lanes).keys()].filter((lane) => this.agents.is_agent[lane]); // a person who steers has a lane, and is no agent
    this.timed = events.duration.some((value) => value !== null);
    this.end = Float64Array.from(this.t, (t, i) => t + (this.duration[i] || 0));
    this.latest = this.end.reduce((latest, end) => Math.max(latest, end), 0);
    this.endOfAll = this.end.reduce((most, one) => Math.max(most, one), 0);
    this.critical = picture.critical;
    this.onCritical = new Uint8Array(this.n);
    for (const event of this.critical ?? []) this.onCritical[event] = 1;
    this.criticalSteps = new Set((this.critical ?? []).slice(1).map((event, k) => `${this.critical[k]}>${event}`));
    this.indexEdges(picture.edges);
    this.indexLanes();
  }

  indexEdges(edges) {
    this.src = Int32Array.from(edges.src);
    this.dst = Int32Array.from(edges.dst);
    this.edgeType = Uint8Array.from(edges.type);
    this.edgeInferred = new Uint8Array(edges.src.length);
    for (const edge of edges.inferred) this.edgeInferred[edge] = 1;
    this.out = grouped(this.n, this.src);
    this.into = grouped(this.n, this.dst);
    // What an arrow is drawn for: dependencies from one agent's lane to another's.
    this.arrows = [];
    for (let e = 0; e < this.src.length; e++) {
      if (this.lane[this.src[e]] !== this.lane[this.dst[e]]) this.arrows.push(e);
    }
  }

  indexLanes() {
    this.children = Array.from({ length: this.lanes }, () => []);
    this.roots = [];
    for (let lane = 0; lane < this.lanes; lane++) {
      const parent = this.agents.parent[lane];
      (parent < 0 ? this.roots : this.children[parent]).push(lane);
    }
    this.byLane = Array.from({ length: this.lanes }, () => []);
    for (let i = 0; i < this.n; i++) this.byLane[this.lane[i]].push(i);
    const roles = [...new Set(this.agents.role)].sort();
    this.roles = roles;
    this.roleNumber = new Map(roles.map((role, i) => [role, i]));
  }

  typeOf(i) {
    return this.words.types[this.type[i]];
  }

  decisionOf(i) {
    return this.words.decisions[this.decision[i]];
  }

  statusOf(i) {
    return this.words.statuses[this.status[i]];
  }

  agentOf(i) {
    return this.agents.name[this.lane[i]];
  }

  isCriticalEdge(e) {
    return this.criticalSteps.has(`${this.src[e]}>${this.dst[e]}`);
  }

  isInferred(i) {
    return (this.flags[i] & 1) !== 0;
  }

  isUntrusted(i) {
    return (this.flags[i] & 2) !== 0;
  }

  // A few words for a bar, a tip or a screen reader. A decision is named by what was chosen, not by what was asked.
  title(i) {
    if (this.chosen[i] !== null) return this.chosen[i];
    const object = this.tools[i] ?? (this.to[i] >= 0 ? `→ ${this.agents.name[this.to[i]]}` : "");
    return `${this.typeOf(i).replaceAll("_", " ")} ${object}`.trimEnd();
  }

  below(lane) {
    const found = [...this.children[lane]];
    for (let k = 0; k < found.length; k++) found.push(...this.children[found[k]]);
    return found;
  }

  find(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let i = 0; i < this.n; i++) {
      const text = `${this.ids[i]} ${this.agentOf(i)} ${this.title(i)} ${this.statusOf(i)}`.toLowerCase();
      if (wanted.every((word) => text.includes(word))) found.push(i);
    }
    return found;
  }
}

// Edges of event i are list[start[i]] to list[start[i + 1] - 1].
function grouped(n, ends) {
  const start = new Int32Array(n + 1);
  for (const end of ends) start[end + 1]++;
  for (let i = 0; i < n; i++) start[i + 1] += start[i];
  const list = new Int32Array(ends.length);
  const next = start.slice();
  for (let e = 0; e < ends.length; e++) list[next[ends[e]]++] = e;
  return { start, list };
}

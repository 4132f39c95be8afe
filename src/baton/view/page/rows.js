// Which row each agent is drawn in: one for each, or one for a whole subtree, or one for all siblings of a role.

export function makeRows(model, { collapsed, byRole, openRoles }) {
  const rows = [];
  const rowOf = new Int32Array(model.lanes).fill(-1);

  const merged = (lanes) => {
    if (lanes.length === 1) return model.byLane[lanes[0]];
    return lanes.flatMap((lane) => model.byLane[lane]).sort((a, b) => model.t[a] - model.t[b] || a - b);
  };

  const add = (row) => {
    for (const lane of row.lanes) rowOf[lane] = rows.length;
    row.events = merged(row.lanes);
    row.start = Math.min(...row.lanes.map((lane) => model.agents.start[lane]));
    row.end = Math.max(...row.lanes.map((lane) => model.agents.end[lane]));
    rows.push(row);
  };

  const visit = (lane, depth) => {
    const below = model.children[lane];
    const label = model.agents.name[lane];
    const role = model.agents.role[lane];
    if (collapsed.has(lane) && below.length) {
      const hidden = model.below(lane);
      add({ kind: "subtree", key: lane, lanes: [lane, ...hidden], label, role, depth, hidden: hidden.length, open: false });
      return;
    }
    add({ kind: "agent", key: lane, lanes: [lane], label, role, depth, open: below.length ? true : null });
    children(below, depth + 1, lane);
  };

  const children = (lanes, depth, parent) => {
    if (!byRole) {
      for (const lane of lanes) visit(lane, depth);
      return;
    }
    const groups = new Map();
    for (const lane of lanes) {
      const role = model.agents.role[lane];
      if (!groups.has(role)) groups.set(role, []);
      groups.get(role).push(lane);
    }
    for (const [role, same] of groups) {
      const key = `${parent}/${role}`;
      if (same.length === 1) {
        visit(same[0], depth);
        continue;
      }
      const open = openRoles.has(key);
      const all = open ? [] : same.flatMap((lane) => [lane, ...model.below(lane)]);
      if (open) {
        rows.push({ kind: "role", key, lanes: [], events: [], label: role ?? "no role", role, depth, hidden: same.length, open: true });
        for (const lane of same) visit(lane, depth + 1);
      } else {
        add({ kind: "role", key, lanes: all, label: role ?? "no role", role, depth, hidden: same.length, open: false });
      }
    }
  };

  children(model.roots, 0, -1);
  return { rows, rowOf };
}

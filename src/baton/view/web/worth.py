"""Rewards and credits of a trace as channels: what each event, agent, role or call is said to be worth.

A channel is one reward (family, name, unit) or one credit (unit, estimator). Records on the same target add up.
What no record names has no value, which is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton.trace.records import Credit, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import REWARD_FAMILIES

_ON = {
    "team": "team",
    "role": "role",
    "agent": "agent",
    "turn": "call",
    "token": "call",
    "orchestrator": "event",
    "message": "event",
    "tool_call": "event",
}


def channels(trace: Trace, lanes: Mapping[str, int], calls: Mapping[str, int]) -> list[dict[str, Any]]:
    """All channels, rewards first; `index` says what of: events, calls, agents (rows) or roles (names).

    `receivers` are (event, agent, value) where a message is worth something to each of several.
    """
    places: dict[str, Mapping[str, int]] = {"event": trace.position, "agent": lanes, "call": calls}
    groups: dict[tuple[str, str, str], list[Reward | Credit]] = {}
    for reward in trace.rewards:
        groups.setdefault(("reward", reward.channel, reward.unit), []).append(reward)
    for credit in trace.credits:
        groups.setdefault(("credit", credit.estimator, credit.unit), []).append(credit)
    found = []
    for (kind, name, unit), records in groups.items():
        on = _ON[unit]
        sums: dict[int | str, float] = {}
        receivers: list[tuple[int, int, float]] = []
        errors: dict[int | str, float | None] = {}
        lost = 0
        for record in records:
            target = _place(record.target, unit, on, places)
            if target is None:
                lost += 1
                continue
            sums[target] = sums.get(target, 0.0) + record.value
            if unit == "message" and isinstance(target, int) and record.target not in trace.position:
                receivers.append((target, lanes.get(record.target.partition(">")[2], -1), record.value))
            stderr = record.stderr if isinstance(record, Credit) else None
            errors[target] = stderr if target not in errors else None  # of a sum it is not known
        first = records[0]
        found.append(
            {
                "kind": kind,
                "name": name,
                "unit": unit,
                "family": first.family if isinstance(first, Reward) else None,
                "by": first.by if isinstance(first, Reward) else None,
                "assumes": first.assumes if isinstance(first, Credit) else None,
                "on": on,
                "index": list(sums),
                "value": list(sums.values()),
                "stderr": list(errors.values()) if any(e is not None for e in errors.values()) else None,
                "receivers": receivers,
                "num_records": len(records),
                "num_lost": lost,
            }
        )
    order = {family: i for i, family in enumerate(REWARD_FAMILIES)}
    return sorted(found, key=lambda one: (one["kind"] != "reward", order.get(one["family"], 99)))


def _place(target: str, unit: str, on: str, places: Mapping[str, Mapping[str, int]]) -> int | str | None:
    if on == "team":
        return 0
    if on == "role":
        return target
    if unit == "message":
        target = target.partition(">")[0] if target not in places["event"] else target
    elif unit == "token":
        target = target.rpartition(":")[0]
    return places[on].get(target)


class Records:
    """The rewards and credits of a trace by what they name."""

    def __init__(self, trace: Trace) -> None:
        self._by_target: dict[tuple[str, str], list[Reward | Credit]] = {}
        records: tuple[Reward | Credit, ...] = (*trace.rewards, *trace.credits)
        for record in records:
            targets = {record.target, record.target.partition(">")[0]}  # `event>agent`: one receiver of it
            for target in targets if record.unit == "message" else {record.target}:
                self._by_target.setdefault((record.unit, target), []).append(record)

    def of(self, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Those that name something: `names` is unit -> target."""
        return [
            {
                "kind": "reward" if isinstance(record, Reward) else "credit",
                "name": record.channel if isinstance(record, Reward) else record.estimator,
                "unit": record.unit,
                "target": record.target,
                "value": record.value,
                "stderr": record.stderr if isinstance(record, Credit) else None,
            }
            for unit, target in names.items()
            for record in self._by_target.get((unit, target), ())
        ]

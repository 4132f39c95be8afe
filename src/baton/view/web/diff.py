"""Two traces side by side: which events are the same, which changed, which are new or gone, and the deltas.

Agents are matched by name, their events in order: first those that did and said the same, then, between these, those
that did the same. Ids say nothing: they count, so one event more would shift all after it. Where type and decision both
differ, one is gone and one is new.
Matched events are the same when type, target, tool, decision, status and content agree; times, costs and
sequence numbers may differ.
Invariant: every event of either trace is in exactly one row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from baton.measure.metrics.scale import scale
from baton.trace.graph.timing import span_seconds
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.view.lanes import Lanes
from baton.view.web.picture import lane_order

_FIGURES = (
    "agents", "events", "messages", "tool_calls", "calls", "tokens", "seconds", "work_s", "parallelism",
)  # fmt: skip
_MOST_PAIRS = 4_000_000
"""Pairs of words that are compared; longer texts are shown one after the other."""


def compare(before: Trace, after: Trace) -> dict[str, Any]:
    """What changed between two traces. An event is named by its row in its own trace."""
    left, right = _by_agent(before), _by_agent(after)
    agents = [
        [name for name, lane in Lanes(trace).lanes.items() if lane.is_agent] for trace in (before, after)
    ]
    same: list[tuple[int, int]] = []
    changed: list[tuple[int, int, list[str]]] = []
    removed: list[int] = []
    added: list[int] = []
    for agent in dict.fromkeys((*left, *right)):
        for a, b in _matched(before, after, left.get(agent, []), right.get(agent, [])):
            if a is None or b is None:
                if a is not None:
                    removed.append(a)
                elif b is not None:
                    added.append(b)
                continue
            what = _differences(before.events[a], after.events[b])
            if "type" in what and "decision" in what:  # another act in its place, not the same one changed
                removed.append(a)
                added.append(b)
            elif what:
                changed.append((a, b, what))
            else:
                same.append((a, b))
    return {
        "same": same,
        "changed": sorted(changed, key=lambda row: after.events[row[1]].seq),
        "removed": sorted(removed),
        "added": sorted(added),
        "agents_removed": [agent for agent in agents[0] if agent not in agents[1]],
        "agents_added": [agent for agent in agents[1] if agent not in agents[0]],
        "deltas": _deltas(before, after),
    }


def _by_agent(trace: Trace) -> dict[str, list[int]]:
    row = {id(event): i for i, event in enumerate(trace.events)}
    return {lane.agent: [row[id(event)] for event in lane.events] for lane in lane_order(Lanes(trace))}


def _matched(
    before: Trace, after: Trace, left: list[int], right: list[int]
) -> list[tuple[int | None, int | None]]:
    """First what says and does the same in both, in order; between those, what does the same and says another thing."""
    pairs: list[tuple[int | None, int | None]] = []
    whole = [[_whole(trace.events[i]) for i in rows] for trace, rows in ((before, left), (after, right))]
    for tag, i, j, k, m in _opcodes(*whole):
        if tag == "equal":
            pairs += list(zip(left[i:j], right[k:m], strict=True))
        else:
            pairs += _in_order(before, after, left[i:j], right[k:m])
    return pairs


def _in_order(
    before: Trace, after: Trace, left: list[int], right: list[int]
) -> list[tuple[int | None, int | None]]:
    acts_left = [_act(before.events[a]) for a in left]
    acts_right = [_act(after.events[b]) for b in right]
    pairs: list[tuple[int | None, int | None]] = []
    for tag, i, j, k, m in _opcodes(acts_left, acts_right):
        both = min(j - i, m - k) if tag in ("equal", "replace") else 0
        pairs += [(left[i + n], right[k + n]) for n in range(both)]
        pairs += [(a, None) for a in left[i + both : j]]
        pairs += [(None, b) for b in right[k + both : m]]
    return pairs


def _opcodes(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[str, int, int, int, int]]:
    return list(SequenceMatcher(None, left, right, autojunk=False).get_opcodes())


def changed_words(before: str, after: str) -> list[tuple[str, str]]:
    """A text as it became another: pieces that are the same, gone or new, in order."""
    left, right = _words(before), _words(after)
    if len(left) * len(right) > _MOST_PAIRS:
        return [("gone", before), ("new", after)]
    found: list[tuple[str, str]] = []
    for tag, i, j, k, m in _opcodes(left, right):
        gone, new = "".join(left[i:j]), "".join(right[k:m])
        if tag == "equal":
            found.append(("same", gone))
            continue
        found += [(word, text) for word, text in (("gone", gone), ("new", new)) if text]
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def _whole(event: Event) -> tuple[str | None, ...]:
    return *_act(event), event.status, event.content_ref


def _act(event: Event) -> tuple[str | None, ...]:
    return event.type, event.to, event.tool, event.decision


def _differences(a: Event, b: Event) -> list[str]:
    fields = ("type", "to", "tool", "decision", "status", "content_ref")
    return [
        "content" if name == "content_ref" else name
        for name in fields
        if getattr(a, name) != getattr(b, name)
    ]


def _deltas(before: Trace, after: Trace) -> list[dict[str, Any]]:
    """Rewards, then costs; None where one of the two was not measured."""
    rewards = [
        {reward.channel: reward.value for reward in trace.rewards if reward.unit == "team"}
        for trace in (before, after)
    ]
    sizes = [scale(before), scale(after)]
    return [
        *(
            {"what": channel, "kind": "reward", "values": [each.get(channel) for each in rewards]}
            for channel in dict.fromkeys((*rewards[0], *rewards[1]))
        ),
        *(
            {"what": name, "kind": "cost", "values": [getattr(size, name) for size in sizes]}
            for name in _FIGURES
        ),
        {"what": "span_s", "kind": "cost", "values": [span_seconds(before), span_seconds(after)]},
    ]

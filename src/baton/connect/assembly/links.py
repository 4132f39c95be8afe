"""What depends on what: the lines of agents, what sightings say, and what follows from who received it."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import attrgetter

from msgspec import Struct

from baton.connect.assembly.agent_lines import AgentLines, acts
from baton.connect.seen import SeenEvent
from baton.trace.vocabulary import EdgeType

RECEIVED = "the receiver's first act after it"
AGGREGATED = "the first answer after several agents had returned"
_SENT = frozenset(("message", "return"))
_AFTER = attrgetter("after")
_TYPE = attrgetter("type")


class Tie(Struct, gc=False):
    """`dst` depends on `src`, by places."""

    src: int
    dst: int
    type: EdgeType
    why: str | None = None


def ties_of(lines: AgentLines) -> list[Tie]:
    """All of them; first those of agents' own lines."""
    said = _said(lines)
    said += _received(lines, said)
    said += _aggregated(lines, said)
    return _own(lines) + said


def _said(lines: AgentLines) -> list[Tie]:
    """What sightings link to, and a spawned agent's first act to its spawn."""
    ties: list[Tie] = []
    known: set[tuple[int, int, str]] = set()
    events, place_of, answered_by = lines.events, lines.place, lines.answered_by
    odd: list[int] = []
    for dst, after in enumerate(map(_AFTER, events)):
        if not after:
            continue
        if len(after) == 1:  # nothing says the same again
            link = after[0]
            src = place_of.get(link.key)
            if (
                src is not None
                and src != dst
                and link.type != "spawn"
                and (answered_by.get(dst, src) == src or events[src].type != "tool_call")
            ):
                ties.append(Tie(src, dst, link.type, link.why))
                continue
        odd.append(dst)
    for dst in lines.told_order(odd):
        _link(lines, dst, ties, known)
    for src, type_ in enumerate(map(_TYPE, events)):
        if type_ == "spawn":
            event = events[src]
            if event.to is not None and lines.people[event.to].parent == event.agent:
                born = lines.of.get(event.to)
                if born and (src, born[0], "spawn") not in known:
                    ties.append(Tie(src, born[0], "spawn"))
    return ties


def _link(lines: AgentLines, dst: int, ties: list[Tie], known: set[tuple[int, int, str]]) -> None:
    """What one event links to, each once; what cannot hold is told."""
    event = lines.events[dst]
    for link in event.after:
        src = lines.place.get(link.key)
        if src is None:
            src = lines.first_of_call.get(link.key)
        if src is None or src == dst:
            what = "itself" if src == dst else "one that is not there"
            lines.report.mend(f"an event depends on {what}: the dependency was left out", event.at)
        elif lines.events[src].type == "tool_call" and lines.answered_by.get(dst, src) != src:
            lines.report.mend("a result answers several calls: it goes with the first", event.at)
        elif (src, dst, link.type) not in known:
            known.add((src, dst, link.type))
            ties.append(Tie(src, dst, link.type, link.why))


def _received(lines: AgentLines, said: list[Tie]) -> list[Tie]:
    """A message or return whose receipt nobody saw reaches its receiver's first act after it."""
    sent = [src for src, type_ in enumerate(map(_TYPE, lines.events)) if type_ in _SENT]
    if not sent:
        return []
    linked = {tie.src for tie in said if tie.type in _SENT}
    clocks: dict[str, tuple[list[int], list[float]]] = {}
    ties: list[Tie] = []
    for src in lines.told_order(sent):
        event = lines.events[src]
        to = receiver_of(lines, event)
        if src in linked or to is None or to == event.agent or event.t is None:
            continue
        if to not in clocks:
            places = acts(lines.events, lines.of.get(to, ()))
            times = (lines.events[place].t for place in places)
            clocks[to] = places, list(accumulate((-1.0 if t is None else t for t in times), max))
        places, times_so_far = clocks[to]
        at = bisect_left(times_so_far, event.t + (event.duration_s or 0.0))
        if at < len(places):
            ties.append(Tie(src, places[at], "return" if event.type == "return" else "message", RECEIVED))
    return ties


def receiver_of(lines: AgentLines, event: SeenEvent) -> str | None:
    """A return goes to whom it names, else to the parent."""
    return lines.people[event.agent].parent if event.type == "return" and event.to is None else event.to


def _aggregated(lines: AgentLines, said: list[Tie]) -> list[Tie]:
    """The first answer after all of two or more agents that were out at once came back."""
    returned: dict[int, list[int]] = {}  # place where returns arrive -> the returns
    for tie in said:
        sent = lines.events[tie.src]
        if tie.type == "return" and sent.type == "return" and sent.agent != lines.events[tie.dst].agent:
            returned.setdefault(tie.dst, []).append(tie.src)
    if not returned:
        return []
    ties: list[Tie] = []
    receivers = sorted({lines.events[place].agent for place in returned})
    for agent in receivers:
        ties += _aggregated_by(lines, agent, returned)
    lines.say()
    return ties


def _aggregated_by(lines: AgentLines, agent: str, returned: dict[int, list[int]]) -> list[Tie]:
    ties: list[Tie] = []
    line: list[int] = []
    out: set[str] = set()  # agents that have not come back
    back: dict[str, int] = {}  # agent -> its latest return
    begun: set[str] = set()  # calls
    for place in lines.of[agent]:
        for src in returned.get(place, ()):
            child = lines.events[src].agent
            back[child] = src
            out.discard(child)
        event = lines.events[place]
        if event.type == "aggregate":
            back.clear()
        elif event.call is not None and event.call not in begun:
            begun.add(event.call)
            if not out and len(back) >= 2:
                made = _aggregate(lines, place)
                line.append(made)
                ties += [Tie(src, made, "aggregate", AGGREGATED) for src in sorted(back.values())]
            if not out:
                back.clear()
        if event.to is not None and (event.type == "spawn" or event.decision == "delegate"):
            out.add(event.to)
        line.append(place)
    lines.of[agent] = line
    return ties


def _aggregate(lines: AgentLines, place: int) -> int:
    first = lines.events[place]
    return lines.add(
        SeenEvent(
            session=first.session, key=lines.free_key(f"{first.key}/aggregate"), at=first.at, why=AGGREGATED,
            agent=first.agent, type="aggregate", order=first.order, t=first.t, call=first.call,
        )
    )  # fmt: skip


def _own(lines: AgentLines) -> list[Tie]:
    """Each agent's line. A tool's result follows its call, and what the agent does next follows the result."""
    ties: list[Tie] = []
    answers = lines.answers
    for agent in sorted(lines.of):
        last = -1
        results: list[int] = []
        for place in lines.of[agent]:
            if place in answers:
                results.append(place)  # its own dependency is among those that were said
                continue
            straight = False
            for result in results:
                follows = answers[result] == last
                straight |= follows
                ties.append(Tie(result, place, "temporal" if follows else "tool_dependency"))
            results.clear()
            if last >= 0 and not straight:
                ties.append(Tie(last, place, "temporal"))
            last = place
    return ties

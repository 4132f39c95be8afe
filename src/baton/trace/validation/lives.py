"""Meaning, of agents: who is alive when, who stopped, and to whom they return.

An agent lives from the spawn that names it to the despawn that names it; one that nobody spawned
is a root and lives from the start. A stop ends its agent and everyone below it, unless its extra
says `went_on`: to stop was weighed, and not chosen. A spawn or stop whose status is failed, invalid
or cancelled had no effect; a cancelled despawn did, it is how an agent is cancelled. Whatever is
cancelled may come late: that is what happens to work in flight. So may what nobody chose: a person's
word, a note of the program (a decision that is none, and that no call said).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import count
from operator import attrgetter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.outcome import stops
from baton.trace.records import Event
from baton.trace.validation.parts import Parts

_NEVER = np.iinfo(np.int64).max
_MAY_FOLLOW_STOP = frozenset({"despawn", "safety_event", "human_intervention"})


class _Life(Struct):
    """One agent, once."""

    agent: str
    birth: int
    """Its spawn's seq; -1 for a root."""
    parent: _Life | None = None
    death: int = _NEVER
    halt: int = _NEVER
    """The seq of its own stop, or of the first stop above it."""


def check_lives(parts: Parts) -> None:
    lives = _lives(parts)
    _check_acts(parts, lives)
    _check_returns(parts, lives)


def _lives(parts: Parts) -> dict[str, list[_Life]]:
    """Every agent that is spawned, despawned or stops, with its lives in order."""
    events, seq = parts.events, parts.seq
    turning = [
        index
        for index in parts.of_type("spawn", "despawn", "orchestrator_decision").tolist()
        if _turns(events[index])
    ]
    turning.sort(key=seq.__getitem__)
    spawned = {events[index].to for index in turning if events[index].type == "spawn"}
    lives: dict[str, list[_Life]] = {}
    every: list[_Life] = []  # parents before children

    def begin(life: _Life) -> _Life:
        lives.setdefault(life.agent, []).append(life)
        every.append(life)
        return life

    def current(agent: str) -> _Life | None:
        if agent in lives:
            return lives[agent][-1]
        return None if agent in spawned else begin(_Life(agent, -1))

    for index in turning:
        event, now = events[index], int(seq[index])
        if event.type == "spawn":
            if event.to is None:
                _report(parts, "spawn-without-child", index, "to", "nothing", "the spawned agent's id")
            elif event.to == event.agent or (event.to in lives and lives[event.to][-1].death == _NEVER):
                _report(parts, "spawned-twice", index, "to", event.to, "an agent that is not alive")
            else:
                parent = current(event.agent)
                begin(_Life(event.to, now, parent))
        elif event.type == "despawn":
            life = current(event.to or event.agent)
            if life is None or life.death != _NEVER:
                was = event.to or event.agent
                _report(parts, "despawn-of-nobody", index, "to", was, "an agent that is alive")
            else:
                life.death = now
        elif (life := current(event.agent)) is not None:
            life.halt = min(life.halt, now)
    for life in every:
        if life.parent is not None:
            life.halt = min(life.halt, life.parent.halt)
    return lives


def _turns(event: Event) -> bool:
    """Whether a life begins or ends here."""
    if event.type == "despawn":
        return event.status not in ("failed", "invalid")
    return stops(event) or (event.type == "spawn" and event.status not in NO_EFFECT)


def _check_acts(parts: Parts, lives: dict[str, list[_Life]]) -> None:
    agents = parts.column("agent")
    code: defaultdict[str, int] = defaultdict(count().__next__)  # numbers agents as they come
    who = np.fromiter(map(code.__getitem__, agents), dtype=np.int64, count=len(agents))
    birth, death, halt = (np.full(len(code), value, dtype=np.int64) for value in (-1, _NEVER, _NEVER))
    several: NDArray[np.bool_] = np.zeros(len(code), dtype=np.bool_)
    for agent, own in lives.items():
        at = code.get(agent)
        if at is not None:
            birth[at], death[at], halt[at] = own[0].birth, own[0].death, own[0].halt
            several[at] = len(own) > 1
    seq = parts.seq
    suspects = (seq < birth[who]) | (seq > death[who]) | (seq > halt[who]) | several[who]
    for index in np.flatnonzero(suspects).tolist():
        event, now = parts.events[index], int(seq[index])
        if event.type == "tool_result" and event.agent == event.tool:
            continue  # a tool answers; it is not an agent
        _check_act(parts, index, now, lives[event.agent])


def _check_act(parts: Parts, index: int, now: int, own: list[_Life]) -> None:
    event = parts.events[index]
    life = _life_at(own, now)
    if life is None:
        expected = f"nothing by {event.agent} before its spawn at seq {own[0].birth}"
        _report(parts, "acts-before-spawn", index, "agent", f"{event.type} at seq {now}", expected)
    elif event.status == "cancelled":
        return
    elif now > life.death:
        expected = f"nothing by {event.agent} after its despawn at seq {life.death}"
        _report(parts, "acts-after-despawn", index, "agent", f"{event.type} at seq {now}", expected)
    elif now > life.halt and event.type not in _MAY_FOLLOW_STOP and not _is_a_note(event):
        expected = f"only cancellations after the stop at seq {life.halt}"
        _report(parts, "acts-after-stop", index, "agent", f"{event.type} at seq {now}", expected)


def _is_a_note(event: Event) -> bool:
    return event.type == "orchestrator_decision" and event.decision == "none" and event.call is None


def _life_at(own: list[_Life], now: int) -> _Life | None:
    """The life that an agent is in, or was in last."""
    at = bisect_right(own, now, key=attrgetter("birth"))
    return own[at - 1] if at else None


def _check_returns(parts: Parts, lives: dict[str, list[_Life]]) -> None:
    for index in parts.of_type("return").tolist():
        event = parts.events[index]
        if event.to is None or event.status == "invalid":
            continue
        life = _life_at(lives.get(event.from_ or event.agent, []), int(parts.seq[index]))
        if life is not None and life.parent is not None and life.parent.agent != event.to:
            expected = f"{life.parent.agent}, who spawned {life.agent}"
            _report(parts, "return-to-stranger", index, "to", event.to, expected)


def _report(parts: Parts, code: str, index: int, field: str, was: str, expected: str) -> None:
    parts.report(f"meaning/{code}", "event", index, field, was, expected)

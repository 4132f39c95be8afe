"""The trace itself: records of what was put in order."""

from __future__ import annotations

import math
import re
from functools import cached_property
from hashlib import blake2b
from typing import Any

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.causal import Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import Gathered, seconds_of, time_of
from baton.connect.assembly.links import receiver_of
from baton.connect.assembly.said_calls import CallRecords
from baton.connect.import_report import ImportReport
from baton.connect.seen import SeenReward
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Edge, Event, Reward
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import Decision, EventType

_DECISION: dict[EventType, Decision] = {"spawn": "spawn", "message": "communicate", "aggregate": "aggregate"}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_TASK_WIDTH = 80
_WENT_ON = frozenset(("despawn", "safety_event"))


class Built:
    """One session's trace, in the making."""

    def __init__(
        self,
        kind: str,
        gathered: Gathered,
        lines: AgentLines,
        order: Order,
        contents: Contents,
        report: ImportReport,
    ) -> None:
        self.lines = lines
        self.order = order
        self.contents = contents
        self.report = report
        self.about = gathered.about()
        self.trace_id = trace_id_of(kind, gathered.session)
        self.kind = kind
        starts = [t for t in order.times if t is not None]
        started = time_of(self.about.started, report, self.about.at)
        self.zero = min([*starts, *([] if started is None else [started])], default=0.0)
        self.seqs = [0] * len(lines.events)
        for seq, place in enumerate(order.places, 1):
            self.seqs[place] = seq
        self.calls = CallRecords(lines, order, contents, self.zero)

    def trace(self, rewards: dict[str, SeenReward], *, live: bool = False) -> Trace:
        went_on, paused = self._ends()
        events = tuple(self._event(place, place in went_on, place in paused) for place in self.order.places)
        edges = self._edges()
        kept = tuple(filter(None, (self._reward(rewards[key]) for key in sorted(rewards))))
        finished = bool(self.about.finished) if live else self.about.finished is not False
        return Trace(
            header=self._header(),
            events=events,
            edges=edges,
            calls=self.calls.records,
            payloads=self.contents.payloads,
            rewards=kept,
            costs=_costs(events) if finished else {},
            metrics=_finite(self.about.metrics) if finished else {},
            finished=finished,
        )

    def _header(self) -> Header:
        about, contents = self.about, self.contents
        told: dict[str, Any] = {"kind": self.kind, "session": contents.text(about.session)}
        told["agents"] = {person.id: contents.text(key) for key, person in self.lines.people.items()}
        told["finished"] = about.finished
        task = None
        if about.task and contents.keep_payloads:
            task = told["task"] = contents.text(about.task)
        return Header(
            trace_id=self.trace_id,
            task_id=_brief(task) or self.trace_id,
            system=contents.name(about.system) or self.kind,
            topology=about.topology or "unknown",
            meta={**contents.properties(about.meta), "connect": told},
        )

    def _event(self, place: int, went_on: bool, paused: bool) -> Event:
        seen, people, contents = self.lines.events[place], self.lines.people, self.contents
        call = None if seen.call is None else self.calls.by_key[seen.call]
        carries = call is not None and self.lines.first_of_call[call.key] == place
        extra = contents.properties(seen.extra)
        extra["source"] = contents.text(seen.key)
        if carries and call is not None and call.seen.extra:
            extra["call_extra"] = contents.properties(call.seen.extra)
        if went_on:
            extra["went_on"] = True
        type_, decision = seen.type, seen.decision or _DECISION.get(seen.type, "none")
        if paused:
            type_, extra["source_type"] = "orchestrator_decision", type_
        duration = seconds_of(seen.duration_s, self.report, seen.at)
        if duration is None and carries and call is not None:
            duration = call.record.duration_s
        to = receiver_of(self.lines, seen)
        about_child = type_ == "spawn" and seen.to is not None
        if seen.why is not None:
            self.report.infer(seen.why)
        t = self.order.times[place]
        return Event(
            id=f"e{self.seqs[place]}",
            seq=self.seqs[place],
            t=round((self.zero if t is None else t) - self.zero, 6),
            type=type_,
            agent=people[seen.agent].id,
            role=people[seen.to].role if about_child and seen.to is not None else people[seen.agent].role,
            from_=people[seen.agent].id if type_ in ("message", "return") else None,
            to=None if to is None else people[to].id,
            tool=contents.name(seen.tool),
            content_ref=contents.payload(seen.content, seen.media_type),
            trusted=seen.trusted,
            decision=decision,
            call=None if call is None else call.record.id,
            duration_s=duration,
            tokens=call.tokens
            if carries and call is not None and call.tokens is not None
            else _count(seen.tokens),
            status=seen.status or (call.seen.status if carries and call is not None else None) or "ok",
            inferred=seen.why is not None,
            why=None if seen.why is None else contents.text(seen.why),
            extra=extra,
        )

    def _edges(self) -> tuple[Edge, ...]:
        """An edge is as sure as both its ends."""
        events, seqs, report = self.lines.events, self.seqs, self.report
        made: list[Edge] = []
        for tie in sorted(
            self.order.ties, key=lambda tie: (seqs[tie.dst], tie.type != "temporal", seqs[tie.src])
        ):
            why = tie.why or events[tie.dst].why or events[tie.src].why
            if why is not None:
                report.infer(why)
            made.append(Edge(f"e{seqs[tie.src]}", f"e{seqs[tie.dst]}", tie.type, why is not None, why))
        return tuple(made)

    def _ends(self) -> tuple[set[int], set[int]]:
        """Stops after which work went on; despawns that ended nobody for good, and spawns of who was there."""
        events, seqs, people = self.lines.events, self.seqs, self.lines.people
        last = {agent: self._last_act(places) for agent, places in self.lines.of.items()}
        below = dict(last)  # and of everybody below it
        for agent, seq in last.items():
            above = people[agent].parent
            while above is not None:
                below[above] = max(below.get(above, 0), seq)
                above = people[above].parent
        went_on = {
            place for place, event in enumerate(events)
            if event.decision == "stop" and event.status not in NO_EFFECT and below[event.agent] > seqs[place]
        }  # fmt: skip
        paused: set[int] = set()
        ends: dict[str, int] = {}  # agent -> the despawn that ended it
        despawns = [place for place, event in enumerate(events) if event.type == "despawn"]
        for place in sorted(despawns, key=seqs.__getitem__, reverse=True):
            who = events[place].to or events[place].agent
            own = [seqs[each] for each in self.lines.of.get(who, ()) if each != place]
            made = [seqs[each] for each in self._spawns.get(who, ())]
            if events[place].status in ("failed", "invalid"):
                continue
            if who in ends or max(own + made, default=0) > seqs[place]:
                paused.add(place)
                self.report.mend(
                    "an agent acts after it was ended: the end is taken as a pause", events[place].at
                )
            else:
                ends[who] = place
        for who, spawns in self._spawns.items():
            born = min((seqs[place] for place in self.lines.of.get(who, ())), default=0)
            for place in spawns:
                if 0 < born < seqs[place] and events[place].status not in NO_EFFECT:
                    paused.add(place)
                    self.report.mend(
                        "an agent acts before its spawn: the spawn is taken as a decision", events[place].at
                    )
        return went_on, paused

    def _last_act(self, places: list[int]) -> int:
        """Seq of the last thing that an agent does; what ends or guards it may come later."""
        events, seqs = self.lines.events, self.seqs
        counted = (p for p in places if events[p].type not in _WENT_ON and events[p].status != "cancelled")
        return max((seqs[place] for place in counted), default=0)

    @cached_property
    def _spawns(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, event in enumerate(self.lines.events):
            if event.type == "spawn" and event.to is not None:
                found.setdefault(event.to, []).append(place)
        return found

    def _reward(self, seen: SeenReward) -> Reward | None:
        target = self._target(seen)
        if target is None or not _is_finite(seen.value):
            why = (
                "a reward on something that is not there" if target is None else "a reward that is no number"
            )
            self.report.mend(f"{why}: left out", seen.at)
            return None
        return Reward(
            family=seen.family, unit=seen.unit, target=target, value=float(seen.value),
            name=self.contents.name(seen.name), by=self.contents.name(seen.by),
        )  # fmt: skip

    def _target(self, seen: SeenReward) -> str | None:
        key = seen.target
        if seen.unit == "team" or key is None:
            return self.trace_id if seen.unit == "team" else None
        if seen.unit == "role":
            return self.contents.name(key)
        if seen.unit == "agent":
            return self.lines.people[key].id if key in self.lines.people else None
        if seen.unit in ("turn", "token"):
            return self.calls.by_key[key].record.id if key in self.calls.by_key else None
        return f"e{self.seqs[self.lines.place[key]]}" if key in self.lines.place else None


def trace_id_of(kind: str, session: str) -> str:
    """The same source gives the same id, on every machine."""
    if _PLAIN.fullmatch(session):
        return f"{kind}-{session}"
    return f"{kind}-{blake2b(session.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def _brief(task: str | None) -> str | None:
    line = " ".join((task or "").split())
    return line if len(line) <= _TASK_WIDTH else f"{line[: _TASK_WIDTH - 1]}…"


def _count(tokens: int | None) -> int | None:
    return tokens if isinstance(tokens, int) and 0 <= tokens < 2**63 else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value)


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    return {str(name): float(value) for name, value in metrics.items() if _is_finite(value)}


def _costs(events: tuple[Event, ...]) -> dict[str, float]:
    costs: dict[str, float] = {"wall_clock_s": max(event.t + (event.duration_s or 0.0) for event in events)}
    tokens = [event.tokens for event in events if event.tokens is not None]
    if tokens:
        costs["tokens"] = sum(tokens)
    costs["messages"] = sum(event.type == "message" for event in events)
    costs["tool_calls"] = sum(event.type == "tool_call" for event in events)
    return costs


def is_empty(gathered: Gathered) -> bool:
    return not gathered.events and not gathered.calls

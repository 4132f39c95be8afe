"""The trace itself: records of what was put in order."""

from __future__ import annotations

import math
import re
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from msgspec.structs import force_setattr

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.causal import TIMED, Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import LAST_TIME, Gathered, seconds_of, time_of
from baton.connect.assembly.links import receiver_of
from baton.connect.assembly.said_calls import CallRecords
from baton.connect.import_report import ImportReport
from baton.connect.seen import SeenEvent, SeenReward
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Edge, Event, Reward
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import Decision, EventType, Topology

_DECISION: dict[EventType, Decision] = {"spawn": "spawn", "message": "communicate", "aggregate": "aggregate"}
_TEAMS: dict[Topology, str] = {
    "centralized": "the topology, as one agent spawns all the others",
    "hierarchical": "the topology, as agents that were spawned spawn others",
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_TASK_WIDTH = 80
_MAX_COUNT = 2**63
_SENT = frozenset(("message", "return"))
_UNLIKE = frozenset(("message", "return", "spawn", "aggregate"))  # types that say more than others
_TYPE = attrgetter("type")
_GONE: Any = None  # stands where a sighting stood that is told
_MAY_FOLLOW_STOP = frozenset(("despawn", "safety_event", "human_intervention"))


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
        started = time_of(self.about.started, report, self.about.at)
        earliest = min(order.seconds)
        self.zero = earliest if started is None else min(earliest, started)
        self.seqs = [0] * len(lines.events)
        for seq, place in enumerate(order.places, 1):
            self.seqs[place] = seq
        self.ids = [f"e{seq}" for seq in self.seqs]
        self.calls = CallRecords(lines, order, contents, self.zero)

    def trace(self, rewards: dict[str, SeenReward], *, live: bool = False) -> Trace:
        edges = self._edges()
        events = self._events()
        kept = tuple(filter(None, (self._reward(rewards[key]) for key in sorted(rewards))))
        finished = bool(self.about.finished) if live else self.about.finished is not False
        return Trace(
            header=self._header(),
            events=events,
            edges=edges,
            calls=self.calls.records,
            payloads=self.contents.payloads,
            rewards=kept,
            costs=_costs(events, self.order.timed) if finished else {},
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
        topology = about.topology or self._topology()
        if about.topology is None and topology != "unknown":
            told["topology"] = f"inferred: {_TEAMS[topology]}"
            self.report.infer(_TEAMS[topology])
        return Header(
            trace_id=self.trace_id,
            task_id=_brief(task) or self.trace_id,
            system=contents.name(about.system) or self.kind,
            topology=topology,
            meta={**contents.properties(about.meta), "connect": told},
        )

    def _topology(self) -> Topology:
        """What spawns alone tell of who leads whom."""
        people = self.lines.people
        spawned = [
            person for key, person in people.items() if person.parent is not None and self._spawns.get(key)
        ]
        if not spawned:
            return "unknown"
        parents = {person.parent for person in spawned}
        return "centralized" if len(parents) == 1 else "hierarchical"

    def _events(self) -> tuple[Event, ...]:
        """One pass over all, which lets go of each sighting as its text is kept. Most are plain, and made in place.

        It is the longest part of an assembly, so it is spelled out: what it calls, it calls for texts and rare things.
        """
        went_on, changed = self._ends()
        seen_events, seconds, zero, ids = self.lines.events, self.order.seconds, self.zero, self.ids
        people = {key: (person.id, person.role) for key, person in self.lines.people.items()}
        contents, took, calls = self.contents, self.order.took, self.calls.by_key
        payload, plain, tools = contents.payload, contents.is_plain(""), contents.names
        made: list[Event] = []
        for seq, place in enumerate(self.order.places, 1):
            seen = seen_events[place]
            seen_events[place] = _GONE
            key, call, status = seen.key, seen.call, seen.status
            tokens, duration = seen.tokens, seen.duration_s
            extra: dict[str, Any] = {"source": key if plain and key.isascii() else contents.text(key)}
            if call is not None:  # its first event is charged with it
                said = calls[call]
                call = said.id
                if said.first == place:
                    tokens = tokens if said.tokens is None else said.tokens
                    duration = said.duration_s if duration is None else duration
                    status = status or said.status
                    if said.extra:
                        extra["call_extra"] = contents.properties(said.extra)
            if place in took:
                duration, extra["timed"] = took[place], TIMED
            if tokens is not None and (type(tokens) is not int or not 0 <= tokens < _MAX_COUNT):
                tokens = _count(tokens)
            if type(duration) is float and 0.0 <= duration < LAST_TIME:
                duration = int(duration * 1e6 + 0.5) / 1e6  # `round` would take as long as all the rest
            elif duration is not None:
                duration = seconds_of(duration, self.report, seen.at)
            if seen.extra:
                extra = contents.properties(seen.extra) | extra
            tool = seen.tool
            agent, role = people[seen.agent]
            event = Event(
                id=ids[place], t=int((seconds[place] - zero) * 1e6 + 0.5) / 1e6, type=seen.type, agent=agent, seq=seq,
                role=role, tool=None if tool is None else tools.get(tool) or contents.name(tool),
                content_ref=payload(seen.content, seen.media_type), call=call, duration_s=duration, tokens=tokens,
                status=status or "ok", extra=extra,
            )  # fmt: skip
            if (
                seen.type in _UNLIKE
                or seen.to is not None
                or seen.decision is not None
                or seen.why is not None
                or seen.trusted is not None
                or seen.span is not None
                or place in changed
            ):
                event = self._unlike(event, seen, changed=place in changed, went_on=place in went_on)
            made.append(event)
        if took:
            self.report.infer(TIMED, len(took))
        return tuple(made)

    def _unlike(self, event: Event, seen: SeenEvent, *, changed: bool, went_on: bool) -> Event:
        """An event with what not every event has."""
        people = self.lines.people
        more: dict[str, Any] = {}
        type_: EventType = "orchestrator_decision" if changed else seen.type
        to = seen.to
        if type_ in _SENT:
            more["from_"] = people[seen.agent].id
            to = receiver_of(self.lines, seen)
        if to is not None:
            more["to"] = people[to].id
            if type_ == "spawn":
                more["role"] = people[to].role
        if (decision := seen.decision or _DECISION.get(type_)) is not None:
            more["decision"] = decision
        if seen.trusted is not None:
            more["trusted"] = seen.trusted
        if seen.span is not None and event.call is not None:
            more["span"] = seen.span
        if seen.why is not None:
            more["inferred"], more["why"] = True, self._reason(seen.why)
        if went_on:
            event.extra["went_on"] = True
        if changed:
            more["type"] = type_
            if type_ != seen.type:
                event.extra["source_type"] = seen.type
        for name, value in more.items():  # nobody else has it yet, and to make it twice takes longer
            force_setattr(event, name, value)
        return event

    def _reason(self, why: str) -> str | None:
        self.report.infer(why)
        return self.contents.name(why)

    def _edges(self) -> tuple[Edge, ...]:
        """An edge is as sure as both its ends."""
        events, seqs, ids = self.lines.events, self.seqs, self.ids
        whys = {place: event.why for place, event in enumerate(events) if event.why is not None}
        made: list[Edge] = []
        for dst, ties in zip(
            self.order.places, map(self.order.into.__getitem__, self.order.places), strict=True
        ):
            if ties is None:
                continue
            if len(ties) > 1:
                ties.sort(key=lambda tie: (tie.type != "temporal", seqs[tie.src]))
            for tie in ties:
                src = tie.src
                why = tie.why or (whys.get(dst) or whys.get(src) if whys else None)
                if why is None:
                    made.append(Edge(ids[src], ids[dst], tie.type))
                else:
                    made.append(Edge(ids[src], ids[dst], tie.type, True, self._reason(why)))
        return tuple(made)

    def _ends(self) -> tuple[set[int], set[int]]:
        """Stops after which work went on; despawns that ended nobody for good, and spawns of who was there."""
        events, seqs = self.lines.events, self.seqs
        stops = [
            place for place, event in enumerate(events) if event.decision == "stop" and event.status not in NO_EFFECT
        ]  # fmt: skip
        went_on = self._went_on(stops) if stops else set()
        paused: set[int] = set()
        ends: dict[str, int] = {}  # agent -> the despawn that ended it
        despawns = [place for place, type_ in enumerate(map(_TYPE, events)) if type_ == "despawn"]
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

    def _went_on(self, stops: list[int]) -> set[int]:
        """Those of the places that somebody acts after, of the agents at or below them."""
        events, seqs, people = self.lines.events, self.seqs, self.lines.people
        last = {agent: self._last_act(places) for agent, places in self.lines.of.items()}
        below = dict(last)  # and of everybody below it
        for agent, seq in last.items():
            above = people[agent].parent
            while above is not None:
                below[above] = max(below.get(above, 0), seq)
                above = people[above].parent
        return {place for place in stops if below[events[place].agent] > seqs[place]}

    def _last_act(self, places: list[int]) -> int:
        """Seq of the last thing that an agent does; what nobody chose may come later."""
        last = 0
        for place in places:
            if self.seqs[place] > last and _is_done(self.lines.events[place]):
                last = self.seqs[place]
        return last

    @cached_property
    def _spawns(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        events = self.lines.events
        spawns = [place for place, type_ in enumerate(map(_TYPE, events)) if type_ == "spawn"]
        for place in self.lines.told_order(spawns):
            if (to := events[place].to) is not None:
                found.setdefault(to, []).append(place)
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
            return self.calls.by_key[key].id if key in self.calls.by_key else None
        return self.ids[self.lines.place[key]] if key in self.lines.place else None


def _is_done(event: SeenEvent) -> bool:
    if event.type in _MAY_FOLLOW_STOP or event.status == "cancelled":
        return False
    return (
        event.type != "orchestrator_decision"
        or event.call is not None
        or event.decision not in (None, "none")
    )


def trace_id_of(kind: str, session: str) -> str:
    """The same source gives the same id, on every machine."""
    if _PLAIN.fullmatch(session):
        return f"{kind}-{session}"
    return f"{kind}-{blake2b(session.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def _brief(task: str | None) -> str | None:
    line = " ".join((task or "").split())
    return line if len(line) <= _TASK_WIDTH else f"{line[: _TASK_WIDTH - 1]}…"


def _count(tokens: int | None) -> int | None:
    return tokens if isinstance(tokens, int) and 0 <= tokens < _MAX_COUNT else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e300 and math.isfinite(value)


def _finite(metrics: dict[str, float]) -> dict[str, float]:
    return {str(name): float(value) for name, value in metrics.items() if _is_finite(value)}


def _costs(events: tuple[Event, ...], timed: bool) -> dict[str, float]:
    costs: dict[str, float] = {}
    if timed:
        costs["wall_clock_s"] = max([event.t + (event.duration_s or 0.0) for event in events])
    tokens = [event.tokens for event in events if event.tokens is not None]
    if tokens:
        costs["tokens"] = sum(tokens)
    types = list(map(_TYPE, events))
    costs["messages"] = types.count("message")
    costs["tool_calls"] = types.count("tool_call")
    return costs


def is_empty(gathered: Gathered) -> bool:
    return not gathered.events and not gathered.calls

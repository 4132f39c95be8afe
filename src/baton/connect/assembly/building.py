"""The trace itself: records of what was put in order."""

from __future__ import annotations

import math
import re
from functools import cached_property
from hashlib import blake2b
from typing import Any

from baton.connect.assembly.agent_lines import AgentLines
from baton.connect.assembly.causal import TIMED, Order
from baton.connect.assembly.contents import Contents
from baton.connect.assembly.gathering import Gathered, seconds_of, time_of
from baton.connect.assembly.links import receiver_of
from baton.connect.assembly.said_calls import CallRecords
from baton.connect.import_report import ImportReport
from baton.connect.seen import SeenEvent, SeenReward
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Edge, Event, Reward
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import Decision, EventType, Status, Topology

_DECISION: dict[EventType, Decision] = {"spawn": "spawn", "message": "communicate", "aggregate": "aggregate"}
_TEAMS: dict[Topology, str] = {
    "centralized": "the topology, as one agent spawns all the others",
    "hierarchical": "the topology, as agents that were spawned spawn others",
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_TASK_WIDTH = 80
_SENT = frozenset(("message", "return"))
_UNLIKE = frozenset(("message", "return", "spawn", "aggregate"))  # types that say more than others
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
        self.ids = [""] * len(lines.events)
        for seq, place in enumerate(order.places, 1):
            self.seqs[place] = seq
            self.ids[place] = f"e{seq}"
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

        Arguments that are spelled out and few take half the time of a dictionary of them.
        """
        went_on, changed = self._ends()
        seen_events, times, zero, ids = self.lines.events, self.order.seconds, self.zero, self.ids
        names = {key: person.id for key, person in self.lines.people.items()}
        roles = {key: person.role for key, person in self.lines.people.items()}
        payload, name, text = self.contents.payload, self.contents.name, self.contents.text
        plain = self.contents.is_plain("")
        made: list[Event] = []
        for seq, place in enumerate(self.order.places, 1):
            seen = seen_events[place]
            seen_events[place] = _GONE
            # Rounding by `round` would take longer than anything else here.
            t = int((times[place] - zero) * 1e6 + 0.5) / 1e6
            key = seen.key
            extra: dict[str, Any] = {"source": key if plain and key.isascii() else text(key)}
            if (
                seen.type not in _UNLIKE
                and seen.to is None
                and seen.decision is None
                and seen.why is None
                and seen.trusted is None
                and seen.span is None
                and place not in changed
            ):
                call, tokens, duration, status = self._charged(place, seen, extra)
                if seen.extra:
                    extra = self.contents.properties(seen.extra) | extra
                made.append(
                    Event(
                        id=ids[place], t=t, type=seen.type, agent=names[seen.agent], seq=seq, role=roles[seen.agent],
                        tool=name(seen.tool), content_ref=payload(seen.content, seen.media_type), call=call,
                        duration_s=duration, tokens=tokens, status=status or "ok", extra=extra,
                    )
                )  # fmt: skip
                continue
            type_ = "orchestrator_decision" if place in changed else seen.type
            fields: dict[str, Any] = {
                "id": ids[place], "t": t, "type": type_, "agent": names[seen.agent], "seq": seq, "extra": extra,
            }  # fmt: skip
            to = seen.to
            if type_ in _SENT:
                fields["from_"] = names[seen.agent]
                to = receiver_of(self.lines, seen)
            if to is not None:
                fields["to"] = names[to]
            if (role := roles[to] if type_ == "spawn" and to is not None else roles[seen.agent]) is not None:
                fields["role"] = role
            self._tell_more(fields, place, seen)
            if place in went_on:
                fields["extra"]["went_on"] = True
            if type_ != seen.type:
                fields["extra"]["source_type"] = seen.type
            made.append(Event(**fields))
        return tuple(made)

    def _charged(
        self, place: int, seen: SeenEvent, extra: dict[str, Any]
    ) -> tuple[str | None, int | None, float | None, Status | None]:
        """Its call, and what it is charged with: tokens, seconds and status; of a call, its first event is."""
        tokens, duration, status, call = seen.tokens, seen.duration_s, seen.status, None
        if seen.call is not None:
            said = self.calls.by_key[seen.call]
            call = said.record.id
            if said.first == place:
                tokens = said.tokens if said.tokens is not None else tokens
                duration = said.record.duration_s if duration is None else duration
                status = status or said.status
                if said.extra:
                    extra["call_extra"] = self.contents.properties(said.extra)
        took = self.order.took.get(place)
        if took is not None:
            duration, extra["timed"] = took, TIMED
            self.report.infer(TIMED)
        if tokens is not None:
            tokens = _count(tokens)
        if duration is not None:
            duration = seconds_of(duration, self.report, seen.at)
        return call, tokens, duration, status

    def _tell_more(self, fields: dict[str, Any], place: int, seen: SeenEvent) -> None:
        """What not every event has."""
        if (decision := seen.decision or _DECISION.get(fields["type"])) is not None:
            fields["decision"] = decision
        ref = self.contents.payload(seen.content, seen.media_type)
        call, tokens, duration, status = self._charged(place, seen, fields["extra"])
        more = (
            ("content_ref", ref), ("call", call), ("tokens", tokens), ("duration_s", duration), ("status", status),
            ("tool", self.contents.name(seen.tool)),
        )  # fmt: skip
        fields.update(pair for pair in more if pair[1] is not None)
        if seen.trusted is not None:
            fields["trusted"] = seen.trusted
        if seen.span is not None and call is not None:
            fields["span"] = seen.span
        if seen.why is not None:
            fields["inferred"], fields["why"] = True, self._reason(seen.why)
        if seen.extra:
            fields["extra"] = self.contents.properties(seen.extra) | fields["extra"]

    def _reason(self, why: str) -> str | None:
        self.report.infer(why)
        return self.contents.name(why)

    def _edges(self) -> tuple[Edge, ...]:
        """An edge is as sure as both its ends."""
        events, seqs, ids = self.lines.events, self.seqs, self.ids
        made: list[Edge] = []
        width = len(events) + 1
        for tie in sorted(
            self.order.ties,
            key=lambda tie: (2 * seqs[tie.dst] + (tie.type != "temporal")) * width + seqs[tie.src],
        ):
            src, dst = tie.src, tie.dst
            why = tie.why or events[dst].why or events[src].why
            if why is None:
                made.append(Edge(ids[src], ids[dst], tie.type))
            else:
                made.append(Edge(ids[src], ids[dst], tie.type, True, self._reason(why)))
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
        """Seq of the last thing that an agent does; what nobody chose may come later."""
        counted = (place for place in places if _is_done(self.lines.events[place]))
        return max((self.seqs[place] for place in counted), default=0)

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

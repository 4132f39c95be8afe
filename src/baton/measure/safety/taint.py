"""Taint on the trace: what strangers' words may have touched, by the edges and by who had read what.

  source     an event with trusted=false, or a result of a tool that is said to be untrusted
  data D     a source; or an edge message, return, aggregate, tool_dependency or safety_flow from a tainted,
             unendorsed event; or the context rule: once an agent has read taint, all it emits later is
             tainted, until it is spawned again by a clean event
  control C  an agent that has read D or C chooses what it does by it; causal and spawn edges carry it, and
             spawn and delegate pass it to the child. Temporal edges carry nothing.
  endorsed   an event with extra["endorses"] (an id, or a list of them) makes what it names clean for all
             that is read later. An agent that has read taint cannot endorse: only a person
             (human_intervention) or the harness (safety_event) can do so in its place.
  violation  a consequential tool call with C, or with D in an argument that must be trusted

Invariant: a function of events by `seq` and of edges, whatever the order in the file. Sound for what travels
by edges; what one agent tells another by its timing, or by ending a run, is not followed (clean_replay.py
counts it apart). It says what may have been touched, and guarantees nothing about a model.
Source: information-flow control as FIDES and CaMeL use it for agents; the rules are measures.md's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from baton.measure.measured import MeasuredTrace
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import EdgeType

DATA_EDGES: frozenset[EdgeType] = frozenset(
    {"message", "return", "aggregate", "tool_dependency", "safety_flow"}
)
CONTROL_EDGES: frozenset[EdgeType] = frozenset({"causal", "spawn"})
_MAY_ENDORSE = ("human_intervention", "safety_event")


class Labels(Struct, frozen=True, kw_only=True):
    """What the trace itself does not say about tools."""

    untrusted: frozenset[str] = frozenset()
    """Tools whose results are sources, whatever the events say."""
    consequential: frozenset[str] = frozenset()
    """Tools that act on the world. Events may say so too: extra["consequential"]."""
    trusted_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tool -> arguments that must be trusted. Events may say so too: extra["trusted_arguments"]."""


class Taint(Struct, frozen=True, kw_only=True):
    """Ids of events, each tuple in `seq` order."""

    sources: tuple[str, ...]
    data: tuple[str, ...]
    control: tuple[str, ...]
    tainted: tuple[str, ...]
    """Events with data or control taint."""
    agents: tuple[str, ...]
    """Whose context was ever tainted, in the order it was."""
    consequential: tuple[str, ...]
    """Calls of consequential tools, tainted or not."""
    violations: tuple[str, ...]
    endorsed: tuple[str, ...]
    refused_endorsements: tuple[str, ...]
    """Endorsing events that count for nothing: their agent had read taint."""
    num_unlabelled_results: int
    """Tool results that do not say whether they are trusted; taken as trusted."""
    num_labelled_calls: int
    """Tool calls that say whether they are consequential."""


class _Mind:
    """What an agent has read so far: the tainted events it got taint from."""

    __slots__ = ("control", "data", "num_endorsed")

    def __init__(self) -> None:
        self.data: set[str] = set()
        self.control: set[str] = set()
        self.num_endorsed = 0

    def forget(self, endorsed: dict[str, None]) -> None:
        """What has been endorsed since it was read no longer counts."""
        if len(endorsed) > self.num_endorsed:
            self.data -= endorsed.keys()
            self.control -= endorsed.keys()
            self.num_endorsed = len(endorsed)


def taint(trace: Trace | MeasuredTrace, labels: Labels | None = None) -> Taint:
    """Follow taint through a trace."""
    reading = trace if isinstance(trace, MeasuredTrace) else MeasuredTrace(trace)
    flow = _Flow(reading, Labels() if labels is None else labels)
    for event in reading.events:
        flow.step(event)
    return flow.result()


class _Flow:
    """One pass in `seq` order."""

    def __init__(self, reading: MeasuredTrace, labels: Labels) -> None:
        self.reading = reading
        self.labels = labels
        self.data: dict[str, None] = {}
        self.control: dict[str, None] = {}
        self.sources: list[str] = []
        self.endorsed: dict[str, None] = {}
        self.refused: list[str] = []
        self.minds: dict[str, _Mind] = {}
        self.touched: dict[str, None] = {}
        into: dict[str, list[tuple[str, EdgeType]]] = {}
        for edge in reading.trace.edges:
            into.setdefault(edge.dst, []).append((edge.src, edge.type))
        self.into = into
        self.by_id = {event.id: event for event in reading.events}

    def step(self, event: Event) -> None:
        read_data, read_control = self._read(event)
        data, control = bool(read_data), bool(read_control)
        if event.type != "human_intervention":  # a person is no agent: what one says is one's own
            mind = self.minds.setdefault(event.agent, _Mind())
            mind.forget(self.endorsed)
            mind.data |= read_data
            mind.control |= read_control
            data, control = bool(mind.data), bool(mind.control)
            if data or control:
                self.touched.setdefault(event.agent, None)
        if data or control:
            self.control[event.id] = None
        if self._is_source(event):
            self.sources.append(event.id)
            reader = self._reader(event)
            self.minds.setdefault(reader, _Mind()).data.add(event.id)
            self.touched.setdefault(reader, None)
            data = True
        if data:
            self.data[event.id] = None
        self._endorse(event, event.id in self.control)
        self._pass_on(event)

    def _read(self, event: Event) -> tuple[set[str], set[str]]:
        """Tainted, unendorsed events that this one got taint from: (data, control)."""
        data: set[str] = set()
        control: set[str] = set()
        for src, kind in self.into.get(event.id, ()):
            if src in self.endorsed:
                continue
            if kind in DATA_EDGES:
                if src in self.data:
                    data.add(src)
                if src in self.control:
                    control.add(src)
            elif kind in CONTROL_EDGES and (src in self.data or src in self.control):
                control.add(src)
        return data, control

    def _is_source(self, event: Event) -> bool:
        brought = event.type == "tool_result" and event.status != "cancelled"
        return event.trusted is False or (brought and event.tool in self.labels.untrusted)

    def _reader(self, event: Event) -> str:
        """Whose context a source enters: its agent's; of a tool's result, that of whoever called it."""
        if event.type != "tool_result" or event.agent in self.reading.lineage:
            return event.agent
        if event.to is not None:
            return event.to
        callers = [self.by_id[src] for src, _ in self.into.get(event.id, ()) if src in self.by_id]
        return next((caller.agent for caller in callers if caller.type == "tool_call"), event.agent)

    def _endorse(self, event: Event, tainted: bool) -> None:
        names: Any = event.extra.get("endorses")
        if names is None:
            return
        if tainted and event.type not in _MAY_ENDORSE:
            self.refused.append(event.id)
            return
        for name in (names,) if isinstance(names, str) else names if isinstance(names, list | tuple) else ():
            if name in self.by_id and self.by_id[name].seq < event.seq:
                self.endorsed[name] = None

    def _pass_on(self, event: Event) -> None:
        """Spawn and delegate hand control taint to the child; a clean spawn gives it a clean start."""
        if event.to is None or event.status in NO_EFFECT:
            return
        if event.type == "spawn":
            self.minds[event.to] = child = _Mind()
        elif event.decision == "delegate":
            child = self.minds.setdefault(event.to, _Mind())
        else:
            return
        if event.id in self.data or event.id in self.control:
            child.control.add(event.id)
            self.touched.setdefault(event.to, None)

    def result(self) -> Taint:
        events = self.reading.events
        calls = [event for event in events if event.type == "tool_call"]
        acting = [event for event in calls if self._is_consequential(event)]
        tainted = tuple(e.id for e in events if e.id in self.data or e.id in self.control)
        results = [event for event in events if event.type == "tool_result"]
        return Taint(
            sources=tuple(self.sources),
            data=tuple(self.data),
            control=tuple(self.control),
            tainted=tainted,
            agents=tuple(self.touched),
            consequential=tuple(event.id for event in acting),
            violations=tuple(event.id for event in acting if self._violates(event)),
            endorsed=tuple(self.endorsed),
            refused_endorsements=tuple(self.refused),
            num_unlabelled_results=sum(
                event.trusted is None and event.tool not in self.labels.untrusted for event in results
            ),
            num_labelled_calls=sum(
                "consequential" in event.extra or event.tool in self.labels.consequential for event in calls
            ),
        )

    def _is_consequential(self, event: Event) -> bool:
        return event.tool in self.labels.consequential or bool(event.extra.get("consequential"))

    def _violates(self, event: Event) -> bool:
        if event.id in self.control:
            return True
        must = event.extra.get("trusted_arguments") or self.labels.trusted_arguments.get(event.tool or "")
        return bool(must) and event.id in self.data

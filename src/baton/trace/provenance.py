"""Where words come from: the one definition of how labels flow along a trace, in a run and after it.

  source     an event with trusted=false, or a result of a tool that is said to be untrusted
  data D     a source; or an edge message, return, aggregate, tool_dependency or safety_flow from a tainted,
             unendorsed event; or the context rule: once an agent has read taint, all it emits later is
             tainted, until it is spawned again by a clean event
  control C  an agent that has read D or C chooses what it does by it; causal and spawn edges carry it, and
             spawn and delegate pass it to the child. Temporal edges carry nothing.
  whole      an event with extra["carries"] = "context" (a branch that inherits, a transcript that is handed up)
             brings all that its agent has read, so endorsing the event alone cleans nobody
  held       an event with extra["held"] is a name for what it keeps (a guard's handles): what it keeps is tainted,
             and taints along safety_flow alone, whoever reads it; the name taints nobody. The list has the events
             that only what is kept depends on
  filled     an event with extra["filled"] (ids of held events) had names replaced by what they keep: it is
             tainted, and its agent, which has read none of it, is not
  endorsed   an event with extra["endorses"] (an id, or a list of them) makes what it names clean for all
             that is read later. An agent that has read taint cannot endorse: only a person
             (human_intervention) or the harness (safety_event) can do so in its place.

`Flow` is fed events in `seq` order, each with its incoming edges: by a guard as the run goes on, by
`baton.measure.safety.taint` afterwards. Invariant: what a guard decided by is what the trace shows.
Source: information-flow control as FIDES and CaMeL use it for agents; the rules are measures.md's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.records import Event
from baton.trace.vocabulary import EdgeType

DATA_EDGES: frozenset[EdgeType] = frozenset(
    {"message", "return", "aggregate", "tool_dependency", "safety_flow"}
)
CONTROL_EDGES: frozenset[EdgeType] = frozenset({"causal", "spawn"})
HELD = "held"
"""In the extra of an event whose text is a name for what it keeps: events that only what it keeps depends on."""
FILLED = "filled"
"""In the extra of an event in which names were replaced: the held events that they name."""
_MAY_ENDORSE = ("human_intervention", "safety_event")
Incoming = Sequence[tuple[str, EdgeType]]
"""What an event depends on: (event, edge)."""


class Labels(Struct, frozen=True, kw_only=True):
    """What the trace itself does not say about tools."""

    untrusted: frozenset[str] = frozenset()
    """Tools whose results are sources, whatever the events say."""
    consequential: frozenset[str] = frozenset()
    """Tools that act on the world. Events may say so too: extra["consequential"]."""
    trusted_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tool -> arguments that must be trusted. Events may say so too: extra["trusted_arguments"]."""


class Carried(Struct, frozen=True):
    """Tainted events that something gets its taint from."""

    data: frozenset[str] = frozenset()
    control: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.data or self.control)


class _Mind:
    """What an agent has read so far: the tainted events it got taint from."""

    __slots__ = ("control", "data", "num_endorsed")

    def __init__(self) -> None:
        self.data: set[str] = set()
        self.control: set[str] = set()
        self.num_endorsed = 0

    def forget(self, endorsed: Mapping[str, None]) -> None:
        """What has been endorsed since it was read no longer counts."""
        if len(endorsed) > self.num_endorsed:
            self.data -= endorsed.keys()
            self.control -= endorsed.keys()
            self.num_endorsed = len(endorsed)


class Flow:
    """One pass in `seq` order."""

    def __init__(
        self, labels: Labels | None = None, *, is_agent: Callable[[str], bool], events: Iterable[Event] = ()
    ) -> None:
        """`is_agent` tells agents from tools that answer in their own name; `events` are those known already."""
        self.labels = labels or Labels()
        self._is_agent = is_agent
        self._by_id = {event.id: event for event in events}
        self.data: dict[str, None] = {}
        self.control: dict[str, None] = {}
        self.sources: list[str] = []
        self.endorsed: dict[str, None] = {}
        self.refused: list[str] = []
        """Endorsing events that count for nothing."""
        self.touched: dict[str, None] = {}
        """Agents whose context was ever tainted."""
        self._minds: dict[str, _Mind] = {}
        self._held: set[str] = set()
        self._whole: dict[str, Carried] = {}
        """Events that carry a context -> what its agent had read."""

    def is_tainted(self, event_id: str) -> bool:
        """Whether an event has taint that nobody has endorsed since."""
        return (event_id in self.data or event_id in self.control) and event_id not in self.endorsed

    def before(self, agent: str, incoming: Incoming = ()) -> Carried:
        """What an event of this agent would be tainted by, if it came now and depended on these."""
        data, control = self._read(incoming)
        mind = self._minds.get(agent)
        if mind is not None:
            mind.forget(self.endorsed)
            data, control = data | mind.data, control | mind.control
        return Carried(frozenset(data), frozenset(control))

    def step(self, event: Event, incoming: Incoming) -> None:
        """The next event, with what it depends on."""
        self._by_id[event.id] = event
        held = event.extra.get(HELD)
        if held is not None:
            self._held.add(event.id)
            incoming = [(src, kind) for src, kind in incoming if src not in _named(held)]
        read_data, read_control = self._read(incoming)
        data, control = bool(read_data), bool(read_control)
        if event.type != "human_intervention":  # a person is no agent: what one says is one's own
            mind = self._minds.setdefault(event.agent, _Mind())
            mind.forget(self.endorsed)
            mind.data |= read_data
            mind.control |= read_control
            data, control = bool(mind.data), bool(mind.control)
            if data or control:
                self.touched.setdefault(event.agent, None)
            if event.extra.get("carries") == "context":
                self._whole[event.id] = Carried(frozenset(mind.data), frozenset(mind.control))
        if data or control:
            self.control[event.id] = None
        if held is not None or event.extra.get(FILLED):
            data = True
        if self._is_source(event) and held is not None:
            self.sources.append(event.id)
        elif self._is_source(event):
            self.sources.append(event.id)
            reader = self._reader(event, incoming)
            self._minds.setdefault(reader, _Mind()).data.add(event.id)
            self.touched.setdefault(reader, None)
            data = True
        if data:
            self.data[event.id] = None
        self._endorse(event, event.id in self.control)
        self._pass_on(event)

    def _read(self, incoming: Incoming) -> tuple[set[str], set[str]]:
        """Tainted, unendorsed events that something with these dependencies got taint from: (data, control)."""
        data: set[str] = set()
        control: set[str] = set()
        for src, kind in incoming:
            if kind in DATA_EDGES and src in self._whole:
                data |= self._whole[src].data - self.endorsed.keys()
                control |= self._whole[src].control - self.endorsed.keys()
            if src in self.endorsed or (src in self._held and kind != "safety_flow"):
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

    def _reader(self, event: Event, incoming: Incoming) -> str:
        """Whose context a source enters: its agent's; of a tool's result, that of whoever called it."""
        if event.type != "tool_result" or self._is_agent(event.agent):
            return event.agent
        if event.to is not None:
            return event.to
        callers = [self._by_id[src] for src, _ in incoming if src in self._by_id]
        return next((caller.agent for caller in callers if caller.type == "tool_call"), event.agent)

    def _endorse(self, event: Event, tainted: bool) -> None:
        if event.extra.get("endorses") is None:
            return
        if tainted and event.type not in _MAY_ENDORSE:
            self.refused.append(event.id)
            return
        for name in _named(event.extra["endorses"]):
            if name in self._by_id and self._by_id[name].seq < event.seq:
                self.endorsed[name] = None

    def _pass_on(self, event: Event) -> None:
        """Spawn and delegate hand control taint to the child; a clean spawn gives it a clean start."""
        if event.to is None or event.status in NO_EFFECT:
            return
        if event.type == "spawn":
            self._minds[event.to] = child = _Mind()
        elif event.decision == "delegate":
            child = self._minds.setdefault(event.to, _Mind())
        else:
            return
        if event.id in self._whole:
            child.data |= self._whole[event.id].data
            child.control |= self._whole[event.id].control
        if event.id in self.data or event.id in self.control:
            child.control.add(event.id)
        if child.data or child.control:
            self.touched.setdefault(event.to, None)


def _named(found: Any) -> tuple[str, ...]:
    """Ids that an event names: one, or a list of them; anything else names none."""
    several = (found,) if isinstance(found, str) else found if isinstance(found, list | tuple) else ()
    return tuple(name for name in several if isinstance(name, str))

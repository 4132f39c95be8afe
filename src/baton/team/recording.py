"""What a run writes down, and what an earlier trace feeds back into it.

`TraceWriter` writes events with their edges, calls and texts, block by block, to a journal. Its records come in the
same order whenever the same run happens again, so a resume knows by a count alone what the journal already has.

`Recording` is a trace seen from the other side: the completions with their times. A run is a chain of blocks. Each
block begins when something outside completes (a call is answered, a tool finishes, a timer fires, a person speaks),
runs without a pause, and its first event carries the time and the place in the order. So the completions are all that
is needed to run the same team again: replay, resume and fork all feed from here.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

from msgspec import Struct

from baton.errors import TraceError
from baton.team.agent import Agent
from baton.team.clock import Driver
from baton.team.protocol import Answer, EngineError
from baton.trace.formats.sqlite.store import Store, Writer
from baton.trace.records import Call, Edge, Event, Payload, Reward
from baton.trace.trace import End, Header, Record, Trace, meta_as
from baton.trace.vocabulary import Decision, EdgeType, EventType, Status

NATURE = "nature"
"""Who draws where a task leaves something to chance. Like a tool that answers in its own name, it is no agent."""
SUPERVISOR = "supervisor"
"""Who interrupts in games where somebody does."""
GIVEN = "task"
"""In whose name what a task hands over of strangers' words is written. Like nature, it is no agent."""
RAW = "raw_ref"
"""Key, in the extra of a tool's result that was sanitised, of the address of what the tool gave."""
FILES = "files"
"""Key, in the extra of a tool's result, of what its agent's folder holds since (`baton.team.folders`)."""
CHARGED = "charged"
"""What a run's ledger was charged for calls that were lost, in the extra of the event that tells of them."""
RESUMED = "resumed"
"""Key, in the extra of a safety_event, of the calls that were on their way when a run was cut off."""
_SHORT = 256
_COMMON = 4096
_payload = lru_cache(2048)(Payload.of)
"""Texts up to `_COMMON` characters that many runs of one process hold: what a situation reads like, for one."""
_GROUP = 256
_SECONDS = 0.1
"""Records to commit together when nothing outside hinges on them, and how long they may wait: what took longer than
that to come about, such as a model's answer, is dear."""


class Journal(Protocol):
    """Where a run's records go. Everything appended is durable when `commit` returns."""

    def extend(self, records: Iterable[Record]) -> None: ...
    def commit(self) -> None: ...
    def end(self, end: End) -> None: ...

    def keep(self, body: bytes) -> None:
        """Keep something beside the records until the trace ends (see `ahead`); durable when `commit` returns."""
        ...

    def kept(self) -> list[bytes]:
        """What was kept so far, in its order."""
        ...


class Watching(Protocol):
    """Whoever follows a run's events as they are written, each with what it depends on and its text."""

    def written(self, event: Event, incoming: Sequence[tuple[str, EdgeType]], text: str | None) -> None: ...
    def doubts(self, agent: str, role: str) -> bool: ...


class StoreJournal:
    """A run's journal in a live store."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def extend(self, records: Iterable[Record]) -> None:
        self._writer.extend(records)

    def commit(self) -> None:
        self._store.commit()

    def end(self, end: End) -> None:
        self._writer.end(end)

    def keep(self, body: bytes) -> None:
        self._writer.keep(body)

    def kept(self) -> list[bytes]:
        return self._writer.kept()


class Said(Struct, frozen=True, kw_only=True):
    """Which tokens of which call said an action, and how likely they were."""

    call: str
    start: float | None = None
    """When the call was asked; set, with the duration, for the first thing it said."""
    span: tuple[int, int] | None = None
    options: tuple[str, ...] | None = None
    choice: int | None = None
    propensity: float | None = None
    option_propensities: tuple[float, ...] | None = None
    duration_s: float | None = None
    tokens: int | None = None
    seed_key: str | None = None
    decision: Decision | None = None
    """Which decision this was, where the task says so; None: the verb's own."""


def draw_id(event_id: str) -> str:
    """The id of what nature drew after a choice: like that of a tool's result, the choice's own and `r`."""
    return f"{event_id}r"


class TraceWriter:
    """Writes the trace of one run."""

    def __init__(
        self,
        header: Header,
        driver: Driver,
        *,
        journal: Journal | None,
        recording: Recording | None,
        strict: bool,
        skip: int,
    ) -> None:
        self.header = header
        self.driver = driver
        self.journal = journal
        """None: the trace is kept in memory alone."""
        self.recording = recording
        self.strict = strict
        """Recorded events must come out again exactly as they were (replay, resume)."""
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.calls: list[Call] = []
        self.payloads: dict[str, Payload] = {}
        self.rewards: list[Reward] = []
        self._skip = skip
        """Records already in the journal (resume)."""
        self._block: list[Record] = []
        self._refs: dict[str, str] = {}
        """Addresses of short texts, which agents say again and again."""
        self._num_people = 0
        self.watch: Watching | None = None
        """A guard, which follows what is written."""
        self._committed = time.monotonic()

    def trace(self, *, finished: bool) -> Trace:
        """The trace of everything that was written so far."""
        return Trace(
            header=self.header,
            events=tuple(self.events),
            edges=tuple(self.edges),
            calls=tuple(self.calls),
            payloads=dict(self.payloads),
            rewards=tuple(self.rewards),
            costs=self._costs() if finished else {},
            finished=finished,
        )

    def text(self, text: str | None, media_type: str = "text/plain") -> str | None:
        """Store a text, once; its address."""
        if text is None:
            return None
        ref = self._refs.get(text)
        if ref is None:
            payload = _payload(text, media_type) if len(text) <= _COMMON else Payload.of(text, media_type)
            ref = payload.ref
            if ref not in self.payloads:
                self.payloads[ref] = payload
                self._block.append(payload)
            if len(text) <= _SHORT:
                self._refs[text] = ref
        return ref

    def content(self, raw: bytes, media_type: str) -> str:
        """Store bytes, once; their address."""
        payload = Payload.of(raw, media_type)
        if payload.ref not in self.payloads:
            self.payloads[payload.ref] = payload
            self._block.append(payload)
        return payload.ref

    def emit(
        self,
        agent: Agent,
        type_: EventType,
        *,
        decision: Decision = "none",
        role: str | None = None,
        from_: str | None = None,
        to: str | None = None,
        tool: str | None = None,
        text: str | None = None,
        media_type: str = "text/plain",
        trusted: bool | None = None,
        said: Said | None = None,
        propensity: float | None = None,
        duration_s: float | None = None,
        tokens: int | None = None,
        status: Status = "ok",
        pure: bool | None = None,
        extra: dict[str, Any] | None = None,
        causes: Sequence[tuple[str, EdgeType]] = (),
        id_: str | None = None,
        t: float | None = None,
    ) -> Event:
        """Write one event, with an edge from the agent's last one and from all it depends on."""
        if id_ is None:
            agent.num_events += 1
            id_ = f"{agent.id}#{agent.num_events}"
        if said is not None and said.duration_s is not None:
            t, duration_s = said.start, said.duration_s
        if trusted is None and self.watch is not None and self.watch.doubts(agent.id, agent.role.name):
            trusted = False  # whatever such a member says or does is a stranger's
        event = Event(
            id=id_,
            t=self.driver.now if t is None else t,
            type=type_,
            agent=agent.id,
            seq=len(self.events) + 1,
            role=role or agent.role.name,
            from_=from_,
            to=to,
            tool=tool,
            content_ref=self.text(text, media_type),
            trusted=trusted,
            decision=said.decision or decision if said else decision,
            options=said.options if said else None,
            choice=said.choice if said else None,
            propensity=said.propensity if said else propensity,
            option_propensities=said.option_propensities if said else None,
            call=said.call if said else None,
            span=said.span if said else None,
            duration_s=duration_s,
            tokens=said.tokens if said else tokens,
            status=status,
            seed_key=said.seed_key if said else None,
            pure=pure,
            extra=extra or {},
        )
        self._write(event)
        last, agent.last_event = agent.last_event, id_
        if self.watch is not None:
            self.watch.written(event, [*agent.causes, *causes], text)
        for source, kind in chain(agent.causes, causes):
            self._edge(source, id_, kind)
            if source == last:
                last = None  # the dependency says more than that it came before
        agent.causes.clear()
        if last is not None:
            self._edge(last, id_, "temporal")
        return event

    def emit_by(
        self,
        who: str,
        type_: EventType,
        *,
        to: str | None,
        text: str,
        extra: dict[str, Any] | None = None,
        status: Status = "ok",
    ) -> Event:
        """An event of someone who is no agent of the team."""
        self._num_people += 1
        event = Event(
            id=f"{who}#{self._num_people}",
            t=self.driver.now,
            type=type_,
            agent=who,
            seq=len(self.events) + 1,
            from_=who,
            to=to,
            content_ref=self.text(text),
            status=status,
            extra=extra or {},
        )
        self._write(event)
        if self.watch is not None:
            self.watch.written(event, (), text)
        return event

    def emit_given(self, to: Agent, text: str, extra: dict[str, Any]) -> Event:
        """What strangers wrote and a task hands over: nobody's event, before all others."""
        event = Event(
            id=f"{GIVEN}#1",
            t=self.driver.now,
            type="tool_result",
            agent=GIVEN,
            seq=len(self.events) + 1,
            to=to.id,
            tool=GIVEN,
            content_ref=self.text(text),
            trusted=False,
            duration_s=0.0,
            extra=extra,
        )
        self._write(event)
        if self.watch is not None:
            self.watch.written(event, (), text)
        return event

    def emit_draw(
        self, agent: Agent, after: str, *, text: str, extra: dict[str, Any], word: str | None = None
    ) -> Event:
        """What nature drew after an agent's choice: an event of nobody's, which the agent's next one depends on.

        `word`: it was that a supervisor said this, and the event is a person's.
        """
        event = Event(
            id=draw_id(after),
            t=self.driver.now,
            type="tool_result" if word is None else "human_intervention",
            agent=NATURE if word is None else SUPERVISOR,
            seq=len(self.events) + 1,
            to=agent.id,
            tool=NATURE if word is None else None,
            content_ref=self.text(text if word is None else word),
            trusted=True,
            extra=extra,
        )
        self._write(event)
        if self.watch is not None:
            self.watch.written(event, ((after, "causal"),), text)
        self._edge(after, event.id, "causal")
        agent.causes.append((event.id, "causal"))
        return event

    def _write(self, event: Event) -> None:
        if self.strict and self.recording is not None:
            recorded = self.recording.events.get(event.id)
            if recorded is not None and recorded != event:
                raise TraceError(
                    f"the run does not repeat its trace: event {event.id} was {_brief(recorded)}, now {_brief(event)}. "
                    "Something outside the trace has changed: the task, the harness, the topology or a tool."
                )
        self.events.append(event)
        self._block.append(event)

    def _edge(self, src: str, dst: str, type_: EdgeType) -> None:
        edge = Edge(src, dst, type_)
        self.edges.append(edge)
        self._block.append(edge)

    def add_call(self, call: Call) -> None:
        """Write the record of a call."""
        self.calls.append(call)
        self._block.append(call)

    def commit(self, *, must: bool = True) -> None:
        """Make what was written durable: now where it must be, else with the next few hundred records."""
        now = time.monotonic()
        if not must and len(self._block) < _GROUP and now - self._committed < _SECONDS:
            return
        self._committed = now
        block, self._block = self._block, []
        if self._skip:  # resume: the journal already has these
            skipped = min(self._skip, len(block))
            self._skip -= skipped
            block = block[skipped:]
        if block and self.journal is not None:
            self.journal.extend(block)
            self.journal.commit()

    def add_reward(self, reward: Reward) -> None:
        """Write a reward."""
        self.rewards.append(reward)
        self._block.append(reward)

    def end(self) -> None:
        """Close the journal of a trace that is complete."""
        self.commit()
        if self.journal is not None:
            self.journal.end(End(costs=self._costs()))
            self.journal.commit()

    def _costs(self) -> dict[str, float]:
        types = [event.type for event in self.events]
        return {
            "tokens": float(sum([event.tokens for event in self.events if event.tokens])),
            "wall_clock_s": self.driver.now,
            "tool_calls": float(types.count("tool_call")),
            "messages": float(types.count("message")),
            "calls": float(len(self.calls)),
        }


def _brief(event: Event) -> str:
    values = ((name, getattr(event, name)) for name in event.__struct_fields__)
    return str({name: value for name, value in values if value not in (None, {}, "")})


Moment = tuple[float, int]
"""When a block began, and its place in the order."""


def moment(event: Event) -> Moment:
    """When the block an event opens began: at the event's end, since what took time is what was waited for."""
    return event.t + (event.duration_s or 0.0), event.seq


def replicates_of(header: Header) -> tuple[int, ...]:
    """Of a fork, its replicate and before it those of the forks it was made of; those that are 0 are left out."""
    told = meta_as(header, tuple[int, ...], "run", "replicates")
    if told is not None:
        return told
    last = meta_as(header, int, "run", "replicate")  # all that older headers tell
    return (last,) if last else ()


def first_events(trace: Trace) -> dict[str, Event]:
    """Call -> the first event its answer led to."""
    found: dict[str, Event] | None = vars(trace).get("first_events")
    if found is None:  # kept where a trace keeps its other indexes
        found = vars(trace)["first_events"] = _first_of(trace.events)
    return found


def _first_of(events: Iterable[Event]) -> dict[str, Event]:
    found: dict[str, Event] = {}
    for event in events:
        if event.call is not None:
            found.setdefault(event.call, event)
    return found


class Altered(Struct, frozen=True, kw_only=True):
    """What is different in a recording: calls and events by id, None for those it does not know."""

    calls: Mapping[str, Call | None] = {}
    events: Mapping[str, Event | None] = {}
    payloads: tuple[Payload, ...] = ()


def _overlaid(known: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    found = known.copy()
    for name, change in changes.items():
        if change is None:
            found.pop(name, None)
        else:
            found[name] = change
    return found


class Lost(Struct, frozen=True):
    """Calls that were on their way when a run was cut off, once for each time."""

    names: tuple[str, ...]
    recorded: bool = False
    """Whether an earlier process has charged and told of them: what was lost since then is still to come."""
    named: bool = True
    """Whether the event says what they are charged; those of traces up to 0.2 do not."""


class Recording:
    """The completions of one trace, by the id of what was waited for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.events: dict[str, Event] = {event.id: event for event in trace.events}
        self.calls: dict[str, Call] = trace.call_by_id
        self.said_by = first_events(trace)
        self.timers: dict[str, Moment] = {}
        self.people: list[Event] = []
        self.acts: set[str] = set()
        """What people did by name (`baton.team.people`)."""
        self.resumed: list[Event] = []
        """Where the run was cut off with calls on their way, and went on."""
        self._payloads: dict[str, Payload] = {}
        """Texts that the trace does not have."""
        for event in trace.events:
            if "timer" in event.extra:
                self.timers.setdefault(event.extra["timer"], moment(event))
            if event.type == "human_intervention":
                if "edits" not in event.extra and "draw" not in event.extra:  # a game says those again itself
                    self.people.append(event)
                if (act := event.extra.get("act")) is not None:
                    self.acts.add(act)
            if RESUMED in event.extra:
                self.resumed.append(event)

    def altered(self, changes: Altered) -> Recording:
        """The same recording with something different. What it shares is not copied."""
        new = copy(self)
        new.calls = _overlaid(self.calls, changes.calls)
        new.events = _overlaid(self.events, changes.events)
        before = [self.events[name] for name in changes.events if name in self.events]
        first = [e for e in before if e.call is not None and self.said_by[e.call].id == e.id]
        if any(event.id not in new.events for event in first):
            rest = (new.events.get(event.id) for event in self.trace.events)
            new.said_by = _first_of(event for event in rest if event is not None)
        elif first:
            new.said_by = self.said_by | {event.call or "": new.events[event.id] for event in first}
        gone = {e.extra["timer"] for e in before if "timer" in e.extra and e.id not in new.events}
        new.timers = {name: when for name, when in self.timers.items() if name not in gone}
        new._payloads = {payload.ref: payload for payload in changes.payloads}
        return new

    def answer(self, call_id: str) -> tuple[Answer | EngineError, Moment] | None:
        """How a call was answered, or None when it never was."""
        event = self.said_by.get(call_id)
        call = self.calls.get(call_id)
        if event is None or call is None:
            return None
        when = moment(event)
        if call.finish_reason == "error":
            error = EngineError(self._text(event.content_ref, event.id))
            error.prompt_tokens, error.completion_tokens = call.prompt_tokens, call.completion_tokens
            return error, when
        answer = Answer(
            text=self._text(call.completion_ref, call.id),
            policy=call.policy or "",
            policy_version=call.policy_version or "0",
            versions=call.versions,
            completion_ids=call.completion_ids,
            logprobs=call.logprobs,
            token_ends=call.token_ends,
            choice=event.choice,
            option_propensities=event.option_propensities,
            prompt_tokens=call.prompt_tokens,
            completion_tokens=call.completion_tokens,
            estimated=call.estimated,
            finish_reason=call.finish_reason or "stop",
        )
        return answer, when

    def tool(self, tool_call_id: str) -> tuple[Event, str, Moment] | None:
        """The result of a tool call, its text, and when it came. None when it never did."""
        event = self.events.get(tool_call_id + "r")
        if event is None or event.duration_s is None:  # no duration: the agent was cancelled while it ran
            return None
        return event, self._text(event.extra.get(RAW, event.content_ref), event.id), moment(event)

    def content(self, ref: str, what: str) -> bytes:
        """Bytes that the trace has under an address."""
        payload = self.trace.payloads.get(ref)
        raw = None if payload is None else payload.content()
        if raw is None:
            raise TraceError(
                f"{what}: what its agent's folder held was withheld from the trace, so the run cannot be fed from it. "
                "Use a trace saved with payloads."
            )
        return raw

    def text(self, event: Event) -> str:
        """What an event said."""
        return self._text(event.content_ref, event.id)

    def _text(self, ref: str | None, what: str) -> str:
        own = self._payloads.get(ref) if ref is not None else None
        text = own.text() if own is not None else self.trace.text(ref)
        if text is None:
            raise TraceError(
                f"{what}: its text was withheld from the trace, so the run cannot be fed from it. "
                "Use a trace saved with payloads."
            )
        return text

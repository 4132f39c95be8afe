"""One agent in a `Recorder`: every method records one thing that agent does.

Invariant: an agent acts only while it lives: from its spawn (or from the start, for a root) until
it returns for good, stops, or is cancelled. Whatever it left open then (tool calls, agents of its
own) is recorded as cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, Unpack

from baton.errors import TraceError, nearest
from baton.trace.log import EventDetails, Log, checked_details, common_prefix, numbers, plain
from baton.trace.records import Call, Floats, Ints, Sampling
from baton.trace.vocabulary import Decision, EdgeType, EventType

_TOLERANCE_S = 2e-6  # times are rounded to microseconds


class RecordedAgent:
    """A handle to log with. `Recorder.agent` and `RecordedAgent.spawn` make them."""

    def __init__(
        self, log: Log, name: str, role: str | None = None, parent: RecordedAgent | None = None
    ) -> None:
        self.id = name
        self.role = role
        self.parent = parent
        self._log = log
        self._ended: str | None = None  # how, in words
        self._living: dict[str, RecordedAgent] = {}  # agents it spawned
        self._tools: dict[str, RecordedTool] = {}  # calls without a result
        # What it acts on next: event -> edge, since when.
        self._waiting: dict[str, tuple[EdgeType, float]] = {}
        self._last: str | None = None  # its latest event
        self._last_act: str | None = None  # the same, but no tool's result
        self._calls: dict[str, int | None] = {}  # its calls, with the length of each completion
        self._call: Call | None = None  # what its next acts were said by
        self._charge: int | None = None  # tokens of that call
        self._unsaid = False  # no event has carried them yet
        self._context: Ints | None = None  # prompt + completion of that call
        log.add_agent(self)

    def spawn(
        self, name: str, *, role: str | None = None, task: Any = None, **details: Unpack[EventDetails]
    ) -> RecordedAgent:
        """Start an agent under this one. A name is used once in a trace."""
        with self._log.lock:
            self._must_live("spawn")
            self._log.must_be_new(name)
            event = self._act("spawn", task, details, decision="spawn", to=name, role=role)
            child = RecordedAgent(self._log, name, role, self)
            child._waiting[event] = ("spawn", 0.0)
            self._living[name] = child
        return child

    def send(self, to: RecordedAgent | str, text: Any, **details: Unpack[EventDetails]) -> str:
        """Send a message. Returns the event's id, as the other verbs do."""
        return self._message(to, text, "communicate", details)

    def delegate(self, to: RecordedAgent | str, task: Any, **details: Unpack[EventDetails]) -> str:
        """Give a task to an agent that already lives: a message whose decision is `delegate`."""
        return self._message(to, task, "delegate", details)

    def tool(
        self, name: str, args: Any = None, *, pure: bool | None = None, **details: Unpack[EventDetails]
    ) -> RecordedTool:
        """Begin a tool call: a `with` block, or `.result(...)` on what this returns."""
        with self._log.lock:
            event = self._act("tool_call", args, details, tool=name, pure=pure)
            opened = self._tools[event] = RecordedTool(self, name, event, self._log.now())
        return opened

    def aggregate(
        self,
        sources: Iterable[RecordedAgent | str],
        result: Any = None,
        *,
        method: str | None = None,
        **details: Unpack[EventDetails],
    ) -> str:
        """Make one result of what agents returned, or of what they last did if they still live."""
        with self._log.lock:
            edges: dict[str, EdgeType] = {}
            for source in map(self._find, sources):
                if source._last is None:
                    raise TraceError(f"{self.id} cannot aggregate {source.id!r}: it has done nothing yet.")
                edges[source._last] = "aggregate"
            if method is not None:
                details["extra"] = {"method": method, **details.get("extra", {})}
            return self._act("aggregate", result, details, decision="aggregate", depends=edges)

    def decide(self, decision: Decision, text: Any = None, **details: Unpack[EventDetails]) -> str:
        """A decision that none of the other verbs carries out: continue, wait, or not to spawn."""
        return self._act("orchestrator_decision", text, details, decision=decision)

    def record(
        self,
        type: EventType,
        content: Any = None,
        *,
        to: RecordedAgent | str | None = None,
        **details: Unpack[EventDetails],
    ) -> str:
        """An event that is no verb: a safety_event, a human_intervention."""
        with self._log.lock:
            receiver = None if to is None else self._find(to)
            event = self._act(type, content, details, to=None if receiver is None else receiver.id)
            if receiver is not None and receiver is not self:
                receiver._receive(event, "causal")
        return event

    def returns(self, text: Any = None, *, ends: bool = True, **details: Unpack[EventDetails]) -> str:
        """Give the result to whoever spawned this agent, and end; not `ends`: it may be asked again and act again."""
        with self._log.lock:
            self._must_live("return")
            if self.parent is None:
                raise TraceError(f"{self.id!r} was not spawned and cannot return. Type: .stop(...)")
            event = self._act("return", text, details, to=self.parent.id)
            if not ends:
                self.parent._receive(event, "return")
                return event
            self._close_below(self.parent)
            # The runtime's doing, not an act of the parent's: nothing the parent does waits for it.
            self._log.event(
                {event: "causal"},
                t=self._log.now(),
                type="despawn",
                agent=self.parent.id,
                role=self.parent.role,
                to=self.id,
            )
            self.parent._receive(event, "return")
            self._last = event
            self._finish("has returned")
        return event

    def cancel(self, agent: RecordedAgent | str) -> None:
        """End an agent below this one before it returned, with all that it started."""
        with self._log.lock:
            self._must_live("cancel")
            target = self._find(agent)
            if target._ended is not None:
                raise TraceError(f"{self.id} cannot cancel {target.id!r}: it {target._ended}.")
            if not target._is_below(self):
                raise TraceError(f"{self.id} cannot cancel {target.id!r}, which is not below it.")
            target._close_below(self)
            target._cancel(self)

    def stop(self, answer: Any = None, **details: Unpack[EventDetails]) -> str:
        """End this agent and all below it, which are cancelled. Say status="forced" when a limit did it."""
        with self._log.lock:
            self._must_live("stop")
            for agent in self._below():
                agent.say_nothing()
            event = self._act("orchestrator_decision", answer, details, decision="stop")
            self._close_below(self)
            self._finish("has stopped")
        return event

    def call(
        self,
        *,
        prompt: Any = None,
        completion: Any = None,
        prompt_ids: Sequence[int] | None = None,
        completion_ids: Sequence[int] | None = None,
        logprobs: Sequence[float] | None = None,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        policy: str | None = None,
        policy_version: str | None = None,
        harness: str | None = None,
        sampling: Sampling | None = None,
        finish_reason: str | None = None,
        duration_s: float | None = None,
        grows_from: RecordedAgent | None = None,
    ) -> str:
        """An LLM call that has answered. What this agent does next was said by it, until its next call.

        `prompt_ids` is the whole prompt; what repeats the agent's previous call is stored once. `grows_from` is whose
        latest call that is, where a handoff makes it another's.
        The next event carries the call's tokens and duration. Returns the call's id.
        """
        if logprobs is not None and (completion_ids is None or len(logprobs) != len(completion_ids)):
            raise TraceError("logprobs needs completion_ids of the same length: one number for each token.")
        with self._log.lock:
            self._must_live("call a model")
            self.say_nothing()
            whole = numbers(Ints, "prompt_ids", prompt_ids)
            said = numbers(Ints, "completion_ids", completion_ids)
            prompt_tokens, completion_tokens = plain(prompt_tokens), plain(completion_tokens)
            duration_s = plain(duration_s)
            before = self if grows_from is None else self._find(grows_from)
            keep = 0 if before._context is None or whole is None else common_prefix(before._context, whole)
            grown = before._call if keep or grows_from is not None else None
            refs = self._log.payloads(prompt, completion)
            call = Call(
                id=self._log.next_call_id(), agent=self.id, role=self.role, policy=policy,
                policy_version=policy_version, harness=harness,
                parent=None if grown is None else grown.id, keep=keep,
                prompt_ids=None if whole is None else whole[keep:], completion_ids=said,
                logprobs=numbers(Floats, "logprobs", logprobs),
                prompt_ref=refs[0], completion_ref=refs[1],
                prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, sampling=sampling,
                finish_reason=finish_reason, t=self._log.started(duration_s), duration_s=duration_s,
            )  # fmt: skip
            self._log.write(call)
            self._calls[call.id] = None if said is None else len(said)
            counts = [
                len(ids) if billed is None and ids is not None else billed
                for billed, ids in ((prompt_tokens, whole), (completion_tokens, said))
            ]
            known = [count for count in counts if count is not None]
            self._call, self._unsaid, self._charge = call, True, sum(known) if known else None
            self._context = whole if whole is None or said is None else whole + said
            return call.id

    def _message(self, to: RecordedAgent | str, text: Any, decision: Decision, details: EventDetails) -> str:
        with self._log.lock:
            receiver = self._find(to)
            if receiver._ended is not None:
                raise TraceError(f"{self.id} cannot send to {receiver.id!r}: it {receiver._ended}.")
            event = self._act("message", text, details, decision=decision, to=receiver.id)
            if receiver is not self:
                receiver._receive(event, "message")
        return event

    def _act(
        self,
        type: EventType,
        content: Any,
        details: EventDetails,
        *,
        decision: Decision = "none",
        to: str | None = None,
        tool: str | None = None,
        role: str | None = None,
        pure: bool | None = None,
        depends: Mapping[str, EdgeType] | None = None,
    ) -> str:
        """The one way an event of this agent comes to be."""
        with self._log.lock:
            self._must_live(type)
            said_by = self._said_by(details)
            fields = checked_details(details, said_by, None if said_by is None else self._calls[said_by])
            # The first event of a call carries what the call cost.
            call = self._call if self._unsaid and self._call and self._call.id == said_by else None
            duration_s = plain(details.get("duration_s", call.duration_s if call else None))
            start = call.t if call is not None and call.t is not None else self._log.started(duration_s)
            due = self._due(start)
            event = self._log.event(
                {**due, **(depends or {})},
                t=start,
                type=type,
                agent=self.id,
                role=role if type == "spawn" else self.role,
                from_=self.id if type in ("message", "return") else None,
                to=to,
                tool=tool,
                content_ref=self._log.payloads(content)[0],
                decision=decision,
                call=said_by,
                duration_s=duration_s,
                tokens=details.get("tokens", self._charge if call else None),
                pure=pure,
                **fields,
            )
            later = {src: waiting for src, waiting in self._waiting.items() if src not in due}
            self._waiting = {event: ("temporal", 0.0), **later}
            self._last = self._last_act = event
            if call is not None:
                self._unsaid = False
        return event

    def _receive(self, event: str, kind: EdgeType) -> None:
        self._waiting[event] = (kind, self._log.now())

    def _due(self, start: float) -> dict[str, EdgeType]:
        """What an act that began then depends on: not what came while it was under way."""
        due = {src: kind for src, (kind, since) in self._waiting.items() if since <= start + _TOLERANCE_S}
        if "temporal" not in due.values() and self._last_act is not None:
            due[self._last_act] = "temporal"
        return due

    def _said_by(self, details: EventDetails) -> str | None:
        if "call" not in details:
            return self._call.id if self._call else None
        given = details["call"]
        if given is not None and given not in self._calls:
            raise TraceError(f"{given!r} is no call of {self.id}. {nearest(given, self._calls)}")
        return given

    def _answer(self, opened: RecordedTool, content: Any, details: EventDetails) -> None:
        """The result of a tool call. It follows the call, not what the agent did meanwhile."""
        with self._log.lock:
            if opened.event not in self._tools:
                return  # its agent ended first: recorded as cancelled then
            event = self._log.event(
                {opened.event: "tool_dependency"},
                t=opened.t,
                type="tool_result",
                agent=self.id,
                role=self.role,
                tool=opened.name,
                content_ref=self._log.payloads(content)[0],
                duration_s=details.get("duration_s", round(self._log.now() - opened.t, 6)),
                tokens=details.get("tokens"),
                **checked_details(details, None),
            )
            del self._tools[opened.event]
            straight_on = opened.event == self._last_act and self._waiting.pop(opened.event, None) is not None
            self._receive(event, "temporal" if straight_on else "tool_dependency")
            self._last = event

    def _close_below(self, by: RecordedAgent) -> None:
        """Cancel what this agent left open, deepest first, but not the agent itself."""
        for agent in (*reversed(self._below()), self):
            for opened in list(agent._tools.values()):
                agent._answer(opened, None, {"status": "cancelled"})
            if agent is not self:
                agent._cancel(by)

    def _below(self) -> list[RecordedAgent]:
        """Living agents below this one, each after its parent."""
        below = list(self._living.values())
        for agent in below:
            below.extend(agent._living.values())
        return below

    def _cancel(self, by: RecordedAgent) -> None:
        self.say_nothing()
        before = self._waiting if self._last_act is None else (self._last_act,)
        by._act("despawn", None, {"status": "cancelled"}, to=self.id, depends=dict.fromkeys(before, "causal"))
        self._finish("was cancelled")

    def _finish(self, how: str) -> None:
        self._ended = how
        self._context = None
        if self.parent is not None:
            self.parent._living.pop(self.id, None)

    def say_nothing(self) -> None:
        """Give a call that led to no event one of its own, so that its tokens are charged."""
        if self._unsaid and self._ended is None:
            self._act("orchestrator_decision", None, {}, decision="continue")

    def _find(self, agent: RecordedAgent | str) -> RecordedAgent:
        known = self._log.agents
        found = known.get(agent if isinstance(agent, str) else agent.id)
        if found is None or (isinstance(agent, RecordedAgent) and found is not agent):
            name = agent if isinstance(agent, str) else agent.id
            raise TraceError(f"{self.id} names {name!r}, no agent of this trace. {nearest(name, known)}")
        return found

    def _is_below(self, other: RecordedAgent) -> bool:
        above = self.parent
        while above is not None and above is not other:
            above = above.parent
        return above is other

    def _must_live(self, verb: str) -> None:
        if self._ended is not None:
            raise TraceError(f"{self.id} cannot {verb}: it {self._ended}.")


class RecordedTool:
    """A tool call that waits for its result."""

    def __init__(self, agent: RecordedAgent, name: str, event: str, t: float) -> None:
        self.name = name
        self.event = event
        self.t = t
        self._agent = agent
        self._answered = False

    def result(self, content: Any = None, **details: Unpack[EventDetails]) -> None:
        """What the tool gave back. Dropped when the agent has ended: the call is on record as cancelled."""
        if self._answered:
            raise TraceError(f"tool call {self.event} ({self.name}) already has its result.")
        self._agent._answer(self, content, details)
        self._answered = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._answered:
            return
        if error is None:
            self.result()
        else:
            cancelled = type(error).__name__ in ("CancelledError", "KeyboardInterrupt")
            self.result(f"{type(error).__name__}: {error}", status="cancelled" if cancelled else "failed")

"""A trace as OpenTelemetry spans with the GenAI conventions, so that tools which show spans show a Baton run.

| in the trace | among the spans |
|---|---|
| an agent's life, its spawn, its last return or stop | `invoke_agent`, under the span of whoever spawned it |
| a call | `chat`, with model, messages and usage |
| a tool call and its result | `execute_tool` |
| an aggregate | a span that is linked to what it fuses |
| messages, other decisions, interventions, safety events | spans of their own, which `baton.event.*` describe |
| a reward of the team, an agent or a turn | an event `gen_ai.evaluation.result` |

OpenInference's names stand beside GenAI's, which is what Phoenix shows. Ids are made of the trace's: the same trace
sent twice is the same spans. Token ids, log-probabilities, options, propensities and credits have no place in spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from baton.connect.readers.otlp.span import OtelSpan, SpanEvent
from baton.trace.graph.lineage import NO_EFFECT, Lineage
from baton.trace.outcome import stops
from baton.trace.records import Call, Event
from baton.trace.trace import Trace, meta_table

SCOPE = "baton"
_LAST_S = 9e9  # seconds since 1970 that nanoseconds of 64 bits can hold
_DIRECT = frozenset(("spawn", "tool_call", "tool_result"))


def spans_of_trace(trace: Trace, *, started: float | None = None) -> list[OtelSpan]:
    """All spans of a trace. `started` is its zero in seconds since 1970, where the trace does not say: else now."""
    return _Writing(trace, started).spans()


def trace_id_of(trace: Trace) -> str:
    """Sixteen bytes in hex, made of the trace's own id."""
    return blake2b(trace.trace_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Writing:
    """One trace on its way into spans."""

    def __init__(self, trace: Trace, started: float | None) -> None:
        self.trace = trace
        self.trace_id = trace_id_of(trace)
        told = trace.header.meta.get("started")
        zero = told if isinstance(told, int | float) and 0 <= told < _LAST_S else started
        self.zero_ns = int((time.time() if zero is None else zero) * 1e9)
        self.lineage = Lineage.of(trace)
        self.by_agent: dict[str, list[Event]] = {}
        for event in trace.events:
            self.by_agent.setdefault(event.agent, []).append(event)
        self.born = {
            e.to: e
            for e in reversed(trace.events)
            if e.type == "spawn" and e.to and e.status not in NO_EFFECT
        }
        self.answers = self._answers()
        self.answered = {result.id for result in self.answers.values()}
        self.said = self._said()
        self.made: dict[str, OtelSpan] = {}
        self.clock: dict[str, int] = {}
        self.resource = {"service.name": trace.header.system or "baton", "baton.trace_id": trace.trace_id}

    def spans(self) -> list[OtelSpan]:
        lives = list(self.lineage.lives.values())
        frame = self._frame() if len(self.lineage.roots) != 1 else None
        for life in lives:
            self._agent(life.agent, life.role, frame)
        for event in self.trace.events:
            self._event(event)
        for agent in self.lineage.lives:
            self._end(agent)
        self._rewards()
        if frame is not None:
            frame.start_ns = min(span.start_ns for span in self.made.values()) if self.made else self.zero_ns
            frame.end_ns = max((span.end_ns for span in self.made.values()), default=frame.start_ns)
            self._ask(frame)
            return [frame, *self.made.values()]
        return list(self.made.values())

    def _frame(self) -> OtelSpan:
        return self._span("frame", "", self.trace.header.task_id or "team", None, self.zero_ns, {}, "CHAIN")

    def _agent(self, agent: str, role: str | None, frame: OtelSpan | None) -> None:
        spawn = self.born.get(agent)
        life = self.lineage.lives[agent]
        parent = frame
        if life.parent is not None:
            parent = self.made[f"agent/{life.parent}"]
        begun = spawn.t if spawn is not None else self._first(agent, life.born_t)
        a: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": SCOPE,
            "gen_ai.agent.name": agent,
            "gen_ai.agent.id": agent,
            "agent.name": agent,
            "graph.node.id": agent,
        }
        if life.parent is not None:
            a["graph.node.parent_id"] = life.parent
        if role is not None:
            a["baton.agent.role"] = role
        span = self._span("agent", agent, f"invoke_agent {agent}", parent, self._ns(begun), a, "AGENT")
        if spawn is None:
            if parent is frame and self.lineage.root == agent:
                self._ask(span)
            return
        a.update(self._details(spawn))
        if spawn.tool is not None:
            a["gen_ai.tool.name"] = spawn.tool
        _put_input(a, self.trace.text(spawn.content_ref), "user")

    def _first(self, agent: str, born: float) -> float:
        """When a root began: with its first event, or with a call that is older."""
        times = [event.t for event in self.by_agent.get(agent, ())]
        times += [call.t for call in self.trace.calls if call.agent == agent and call.t is not None]
        return min(times, default=born)

    def _ask(self, span: OtelSpan) -> None:
        told = meta_table(self.trace.header, "connect").get("task")
        _put_input(span.attributes, told if isinstance(told, str) else self.trace.header.task_id, "user")

    def _event(self, event: Event) -> None:
        if event.agent not in self.lineage.lives and event.type != "tool_result":
            return self._other(event, None)
        if event.call is not None:
            self._chat(event.call, event)
        if event.type == "spawn" and self.born.get(event.to or "") is event:
            span = self.made[f"agent/{event.to}"]
            span.start_ns = span.end_ns = self._tick(event.agent, event.t)
            self.clock[event.to or ""] = max(self.clock.get(event.to or "", 0), span.start_ns)
        elif event.type == "tool_call":
            self._tool(event)
        elif event.id not in self.answered and not self._closes(event):
            self._other(event, self.made.get(f"agent/{event.agent}"))
        return None

    def _chat(self, call_id: str, event: Event) -> None:
        call = self.trace.call_by_id.get(call_id)
        if call is None or f"call/{call_id}" in self.made:
            return
        begun = event.t if call.t is None else call.t
        a: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": SCOPE,
            "gen_ai.agent.name": call.agent,
            "baton.call.id": call.id,
        }
        if call.policy is not None:
            a["gen_ai.request.model"] = a["gen_ai.response.model"] = a["llm.model_name"] = call.policy
        for names, value in (
            (("gen_ai.usage.input_tokens", "llm.token_count.prompt"), call.prompt_tokens),
            (("gen_ai.usage.output_tokens", "llm.token_count.completion"), call.completion_tokens),
        ):
            if value is not None:
                a.update(dict.fromkeys(names, value))
        if call.estimated:
            a["baton.call.estimated"] = True
        if call.sampling is not None:
            a["gen_ai.request.temperature"] = call.sampling.temperature
        if call.finish_reason is not None:
            a["gen_ai.response.finish_reasons"] = [call.finish_reason]
        self._put_messages(a, call)
        start = self._tick(call.agent, begun)
        parent = self.made.get(f"agent/{call.agent}")
        span = self._span("call", call.id, f"chat {call.policy or ''}".rstrip(), parent, start, a, "LLM")
        span.end_ns = start + _lasting(call.duration_s)

    def _put_messages(self, a: dict[str, Any], call: Call) -> None:
        told = self._prompt(call)
        if told:
            a["gen_ai.input.messages"] = _json([_message(role, text) for role, text in told])
            for place, (role, words) in enumerate(told):
                a[f"llm.input_messages.{place}.message.role"] = role
                a[f"llm.input_messages.{place}.message.content"] = words
        text = self.trace.text(call.completion_ref)
        uses = [
            event for event in self.said.get(call.id, ()) if event.tool is not None and event.type in _DIRECT
        ]
        if text is None and not uses:
            return
        parts: list[dict[str, Any]] = [] if text is None else [{"type": "text", "content": text}]
        for event in uses:
            arguments = self.trace.text(event.content_ref) or ""
            parts.append({"type": "tool_call", "id": event.id, "name": event.tool, "arguments": arguments})
        said = {"role": "assistant", "parts": parts, "finish_reason": call.finish_reason or "stop"}
        a["gen_ai.output.messages"] = _json([said])
        a["llm.output_messages.0.message.role"] = "assistant"
        if text is not None:
            a["llm.output_messages.0.message.content"] = text

    def _prompt(self, call: Call) -> list[tuple[str, str]]:
        """The whole conversation before an answer, from the calls that it grows from."""
        chain: list[Call] = []
        seen: set[str] = set()
        current: Call | None = call
        while current is not None and current.id not in seen:
            seen.add(current.id)
            chain.append(current)
            current = None if current.parent is None else self.trace.call_by_id.get(current.parent)
        told: list[tuple[str, str]] = []
        for one in reversed(chain):
            told += _entries(self.trace.text(one.prompt_ref))
            if one is not call and (text := self.trace.text(one.completion_ref)) is not None:
                told.append(("assistant", text))
        return told

    def _tool(self, event: Event) -> None:
        result = self.answers.get(event.id)
        a: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.id": event.id,
            "gen_ai.agent.name": event.agent,
            **self._details(event),
        }
        if event.tool is not None:
            a["gen_ai.tool.name"] = a["tool.name"] = event.tool
        arguments = self.trace.text(event.content_ref)
        if arguments is not None:
            a["gen_ai.tool.call.arguments"] = a["input.value"] = arguments
        start = self._tick(event.agent, event.t)
        parent = self.made[f"agent/{event.agent}"]
        span = self._span(
            "event", event.id, f"execute_tool {event.tool or ''}".rstrip(), parent, start, a, "TOOL"
        )
        if result is None:
            a["baton.tool.answered"] = False
            span.end_ns = start + _lasting(event.duration_s)
            return
        text = self.trace.text(result.content_ref)
        if text is not None:
            a["gen_ai.tool.call.result"] = a["output.value"] = text
        span.end_ns = max(start + 1, self._ns(result.t))
        if result.status != "ok":
            span.failed, span.message = True, result.status
            a["baton.event.result_status"] = result.status

    def _other(self, event: Event, parent: OtelSpan | None) -> None:
        """What the conventions have no word for: a span that says of itself what it is."""
        a = {"baton.event.type": event.type, "gen_ai.agent.name": event.agent, **self._details(event)}
        if event.decision != "none":
            a["baton.event.decision"] = event.decision
        if event.to is not None:
            a["baton.event.to"] = event.to
        if event.tool is not None:
            a["baton.event.tool"] = event.tool
        text = self.trace.text(event.content_ref)
        if text is not None:
            a["output.value"] = text
        name = event.type if event.to is None else f"{event.type} to {event.to}"
        start = self._tick(event.agent, event.t)
        span = self._span("event", event.id, name, parent, start, a, "CHAIN")
        span.end_ns = start + _lasting(event.duration_s if event.call is None else None)
        if event.type == "aggregate":
            span.links = [(self.trace_id, source) for source in self._fused(event)]

    def _fused(self, event: Event) -> Iterable[str]:
        sources = [edge.src for edge in self.trace.edges if edge.dst == event.id and edge.type == "aggregate"]
        for source in sources:
            came = self.trace.events[self.trace.position[source]] if source in self.trace.position else None
            if came is not None and f"agent/{came.agent}" in self.made:
                yield self.made[f"agent/{came.agent}"].span_id

    def _closes(self, event: Event) -> bool:
        """Whether the end of its agent's span says it: a last return, a root's last stop."""
        if self.by_agent[event.agent][-1] is not event:
            return False
        above = self.lineage.lives[event.agent].parent
        if event.type == "return":
            return above is not None and event.to in (None, above)
        return stops(event) and above is None and event.status not in NO_EFFECT

    def _end(self, agent: str) -> None:
        span = self.made[f"agent/{agent}"]
        own = self.by_agent.get(agent, [])
        last = own[-1] if own else None
        span.end_ns = max([span.start_ns + 1, self.clock.get(agent, 0)])
        if last is None or not self._closes(last):
            span.attributes["baton.agent.ended"] = False
            return
        span.end_ns = self._tick(agent, last.t + (last.duration_s or 0.0 if last.call is None else 0.0))
        a = span.attributes
        text = self.trace.text(last.content_ref)
        if text is not None:
            a["gen_ai.output.messages"] = _json([_message("assistant", text)])
            a["output.value"] = text
        if last.call is not None:
            a["baton.end.call"] = self._call_id(last)
        if last.tokens is not None and not self._is_billed(last.call):
            a["baton.end.tokens"] = last.tokens
        if last.status != "ok":
            span.failed, span.message = True, last.status
            a["baton.end.status"] = last.status

    def _rewards(self) -> None:
        roots = [self.made[f"agent/{agent}"] for agent in self.lineage.roots]
        for reward in self.trace.rewards:
            place = {
                "team": roots[0] if roots else None,
                "agent": self.made.get(f"agent/{reward.target}"),
                "turn": self.made.get(f"call/{reward.target}"),
            }.get(reward.unit)
            if place is not None:
                a = {
                    "gen_ai.evaluation.name": reward.channel,
                    "gen_ai.evaluation.score.value": float(reward.value),
                    "baton.reward.family": reward.family,
                    "baton.reward.unit": reward.unit,
                }
                place.events.append(SpanEvent("gen_ai.evaluation.result", place.end_ns, a))

    def _answers(self) -> dict[str, Event]:
        """Id of a tool call -> its result."""
        events = {event.id: event for event in self.trace.events}
        found: dict[str, Event] = {}
        for edge in self.trace.edges:
            src, dst = events.get(edge.src), events.get(edge.dst)
            if src is None or dst is None or edge.type == "temporal" or src.type != "tool_call":
                continue
            if dst.type == "tool_result" and src.id not in found and dst not in found.values():
                found[src.id] = dst
        return found

    def _said(self) -> dict[str, list[Event]]:
        said: dict[str, list[Event]] = {}
        for event in self.trace.events:
            if event.call is not None:
                said.setdefault(event.call, []).append(event)
        return said

    def _details(self, event: Event) -> dict[str, Any]:
        found: dict[str, Any] = {"baton.event.id": event.id}
        if event.status != "ok":
            found["baton.event.status"] = event.status
        if event.inferred:
            found["baton.event.inferred"] = event.why or "an importer concluded it"
        if event.call is not None:
            found["baton.event.call"] = self._call_id(event)
        if event.tokens is not None and not self._is_billed(event.call):
            found["baton.event.tokens"] = event.tokens
        return found

    def _is_billed(self, call_id: str | None) -> bool:
        """Whether a call's own counts say what was charged."""
        call = None if call_id is None else self.trace.call_by_id.get(call_id)
        return call is not None and (call.prompt_tokens is not None or call.completion_tokens is not None)

    def _call_id(self, event: Event) -> str | None:
        return None if event.call is None else self._id("call", event.call)

    def _span(
        self,
        kind: str,
        name: str,
        title: str,
        parent: OtelSpan | None,
        start: int,
        a: dict[str, Any],
        shown: str,
    ) -> OtelSpan:
        a.setdefault("openinference.span.kind", shown)
        span = OtelSpan(
            self.trace_id, self._id(kind, name), None if parent is None else parent.span_id, title, start, start + 1, a,
            resource=self.resource, scope=SCOPE,
        )  # fmt: skip
        if kind != "frame":
            self.made[f"{kind}/{name}"] = span
        return span

    def _id(self, kind: str, name: str) -> str:
        text = f"{self.trace.trace_id}/{kind}/{name}".encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=8).hexdigest()

    def _ns(self, t: float) -> int:
        return self.zero_ns + int(t * 1e9)

    def _tick(self, agent: str, t: float) -> int:
        """When something of an agent began: as the trace says, and never before what its order puts first."""
        at = max(self._ns(t), self.clock.get(agent, 0) + 1)
        self.clock[agent] = at
        return at


def _put_input(a: dict[str, Any], text: str | None, role: str) -> None:
    if text is not None:
        a["gen_ai.input.messages"] = _json([_message(role, text)])
        a["input.value"] = text


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _entries(text: str | None) -> list[tuple[str, str]]:
    """A prompt's payload: a list of {speaker, text}; anything else is one text."""
    if text is None:
        return []
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if isinstance(found, list) and all(isinstance(one, dict) and "text" in one for one in found):
        return [(str(one.get("speaker") or "user"), str(one["text"])) for one in found]
    return [("user", text)]


def _lasting(seconds: float | None) -> int:
    return max(1, int((seconds or 0.0) * 1e9))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

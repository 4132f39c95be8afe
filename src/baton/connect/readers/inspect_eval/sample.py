"""One sample of an Inspect log: its spans are agents, its events what they did, its scores rewards.

A span of type `agent` is an agent. One that a tool call opened (`agent_span_id`, or the tool's span around it) was
spawned by the agent that made the call, and what the tool gave is its return; such a call is the spawn and no tool call
beside it. A handoff passes the conversation on: the agent keeps one identity through all its handoffs. An agent's span
that lies in another's without a tool was brought to life by it, which is concluded from where it lies. Model calls
outside of any agent belong to the solver. Logs from before spans (steps, tools that hold their events) are read too.

Tokens are each model event's own: the whole prompt is the total less the answer, in which Inspect counts caches too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text, seconds_of, text_of
from baton.connect.readers.inspect_eval.contents import SampleContents, scores_of
from baton.connect.readers.inspect_eval.kept_messages import events_of_messages
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenSession

INSIDE: Final = "its span lies in the other agent's"
WITHIN: Final = "model calls within a tool's events are an agent's"
LAST_WORD: Final = "the agent's last answer"
OUTPUT: Final = "the sample's output, after the last thing its agent did"
_QUIET = frozenset(
    (
        "state", "store", "sample_init", "step", "info", "logger", "sandbox", "subtask", "score",
        "score_edit", "interrupt", "checkpoint", "anchor", "branch",
    )
)  # fmt: skip


class InspectSpan(Struct):
    """A span that has begun."""

    id: str
    type: str | None
    name: str
    parent: str | None
    agent: str | None = None
    """Key of the agent whose span it is or lies in."""
    tool: dict[str, Any] | None = None
    """The tool event that opened it."""


def sample_of(value: dict[str, Any], about: dict[str, Any], at: str, report: ImportReport) -> Iterator[Seen]:
    """The sightings of a sample."""
    run = about.get("eval")
    run = run if isinstance(run, dict) else {}
    session = as_text(value.get("uuid")) or "-".join(
        as_text(part)
        for part in (run.get("eval_id") or run.get("task_id"), value.get("id"), value.get("epoch"))
    )
    contents = SampleContents(value)
    asked = value.get("input")
    parts = (
        [each.get("content") for each in asked if isinstance(each, dict)] if isinstance(asked, list) else []
    )
    task = asked if isinstance(asked, str) else "\n".join(map(text_of, parts))
    target = value.get("target")
    versions = run.get("packages")
    version = versions.get("inspect_ai") if isinstance(versions, dict) else None
    yield SeenSession(
        session=session, key=session, at=at, system=f"inspect {version}" if version else "inspect",
        task=contents.text(task) or None, started=seconds_of(value.get("started_at")),
        finished=False if value.get("error") is not None else True if value.get("completed_at") else None,
        meta={
            "inspect": {
                "task": run.get("task"), "model": run.get("model"), "eval_id": run.get("eval_id"),
                "sample": value.get("id"), "epoch": value.get("epoch"), "log_version": about.get("version"),
            },
            "gold": {"answer": target},
        },
    )  # fmt: skip
    reader = _Sample(session, at, contents, report)
    events = value.get("events") or contents.transcript.get("events") or []
    if not events:
        events = events_of_messages(value.get("messages"), at, report)
    if not events:
        report.read()
        report.skip("a sample whose events were not kept", at)
    yield from reader.events(events)
    yield from reader.ends(value)
    yield from scores_of(value, about, session, at, report)


class _Sample:
    """Reads the events of one sample in their order."""

    def __init__(self, session: str, at: str, contents: SampleContents, report: ImportReport) -> None:
        self.session = session
        self.at = at
        self.contents = contents
        self.report = report
        self.spans: dict[str, InspectSpan] = {}
        self.known: dict[str, str | None] = {}  # agent -> parent
        self.opening: dict[
            str, tuple[dict[str, Any], str, int]
        ] = {}  # agent's span -> tool event, caller, place
        self.tool_spans: list[str] = []  # tools' spans that wait for their event
        self.said: dict[str, set[str]] = {}  # agent -> messages that its calls have shown
        self.calls: dict[str, str] = {}  # agent -> its latest call
        self.uses: dict[str, str] = {}  # tool call id -> call
        self.due: dict[str, list[str]] = {}  # agent -> returns that its next event waits for
        self.last: dict[str, SeenEvent] = {}  # agent -> a last answer, held back until it is known not to be
        self.sent: dict[str, int] = {}  # agent -> how often it was given work
        self.count = 0
        self.stopped = False

    def events(self, events: Any, inside: str | None = None) -> Iterator[Seen]:
        if not isinstance(events, list):
            self.report.read()
            self.report.skip("events that are no list", self.at)
            return
        for place, event in enumerate(events):
            self.report.read()
            if not isinstance(event, dict) or not isinstance(event.get("event"), str):
                self.report.skip("an event that is none", f"{self.at}#{place}")
                continue
            if event.get("pending"):
                self.report.skip("an event that had not finished", f"{self.at}#{place}")
                continue
            yield from self._event(event, float(self._place()), inside)

    def _place(self) -> int:
        self.count += 1
        return self.count

    def _event(self, event: dict[str, Any], place: float, inside: str | None) -> Iterator[Seen]:
        kind = event["event"]
        if kind == "span_begin":
            yield from self._begin(event, place)
        elif kind == "span_end":
            yield from self._end(as_text(event.get("id")), place)
        elif kind == "model":
            yield from self._model(event, place, inside)
        elif kind == "tool":
            yield from self._tool(event, place, inside)
        elif kind == "input":
            agent = inside or self._agent_of(event)
            yield from self._agent(agent)
            yield self._seen(event, place, agent, "human_intervention", content=as_text(event.get("input")))
        elif kind == "sample_limit":
            agent = inside or self._agent_of(event)
            yield from self._agent(agent)
            yield self._seen(
                event, place, agent, "safety_event", content=as_text(event.get("message")),
                extra={"budget": as_text(event.get("type")), "limit": event.get("limit")},
            )  # fmt: skip
        elif kind == "approval":
            agent = inside or self._agent_of(event)
            yield from self._agent(agent)
            yield self._seen(
                event, place, agent, "safety_event", content=as_text(event.get("explanation")) or None,
                extra={"decision": event.get("decision"), "approver": event.get("approver")},
            )  # fmt: skip
        elif kind == "error":
            agent = inside or self._agent_of(event)
            yield from self._agent(agent)
            error = event.get("error")
            message = error.get("message") if isinstance(error, dict) else error
            yield self._seen(event, place, agent, "safety_event", content=as_text(message), status="failed")
        elif kind == "compaction":
            agent = inside or self._agent_of(event)
            yield from self._agent(agent)
            extra = {word: event[word] for word in ("tokens_before", "tokens_after") if word in event}
            yield self._seen(
                event, place, agent, "orchestrator_decision", decision="none",
                extra={"compaction": True, **extra},
            )  # fmt: skip
        elif kind not in _QUIET:
            self.report.skip("an event of a type that is not known", f"{self.at}#{int(place)}")

    # Who acts.

    def _agent_of(self, event: dict[str, Any]) -> str:
        span = self.spans.get(as_text(event.get("span_id")))
        return (span.agent if span is not None else None) or "solver"

    def _agent(self, key: str, name: str | None = None, parent: str | None = None) -> Iterator[Seen]:
        if key not in self.known:
            self.known[key] = parent
            yield SeenAgent(session=self.session, key=key, name=name or key, parent=parent, at=self.at)

    def _begin(self, event: dict[str, Any], place: float) -> Iterator[Seen]:
        id_, parent = as_text(event.get("id")), as_text(event.get("parent_id")) or None
        above = self.spans.get(parent or "")
        span = InspectSpan(
            id=id_, type=event.get("type"), name=as_text(event.get("name")) or "unnamed", parent=parent,
            agent=above.agent if above else None,
        )  # fmt: skip
        self.spans[id_] = span
        if span.type == "tool":
            self.tool_spans.append(id_)
        elif span.type == "agent":
            yield from self._begin_agent(span, event, place)

    def _begin_agent(self, span: InspectSpan, event: dict[str, Any], place: float) -> Iterator[Seen]:
        caller = span.agent
        opened, handed = self.opening.get(span.id), False
        up = self.spans.get(span.parent or "")
        while up is not None and up.type != "agent":
            handed = handed or up.type == "handoff"
            if opened is None and up.tool is not None:
                opened = (up.tool, caller or "solver", int(place))
            up = self.spans.get(up.parent or "")
        span.agent = f"{span.name}@{caller}" if handed else span.id
        key = span.agent
        if caller is None:
            yield from self._agent(key, span.name)
            return
        yield from self._agent(key, span.name, caller)
        times = self.sent[key] = self.sent.get(key, 0) + 1
        tool = opened[0] if opened else None
        extra = {} if tool is None else {"tool": tool.get("function"), "tool_call_id": tool.get("id")}
        content = None if tool is None else as_text(self.contents.resolved(tool.get("arguments", {})))
        yield self._seen(
            event, place, caller, "spawn" if times == 1 else "message", to=key,
            decision=None if times == 1 else "delegate", content=content, media_type="application/json",
            call=None if tool is None else self.uses.get(as_text(tool.get("id"))), extra=extra,
            why=INSIDE if tool is None else None, key=f"sent:{span.id}",
        )  # fmt: skip
        if times > 1:
            self.due.setdefault(key, []).append(f"sent:{span.id}")

    def _end(self, id_: str, place: float) -> Iterator[Seen]:
        span = self.spans.get(id_)
        if span is None or span.type != "agent" or span.agent is None:
            return
        parent = self.known.get(span.agent)
        held = self.last.pop(span.agent, None)
        if parent is None:
            if held is not None:
                yield self._stop(held)
            return
        if held is not None:
            yield held
        tool = self.opening.get(id_)
        opened = tool[0] if tool else self._opened_by(span)
        result = None if opened is None else self.contents.text(text_of(opened.get("result")))
        failed = opened is not None and opened.get("error") is not None
        if opened is not None and opened.get("agent"):  # a handoff's result says only that it was made
            result = held.content if held is not None else None
        key = f"back:{id_}"
        yield SeenEvent(
            session=self.session, key=key, agent=span.agent, to=parent, type="return", order=(place,),
            content=result, status="failed" if failed else None, at=self.at,
            t=None if opened is None else seconds_of(opened.get("completed")),
            why=INSIDE if opened is None else None,
        )  # fmt: skip
        self.due.setdefault(parent, []).append(key)

    def _opened_by(self, span: InspectSpan) -> dict[str, Any] | None:
        up = self.spans.get(span.parent or "")
        while up is not None and up.type != "agent":
            if up.tool is not None:
                return up.tool
            up = self.spans.get(up.parent or "")
        return None

    # What they do.

    def _seen(self, event: dict[str, Any], place: float, agent: str, type_: Any, **more: Any) -> SeenEvent:
        due = tuple(
            Link(key, "message" if key.startswith("sent:") else "return") for key in self.due.pop(agent, ())
        )
        more.setdefault("key", as_text(event.get("uuid")) or f"{int(place)}")
        more.setdefault("after", due)
        return SeenEvent(
            session=self.session, agent=agent, type=type_, order=(place,), at=f"{self.at}#{int(place)}",
            t=seconds_of(event.get("timestamp")), duration_s=_seconds(event.get("working_time")), **more,
        )  # fmt: skip

    def _model(self, event: dict[str, Any], place: float, inside: str | None) -> Iterator[Seen]:
        agent = inside or self._agent_of(event)
        yield from self._agent(agent)
        if (held := self.last.pop(agent, None)) is not None:
            yield held
        key = f"model:{as_text(event.get('uuid')) or int(place)}"
        answer = self.contents.answer(event)
        prompt = self.contents.prompt(event, self.said.setdefault(agent, set()))
        _, prompt_tokens, completion_tokens = answer.usage
        failed = event.get("error") is not None
        yield SeenCall(
            session=self.session, key=key, agent=agent, order=(place,), at=f"{self.at}#{int(place)}",
            t=seconds_of(event.get("timestamp")), duration_s=_seconds(event.get("working_time")),
            policy=as_text(event.get("model")) or None, parent=self.calls.get(agent), prompt=prompt,
            completion=answer.text, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens,
            temperature=answer.temperature, finish_reason=answer.finish_reason,
            status="failed" if failed else None,
            extra={word: event[word] for word in ("retries", "cache", "role") if event.get(word)},
        )  # fmt: skip
        self.calls[agent] = key
        for id_ in answer.uses:
            self.uses[id_] = key
        if not answer.uses:
            made = self._seen(
                event, place, agent, "orchestrator_decision", decision="continue", content=answer.text,
                call=key, status="failed" if failed else None,
            )  # fmt: skip
            self.last[agent] = made

    def _tool(self, event: dict[str, Any], place: float, inside: str | None) -> Iterator[Seen]:
        agent = inside or self._agent_of(event)
        yield from self._agent(agent)
        if self.tool_spans:
            span = self.spans[self.tool_spans.pop()]
            span.tool = event
        if opens := as_text(event.get("agent_span_id")):
            self.opening[opens] = (event, agent, int(place))
            return
        if as_text(event.get("agent")) and not event.get("events"):
            return  # a handoff: the agent's span follows
        inner = event.get("events")
        if isinstance(inner, list) and any(isinstance(e, dict) and e.get("event") == "model" for e in inner):
            yield from self._within(event, place, agent, inner)
            return
        tool, id_ = as_text(event.get("function")) or "unnamed", as_text(event.get("id"))
        key = as_text(event.get("uuid")) or f"{int(place)}"
        called = self._seen(
            event, place, agent, "tool_call", tool=tool, call=self.uses.get(id_), key=key,
            content=as_text(self.contents.resolved(event.get("arguments", {}))), media_type="application/json",
            extra={"tool_call_id": id_},
        )  # fmt: skip
        yield called
        error = event.get("error")
        text = self.contents.text(text_of(event.get("result")))
        if isinstance(error, dict):
            text = text or as_text(error.get("message"))
        yield SeenEvent(
            session=self.session, key=f"{key}/result", agent=agent, type="tool_result", order=(place, 1.0),
            t=seconds_of(event.get("completed")) or called.t, tool=tool, content=text, at=called.at,
            status="failed" if error or event.get("failed") else None,
            after=(Link(key, "tool_dependency"),), extra={"tool_call_id": id_},
        )  # fmt: skip

    def _within(self, event: dict[str, Any], place: float, agent: str, inner: list[Any]) -> Iterator[Seen]:
        """A tool that holds the events of an agent, as logs did before spans."""
        name = as_text(event.get("agent")) or as_text(event.get("function")) or "unnamed"
        key = f"{name}:{as_text(event.get('id')) or int(place)}"
        yield from self._agent(key, name, agent)
        yield self._seen(
            event, place, agent, "spawn", to=key, call=self.uses.get(as_text(event.get("id"))), why=WITHIN,
            content=as_text(self.contents.resolved(event.get("arguments", {}))), media_type="application/json",
            key=f"sent:{key}", extra={"tool": event.get("function"), "tool_call_id": event.get("id")},
        )  # fmt: skip
        yield from self.events(inner, inside=key)
        if (held := self.last.pop(key, None)) is not None:
            yield held
        yield SeenEvent(
            session=self.session, key=f"back:{key}", agent=key, to=agent, type="return", why=WITHIN,
            order=(float(self._place()),), content=self.contents.text(text_of(event.get("result"))), at=self.at,
        )  # fmt: skip
        self.due.setdefault(agent, []).append(f"back:{key}")

    def _stop(self, held: SeenEvent) -> SeenEvent:
        self.stopped = True
        fields = {name: getattr(held, name) for name in held.__struct_fields__}
        return SeenEvent(**{**fields, "decision": "stop", "why": LAST_WORD})

    def ends(self, sample: dict[str, Any]) -> Iterator[Seen]:
        """What was held back, and the sample's output where nobody has given it as a last answer."""
        for agent, held in self.last.items():
            yield self._stop(held) if self.known.get(agent) is None else held
        roots = [agent for agent, parent in self.known.items() if parent is None]
        output = sample.get("output")
        answer = self.contents.text(as_text(output.get("completion"))) if isinstance(output, dict) else ""
        if not roots or self.stopped or not answer:
            return
        yield SeenEvent(
            session=self.session, key="output", agent=roots[-1], type="orchestrator_decision", decision="stop",
            order=(float(self._place()),), content=answer, why=OUTPUT, at=self.at,
            status="forced" if sample.get("limit") else None, t=seconds_of(sample.get("completed_at")),
            after=tuple(Link(key, "return") for key in self.due.pop(roots[-1], ())),
        )  # fmt: skip


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None

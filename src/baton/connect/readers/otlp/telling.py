"""From the spans of one trace to sightings: what began and what ended, told in order.

Usage is taken from model spans only: agents' and workflows' spans repeat the sums. What was sent to an agent (a return,
a handover, a tool's result) is what its next event depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from baton.connect.import_report import ImportReport
from baton.connect.readers.otlp.conventions import (
    Kind,
    answer_of,
    details,
    failure,
    is_ours,
    message_of,
    model_name,
    task_of,
    temperature,
    tool_arguments,
    tool_call_id,
    tool_name,
    tool_result,
    usage,
)
from baton.connect.readers.otlp.growth import PromptGrowth
from baton.connect.readers.otlp.messages import AskedTool, Message, parsed
from baton.connect.readers.otlp.rewards import SCORE, rewards_of
from baton.connect.readers.otlp.span import OtelSpan
from baton.connect.readers.otlp.team import BY_NAME, NO_PARENT, InvokedAgent, SpanTeam, task_of_trace
from baton.connect.readers.otlp.tree import SpanNode, SpanTree
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenSession
from baton.trace.vocabulary import EdgeType, EventType

_NOT_OURS = {
    Kind.CHAIN: "a step of a program, in which nobody acts by itself",
    Kind.TEAM: "a frame around agents",
    Kind.NONE: "a span that is of no agent, model or tool",
}
_START, _END = 1, 0


def sightings_of(session: str, spans: Sequence[OtelSpan], report: ImportReport) -> Iterator[Seen]:
    """Everything that one trace tells. A trace without agents, models and tools tells nothing."""
    tree = SpanTree(spans, report)
    team = SpanTeam(tree)
    for node in tree.nodes:
        if node.kind in _NOT_OURS:
            report.skip(_NOT_OURS[node.kind], node.span.at)
    if not team.actors:
        return
    yield _session(session, tree, team)
    for actor in team.actors.values():
        yield SeenAgent(
            session=session, key=actor.key, at=actor.at, name=actor.name, role=actor.role, parent=actor.parent,
            why=actor.why,
        )  # fmt: skip
    yield from _Telling(session, tree, team).tell()


def _session(session: str, tree: SpanTree, team: SpanTeam) -> SeenSession:
    roots = [node for node in tree.nodes if node.parent is None]
    first = roots[0].span
    whole = all(node.missing is None for node in roots)
    waits = any(actor.why in (NO_PARENT, BY_NAME) for actor in team.actors.values())
    resource = first.resource
    meta = {
        name: value
        for name, value in (
            ("service", resource.get("service.name")),
            ("session", first.attributes.get("session.id")),
            ("user", first.attributes.get("user.id")),
            ("started", roots[0].start / 1e9 if tree.timed else None),
        )
        if value is not None
    }
    scopes = sorted(
        {node.span.scope for node in tree.nodes if node.span.scope and node.kind is not Kind.NONE}
    )
    return SeenSession(
        session=session,
        key=session,
        at=first.at,
        system=", ".join(scopes) or "OpenTelemetry",
        task=task_of_trace(team, tree.nodes),
        started=min(node.start for node in tree.nodes) / 1e9 if tree.timed else None,
        finished=False if waits else True if whole else None,
        meta=meta,
    )


class _Telling:
    """One trace on its way into sightings."""

    def __init__(self, session: str, tree: SpanTree, team: SpanTeam) -> None:
        self.session = session
        self.tree = tree
        self.team = team
        self.due: dict[str, dict[str, EdgeType]] = {}
        self.last_call: dict[str, str] = {}
        self.last_words: dict[str, str | None] = {}
        self.asked: dict[tuple[str, str], str] = {}  # (agent, id of a tool use) -> the call that asked for it
        self.open: dict[
            str, list[tuple[AskedTool, str]]
        ] = {}  # agent -> tool uses that no span without an id took, and their call
        self.counted: set[str] = set()  # agents of which a call's tokens are known
        self.growth = PromptGrowth()
        self.inner: dict[str, list[SpanNode]] = {}  # call -> what another instrumentation saw of it
        for node in tree.nodes:
            if node.merged is not None and node.kind is Kind.MODEL:
                self.inner.setdefault(node.merged.key, []).append(node)
        self.by_name = {actor.name: actor.key for actor in reversed(team.actors.values())}
        self.begun: set[str] = set()  # roots that have run

    def tell(self) -> Iterator[Seen]:
        for node, begins in self._moments():
            if node.kind is Kind.AGENT or node.kind is Kind.WORKFLOW:
                run = self.team.runs[node.key]
                yield from self._begin(run) if begins else self._end(run)
            elif node.kind is Kind.MODEL and begins:
                yield from self._call(node)
            elif node.kind is Kind.TOOL:
                yield from self._tool(node, begins)
            elif node.kind is Kind.EVENT and begins:
                yield self._own_event(node)
            elif node.kind is Kind.GUARD and begins:
                yield self._event("safety_event", node, node.key, content=tool_result(node.span))
            elif node.kind is Kind.DECISION and begins:
                yield self._event(
                    "orchestrator_decision",
                    node,
                    node.key,
                    decision="continue",
                    content=tool_result(node.span),
                )
            elif begins:
                yield from self._fan_in(node)
            if begins and (node.span.events or SCORE in node.span.attributes):
                yield from rewards_of(self.session, node)

    def _own_event(self, node: SpanNode) -> SeenEvent:
        """An event that Baton wrote: it says itself what it is."""
        a = node.span.attributes
        to = a.get("baton.event.to")
        receiver = None if to is None else self.by_name.get(to)
        links = [Link(f"{one}/return", "aggregate") for _, one in node.span.links if one in self.team.runs]
        known = _ours(a)
        return self._event(
            a["baton.event.type"], node, node.key, to=receiver, tool=a.get("baton.event.tool"),
            decision=a.get("baton.event.decision"), content=a.get("output.value"), after=tuple(links), **known,
        )  # fmt: skip

    def _moments(self) -> Iterator[tuple[SpanNode, bool]]:
        """Starts and ends in one order: at one instant ends come first, but never before their own start."""
        moments = []
        for place, node in enumerate(self.tree.nodes):
            if node.merged is not None:
                continue
            moments.append(((node.start, 1, place), node, True))
            if node.kind in (Kind.TOOL, Kind.AGENT, Kind.WORKFLOW):
                late = node.end == node.start
                moments.append(((node.end, 2 if late else 0, -place), node, False))
        moments.sort(key=lambda moment: moment[0])
        for _, node, begins in moments:
            yield node, begins

    def _begin(self, run: InvokedAgent) -> Iterator[Seen]:
        span, tool = run.node.span, run.tool
        task = task_of(span)
        if task is None and tool is not None:
            task = tool_arguments(tool.span)
        if run.how == "handover":
            task = None
        extra: dict[str, Any] = {}
        known: dict[str, Any] = {"content": task, "to": run.actor.key, "why": run.why}
        if tool is not None and run.by is not None:
            known["call"] = self._asker(run.by.key, tool)
            if tool_id := tool_call_id(tool.span):
                extra["tool_call_id"] = tool_id
            known["tool"] = tool_name(tool.span)
        elif run.by is not None and run.how != "handover":
            known["call"] = self._named(run.by.key, run.actor.name) or _beside(run.node)
        if run.how == "root":
            again = run.actor.key in self.begun
            self.begun.add(run.actor.key)
            if again and task is not None:
                yield self._event("human_intervention", run.node, f"{run.node.key}/asked", content=task)
            return
        if is_ours(span):
            known |= {"tool": span.attributes.get("gen_ai.tool.name"), **_ours(span.attributes)}
        if run.by is None or (run.how == "handover" and tool is not None):
            return  # a handover is told when its tool was used
        kind: EventType = "spawn" if run.how == "spawn" else "message"
        if kind == "message":
            known["decision"] = "delegate"
        key = f"{run.node.key}/{run.how}"
        yield self._event(kind, run.node, key, agent=run.by.key, extra=extra, **known)
        self._owe(run.actor.key, key, "spawn" if kind == "spawn" else "message")

    def _end(self, run: InvokedAgent) -> Iterator[Seen]:
        if run.ends in ("handover", "pause", "open"):
            return
        span, node = run.node.span, run.node
        wrong = failure(span)
        said = answer_of(span)
        if said is None and wrong is None:
            said = self.last_words.get(run.actor.key)
        if said is None and run.tool is not None and run.how != "handover" and wrong is None:
            said = tool_result(run.tool.span)
        known: dict[str, Any] = {
            "content": said if said is not None else wrong,
            "call": self.last_call.get(run.actor.key),
            "status": None if wrong is None else "failed",
            "tokens": self._uncounted(run),
        }
        if is_ours(span):
            a = span.attributes
            known |= {
                "call": a.get("baton.end.call"),
                "tokens": a.get("baton.end.tokens"),
                "status": a.get("baton.end.status"),
            }
        if run.ends == "stop":
            yield self._event(
                "orchestrator_decision", node, f"{node.key}/stop", late=True, decision="stop", **known
            )
        elif run.to is not None:
            key = f"{node.key}/return"
            yield self._event("return", node, key, late=True, to=run.to.key, **known)
            self._owe(run.to.key, key, "return")

    def _uncounted(self, run: InvokedAgent) -> int | None:
        """Tokens of an agent whose model made no spans of its own; smolagents' agents count only their own."""
        if run.actor.key in self.counted or "smolagents.max_steps" not in run.node.span.attributes:
            return None
        counts = [count for count in usage(run.node.span) if count is not None]
        return sum(counts) if counts else None

    def _call(self, node: SpanNode) -> Iterator[Seen]:
        span, agent = node.span, node.actor
        assert agent is not None
        told, said = usage(span)
        for other in self.inner.get(node.key, ()):
            more = usage(other.span)
            told, said = (told if told is not None else more[0]), (said if said is not None else more[1])
        if told is not None or said is not None:
            self.counted.add(agent)
        grown = self.growth.grow(agent, node.key, span)
        wrong = failure(span)
        for use in [use for message in grown.said for use in message.uses]:
            if use.id:
                self.asked[agent, use.id] = node.key
            self.open.setdefault(agent, []).append((use, node.key))
        self.last_call[agent] = node.key
        self.last_words[agent] = next((m.text for m in grown.said if m.text and not m.uses), None)
        yield SeenCall(
            session=self.session, key=node.key, at=span.at, agent=agent, order=self._order(node.start),
            t=self._seconds(node.start), duration_s=self._lasted(node), policy=model_name(span),
            parent=grown.parent, prompt=tuple((m.role, m.shown()) for m in grown.told) if grown.told else None,
            completion=_completion(span, grown.said),
            prompt_tokens=told, completion_tokens=said, temperature=temperature(span),
            finish_reason=grown.finish or (None if wrong is None else "error"),
            status=None if wrong is None else "failed", extra=details(span),
        )  # fmt: skip

    def _tool(self, node: SpanNode, begins: bool) -> Iterator[Seen]:
        span, agent = node.span, node.actor
        assert agent is not None
        if self._passes(node):
            if begins:
                yield self._handover(node)
            return
        if len(node.spawns) == 1:
            return  # the tool is the delegation, and is told as that
        if begins:
            arguments = tool_arguments(span)
            tool_id = tool_call_id(span)
            known = {"call": self._asker(agent, node), **(_ours(span.attributes) if is_ours(span) else {})}
            yield self._event(
                "tool_call", node, node.key, tool=tool_name(span), content=arguments,
                media_type=_media_type(arguments), extra={"tool_call_id": tool_id} if tool_id else {}, **known,
            )  # fmt: skip
            return
        if span.attributes.get("baton.tool.answered") is False:
            return
        wrong = failure(span)
        result = tool_result(span)
        content = result if result is not None else wrong
        yield self._event(
            "tool_result", node, f"{node.key}/result", late=True, tool=tool_name(span), content=content,
            media_type=_media_type(content),
            status=span.attributes.get("baton.event.result_status") if wrong is None else "failed",
            after=(Link(node.key, "tool_dependency"),),
        )  # fmt: skip

    def _handover(self, node: SpanNode) -> SeenEvent:
        run = self.team.runs[node.spawns[0].key]
        tool_id = tool_call_id(node.span)
        key = f"{run.node.key}/handover"
        assert node.actor is not None
        event = self._event(
            "message", node, key, to=run.actor.key, decision="delegate", content=message_of(node.span),
            why=run.why,
            call=self._asker(node.actor, node), extra={"tool_call_id": tool_id} if tool_id else {},
        )  # fmt: skip
        self._owe(run.actor.key, key, "message")
        return event

    def _passes(self, node: SpanNode) -> bool:
        return bool(node.spawns) and any(self.team.runs[child.key].how == "handover" for child in node.spawns)

    def _fan_in(self, node: SpanNode) -> Iterator[Seen]:
        """A step that several others are linked to puts together what they gave."""
        if len(node.span.links) < 2 or node.actor is None:
            return
        sources: dict[str, None] = {}
        for _, linked in node.span.links:
            source = self._run_behind(self.tree.by_id.get(linked))
            if source is not None:
                sources[f"{source.node.key}/return"] = None
        if len(sources) >= 2:
            links = tuple(Link(key, "aggregate") for key in sources)
            yield self._event(
                "aggregate", node, node.key, decision="aggregate", after=links, content=tool_result(node.span)
            )

    def _run_behind(self, node: SpanNode | None) -> InvokedAgent | None:
        """The agent's run that a linked span is, or that ran beside it in the same step."""
        for _ in range(2):
            if node is None:
                return None
            if (run := self.team.runs.get(node.key)) is not None and run.ends == "return":
                return run
            inside = [self.team.runs[c.key] for c in node.children if c.key in self.team.runs]
            if inside:
                return inside[-1]
            node = node.parent
        return None

    def _asker(self, agent: str, tool: SpanNode) -> str | None:
        """The call that asked for a tool: by id, else the next that asked for a tool of this name."""
        tool_id = tool_call_id(tool.span)
        if tool_id:
            return self.asked.get((agent, tool_id))
        return self._named(agent, tool_name(tool.span)) or _beside(tool)

    def _named(self, agent: str, name: str | None) -> str | None:
        """The next call that asked for something of this name."""
        waiting = self.open.get(agent, [])
        for place, (use, call) in enumerate(waiting):
            if use.name == name:
                del waiting[: place + 1]
                return call
        return None

    def _event(
        self, type: EventType, node: SpanNode, key: str, *, agent: str | None = None, late: bool = False,
        after: tuple[Link, ...] = (), **known: Any,
    ) -> SeenEvent:  # fmt: skip
        who = agent or node.actor
        assert who is not None
        due = self.due.pop(who, None)
        if due:
            links = {link.key: link for link in (*(Link(k, e) for k, e in due.items()), *after)}
            after = tuple(links.values())
        at = node.end if late else node.start
        if type == "tool_call":
            known["duration_s"] = self._lasted(node)
        return SeenEvent(
            session=self.session, key=key, at=node.span.at, agent=who, type=type, order=self._order(at),
            t=self._seconds(at), after=after, **known,
        )  # fmt: skip

    def _owe(self, agent: str, key: str, edge: EdgeType) -> None:
        self.due.setdefault(agent, {})[key] = edge

    def _order(self, time_ns: int) -> tuple[float, ...]:
        return divmod(time_ns, 1_000_000_000)

    def _seconds(self, time_ns: int) -> float | None:
        return time_ns / 1e9 if self.tree.timed else None

    def _lasted(self, node: SpanNode) -> float | None:
        return (node.end - node.start) / 1e9 if self.tree.timed else None


def _ours(a: dict[str, Any]) -> dict[str, Any]:
    """What Baton says of an event in the attributes of its span."""
    return {
        "call": a.get("baton.event.call"),
        "tokens": a.get("baton.event.tokens"),
        "status": a.get("baton.event.status"),
        "why": a.get("baton.event.inferred"),
    }


def _completion(span: OtelSpan, said: list[Message]) -> str | None:
    if is_ours(span):  # what it asks for stands in its text already
        return said[0].text if said and "llm.output_messages.0.message.content" in span.attributes else None
    return "\n".join([m.shown() for m in said]) if said else None


def _beside(node: SpanNode) -> str | None:
    """The model's call in the same step: what it said there, the step carried out."""
    step = node.parent
    if step is None or step.kind not in (Kind.CHAIN, Kind.NONE):
        return None
    calls = [child.key for child in step.children if child.kind is Kind.MODEL and child.start < node.start]
    return calls[-1] if calls else None


def _media_type(text: str | None) -> str:
    if not text or text[0] not in "[{":
        return "text/plain"
    return "application/json" if isinstance(parsed(text), dict | list) else "text/plain"

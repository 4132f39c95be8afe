"""crewAI: the event bus, read at its mouth.

Handlers on the bus run in a pool of threads and may overtake each other, so the recorder listens to `emit` itself,
where events come in the order in which they happen, with the ids of what they are part of. A crew (or a flow) is the
orchestrator; an agent that begins a task is spawned by it the first time and delegated to after that; a coworker that
works inside a tool is spawned by whoever used the tool. An agent is one through all its tasks.
"""

from __future__ import annotations

from typing import Any

from baton.connect.live.patching import Patches, no_longer, one_at_a_time
from baton.connect.live.prompts import spoken, text_of
from baton.connect.live.recording import LiveRecorder, framework_module, guarded
from baton.connect.live.telling import Telling, now


class _Span:
    """A started event, until its end."""

    def __init__(self, event: Any, kind: str, above: _Span | None) -> None:
        self.id: str = event.event_id
        self.kind = kind
        self.above = above
        self.opened = now()
        self.agent: str | None = None if above is None else above.agent
        self.session: str = self.id if above is None else above.session
        self.tool: str | None = None
        self.child: str | None = None
        self.status: Any = None
        self.output: Any = None

    def nearest(self, *kinds: str) -> _Span | None:
        span: _Span | None = self
        while span is not None and span.kind not in kinds:
            span = span.above
        return span


class CrewAIRecorder(LiveRecorder):
    """Listens while it is open; `record.crewai` makes it."""

    framework = "crewai"

    def prepare(self) -> None:
        self._patches = Patches()
        self._open: dict[str, _Span] = {}
        self._calls: dict[str, tuple[_Span, float]] = {}
        self._hooks = {
            "crew_kickoff_started": self._lead_begins,
            "crew_kickoff_completed": self._lead_ends,
            "crew_kickoff_failed": self._lead_ends,
            "flow_started": self._flow_begins,
            "flow_finished": self._lead_ends,
            "flow_failed": self._lead_ends,
            "task_started": self._task_begins,
            "task_completed": self._inner_ends,
            "task_failed": self._inner_ends,
            "agent_execution_started": self._agent_begins,
            "agent_execution_completed": self._agent_ends,
            "agent_execution_error": self._agent_ends,
            "lite_agent_execution_started": self._lite_begins,
            "lite_agent_execution_completed": self._agent_ends,
            "lite_agent_execution_error": self._agent_ends,
            "tool_usage_started": self._tool_begins,
            "tool_usage_finished": self._tool_ends,
            "tool_usage_error": self._tool_ends,
            "llm_call_started": self._asks,
            "llm_call_completed": self._answers,
            "llm_call_failed": self._answers,
        }

    def attach(self) -> None:
        one_at_a_time("crewai", self)
        bus = framework_module("crewai.events.event_bus", "crewai")
        self._patches.wrap(bus.CrewAIEventsBus, "emit", self._around_emit)
        self._patches.wrap(bus.CrewAIEventsBus, "aemit", self._around_aemit)

    def detach(self) -> None:
        self._patches.undo()
        no_longer("crewai")

    def _around_emit(self, method: Any) -> Any:
        recorder = self

        def emit(bus: Any, source: Any, event: Any) -> Any:
            try:
                return method(bus, source, event)
            finally:
                recorder.hear(source, event)

        return emit

    def _around_aemit(self, method: Any) -> Any:
        recorder = self

        async def aemit(bus: Any, source: Any, event: Any) -> Any:
            recorder.hear(source, event)
            return await method(bus, source, event)

        return aemit

    @guarded
    def hear(self, source: Any, event: Any) -> None:
        """One event of the bus."""
        hook = self._hooks.get(getattr(event, "type", ""))
        if hook is not None:
            hook(source, event)
        elif getattr(event, "type", "").endswith("_started"):
            self._begin(event, "inner")  # others may stand below it
        elif getattr(event, "started_event_id", None) is not None:
            self._open.pop(event.started_event_id, None)

    def _begin(self, event: Any, kind: str) -> _Span:
        span = self._open[event.event_id] = _Span(event, kind, self._open.get(event.parent_event_id or ""))
        return span

    def _end(self, event: Any) -> _Span | None:
        return self._open.pop(getattr(event, "started_event_id", None) or "", None)

    def _telling(self, span: _Span) -> Telling:
        telling, new = self.telling(span.session)
        if new:
            telling.begin()
        return telling

    # Crews and flows.

    def _lead_begins(self, source: Any, event: Any) -> None:
        span = self._begin(event, "lead")
        name = getattr(event, "crew_name", None) or getattr(event, "flow_name", None) or "crew"
        parent, telling = span.agent, self._telling(span)
        span.agent = telling.agent(span.id, name, role="orchestrator", parent=parent)
        inputs = getattr(event, "inputs", None)
        if parent is None:
            telling.asked(None if not inputs else text_of(str(inputs)))
            return
        self._spawn(telling, span, parent, inputs)

    def _flow_begins(self, source: Any, event: Any) -> None:
        above = self._open.get(event.parent_event_id or "")
        if above is not None and above.nearest("agent") is not None:
            self._begin(event, "inner")  # how an agent works is a flow of its own, and no orchestrator
        else:
            self._lead_begins(source, event)

    def _spawn(self, telling: Telling, span: _Span, parent: str, task: Any) -> None:
        tool = None if span.above is None else span.above.nearest("tool", "agent", "lead")
        key, name = f"{span.id}/begin", None
        if tool is not None and tool.kind == "tool" and tool.child is None:
            key, name, tool.child = tool.id, tool.tool, span.agent  # using the tool was this spawn
        telling.spawn(key, parent, span.agent or parent, task, call=telling.last_call(parent), tool=name)

    def _lead_ends(self, source: Any, event: Any) -> None:
        span = self._end(event)
        if span is None or span.kind != "lead" or span.agent is None:
            return
        telling = self._telling(span)
        failed = event.type.endswith("failed")
        result = event.error if failed else getattr(event, "output", getattr(event, "result", None))
        result = getattr(result, "raw", result)
        status: Any = "failed" if failed else None
        if span.above is None:
            telling.stop(f"{span.id}/stop", span.agent, _plain(result), status)
            telling.finish()
            self.forget(span.session)
        elif span.above.agent is not None:
            telling.returns(f"{span.id}/end", span.agent, span.above.agent, _plain(result), status=status)

    def _task_begins(self, source: Any, event: Any) -> None:
        span = self._begin(event, "task")
        task = getattr(event, "task", None)
        span.output = getattr(task, "description", None) or event.task_name
        if span.above is not None and span.above.kind == "lead" and span.above.above is None:
            self._telling(span).asked(span.output)

    def _inner_ends(self, source: Any, event: Any) -> None:
        self._end(event)

    # Agents.

    def _agent_begins(self, source: Any, event: Any) -> None:
        self._works(event, str(event.agent.id), event.agent.role, event.task_prompt)

    def _lite_begins(self, source: Any, event: Any) -> None:
        info = event.agent_info
        messages = event.messages
        self._works(
            event, str(info.get("id") or info.get("role")), str(info.get("role") or "agent"), _last(messages)
        )

    def _works(self, event: Any, id_: str, role: str, task: Any) -> None:
        span = self._begin(event, "agent")
        parent, telling = span.agent, self._telling(span)
        span.agent = f"{span.session}/{id_}"
        again = span.agent in telling.known
        telling.agent(span.agent, role.strip(), parent=parent)
        if parent is None:
            telling.asked(_plain(task))
        elif again and parent != span.agent:
            tool = span.above.nearest("tool", "agent", "lead") if span.above is not None else None
            key = f"{span.id}/begin"
            if tool is not None and tool.kind == "tool" and tool.child is None:
                key, tool.child = tool.id, span.agent
            telling.hand_over(key, parent, span.agent, task, call=telling.last_call(parent))
        elif parent != span.agent:
            self._spawn(telling, span, parent, task)

    def _agent_ends(self, source: Any, event: Any) -> None:
        span = self._end(event)
        if span is None or span.agent is None:
            return
        telling = self._telling(span)
        failed = event.type.endswith("error")
        result = event.error if failed else event.output
        status: Any = "failed" if failed else None
        parent = None if span.above is None else span.above.agent
        call = telling.last_call(span.agent)
        if parent is None:
            telling.stop(f"{span.id}/stop", span.agent, _plain(result), status, call=call)
            telling.finish()
            self.forget(span.session)
        elif parent != span.agent:
            telling.returns(f"{span.id}/end", span.agent, parent, _plain(result), status=status, call=call)

    # Tools.

    def _tool_begins(self, source: Any, event: Any) -> None:
        span = self._begin(event, "tool")
        span.tool = event.tool_name
        if span.agent is None:
            return
        telling = self._telling(span)
        telling.tool_call(span.id, span.agent, span.tool, event.tool_args, call=telling.last_call(span.agent))

    def _tool_ends(self, source: Any, event: Any) -> None:
        span = self._end(event)
        if span is None or span.agent is None or span.child is not None:
            return  # of a spawn, the child has returned
        failure = getattr(event, "error", None) or getattr(event, "failure", None)
        result = failure if event.type.endswith("error") else event.output
        self._telling(span).tool_result(
            span.id, span.agent, span.tool, _plain(result), status="failed" if failure else None
        )

    # Models.

    def _asks(self, source: Any, event: Any) -> None:
        span = self._begin(event, "model")
        if span.agent is None:
            return
        telling = self._telling(span)
        messages = (
            event.messages
            if isinstance(event.messages, list)
            else [{"role": "user", "content": event.messages}]
        )
        entries = [(str(each.get("role", "user")), text_of(each.get("content"))) for each in messages]
        parent, new = telling.growth.grow(span.agent, event.call_id, entries)
        telling.call(
            event.call_id, span.agent, opened=span.opened, parent=parent, prompt=new, policy=event.model,
            temperature=event.temperature,
        )  # fmt: skip

    def _answers(self, source: Any, event: Any) -> None:
        span = self._end(event)
        if span is None or span.agent is None:
            return
        telling = self._telling(span)
        if event.type.endswith("failed"):
            telling.call(
                event.call_id, span.agent, duration_s=now() - span.opened, status="failed", finish_reason="error",
                extra={"error": event.error},
            )  # fmt: skip
            return
        words, usage = _spoken(event.response), event.usage or {}
        telling.growth.answered(event.call_id, words)
        telling.call(
            event.call_id, span.agent, completion=words, duration_s=now() - span.opened,
            prompt_tokens=_count(usage, "prompt_tokens", "input_tokens", "prompt_token_count"),
            completion_tokens=_count(usage, "completion_tokens", "output_tokens", "candidates_token_count"),
            finish_reason=event.finish_reason,
        )  # fmt: skip


make = CrewAIRecorder


def _count(usage: dict[str, Any], *names: str) -> int | None:
    return next((int(usage[name]) for name in names if usage.get(name) is not None), None)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | dict | list):
        return value
    return str(getattr(value, "raw", value))


def _last(messages: Any) -> Any:
    if isinstance(messages, list) and messages:
        return text_of(messages[-1].get("content"))
    return _plain(messages)


def _spoken(response: Any) -> str:
    if isinstance(response, list):  # native tool calls
        calls = []
        for each in response:
            function = getattr(each, "function", None) or (
                each.get("function") if isinstance(each, dict) else None
            )
            name = getattr(function, "name", None) or (function or {}).get("name", "tool")
            arguments = getattr(function, "arguments", None) or (function or {}).get("arguments", "")
            calls.append((str(name), arguments))
        return spoken(None, calls)
    return str(getattr(response, "content", None) or response or "")

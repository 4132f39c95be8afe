"""openai-agents: spans tell who works for whom, run hooks tell what was said and with which ids.

A `TracingProcessor` sees the tree (task, agent, turn, function, handoff) and no tool-call ids, nor the answers of
models that make no span of their own. Run hooks see these and no tree. So both are listened to, and joined by the
span that is current while a hook runs. An agent under a function span is a spawn; a handoff passes control to a
sibling.

An agent is known by its name within one scope: the trace, or one call of an agent used as a tool. So it is one
through handoffs and several runs in a trace, and two calls of one agent-tool are two lives.
"""

from __future__ import annotations

from datetime import datetime
from importlib import import_module
from typing import Any

from baton.connect.live.prompts import spoken, text_of
from baton.connect.live.recording import LiveRecorder, framework_module, guarded
from baton.connect.live.telling import Telling, now

_ROOT = ""


class _Span:
    """What is kept of a span while it is open."""

    def __init__(self, span: Any, above: _Span | None) -> None:
        self.id: str = span.span_id
        self.data = span.span_data
        self.kind: str = self.data.type
        self.parent = above
        self.opened = now()
        self.scope: str = above.scope if above is not None else _ROOT
        """The function span whose agent works here, or the trace."""
        self.agent: str | None = above.agent if above is not None else None
        self.told = False  # whether its tool call was
        self.spawned = False
        self.arguments: Any = None
        self.tool_call_id: str | None = None
        self.calls = 0
        self.call: str | None = None  # the model's answer that is open
        self.output: Any = None
        self.status: Any = None
        self.answered = False

    def above(self, kind: str) -> _Span | None:
        """The nearest span of that kind, itself included."""
        span: _Span | None = self
        while span is not None and span.kind != kind:
            span = span.parent
        return span


class OpenAIAgentsRecorder(LiveRecorder):
    """A `TracingProcessor` and `RunHooks` in one; `record.openai_agents` makes it."""

    framework = "openai-agents"

    def prepare(self) -> None:
        self._spans: dict[str, dict[str, _Span]] = {}  # trace -> its open spans
        self._current: dict[tuple[str, str], str] = {}  # (trace, scope) -> the agent in control
        self._last: dict[str, tuple[str, Any, Any, str | None]] = {}
        """Trace -> of its last run, the agent, its final output, the status, the call that said it."""
        self._before: tuple[Any, Any] | None = None

    def attach(self) -> None:
        import_module("agents").add_trace_processor(self)
        runs = import_module("agents.run")
        before = runs.get_default_agent_runner()
        runs.set_default_agent_runner(_WithHooks(before, self))
        self._before = (runs, before)

    def detach(self) -> None:
        if self._before is not None:
            runs, before = self._before
            runs.set_default_agent_runner(before)
        provider = import_module("agents.tracing").get_trace_provider()
        listening = getattr(getattr(provider, "_multi_processor", None), "_processors", ())
        if self in listening:
            provider.set_processors([each for each in listening if each is not self])

    # The tracing processor.

    @guarded
    def on_trace_start(self, trace: Any) -> None:
        self._begin(trace.trace_id, trace)

    def _begin(self, trace_id: str, trace: Any = None) -> Telling:
        telling, new = self.telling(trace_id)
        if new:
            self._spans[trace_id] = {}
            telling.begin(
                workflow=getattr(trace, "name", None),
                group_id=getattr(trace, "group_id", None),
                metadata=getattr(trace, "metadata", None),
            )
        return telling

    @guarded
    def on_trace_end(self, trace: Any) -> None:
        session = trace.trace_id
        telling = self._begin(session)
        if session in self._last:
            agent, output, status, call = self._last.pop(session)
            telling.stop(f"{session}/stop", agent, output, status, call=call)
        telling.finish()
        self.forget(session)
        self._spans.pop(session, None)
        self._current = {key: agent for key, agent in self._current.items() if key[0] != session}

    @guarded
    def on_span_start(self, span: Any) -> None:
        telling = self._begin(span.trace_id)
        spans = self._spans[span.trace_id]
        held = spans[span.span_id] = _Span(span, spans.get(span.parent_id or ""))
        function = held.above("function")
        if held.kind in ("agent", "task") and function is not None:
            held.scope = function.id
        if held.kind == "agent":
            self._agent_begins(telling, held, function)

    @guarded
    def on_span_end(self, span: Any) -> None:
        telling = self._begin(span.trace_id)
        held = self._spans[span.trace_id].pop(span.span_id, None)
        if held is None:
            return
        error = span.error
        if held.kind == "function":
            self._function_ends(telling, span, held, error)
        elif held.kind == "handoff":
            self._hands_over(telling, span, held, error)
        elif held.kind in ("generation", "response"):
            self._model_span_ends(telling, span, held, error)
        elif held.kind == "turn" and held.call is not None and held.agent is not None:
            telling.call(held.call, held.agent, status="failed", finish_reason="error")
        elif held.kind == "guardrail" and held.data.triggered and held.agent is not None:
            telling.event(
                "safety_event", span.span_id, held.agent, content=f"guardrail {held.data.name} was triggered"
            )
        elif held.kind == "agent" and error is not None and held.parent is not None:
            held.parent.status, held.parent.output = "failed", text_of(error.get("message"))
        elif held.kind == "task" and held.scope == _ROOT:
            self._run_ends(telling, span, held)

    def _run_ends(self, telling: Telling, span: Any, held: _Span) -> None:
        """The last run of a trace gives its answer; what earlier ones answered goes to whoever asked."""
        agent = self._current.get((span.trace_id, _ROOT))
        if agent is None:
            return
        if span.trace_id in self._last:
            earlier, output, status, call = self._last[span.trace_id]
            telling.message(f"{span.span_id}/before", earlier, None, output, status=status, call=call)
        status = held.status if held.status is not None or held.answered else "cancelled"
        self._last[span.trace_id] = (agent, held.output, status, telling.last_call(agent))

    def _agent_begins(self, telling: Telling, held: _Span, function: _Span | None) -> None:
        key = held.agent = f"{held.scope}/{held.data.name}"
        owner = None if function is None else function.agent
        fresh = (telling.session, held.scope) not in self._current
        telling.agent(key, held.data.name, parent=owner)
        if function is not None and owner is not None and fresh and not function.spawned:
            function.spawned = True
            task = function.data.input if function.arguments is None else function.arguments
            telling.spawn(
                function.id, owner, key, task, call=telling.last_call(owner), tool=function.data.name,
                extra={"tool_call_id": function.tool_call_id},
            )  # fmt: skip
        self._current[telling.session, held.scope] = key

    def _function_ends(self, telling: Telling, span: Any, held: _Span, error: Any) -> None:
        if held.agent is None:
            return
        status = None if error is None else "failed"
        result = held.data.output if error is None or held.data.output is not None else _words(error)
        if held.spawned:
            child = self._current[telling.session, span.span_id]
            telling.returns(
                f"{span.span_id}/result",
                child,
                held.agent,
                result,
                status=status,
                call=telling.last_call(child),
            )
            return
        if not held.told:
            self._tool_begins(telling, held)
        telling.tool_result(span.span_id, held.agent, held.data.name, result, status=status)

    def _tool_begins(self, telling: Telling, held: _Span) -> None:
        if held.agent is None:
            return
        held.told = True
        arguments = held.data.input if held.arguments is None else held.arguments
        telling.tool_call(
            held.id, held.agent, held.data.name, arguments, call=telling.last_call(held.agent), opened=held.opened,
            extra={"tool_call_id": held.tool_call_id},
        )  # fmt: skip

    def _hands_over(self, telling: Telling, span: Any, held: _Span, error: Any) -> None:
        if held.data.to_agent is None or held.agent is None:
            return
        to = telling.agent(f"{held.scope}/{held.data.to_agent}", held.data.to_agent)
        telling.hand_over(
            span.span_id, held.agent, to, call=telling.last_call(held.agent), extra={"error": _words(error)}
        )

    def _model_span_ends(self, telling: Telling, span: Any, held: _Span, error: Any) -> None:
        """A model's own span knows its name and its times; one that failed is a try of its own."""
        turn = held.above("turn") or held.above("agent")
        if turn is None or turn.agent is None:
            return
        response = getattr(held.data, "response", None)
        known = {
            "policy": getattr(held.data, "model", None) or getattr(response, "model", None),
            "duration_s": _seconds(span),
        }
        if error is not None:
            telling.call(span.span_id, turn.agent, status="failed", finish_reason="error", **known)
        elif turn.call is not None:
            telling.call(turn.call, turn.agent, **known)
        else:
            usage = held.data.usage or {}
            telling.call(
                span.span_id, turn.agent, prompt_tokens=usage.get("input_tokens"),
                completion_tokens=usage.get("output_tokens"), **known,
            )  # fmt: skip

    def shutdown(self, timeout: float | None = None) -> None:
        self.close()

    def force_flush(self) -> None:
        """Everything is written already."""

    # The run hooks.

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._asks(agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._answers(agent, response)

    async def on_agent_start(self, context: Any, agent: Any) -> None: ...

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self._ends(output)

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None: ...

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._uses(context, tool)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None: ...

    @guarded
    def _asks(self, agent: Any, system_prompt: Any, input_items: Any) -> None:
        telling, held = self._here()
        turn = held.above("turn") or held
        if turn.agent is None:
            return
        entries = [("system", str(system_prompt))] if system_prompt else []
        entries += [_entry(item) for item in input_items]
        telling.asked(next((text for speaker, text in entries if speaker == "user"), None))
        turn.calls += 1
        turn.call = turn.id if turn.calls == 1 else f"{turn.id}:{turn.calls}"
        parent, new = telling.growth.grow(turn.agent, turn.call, entries)
        model = getattr(agent, "model", None)
        settings = getattr(agent, "model_settings", None)
        telling.call(
            turn.call, turn.agent, opened=now(), parent=parent, prompt=new,
            policy=model if isinstance(model, str) else None, temperature=getattr(settings, "temperature", None),
        )  # fmt: skip
        turn.opened = now()

    @guarded
    def _answers(self, agent: Any, response: Any) -> None:
        telling, held = self._here()
        turn = held.above("turn") or held
        if turn.call is None or turn.agent is None:
            return
        usage = response.usage
        counted = usage is not None and (usage.total_tokens or usage.input_tokens or usage.output_tokens)
        text = spoken(*_said(response.output))
        telling.growth.answered(turn.call, text)
        telling.call(
            turn.call, turn.agent, completion=text, duration_s=now() - turn.opened,
            prompt_tokens=usage.input_tokens if counted else None,
            completion_tokens=usage.output_tokens if counted else None, finish_reason="stop",
        )  # fmt: skip
        turn.call = None

    @guarded
    def _ends(self, output: Any) -> None:
        _, held = self._here()
        task = held.above("task")
        if task is not None:
            task.output, task.answered = output, True

    @guarded
    def _uses(self, context: Any, tool: Any) -> None:
        telling, held = self._here()
        if held.kind != "function":
            return
        held.arguments = getattr(context, "tool_arguments", None)
        held.tool_call_id = getattr(context, "tool_call_id", None)
        if not getattr(tool, "_is_agent_tool", False):  # an agent's span will follow, and that is a spawn
            self._tool_begins(telling, held)

    def _here(self) -> tuple[Telling, _Span]:
        span = import_module("agents.tracing").get_current_span()
        if span is None or span.trace_id not in self._spans:
            raise LookupError("no span is open: tracing is disabled, and without it nobody's place is known")
        return self._begin(span.trace_id), self._spans[span.trace_id][span.span_id]


class _WithHooks:
    """The runner that was there, with our hooks beside the caller's."""

    def __init__(self, runner: Any, ours: Any) -> None:
        self._runner = runner
        self._ours = ours

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run(*args, **self._hooked(kwargs))

    def run_sync(self, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run_sync(*args, **self._hooked(kwargs))

    def run_streamed(self, *args: Any, **kwargs: Any) -> Any:
        return self._runner.run_streamed(*args, **self._hooked(kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def _hooked(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        theirs = kwargs.get("hooks")
        if theirs is self._ours or isinstance(theirs, _Both):
            return kwargs
        return {**kwargs, "hooks": self._ours if theirs is None else _both(self._ours, theirs)}


class _Both:
    """Two run hooks as one: ours first, which never raise."""

    ours: Any
    theirs: Any


def _both(ours: Any, theirs: Any) -> Any:
    def relay(name: str) -> Any:
        async def method(_: Any, *args: Any, **kwargs: Any) -> None:
            await getattr(ours, name)(*args, **kwargs)
            await getattr(theirs, name)(*args, **kwargs)

        return method

    base = import_module("agents.lifecycle").RunHooksBase
    names = [name for name in dir(base) if name.startswith("on_")]
    return type("BothHooks", (_Both, base), {name: relay(name) for name in names})()


def make(*args: Any, **kwargs: Any) -> Any:
    """The recorder, as the SDK wants it: a processor and hooks by their own classes."""
    processor = framework_module("agents", "openai-agents").TracingProcessor
    hooks = import_module("agents.lifecycle").RunHooksBase
    return type("Recorder", (OpenAIAgentsRecorder, processor, hooks), {})(*args, **kwargs)


def _entry(item: Any) -> tuple[str, str]:
    """An input item of the Responses API as (speaker, text)."""
    get = item.get if isinstance(item, dict) else lambda name, default=None: getattr(item, name, default)
    kind = get("type")
    if kind == "function_call":
        return "assistant", spoken(None, [(str(get("name")), get("arguments"))])
    if kind == "function_call_output":
        return "tool", text_of(get("output"))
    return get("role") or kind or "user", text_of(get("content"))


def _said(output: Any) -> tuple[str, list[tuple[str, Any]]]:
    words = [
        text_of(getattr(item, "content", None)) for item in output if getattr(item, "type", None) == "message"
    ]
    calls = [(item.name, item.arguments) for item in output if getattr(item, "type", None) == "function_call"]
    return "\n".join(words), calls


def _words(error: Any) -> str | None:
    if error is None:
        return None
    return f"{error.get('message')}: {error.get('data')}" if isinstance(error, dict) else str(error)


def _seconds(span: Any) -> float | None:
    if not span.started_at or not span.ended_at:
        return None
    return (datetime.fromisoformat(span.ended_at) - datetime.fromisoformat(span.started_at)).total_seconds()

"""Google ADK: a plugin of the runner, which an `AgentTool` hands on to the runner of its own agent.

The agent that a run begins with is the root. A workflow agent (sequential, parallel, loop) spawns its sub-agents and
gets their results; `transfer_to_agent` passes control to a sibling; the agent of an `AgentTool` is a spawn of whoever
used the tool. An agent is one by its name within a run.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Self
from uuid import uuid4

from baton.connect.live.prompts import spoken
from baton.connect.live.recording import LiveRecorder, framework_module, guarded
from baton.connect.live.telling import Telling, now

JOINED = "it ended when all that ran side by side had come back"
_inside: ContextVar[tuple[str, str] | None] = ContextVar("baton_adk_inside", default=None)
"""The run and the tool call in which this code runs."""
_WORKFLOWS = ("SequentialAgent", "ParallelAgent", "LoopAgent")


class _Run:
    """One invocation."""

    def __init__(self, key: str, telling: Telling, above: _Run | None, tool: str | None) -> None:
        self.key = key
        self.telling = telling
        self.above = above
        self.tool = tool
        self.acting: str | None = None
        self.first: str | None = None
        self.said: dict[str, Any] = {}  # agent -> its last words
        self.spawned: dict[str, str] = {}  # agent -> who waits for it
        self.times: dict[str, int] = {}
        self.handed: set[str] = set()
        self.back: dict[str, list[str]] = {}  # agent -> what came back to it
        self.calls: dict[str, tuple[str, float]] = {}  # agent -> its open call
        self.children: dict[str, _Run] = {}  # key of a tool call -> the run inside
        self.status: Any = None
        self.words: Any = None

    def agent(self, name: str) -> str:
        return f"{self.key}/{name}"


class AdkRecorder(LiveRecorder):
    """What the plugin tells; `record.adk` makes both."""

    framework = "google-adk"

    def prepare(self) -> None:
        self._runs: dict[str, _Run] = {}

    @guarded
    def run_begins(self, context: Any) -> None:
        inside = _inside.get()
        above = self._runs.get(inside[0]) if inside is not None else None
        telling = above.telling if above is not None else self.telling(context.invocation_id)[0]
        tool = inside[1] if inside is not None and above is not None else None
        run = self._runs[context.invocation_id] = _Run(context.invocation_id, telling, above, tool)
        task = _text(context.user_content)
        if above is None:
            telling.begin(session_id=context.session.id, app=context.app_name)
            telling.asked(task)
        elif tool is not None:
            above.children[tool] = run
        run.words = task

    @guarded
    def run_ends(self, context: Any, error: BaseException | None = None) -> None:
        run = self._runs.pop(context.invocation_id, None)
        if run is None:
            return
        if error is not None:
            run.status, run.said[run.acting or ""] = "failed", f"{type(error).__name__}: {error}"
        if run.above is None and run.acting is not None:
            agent = run.acting
            answer = run.said.get(agent)
            run.telling.stop(f"{run.key}/stop", agent, answer, run.status, call=run.telling.last_call(agent))
            run.telling.finish()
            self.forget(run.telling.session)

    @guarded
    def agent_begins(self, agent: Any, context: Any) -> None:
        run = self._run(context)
        if run is None:
            return
        telling, key = run.telling, run.agent(agent.name)
        parent = getattr(agent, "parent_agent", None)
        role = "orchestrator" if type(agent).__name__ in _WORKFLOWS else None
        if run.first is None:
            run.first = key
            spawner = None if run.tool is None else run.tool.rpartition("/")[0]
            telling.agent(key, agent.name, role=role, parent=spawner)
            if spawner is not None and run.tool is not None:
                telling.spawn(run.tool, spawner, key, run.words, call=telling.last_call(spawner))
        elif parent is not None and type(parent).__name__ in _WORKFLOWS and key not in run.handed:
            lead = run.agent(parent.name)
            telling.agent(key, agent.name, role=role, parent=lead)
            times = run.times[key] = run.times.get(key, 0) + 1
            run.spawned[key] = lead
            place = f"{key}/begin/{times}"
            telling.spawn(place, lead, key) if times == 1 else telling.hand_over(place, lead, key)
        else:
            run.handed.discard(key)
            telling.agent(key, agent.name, role=role)
        run.acting = key

    @guarded
    def agent_ends(self, agent: Any, context: Any, error: BaseException | None = None) -> None:
        run = self._run(context)
        if run is None:
            return
        telling, key = run.telling, run.agent(agent.name)
        if error is not None:
            run.status, run.said[key] = "failed", f"{type(error).__name__}: {error}"
            open_call = run.calls.pop(key, None)
            if open_call is not None:
                telling.call(open_call[0], key, status="failed", finish_reason="error")
        back = run.back.pop(key, [])
        if type(agent).__name__ == "ParallelAgent" and len(back) > 1:
            telling.event(
                "aggregate",
                f"{key}/joined/{run.times.get(key, 0)}",
                key,
                after=[(each, "aggregate") for each in back],
                why=JOINED,
            )
        lead = run.spawned.pop(key, None)
        if lead is not None:
            end = f"{key}/end/{run.times[key]}"
            status: Any = None if error is None else "failed"
            telling.returns(end, key, lead, run.said.get(key), status=status, call=telling.last_call(key))
            run.back.setdefault(lead, []).append(end)
            side_by_side = type(getattr(agent, "parent_agent", None)).__name__ == "ParallelAgent"
            if run.said.get(key) is not None and not side_by_side:  # of several, none is the answer
                run.said[lead] = run.said[key]
            run.acting = lead

    # Models.

    @guarded
    def asks(self, context: Any, request: Any) -> None:
        run = self._run(context)
        if run is None:
            return
        agent, key = run.agent(context.agent_name), uuid4().hex
        run.calls[agent] = (key, now())
        system = getattr(request.config, "system_instruction", None)
        entries = [("system", str(system))] if system else []
        entries += [_entry(content) for content in request.contents]
        parent, new = run.telling.growth.grow(agent, key, entries)
        run.telling.call(
            key, agent, opened=now(), parent=parent, prompt=new, policy=request.model,
            temperature=getattr(request.config, "temperature", None),
        )  # fmt: skip

    @guarded
    def answers(self, context: Any, response: Any) -> None:
        run = self._run(context)
        if run is None or getattr(response, "partial", None):
            return
        agent = run.agent(context.agent_name)
        key, opened = run.calls.pop(agent, (None, 0.0))
        if key is None:
            return
        words, usage = _entry(response.content)[1], response.usage_metadata
        run.telling.growth.answered(key, words)
        failed = getattr(response, "error_code", None)
        run.telling.call(
            key, agent, completion=words, duration_s=now() - opened, prompt_tokens=_count(usage, "prompt_token_count"),
            completion_tokens=_count(usage, "candidates_token_count", "thoughts_token_count"),
            finish_reason=_name(response.finish_reason), status="failed" if failed else None,
        )  # fmt: skip
        text = _text(response.content)
        if text:
            run.said[agent] = text
        run.acting = agent

    @guarded
    def no_answer(self, context: Any, error: BaseException) -> None:
        run = self._run(context)
        if run is None:
            return
        agent = run.agent(context.agent_name)
        key, opened = run.calls.pop(agent, (None, 0.0))
        if key is not None:
            run.telling.call(
                key, agent, duration_s=now() - opened, status="failed", finish_reason="error",
                extra={"error": f"{type(error).__name__}: {error}"},
            )  # fmt: skip

    # Tools.

    @guarded
    def tool_begins(self, tool: Any, arguments: Any, context: Any) -> None:
        run = self._run(context)
        if run is None:
            return
        agent = run.agent(context.agent_name)
        key = f"{agent}/{context.function_call_id}"
        _inside.set((run.key, key))
        run.telling.tool_call(
            key, agent, tool.name, arguments, call=run.telling.last_call(agent),
            extra={"tool_call_id": context.function_call_id},
        )  # fmt: skip

    @guarded
    def tool_ends(self, tool: Any, context: Any, result: Any, status: Any = None) -> None:
        run = self._run(context)
        if run is None:
            return
        agent = run.agent(context.agent_name)
        key = f"{agent}/{context.function_call_id}"
        _inside.set(None)
        child = run.children.pop(key, None)
        target = getattr(context.actions, "transfer_to_agent", None)
        telling = run.telling
        if child is not None and child.acting is not None:
            failed = status or child.status
            call = telling.last_call(child.acting)
            telling.returns(f"{key}/result", child.acting, agent, result, status=failed, call=call)
        elif target and status is None:
            to = telling.agent(run.agent(target), target)
            run.handed.add(to)
            telling.hand_over(key, agent, to, call=telling.last_call(agent))
        else:
            telling.tool_result(key, agent, tool.name, result, status=status)

    def _run(self, context: Any) -> _Run | None:
        return self._runs.get(context.invocation_id)


class AdkPlugin:
    """The plugin that the runner calls. Every callback returns None, so that nothing is changed."""

    recorder: AdkRecorder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.recorder.close()

    async def close(self) -> None:
        """A runner has ended; the recorder stays open for others."""

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        self.recorder.run_begins(invocation_context)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        self.recorder.run_ends(invocation_context)

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        self.recorder.run_ends(invocation_context, error)

    async def before_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self.recorder.agent_begins(agent, callback_context)

    async def after_agent_callback(self, *, agent: Any, callback_context: Any) -> None:
        self.recorder.agent_ends(agent, callback_context)

    async def on_agent_error_callback(self, *, agent: Any, callback_context: Any, error: Exception) -> None:
        self.recorder.agent_ends(agent, callback_context, error)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        self.recorder.asks(callback_context, llm_request)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        self.recorder.answers(callback_context, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        self.recorder.no_answer(callback_context, error)

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        self.recorder.tool_begins(tool, tool_args, tool_context)

    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        self.recorder.tool_ends(tool, tool_context, result)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: Any, tool_context: Any, error: Exception
    ) -> None:
        self.recorder.tool_ends(tool, tool_context, f"{type(error).__name__}: {error}", "failed")


def make(*args: Any, **kwargs: Any) -> Any:
    """The plugin, with its recorder."""
    base = framework_module("google.adk.plugins.base_plugin", "google-adk").BasePlugin
    plugin = type("Recorder", (AdkPlugin, base), {})(name="baton")
    plugin.recorder = AdkRecorder(*args, **kwargs)
    return plugin


def _text(content: Any) -> str | None:
    parts = getattr(content, "parts", None) or ()
    words = [
        part.text for part in parts if getattr(part, "text", None) and not getattr(part, "thought", None)
    ]
    return "\n".join(words) or None


def _entry(content: Any) -> tuple[str, str]:
    """A content as (speaker, text)."""
    parts = getattr(content, "parts", None) or ()
    calls = [
        (part.function_call.name, part.function_call.args)
        for part in parts
        if getattr(part, "function_call", None)
    ]
    results = [part.function_response for part in parts if getattr(part, "function_response", None)]
    if results:
        return "tool", "\n".join(str(result.response) for result in results)
    role = getattr(content, "role", None)
    return "assistant" if role == "model" else (role or "user"), spoken(_text(content), calls)


def _count(usage: Any, *names: str) -> int | None:
    counts = [getattr(usage, name, None) for name in names]
    return None if counts[0] is None else sum(count for count in counts if count)


def _name(reason: Any) -> str | None:
    return None if reason is None else str(getattr(reason, "value", reason)).lower()

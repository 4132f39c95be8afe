"""AutoGen (autogen-agentchat): teams, agents, and the models behind them, as they run.

A team's stream interleaves its agents' messages and names no parents, so the recorder listens one level below: each
agent's own stream, the manager's choice of the next speaker, and the model clients. A team's manager is the
orchestrator; choosing a speaker is its decision. A `HandoffMessage` passes control to a sibling. A team or an agent
that runs inside a tool of another agent is a spawn.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from baton.connect.live.patching import Patches, no_longer, one_at_a_time, with_value
from baton.connect.live.prompts import spoken, text_of
from baton.connect.live.recording import LiveRecorder, framework_module, guarded
from baton.connect.live.telling import Telling, now

_here: ContextVar[tuple[_Scope, str] | None] = ContextVar("baton_autogen_here", default=None)
_tool: ContextVar[str | None] = ContextVar("baton_autogen_tool", default=None)
_asking: ContextVar[bool] = ContextVar("baton_autogen_asking", default=False)
_SPEAKERS = {"SystemMessage": "system", "UserMessage": "user", "AssistantMessage": "assistant"}


class _Scope:
    """One run of a team, or of an agent by itself."""

    def __init__(self, telling: Telling, lead: str, parent: str | None, tool: str | None) -> None:
        self.telling = telling
        self.lead = lead
        self.parent = parent
        self.tool = tool  # key of the tool call that it runs in
        self.alone = False
        self.told: set[str] = set()
        self.handing: dict[str, tuple[str, str]] = {}  # agent -> key and id of the tool call that hands over
        self.last: Any = None
        self.members: set[str] = {lead}
        self.chosen_by: str | None = None  # the manager's call that a choice stands for

    def key(self, name: str) -> str:
        return self.lead if self.alone else f"{self.lead}/{name}"


class AutoGenRecorder(LiveRecorder):
    """Listens while it is open; `record.autogen` makes it."""

    framework = "autogen-agentchat"

    def prepare(self) -> None:
        self._patches = Patches()
        self._scopes: dict[int, _Scope] = {}  # an agent or a manager's topic -> the run that it works in
        self._topics: dict[str, _Scope] = {}
        self._tools: dict[str, str] = {}  # key of a tool call that was a spawn -> the child

    def attach(self) -> None:
        one_at_a_time("autogen", self)
        teams = framework_module("autogen_agentchat.teams._group_chat._base_group_chat", "autogen-agentchat")
        managers = framework_module(
            "autogen_agentchat.teams._group_chat._base_group_chat_manager", "autogen-agentchat"
        )
        agents = framework_module("autogen_agentchat.agents", "autogen-agentchat")
        tools = framework_module("autogen_agentchat.tools", "autogen-agentchat")
        wrap = self._patches.wrap
        wrap(teams.BaseGroupChat, "run_stream", self._around_run_stream)
        wrap(agents.BaseChatAgent, "run_stream", self._around_run_stream)
        wrap(agents.BaseChatAgent, "run", self._around_run)
        wrap(managers.BaseGroupChatManager, "_log_speaker_selection", self._around_selection)
        for name in ("run_json", "run_json_stream"):
            around = self._around_tool if name == "run_json" else self._around_tool_stream
            self._patches.wrap_all(tools.AgentTool, name, around)

    def detach(self) -> None:
        self._patches.undo()
        no_longer("autogen")

    # What is wrapped.

    def _around_run_stream(self, method: Any) -> Any:
        recorder = self

        async def run_stream(team: Any, *args: Any, **kwargs: Any) -> Any:
            scope = recorder._begins(team, kwargs.get("task"))
            status: Any = "cancelled"
            try:
                here = None if scope is None else (scope, scope.lead)
                async for item in with_value(method(team, *args, **kwargs), _here, here):
                    if type(item).__name__ == "TaskResult":
                        status = None
                        recorder._result(scope, item)
                    else:
                        recorder._passes(scope, item)
                    yield item
            except BaseException as error:
                status = _status(error)
                recorder._breaks(scope, error)
                raise
            finally:
                recorder._ends(scope, team, status)

        return run_stream

    def _around_run(self, method: Any) -> Any:
        recorder = self

        async def run(agent: Any, *args: Any, **kwargs: Any) -> Any:
            scope = recorder._begins(agent, kwargs.get("task"))
            token = _here.set(None if scope is None else (scope, scope.lead))
            status: Any = None
            try:
                result = await method(agent, *args, **kwargs)
                recorder._result(scope, result)
                return result
            except BaseException as error:
                status = _status(error)
                recorder._breaks(scope, error)
                raise
            finally:
                _here.reset(token)
                recorder._ends(scope, agent, status)

        return run

    def _around_turn(self, method: Any) -> Any:
        recorder = self

        async def on_messages_stream(agent: Any, *args: Any, **kwargs: Any) -> Any:
            here = recorder._turn(agent)
            async for item in with_value(method(agent, *args, **kwargs), _here, here):
                if here is not None:
                    said = item.chat_message if type(item).__name__ == "Response" else item
                    recorder._says(here[0], here[1], agent, said)
                yield item

        return on_messages_stream

    def _around_selection(self, method: Any) -> Any:
        recorder = self

        async def selected(manager: Any, speaker_names: Any) -> Any:
            recorder._selects(manager, speaker_names)
            return await method(manager, speaker_names)

        return selected

    def _around_tool(self, method: Any) -> Any:
        async def run_json(tool: Any, args: Any, cancellation_token: Any, call_id: str | None = None) -> Any:
            token = _tool.set(call_id)
            try:
                return await method(tool, args, cancellation_token, call_id=call_id)
            finally:
                _tool.reset(token)

        return run_json

    def _around_tool_stream(self, method: Any) -> Any:
        async def run_json_stream(
            tool: Any, args: Any, cancellation_token: Any, call_id: str | None = None
        ) -> Any:
            stream = method(tool, args, cancellation_token, call_id=call_id)
            async for item in with_value(stream, _tool, call_id):
                yield item

        return run_json_stream

    def _around_create(self, method: Any) -> Any:
        recorder = self

        async def create(client: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if _asking.get():
                return await method(client, messages, *args, **kwargs)
            asked, token = recorder._asks(client, messages), _asking.set(True)
            try:
                result = await method(client, messages, *args, **kwargs)
            except BaseException as error:
                recorder._no_answer(asked, error)
                raise
            finally:
                _asking.reset(token)
            recorder._answers(asked, result)
            return result

        return create

    def _around_create_stream(self, method: Any) -> Any:
        recorder = self

        async def create_stream(client: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
            inner, asked = _asking.get(), None
            if not inner:
                asked = recorder._asks(client, messages)
            try:
                async for item in with_value(method(client, messages, *args, **kwargs), _asking, True):
                    if not inner and not isinstance(item, str):
                        recorder._answers(asked, item)
                    yield item
            except BaseException as error:
                if not inner and not isinstance(error, GeneratorExit):
                    recorder._no_answer(asked, error)
                raise

        return create_stream

    # What it means.

    @guarded
    def _begins(self, runner: Any, task: Any) -> _Scope | None:
        outer = _here.get()
        participants = getattr(runner, "_participants", None)
        telling = outer[0].telling if outer is not None else self.telling(uuid4().hex)[0]
        around = self._scopes.get(id(runner)) if participants is not None else None
        number = uuid4().hex if around is None else around.key(runner.name)
        parent = outer[1] if outer is not None else None
        tool = _tool.get() if outer is not None else None
        scope = _Scope(telling, number, parent, None if tool is None else f"{parent}/{tool}")
        name = runner.name if participants is None else _manager_name(runner)
        if outer is not None:
            scope.told = outer[0].told  # a run's messages pass through the streams around it
        else:
            telling.begin(team=None if participants is None else type(runner).__name__)
        scope.alone = participants is None
        words = _task(task)
        if around is not None:  # a team in a team: it is a member, and was chosen to speak
            telling.agent(scope.lead, runner.name, role="orchestrator")
        else:
            telling.agent(scope.lead, name, role=None if scope.alone else "orchestrator", parent=parent)
        if parent is None:
            telling.asked(words)
        elif around is None:
            key = scope.tool or f"{number}/begin"
            self._tools[key] = scope.lead
            telling.spawn(
                key, parent, scope.lead, words, call=telling.last_call(parent), extra={"tool_call_id": tool}
            )
        for agent in participants or [runner]:
            self._scopes[id(agent)] = scope
            if participants is not None:
                role = None if getattr(agent, "_participants", None) is None else "orchestrator"
                scope.members.add(telling.agent(scope.key(agent.name), agent.name, role=role))
            self._listen_to(agent)
        if participants is not None:
            self._topics[runner._output_topic_type] = scope
            self._listen_to_client(getattr(runner, "_model_client", None))
        return scope

    def _listen_to(self, agent: Any) -> None:
        if getattr(agent, "_participants", None) is None:
            self._patches.wrap_all(type(agent), "on_messages_stream", self._around_turn)
        self._listen_to_client(getattr(agent, "_model_client", None))

    def _listen_to_client(self, client: Any) -> None:
        if client is not None:
            self._patches.wrap_all(type(client), "create", self._around_create)
            self._patches.wrap_all(type(client), "create_stream", self._around_create_stream)

    @guarded
    def _turn(self, agent: Any) -> tuple[_Scope, str] | None:
        scope = self._scopes.get(id(agent))
        return None if scope is None else (scope, scope.key(agent.name))

    @guarded
    def _selects(self, manager: Any, names: Any) -> None:
        scope = self._topics.get(manager._output_topic_type)
        if scope is None:
            return
        telling, call = scope.telling, scope.telling.last_call(scope.lead)
        if call == scope.chosen_by:  # no model was asked for this choice
            call = None
        scope.chosen_by = call or scope.chosen_by
        for name in names:
            key, to = uuid4().hex, scope.key(name)
            telling.event(
                "orchestrator_decision", key, scope.lead, content=name, to=to, decision="delegate", call=call
            )
            telling.owe(to, key, "causal")

    @guarded
    def _passes(self, scope: _Scope | None, item: Any) -> None:
        """What a team's stream shows and none of its agents said: the manager's own words."""
        if scope is None or scope.alone or item.id in scope.told or type(item).__name__ in _NO_WORDS:
            return
        names = {key.rpartition("/")[2] for key in scope.members}
        if item.source not in names and item.source != "user":
            scope.told.add(item.id)
            call = scope.telling.last_call(scope.lead)
            scope.telling.message(item.id, scope.lead, None, _words(item), call=call, among=scope.members)

    @guarded
    def _says(self, scope: _Scope, agent: str, actor: Any, item: Any) -> None:
        kind = type(item).__name__
        telling = scope.telling
        if getattr(item, "id", None) in scope.told or getattr(item, "source", None) != actor.name:
            return
        scope.told.add(item.id)
        call = telling.last_call(agent)
        if kind == "ToolCallRequestEvent":
            for each in item.content:
                key = f"{agent}/{each.id}"
                if each.name in getattr(actor, "_handoffs", ()):
                    scope.handing[agent] = (key, each.id)
                    continue
                telling.tool_call(
                    key, agent, each.name, each.arguments, call=call, extra={"tool_call_id": each.id}
                )
        elif kind == "ToolCallExecutionEvent":
            for each in item.content:
                self._tool_ends(scope, agent, each)
        elif kind == "HandoffMessage":
            key, call_id = scope.handing.pop(agent, (item.id, None))
            to = scope.key(item.target)
            if to in telling.known:
                telling.hand_over(key, agent, to, item.content, call=call, extra={"tool_call_id": call_id})
            else:
                telling.message(
                    key,
                    agent,
                    None,
                    item.content,
                    call=call,
                    among=scope.members,
                    extra={"target": item.target},
                )
        elif kind == "UserInputRequestedEvent":
            telling.decide(item.id, agent, "wait", "a person is asked", call=call)
        elif type(actor).__name__ == "UserProxyAgent":
            telling.event("human_intervention", item.id, agent, content=_words(item))
            for other in scope.members - {agent}:
                telling.owe(other, item.id, "causal")
        elif hasattr(item, "to_model_message") and not scope.alone:
            telling.message(item.id, agent, None, _words(item), call=call, among=scope.members)
        scope.last = _words(item) or scope.last

    def _tool_ends(self, scope: _Scope, agent: str, result: Any) -> None:
        key = f"{agent}/{result.call_id}"
        status: Any = "failed" if result.is_error else None
        if scope.handing.get(agent, ("",))[0] == key:
            return
        child = self._tools.pop(key, None)
        if child is None:
            scope.telling.tool_result(key, agent, result.name, result.content, status=status)
        else:
            call = scope.telling.last_call(child)
            scope.telling.returns(f"{key}/result", child, agent, result.content, status=status, call=call)

    @guarded
    def _result(self, scope: _Scope | None, result: Any) -> None:
        if scope is not None:
            spoken_last = [item for item in result.messages if hasattr(item, "to_model_message")]
            scope.last = (_words(spoken_last[-1]) if spoken_last else scope.last, result.stop_reason)

    @guarded
    def _breaks(self, scope: _Scope | None, error: BaseException) -> None:
        if scope is not None and not isinstance(error, GeneratorExit):
            scope.last = (f"{type(error).__name__}: {error}", None)

    @guarded
    def _ends(self, scope: _Scope | None, runner: Any, status: Any) -> None:
        if scope is None:
            return
        telling = scope.telling
        answer, reason = scope.last if isinstance(scope.last, tuple) else (scope.last, None)
        call = telling.last_call(scope.lead) if scope.alone else None
        if scope.parent is None:
            telling.stop(
                f"{scope.lead}/stop", scope.lead, answer, status, call=call, extra={"stop_reason": reason}
            )
            telling.finish()
            self.forget(telling.session)
        elif scope.tool is None:
            telling.returns(f"{scope.lead}/end", scope.lead, scope.parent, answer, status=status, call=call)
        for agent in getattr(runner, "_participants", None) or [runner]:
            if self._scopes.get(id(agent)) is scope:
                del self._scopes[id(agent)]
        self._topics.pop(getattr(runner, "_output_topic_type", ""), None)

    # Models.

    @guarded
    def _asks(self, client: Any, messages: Any) -> tuple[_Scope, str, str, float] | None:
        here = _here.get()
        if here is None:
            return None
        scope, agent = here
        key = uuid4().hex
        entries = [_entry(message) for message in messages]
        parent, new = scope.telling.growth.grow(agent, key, entries)
        arguments = getattr(client, "_create_args", None) or {}
        scope.telling.call(
            key, agent, opened=now(), parent=parent, prompt=new, policy=arguments.get("model"),
            temperature=arguments.get("temperature"),
        )  # fmt: skip
        return scope, agent, key, now()

    @guarded
    def _answers(self, asked: tuple[_Scope, str, str, float] | None, result: Any) -> None:
        if asked is None:
            return
        scope, agent, key, opened = asked
        calls = (
            []
            if isinstance(result.content, str)
            else [(each.name, each.arguments) for each in result.content]
        )
        words = spoken(result.content if isinstance(result.content, str) else result.thought, calls)
        scope.telling.growth.answered(key, words)
        usage = result.usage
        counted = usage is not None and (usage.prompt_tokens or usage.completion_tokens)
        scope.telling.call(
            key, agent, completion=words, duration_s=now() - opened, finish_reason=result.finish_reason,
            prompt_tokens=usage.prompt_tokens if counted else None,
            completion_tokens=usage.completion_tokens if counted else None,
        )  # fmt: skip

    @guarded
    def _no_answer(self, asked: tuple[_Scope, str, str, float] | None, error: BaseException) -> None:
        if asked is not None:
            scope, agent, key, opened = asked
            scope.telling.call(
                key, agent, duration_s=now() - opened, status=_status(error), finish_reason="error",
                extra={"error": f"{type(error).__name__}: {error}"},
            )  # fmt: skip


make = AutoGenRecorder
_NO_WORDS = frozenset(("SelectSpeakerEvent", "ModelClientStreamingChunkEvent", "SelectorEvent"))


def _manager_name(team: Any) -> str:
    return str(getattr(team, "_group_chat_manager_name", None) or team.name)


def _words(item: Any) -> Any:
    content = getattr(item, "content", None)
    return content if isinstance(content, str) else text_of(content)


def _task(task: Any) -> str | None:
    if task is None or isinstance(task, str):
        return task
    messages = task if isinstance(task, list | tuple) else [task]
    return "\n".join(str(_words(message)) for message in messages)


def _entry(message: Any) -> tuple[str, str]:
    kind, content = type(message).__name__, message.content
    if kind == "FunctionExecutionResultMessage":
        return "tool", "\n".join(str(each.content) for each in content)
    if isinstance(content, list) and content and hasattr(content[0], "arguments"):
        thought = getattr(message, "thought", None)
        return "assistant", spoken(thought, [(each.name, each.arguments) for each in content])
    return _SPEAKERS.get(kind, "user"), text_of(content)


def _status(error: BaseException) -> Any:
    return "cancelled" if type(error).__name__ in ("CancelledError", "GeneratorExit") else "failed"

"""AG2 (1.x): a middleware on every turn, which sees what a parent's stream leaves out: the child's inner events.

The agent that is asked is the root. An agent whose turn runs inside a tool of another is a spawn of that one; it is
known by its stream, so a sub-agent on a persistent stream is one through all delegations. A sub-agent in the
background returns when its turn ends, not when its tool answers. In a network, a channel is one run: envelopes are
messages to all whom they reach, and the turns that they lead to are their receivers'.
"""

from __future__ import annotations

from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

from baton.connect.live.patching import Patches, no_longer, one_at_a_time
from baton.connect.live.prompts import spoken, text_of
from baton.connect.live.recording import LiveRecorder, framework_module, guarded
from baton.connect.live.telling import Telling, now


class _Turn:
    """A turn of an agent, or a tool that runs in it."""

    def __init__(self, telling: Telling, agent: str, above: _Turn | None, tool: str | None = None) -> None:
        self.telling = telling
        self.agent = agent
        self.above = above
        self.tool = tool
        self.child: str | None = None
        self.in_channel = False  # what it says goes out as an envelope


_inside: ContextVar[_Turn | None] = ContextVar("baton_ag2_inside", default=None)


class Ag2Recorder(LiveRecorder):
    """Listens while it is open; `record.ag2` makes it."""

    framework = "ag2"

    def prepare(self) -> None:
        self._patches = Patches()

    def attach(self) -> None:
        one_at_a_time("ag2", self)
        agent = framework_module("ag2", "ag2").Agent
        self._patches.wrap(agent, "_turn_scope", self._around_scope)
        if find_spec("ag2.network") is not None:
            hub = import_module("ag2.network.hub.core").Hub
            self._patches.wrap(hub, "post_envelope", self._around_post)
            self._patches.wrap(hub, "_transition_channel", self._around_transition)

    def detach(self) -> None:
        self._patches.undo()
        no_longer("ag2")

    def _around_scope(self, method: Any) -> Any:
        recorder = self
        base = import_module("ag2.middleware").BaseMiddleware

        def turn_scope(agent: Any, event: Any, **kwargs: Any) -> Any:
            def middleware(event: Any, context: Any) -> Any:
                made = type("Recorder", (_Middleware, base), {})(event, context)
                made.recorder, made.agent = recorder, agent
                return made

            # The last is the innermost: it sees every try of a model, also those that another middleware repeats.
            given = (*kwargs.get("additional_middleware", ()), middleware)
            return method(agent, event, **{**kwargs, "additional_middleware": given})

        return turn_scope

    def _around_post(self, method: Any) -> Any:
        recorder = self

        async def post_envelope(hub: Any, envelope: Any) -> Any:
            key = uuid4().hex  # its own id comes when it is accepted, and by then others may have answered
            recorder.posts(hub, envelope, key)
            try:
                return await method(hub, envelope)
            except BaseException as error:
                recorder.posts(hub, envelope, key, _status(error))
                raise

        return post_envelope

    @guarded
    def posts(self, hub: Any, envelope: Any, key: str, status: Any = None) -> None:
        """An envelope in a channel of the network: what is said goes to all whom it reaches."""
        channel = hub._channels.get(envelope.channel_id)
        if channel is None:
            return
        telling = self._channel(envelope.channel_id)
        names = {each.agent_id: hub._passports[each.agent_id].name for each in channel.participants}
        keys = {id_: telling.agent(f"{envelope.channel_id}/{name}", name) for id_, name in names.items()}
        sender = keys.get(envelope.sender_id)
        if envelope.event_type in ("ag2.msg.text", "ag2.packet") and sender is not None:
            words = envelope.event_data.get("text") or envelope.event_data.get("body")
            telling.asked(None if telling.last_call(sender) else words)
            route = envelope.event_data.get("routing") or {}
            target = f"{envelope.channel_id}/{names.get(route.get('target'), route.get('target'))}"
            call = telling.last_call(sender)
            if target in telling.known:
                telling.hand_over(key, sender, target, words, call=call, status=status)
                return
            reached = [keys[id_] for id_ in envelope.audience or keys if id_ in keys]
            to = reached[0] if len(reached) == 1 else None
            telling.message(key, sender, to, words, call=call, among=reached, status=status)

    def _around_transition(self, method: Any) -> Any:
        recorder = self

        async def transition(hub: Any, channel_id: str, *args: Any, **kwargs: Any) -> Any:
            result = await method(hub, channel_id, *args, **kwargs)
            recorder.closes(hub, channel_id)
            return result

        return transition

    @guarded
    def closes(self, hub: Any, channel_id: str) -> None:
        """A channel that has ended is a run that has; whoever opened it stops it."""
        channel = hub._channels.get(channel_id)
        if channel is None or not channel.is_terminal():
            return
        telling, opener = self._channel(channel_id), hub._passports[channel.creator_id].name
        agent = telling.agent(f"{channel_id}/{opener}", opener)
        telling.stop(f"{channel_id}/stop", agent, channel.close_reason or channel.state.value)
        telling.finish()
        self.forget(telling.session)

    def _channel(self, channel_id: str) -> Telling:
        telling, new = self.telling(f"channel-{channel_id}")
        if new:
            telling.begin(channel=channel_id)
        return telling

    @guarded
    def turn_begins(self, agent: Any, event: Any, context: Any) -> _Turn:
        inside = _inside.get()
        channel = context.dependencies.get("ag2.network.channel")
        if inside is None and channel is not None:
            number = channel.metadata.channel_id
            telling = self._channel(number)
            turn = _Turn(telling, telling.agent(f"{number}/{agent.name}", agent.name), None)
            turn.in_channel = True
            return turn
        telling = inside.telling if inside is not None else self.telling(uuid4().hex)[0]
        key = f"{agent.name}@{context.stream.id}"
        task = _words(event)
        if inside is None:
            telling.begin(stream=str(context.stream.id))
            telling.asked(task)
            telling.agent(key, agent.name)
            return _Turn(telling, key, None)
        again = key in telling.known
        telling.agent(key, agent.name, parent=inside.agent)
        place = uuid4().hex
        if inside.tool is not None and inside.child is None:
            place, inside.child = inside.tool, key  # using the tool was this spawn
        call = telling.last_call(inside.agent)
        (telling.hand_over if again else telling.spawn)(place, inside.agent, key, task, call=call)
        return _Turn(telling, key, inside)

    @guarded
    def turn_ends(self, turn: _Turn | None, answer: Any, status: Any = None) -> None:
        if turn is None or turn.in_channel:
            return
        telling, call = turn.telling, turn.telling.last_call(turn.agent)
        if turn.above is not None:
            telling.returns(uuid4().hex, turn.agent, turn.above.agent, answer, status=status, call=call)
            return
        telling.stop(uuid4().hex, turn.agent, answer, status, call=call)
        telling.finish()
        self.forget(telling.session)

    @guarded
    def asks(self, turn: _Turn | None, events: Any, context: Any) -> tuple[str, float] | None:
        if turn is None:
            return None
        key = uuid4().hex
        entries = [("system", str(prompt)) for prompt in context.prompt]
        entries += [entry for event in events for entry in _entries(event)]
        parent, new = turn.telling.growth.grow(turn.agent, key, entries)
        turn.telling.call(key, turn.agent, opened=now(), parent=parent, prompt=new)
        return key, now()

    @guarded
    def answers(self, turn: _Turn | None, asked: tuple[str, float] | None, response: Any) -> None:
        if turn is None or asked is None:
            return
        key, opened = asked
        words, usage = _said(response), response.usage
        turn.telling.growth.answered(key, words)
        turn.telling.call(
            key, turn.agent, completion=words, duration_s=now() - opened, policy=response.model,
            prompt_tokens=getattr(usage, "prompt_tokens", None),
            completion_tokens=getattr(usage, "completion_tokens", None), finish_reason=response.finish_reason,
        )  # fmt: skip

    @guarded
    def no_answer(self, turn: _Turn | None, asked: tuple[str, float] | None, error: BaseException) -> None:
        if turn is not None and asked is not None:
            turn.telling.call(
                asked[0], turn.agent, duration_s=now() - asked[1], status=_status(error), finish_reason="error",
                extra={"error": f"{type(error).__name__}: {error}"},
            )  # fmt: skip

    @guarded
    def tool_begins(self, turn: _Turn | None, event: Any) -> _Turn | None:
        if turn is None:
            return None
        key = f"{turn.agent}/{event.id}"
        turn.telling.tool_call(
            key, turn.agent, event.name, event.arguments, call=turn.telling.last_call(turn.agent),
            extra={"tool_call_id": event.id},
        )  # fmt: skip
        return _Turn(turn.telling, turn.agent, turn, key)

    @guarded
    def tool_ends(self, tool: _Turn | None, event: Any, result: Any, status: Any = None) -> None:
        if tool is not None and tool.tool is not None and tool.child is None:  # of a spawn, the child returns
            tool.telling.tool_result(tool.tool, tool.agent, event.name, result, status=status)


class _Middleware:
    """What AG2 calls around a turn, a model and a tool."""

    recorder: Ag2Recorder
    agent: Any
    turn: _Turn | None = None

    async def on_turn(self, call_next: Any, event: Any, context: Any) -> Any:
        turn = self.turn = self.recorder.turn_begins(self.agent, event, context)
        token = _inside.set(turn)
        try:
            response = await call_next(event, context)
        except BaseException as error:
            self.recorder.turn_ends(turn, f"{type(error).__name__}: {error}", _status(error))
            raise
        finally:
            _inside.reset(token)
        self.recorder.turn_ends(turn, _answer(response))
        return response

    async def on_llm_call(self, call_next: Any, events: Any, context: Any) -> Any:
        asked = self.recorder.asks(self.turn, events, context)
        try:
            response = await call_next(events, context)
        except BaseException as error:
            self.recorder.no_answer(self.turn, asked, error)
            raise
        self.recorder.answers(self.turn, asked, response)
        return response

    async def on_tool_execution(self, call_next: Any, event: Any, context: Any) -> Any:
        tool = self.recorder.tool_begins(self.turn, event)
        token = _inside.set(tool)
        try:
            result = await call_next(event, context)
        except BaseException as error:
            self.recorder.tool_ends(tool, event, f"{type(error).__name__}: {error}", _status(error))
            raise
        finally:
            _inside.reset(token)
        failure = getattr(result, "error", None)
        words = _words(result) if failure is None else f"{type(failure).__name__}: {failure}"
        self.recorder.tool_ends(tool, event, words, None if failure is None else "failed")
        return result


make = Ag2Recorder


def _answer(response: Any) -> str | None:
    return text_of(getattr(getattr(response, "message", None), "content", None)) or None


def _words(event: Any) -> str:
    """The text of a request or of a tool's result."""
    parts = getattr(event, "parts", None) or getattr(getattr(event, "result", None), "parts", None) or ()
    return "\n".join(
        filter(None, (text_of(getattr(part, "content", getattr(part, "data", None))) for part in parts))
    )


def _said(response: Any) -> str:
    calls = getattr(getattr(response, "tool_calls", None), "calls", None) or ()
    return spoken(_answer(response), [(call.name, call.arguments) for call in calls])


def _entries(event: Any) -> list[tuple[str, str]]:
    """An event of a history as it stands in a prompt."""
    names = {kind.__name__ for kind in type(event).__mro__}
    if "ModelRequest" in names:
        return [("user", _words(event))]
    if "ModelResponse" in names:
        return [("assistant", _said(event))]
    if "ToolResultsEvent" in names:
        return [("tool", _words(result)) for result in event.results]
    return []


def _status(error: BaseException) -> Any:
    return "cancelled" if type(error).__name__ == "CancelledError" else "failed"

"""How a run stands, as whoever steers it sees it: who does what, what can still be edited, what waits for approval.

A look at the run between two blocks; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from baton.team.action import Action, CallTool, Delegate, Return, Send, Spawn, Stop
from baton.team.agent import Agent
from baton.team.clock import Op
from baton.team.guard.requests import requests
from baton.team.people import RunStanding
from baton.team.protocol import Answer
from baton.team.state import RunState
from baton.team.surface import ParseError

_MOST = 200
_MOST_CHARACTERS = 4_000
_FURTHER = (Send, Delegate, Spawn, CallTool)
"""After these the rest of the same answer is done at once, and each is one event."""


def standing(state: RunState) -> RunStanding:
    """How the run stands now."""
    agents = [agent for agent in state.agents.values() if agent.state != "dead"]
    return RunStanding(
        paused=state.paused,
        agents=tuple(_agent(agent) for agent in agents[:_MOST]),
        unread=tuple(_unread(state, agents))[:_MOST],
        requests=tuple(msgspec.structs.asdict(each) for each in requests(state)[:_MOST]),
        coming=tuple(each for op in state.driver.held() for each in _coming(state, op))[:_MOST],
    )


def _agent(agent: Agent) -> dict[str, Any]:
    if agent.state == "idle":
        doing = "idle"
    elif agent.waits_for is not None:
        doing = f"waits for {', '.join(sorted(agent.waits_for.left))}"
    elif agent.waits_for_tools:
        doing = "calls a tool"
    else:
        doing = "is asked" if agent.op is not None else "rests"
    return {"id": agent.id, "role": agent.role.name, "doing": doing, "unread": len(agent.inbox)}


def _unread(state: RunState, agents: list[Agent]) -> Iterator[dict[str, Any]]:
    said = {item.event for agent in agents for item in agent.inbox if item.event}
    if not said:
        return
    for event in state.writer.events:
        if event.id in said and event.type in ("spawn", "message", "return") and event.to is not None:
            payload = state.writer.payloads.get(event.content_ref or "")
            text = (payload.text() if payload is not None else None) or ""
            yield {"event": event.id, "from": event.agent, "to": event.to, "text": text[:_MOST_CHARACTERS]}


def _coming(state: RunState, op: Op) -> Iterator[dict[str, Any]]:
    """What an answer that was held back will have its agent do, as far as the events it makes are known."""
    if op.kind != "call" or op.cancelled or not isinstance(op.result, Answer):
        return
    agent: Agent = op.agent
    verbs = state.harness.verbs[agent.role.name]
    number = agent.num_events
    for item in state.harness.surface.parse(op.result.text, verbs):
        number += 1
        event = f"{agent.id}#{number}"
        if isinstance(item, ParseError):
            continue
        change = state.interventions.get(event)
        to, text = _said(item.action)
        told = {"event": event, "from": agent.id, "do": type(item.action).__name__.lower(), "to": to}
        if text is not None:
            told["text"] = getattr(change, "text", text)[:_MOST_CHARACTERS]
        yield told
        if not isinstance(item.action, _FURTHER):
            return


def _said(action: Action) -> tuple[str, str | None]:
    """To whom, and what that can be edited."""
    match action:
        case Spawn():
            return action.role, action.task
        case Delegate():
            return action.agent, action.task
        case Send():
            return action.agent, action.text
        case Return():
            return "", action.text
        case Stop():
            return "", action.answer
        case CallTool():
            return action.tool, None
        case _:
            return "", None

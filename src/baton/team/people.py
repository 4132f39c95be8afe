"""What people do to a run while it goes on: speak, edit, stop a branch, pause it, let it go on, approve and refuse.

Each act is one `human_intervention` of the trace, also one that could not be carried out: its status is then `invalid`
and it says why. Invariant: what an act does follows from the run's state and the act alone, so that a replay and a
resumed run, which are told of it at its recorded moment, come to the same.

Acts reach a run from outside through its `Steering` (`baton.compose.steering` keeps them in a file beside it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, structs

from baton.errors import nearest
from baton.team.agent import Agent, Item, returned
from baton.team.guard.policy import PERSON
from baton.team.guard.requests import decide, is_other_call, requests
from baton.team.intervene import Replace
from baton.trace.records import Event
from baton.trace.trace import Trace

if TYPE_CHECKING:
    from baton.team.state import RunState

ACT = "act"
"""Key, in the extra of a human_intervention, of the act's own name: who has it does not do it twice."""
DO = "do"
ROOT = "@root"
"""To whom one speaks who names nobody: the agent that the run starts with."""
_FROM_AGENTS = ("spawn", "message", "return")

Doing = Literal["say", "edit", "stop", "pause", "go", "approve", "refuse"]


class Act(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a person does to a run."""

    id: str = ""
    """Names it; empty: what a program told the run itself (`Run.instruct`)."""
    do: Doing = "say"
    to: str = ""
    """The agent (say, stop), the event (edit) or the request (approve, refuse). Nobody is told by name: everybody."""
    text: str = ""
    by: str = ""
    """Who did it, where that is known."""
    when: str = ""
    """The day and moment (UTC) it was done, where that is known: a run's own clock may be virtual, or stand still."""


class RunStanding(Struct, frozen=True, kw_only=True):
    """How a run stands, for whoever steers it."""

    paused: bool = False
    agents: tuple[dict[str, Any], ...] = ()
    unread: tuple[dict[str, Any], ...] = ()
    """What was said to agents that have not read it yet: it can still be edited."""
    coming: tuple[dict[str, Any], ...] = ()
    """What agents have decided and not done yet; the events that will be can be edited."""
    requests: tuple[dict[str, Any], ...] = ()
    """What waits for a person's approval."""


class Steering(Protocol):
    """Where a run hears of what people want of it."""

    def heard(self) -> Sequence[Act]:
        """What is new since it was last asked. Never waits."""
        ...

    def tell(self, standing: RunStanding) -> None:
        """Let them know how the run stands."""
        ...


def act_of(event: Event, text: str) -> Act:
    """The act that a recorded human_intervention tells of."""
    told = event.extra
    do = told.get(DO, "say")
    to = told.get("at", "" if event.status == "invalid" or do in ("pause", "go") else event.to or "")
    return Act(
        id=told.get(ACT, ""), do=do, to=to, text=text, by=told.get("by", ""), when=told.get("when", "")
    )


def is_edit_to_come(event: Event) -> bool:
    """Whether a human_intervention tells of a change that stood in wait for the agent's next event."""
    return "edits" in event.extra


def live_edits(trace: Trace) -> dict[str, tuple[Replace, dict[str, str]]]:
    """Events that people edited before they happened: event -> how, and what was told of the act."""
    return {
        event.extra["edits"]: (
            Replace(event.extra["edits"], trace.text(event.content_ref) or "", event.agent),
            _told(act_of(event, "")),
        )
        for event in trace.events
        if is_edit_to_come(event) and ACT in event.extra
    }


def carry_out(state: RunState, act: Act) -> None:
    """Write what a person does, and do it."""
    if act.do == "edit" and _agent_to_come(state, act.to) is not None:
        state.interventions[act.to] = Replace(act.to, act.text, "human")
        state.live_edits[act.to] = _told(act)  # the event is written when it happens
        return
    _DO[act.do](state, act)


def _told(act: Act) -> dict[str, str]:
    """What an event says of the act it is."""
    told = {ACT: act.id, DO: act.do, "by": act.by, "when": act.when}
    return {name: value for name, value in told.items() if value}


def _write(state: RunState, act: Act, *, to: str | None, why_not: str | None = None, **more: Any) -> Event:
    """The event of an act."""
    extra: dict[str, Any] = {}
    if act.id:
        extra = {**_told(act), **more}
        if why_not is not None:
            extra["why"] = why_not
    return state.writer.emit_by(
        "human",
        "human_intervention",
        to=to,
        text=act.text,
        extra=extra,
        status="ok" if why_not is None else "invalid",
    )


def _refuse(state: RunState, act: Act, why: str) -> None:
    _write(state, act, to=state.team.topology.root, why_not=why, **({"at": act.to} if act.to else {}))


def _say(state: RunState, act: Act) -> None:
    if act.to == ROOT:
        act = structs.replace(act, to=state.team.topology.root)
    if not act.to:
        names = [name for name, agent in state.agents.items() if agent.state == "active"]
        event = _write(state, act, to=None, team=names)
        for name in names:
            _tell(state, state.agents[name], event, act)
        return
    agent = state.agents.get(act.to)
    if agent is None or agent.state == "dead":
        if act.id:
            _refuse(state, act, _nobody(state, act.to))
        else:  # as 0.2 wrote it
            _write(state, act, to=act.to)
        return
    _tell(state, agent, _write(state, act, to=act.to), act)


def _tell(state: RunState, agent: Agent, event: Event, act: Act) -> None:
    agent.inbox.append(Item(event.id, "causal", "human", f"instruction: {act.text}"))
    # A program that waits knows what for: what it goes on with must be there.
    if agent.waits_for is not None and (agent.waits_for.chosen or not act.id):
        state.go_on(agent)


def _stop(state: RunState, act: Act) -> None:
    agent = state.agents.get(act.to)
    if agent is None or agent.state != "active":
        there = agent is not None and agent.state == "idle"
        _refuse(state, act, f"{act.to} is not at work" if there else _nobody(state, act.to))
        return
    event = _write(state, act, to=agent.id)
    agent.causes.append((event.id, "causal"))
    state.cut_off(agent, "a person stopped it" + (f": {act.text}" if act.text else ""))


def _pause(state: RunState, act: Act) -> None:
    if state.paused:
        _refuse(state, act, "it is paused already")
        return
    _write(state, act, to=state.team.topology.root)
    state.paused = True
    if state.driver.steered:
        state.driver.pause()


def _go(state: RunState, act: Act) -> None:
    if not state.paused:
        _refuse(state, act, "it is not paused")
        return
    _write(state, act, to=state.team.topology.root)
    state.paused = False
    if state.driver.steered:
        state.driver.go_on()


def _edit(state: RunState, act: Act) -> None:
    """Something that was said and not read yet says something else."""
    event = next((event for event in reversed(state.writer.events) if event.id == act.to), None)
    if event is None:
        _refuse(state, act, f"there is no event {act.to!r}. {_nearest_event(state, act.to)}")
        return
    agent = state.agents.get(event.to or "")
    place = next((i for i, item in enumerate(agent.inbox) if item.event == event.id), None) if agent else None
    if agent is None or place is None or event.type not in _FROM_AGENTS:
        reader = f"{event.to} has read it already" if event.type in _FROM_AGENTS else f"it is a {event.type}"
        _refuse(state, act, f"{act.to} cannot be edited any more: {reader}")
        return
    made = _write(state, act, to=agent.id, at=event.id)
    agent.inbox[place] = _saying(agent.inbox[place], act.text)
    agent.causes.append((made.id, "causal"))
    sender = agent.inbox[place].sender
    if agent.results.get(sender, ("", ""))[0] == event.id:
        agent.results[sender] = (event.id, act.text)


def _saying(item: Item, text: str) -> Item:
    """The same item with another text, as its kind is written."""
    if item.edge == "return":
        return structs.replace(
            returned(item.event, item.sender, text), result=None if item.result is None else text
        )
    begins = "task: " if item.text.startswith("task: ") else f"{item.sender}: "
    return structs.replace(item, text=begins + text)


def _decide(state: RunState, act: Act) -> None:
    """A call that a guard holds back is made, or it is not."""
    asked = next((each for each in requests(state) if each.id == act.to), None)
    if asked is None:
        _refuse(state, act, f"nothing called {act.to!r} waits for approval")
    elif act.do == "approve" and PERSON not in asked.endorse:
        _refuse(state, act, f"a person has no say in it; it may be endorsed by {', '.join(asked.endorse)}")
    elif act.do == "approve" and is_other_call(state, asked.id):
        _refuse(state, act, "it was said of another call")
    else:
        event = _write(state, act, to=asked.agent, at=asked.id)
        decide(state, asked.id, approved=act.do == "approve", event=event.id)


def _agent_to_come(state: RunState, event: str) -> Agent | None:
    """Whose event this will be; None: it has happened, or is nobody's that is there."""
    name, mark, number = event.rpartition("#")
    agent = state.agents.get(name)
    if not mark or agent is None or agent.state == "dead" or not (number.isascii() and number.isdigit()):
        return None
    return agent if int(number) > agent.num_events else None


def _nobody(state: RunState, name: str) -> str:
    if name in state.agents:
        return f"{name} has left the run"
    return f"there is no agent {name!r}. {nearest(name, [n for n, a in state.agents.items() if a.state != 'dead'])}"


def _nearest_event(state: RunState, name: str) -> str:
    return nearest(name, [event.id for event in state.writer.events[-200:]])


_DO: dict[str, Callable[[RunState, Act], None]] = {
    "say": _say,
    "edit": _edit,
    "stop": _stop,
    "pause": _pause,
    "go": _go,
    "approve": _decide,
    "refuse": _decide,
}

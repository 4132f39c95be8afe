"""What a guard does in a run: it judges calls before they are made, and what it refuses is an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from baton.team.agent import Agent, Item
from baton.team.guard.refusal import refuse
from baton.team.guard.requests import Go, endorse_planned, hold
from baton.team.guard.watch import GuardWatch, Objection, PlannedCall
from baton.team.recording import Said
from baton.team.tools.plan import is_plan
from baton.team.tools.tool import Tool
from baton.trace.vocabulary import Decision

if TYPE_CHECKING:
    from baton.team.state import RunState


CARRIES_ALL = {"carries": "context"}
"""In the extra of an event that hands over its agent's whole context (`baton.trace.provenance`)."""


def may_call(
    run: RunState,
    watch: GuardWatch,
    me: Agent,
    tool: Tool,
    args: dict[str, Any],
    said: Said | None,
    go: Go,
    filled: Filled | None = None,
) -> dict[str, Any] | None:
    """What the event of a call says of the guard. None: it may not be made now.

    Then it is refused, which is written and its agent is told, or it waits for an endorsement and `go` makes it.
    """
    plan: list[PlannedCall] = []
    objection: Objection | str = ""
    kept = () if filled is None else filled.events
    if filled is not None and not filled.whole:
        objection = Objection(why="a handle that it names was left empty")
    elif is_plan(tool):
        if watch.before(me.id, me.role.name, me.causes):
            objection = Objection(why="its caller has read untrusted text, so it cannot plan calls")
        else:
            try:
                plan = msgspec.convert(args.get("calls"), list[PlannedCall])
            except msgspec.ValidationError as error:
                objection = Objection(why=f"a plan is a list of calls with a tool and arguments ({error})")
    else:
        arguments = None if filled is None else filled.arguments
        objection = watch.judge(me.id, me.role.name, me.causes, tool, args, arguments)
    if isinstance(objection, Objection) and objection.endorse:
        hold(run, watch, me, objection, tool=tool, args=args, said=said, go=go, filled=kept)
        return None
    if isinstance(objection, Objection):
        refuse(run, watch, me, objection, tool=tool.name, args=args, said=said, filled=kept)
        return None
    if plan:
        watch.plan(plan, me.id, me.role.name, me.next_event_id())
    return {"allowed": objection} if objection else {}


class Filled(Struct, frozen=True, kw_only=True):
    """What became of a call's arguments in which handles stood."""

    events: tuple[str, ...]
    """That keep what they stand for."""
    arguments: dict[str, list[Any]]
    """In which they stood -> what they stand for."""
    whole: bool
    """Whether a reader had filled in all of them."""


def fill(watch: GuardWatch, tool: Tool, args: dict[str, Any]) -> tuple[dict[str, Any], Filled | None]:
    """Arguments with what their handles stand for. A plan is the agent's own: names in it stay names."""
    handles = None if is_plan(tool) else watch.handles
    events = [] if handles is None else handles.names_in(args)
    if handles is None or not events:
        return args, None
    found, whole = handles.substituted(args)
    named = {name: values for name, value in args.items() if (values := handles.values_of(value))}
    return found, Filled(events=tuple(events), arguments=named, whole=whole)


def for_reader(watch: GuardWatch, role: str, task: str) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """What a reader of this role is to read for a task, with the events that keep it, and the fields it fills in."""
    if watch.handles is None or not watch.is_reader(role):
        return [], {}
    return watch.handles.ask(task)


def hand_to_reader(
    watch: GuardWatch,
    reader: Agent,
    task: str,
    given: tuple[list[tuple[str, str]], dict[str, str]],
) -> None:
    """Let a reader read what it was sent for, by an event."""
    texts, schema = given
    if watch.handles is not None and schema:
        watch.handles.asks(reader.id, task, schema)
        reader.inbox += [Item(event, "safety_flow", "", f"${event}: {text}", "tool") for event, text in texts]


def planned(run: RunState, watch: GuardWatch, tool: Tool) -> None:
    """A call was written. If it was a plan, what waited for it goes on."""
    if is_plan(tool):
        endorse_planned(run, watch)


def may_do(
    run: RunState, watch: GuardWatch, me: Agent, verb: str, said: Said | None, decision: Decision
) -> bool:
    """Whether an agent may use a verb that the guard leaves to those who have read nothing untrusted."""
    if verb not in watch.guard.clean_verbs or not watch.before(me.id, me.role.name, me.causes):
        return True
    objection = Objection(why="whoever does so has read untrusted text")
    run.writer.emit(
        me,
        "safety_event",
        decision=decision,
        said=said,
        status="failed",
        text=objection.why,
        extra={"guard": watch.guard.hash, "refused": verb},
    )
    me.note(f"error: to {verb} was refused by the guard: {objection.why}.")
    return False

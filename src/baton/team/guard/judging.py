"""What a guard does in a run: it judges calls before they are made, and what it refuses is an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from baton.team.agent import Agent
from baton.team.guard.refusal import refuse
from baton.team.guard.requests import Go, endorse_planned, hold
from baton.team.guard.watch import GuardWatch, Objection, PlannedCall
from baton.team.recording import RAW, Said
from baton.team.tools.plan import PLAN
from baton.team.tools.tool import Tool
from baton.trace.quotes import QUOTES
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
) -> dict[str, Any] | None:
    """What the event of a call says of the guard. None: it may not be made now.

    Then it is refused, which is written and its agent is told, or it waits for an endorsement and `go` makes it.
    """
    plan: list[PlannedCall] = []
    objection: Objection | str = ""
    if tool.name == PLAN:
        if watch.flow.before(me.id, me.causes):
            objection = Objection(why="its caller has read untrusted text, so it cannot plan calls")
        else:
            try:
                plan = msgspec.convert(args.get("calls"), list[PlannedCall])
            except msgspec.ValidationError as error:
                objection = Objection(why=f"a plan is a list of calls with a tool and arguments ({error})")
    else:
        objection = watch.judge(me.id, me.role.name, me.causes, tool, args)
    if isinstance(objection, Objection) and objection.endorse:
        hold(run, watch, me, objection, tool=tool, args=args, said=said, go=go)
        return None
    if isinstance(objection, Objection):
        refuse(run, watch, me, objection, tool=tool.name, args=args, said=said)
        return None
    if plan:
        watch.plan(plan, me.id, me.role.name, me.next_event_id())
    return {"allowed": objection} if objection else {}


def planned(run: RunState, watch: GuardWatch, tool: Tool) -> None:
    """A call was written. If it was a plan, what waited for it goes on."""
    if tool.name == PLAN:
        endorse_planned(run, watch)


def may_do(
    run: RunState, watch: GuardWatch, me: Agent, verb: str, said: Said | None, decision: Decision
) -> bool:
    """Whether an agent may use a verb that the guard leaves to those who have read nothing untrusted."""
    if verb not in watch.guard.clean_verbs or not watch.flow.before(me.id, me.causes):
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


def may_say(run: RunState, watch: GuardWatch, me: Agent, answer: str) -> tuple[str, dict[str, Any]]:
    """What of an answer is said in the team's own words, and what its event says of the rest."""
    found = watch.judge_answer(me.id, me.causes, answer)
    if found is None or found.text == answer:
        return answer, {}
    extra: dict[str, Any] = {"guard": watch.guard.hash, RAW: run.writer.text(answer)}
    if found.quotes:
        extra[QUOTES] = run.writer.text(msgspec.json.encode(found.quotes).decode(), "application/json")
    if found.num_left_out:
        extra["left_out"] = found.num_left_out
    return found.text, extra

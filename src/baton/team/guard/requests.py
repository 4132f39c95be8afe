"""Calls that wait for an endorsement: who asks, what for, and what becomes of it.

A call that a guard would refuse, and whose rule names who may let it through, waits: a safety_event (`in_doubt`, its
`extra["request"]` has tool, why and who may endorse; its text has the arguments) is the request, under its own id. Then
  a person decides    `decide(run, REQUEST, approved=..., event=ID)`, with the id of the human_intervention that says so
  an agent endorses   one that the rule names plans the very call (the tool `plan`), before it is asked for or after. It
                      is told nothing of the request: what asks has read taint, and who reads it could not endorse
  nobody does         after the guard's `wait_seconds` it is refused, as it is when a person refuses it
What is let through becomes the tool_call, with `extra["allowed"] = "endorsed"` and an edge from what endorsed it.

A person is asked once the request is durable (`Run._ask_people`). Of a run that was cut off while it waited and goes on
the person is asked again, and of what was decided before it is not.

Invariant: each request ends once: in the call, in a refusal that its caller reads, or with its agent. A replay and a
resumed run come to the same, for a person's word and the end of the wait are completions like any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from baton.team.agent import Agent
from baton.team.clock import Op
from baton.team.guard.refusal import refuse
from baton.team.guard.watch import CallRequest, GuardWatch, Objection
from baton.team.recording import Said
from baton.team.tools.tool import Tool

if TYPE_CHECKING:
    from baton.team.state import RunState

Go = Callable[[Said | None, dict[str, Any], list[tuple[str, Any]]], None]
"""Makes the call: with what said it, what its event says of the guard, and what it depends on besides."""


class HeldCall(Struct, frozen=True, kw_only=True):
    """A request with what it takes to end it."""

    request: CallRequest
    agent: Agent
    objection: Objection
    said: Said | None
    lapse: Op
    go: Go


def requests(run: RunState) -> list[CallRequest]:
    """The calls that wait now, the oldest first."""
    return [] if run.guard is None else [held.request for held in run.guard.held.values()]


def hold(
    run: RunState,
    watch: GuardWatch,
    me: Agent,
    objection: Objection,
    *,
    tool: Tool,
    args: dict[str, Any],
    said: Said | None,
    go: Go,
    filled: Sequence[str] = (),
) -> None:
    """Let a call wait for its endorsement."""
    event = run.writer.emit(
        me,
        "safety_event",
        tool=tool.name,
        text=msgspec.json.encode(args).decode(),
        media_type="application/json",
        said=said,
        status="in_doubt",
        extra={
            "guard": watch.guard.hash,
            "request": {"tool": tool.name, "why": objection.why, "endorse": list(objection.endorse)},
        },
        causes=[(name, "safety_flow") for name in filled],
    )
    asked = CallRequest(
        id=event.id,
        agent=me.id,
        tool=tool.name,
        arguments=args,
        why=objection.why,
        endorse=objection.endorse,
    )
    later = None if said is None else structs.replace(said, start=None, duration_s=None, tokens=None)
    lapse = Op("lapse", f"{event.id}~lapse", me, watch.guard.wait_seconds)
    watch.held[event.id] = HeldCall(
        request=asked, agent=me, objection=objection, said=later, lapse=lapse, go=go
    )
    run.outside.wait_for_request(me, event.id)
    run.outside.start_timer(lapse)


def is_other_call(run: RunState, request: str) -> bool:
    """Whether a recording has another call under this name: what a person said of that one is not said of this."""
    before = None if run.writer.recording is None else run.writer.recording.events.get(request)
    now = next((event for event in reversed(run.writer.events) if event.id == request), None)
    return before is not None and (
        now is None or (before.tool, before.content_ref) != (now.tool, now.content_ref)
    )


def decide(
    run: RunState, request: str, *, approved: bool, event: str, why: str = "a person refused it"
) -> bool:
    """A person has decided on a request. False: nothing of this name waits, or a person has no say in it."""
    watch = run.guard
    held = None if watch is None else watch.held.get(request)
    if watch is None or held is None or (approved and "person" not in held.request.endorse):
        return False
    _end(run, watch, held, because=event, why=None if approved else why)
    return True


def lapse(run: RunState, op: Op) -> None:
    """The wait is over and nobody has decided."""
    watch = run.guard
    held = None if watch is None else watch.held.get(op.id.removesuffix("~lapse"))
    if watch is not None and held is not None:
        why = f"nobody let it through within {op.work:g} seconds"
        _end(run, watch, held, because=None, why=why, extra={"timer": op.id})


def endorse_planned(run: RunState, watch: GuardWatch) -> None:
    """Requests that an agent has just planned who may endorse them."""
    for held in list(watch.held.values()):
        planned = watch.planned_by(held.request.endorse, held.request.tool, held.request.arguments)
        if planned is not None:
            planned.times -= 1
            _end(run, watch, held, because=planned.event, why=None)


def _end(
    run: RunState,
    watch: GuardWatch,
    held: HeldCall,
    *,
    because: str | None,
    why: str | None,
    extra: dict[str, Any] | None = None,
) -> None:
    """`why`: it is refused, and this is why; None: the call is made."""
    asked, me = held.request, held.agent
    del watch.held[asked.id]
    held.lapse.cancel()
    run.outside.request_ended(me, asked.id)
    if because is not None and why is not None:
        me.causes.append((because, "causal"))
    if why is None:
        edges = [(because, "causal")] if because is not None else []
        held.go(held.said, {"allowed": "endorsed", "request": asked.id}, edges)
    else:
        objection = structs.replace(held.objection, why=f"{held.objection.why}, and {why}")
        refuse(
            run, watch, me, objection, tool=asked.tool, args=asked.arguments, said=held.said,
            extra={"request": asked.id, **(extra or {})},
        )  # fmt: skip
    if me.waits_for_tools and not run.outside.tools_of(me):
        me.waits_for_tools = False
        run.wake(me)

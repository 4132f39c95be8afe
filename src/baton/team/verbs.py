"""A turn and the verbs: read the inbox, ask the policy, and carry out what it says.

Each verb becomes an event and its effect on the team.

What an agent may not do is an `invalid` event and an error it reads; never a crash.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from baton.errors import BatonError
from baton.team.action import (
    EVERY_VERB,
    Action,
    Aggregate,
    CallTool,
    Cancel,
    Delegate,
    Forbidden,
    ReadShared,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
    WriteShared,
)
from baton.team.agent import Agent, CarryOut, Item, returned
from baton.team.aggregate import Claim, aggregator
from baton.team.budget import Refusal, Reservation
from baton.team.clock import Op, Resting
from baton.team.guard.judging import (
    CARRIES_ALL,
    fill,
    for_reader,
    hand_to_reader,
    may_call,
    may_do,
    planned,
)
from baton.team.guard.speech import may_return, may_say
from baton.team.hints import hint_for_agent
from baton.team.intervene import Drop, Force, Replace, has_text, with_text
from baton.team.protocol import Answer, Entry
from baton.team.recording import Said
from baton.team.shared_verbs import read, write
from baton.team.state import RunState
from baton.team.surface import ParseError
from baton.team.tools.tool import Tool
from baton.trace.provenance import FILLED
from baton.trace.records import Ints
from baton.trace.vocabulary import Decision, EdgeType, EventType

_VERB_OF = {kind: verb for verb, kind in EVERY_VERB.items()}
_EVENT_OF: dict[type, EventType] = {
    Send: "message", Delegate: "message", Return: "return", CallTool: "tool_call", Aggregate: "aggregate",
    WriteShared: "message",
}  # fmt: skip


async def take_turn(run: RunState, me: Agent, carry_out: CarryOut | None = None) -> None:
    """One call, and the actions in its answer."""
    if me.done():  # a program that goes on after its run or its task has ended
        await Resting()
    me.turns += 1
    me.vain = me.vain + 1 if me.refused and not me.effective else 0
    me.refused = me.effective = False
    if me.vain > me.role.max_invalid and run.ledger is not None:  # traces up to 0.2 went on
        run.give_up(me, f"the budget refused all that it did, {me.vain} turns in a row")
        return
    if me.turns > me.role.max_turns:
        run.give_up(me, f"it took more than {me.role.max_turns} turns")
        return
    asked = await run.ask(me, me.drain())
    if asked is None or me.done():
        return
    answer, said = asked
    me.chosen = None
    first = True
    for item in run.harness.surface.parse(answer.text, run.harness.verbs[me.role.name]):
        command = answer.text[item.start : item.end].strip()
        spoken = _spoken(answer, said, item.start, item.end, first, command)
        first = False
        if isinstance(item, ParseError):
            invalid(run, me, item.message, spoken)
        elif said.options is not None and command not in said.options:
            invalid(run, me, f"that is not open to you now. Choose one of: {'; '.join(said.options)}", spoken)
        else:
            me.chosen = command
            if await perform(run, me, item.action, spoken, carry_out) or said.options is not None:
                break  # where the task names the options, one is chosen
        if me.done():
            return
    if run.outside.tools_of(me):
        me.waits_for_tools = True
        await Resting()


async def perform(
    run: RunState, me: Agent, action: Action, said: Said | None, carry_out: CarryOut | None = None
) -> bool:
    """Do it. True when the rest of the same completion is to be dropped (an intervention forced this one)."""
    if me.done():  # a program that goes on after its run or its task has ended
        await Resting()
    intervention = run.interventions.get(me.next_event_id()) if run.interventions else None
    extra: dict[str, Any] = {}
    if intervention is not None:
        extra = {"intervention": intervention.__struct_config__.tag}
        if me.next_event_id() in run.live_edits and not has_text(action):
            run.person_edits(me, intervention, why_not=f"a {_VERB_OF[type(action)]} has no text")
            intervention, extra = None, {}
        elif intervention.by is not None:
            run.person_edits(me, intervention)
    if intervention is not None:
        if isinstance(intervention, Replace):
            if not isinstance(action, CallTool | ReadShared):
                action = with_text(action, intervention.text)
        elif isinstance(intervention, Force):
            action = intervention.action
        elif isinstance(intervention, Drop):
            run.writer.emit(
                me,
                _EVENT_OF.get(type(action), "orchestrator_decision"),
                decision=action.decision,
                said=said,
                status="cancelled",
                extra=extra,
            )
            return False
    if me.id in run.muted and isinstance(action, Send | Delegate | Return | WriteShared):
        action, extra = with_text(action, ""), {"intervention": "mute"}
    forced = intervention is not None and me.next_event_id() not in run.live_edits
    refused, me.refused = me.refused, False
    try:
        if said is not None and _VERB_OF[type(action)] not in me.role.verbs and not forced:
            raise Forbidden(f"you may not {_VERB_OF[type(action)]}; you may: {', '.join(me.role.verbs)}")
        if run.guard is not None and not may_do(
            run, run.guard, me, _VERB_OF[type(action)], said, action.decision
        ):
            return isinstance(intervention, Force)
        if carry_out is not None and said is not None:
            await carry_out(me, action, said, extra)
        else:
            await _DO[type(action)](run, me, action, said, extra)
        me.invalid = 0
        me.effective = me.effective or not (me.refused or isinstance(action, Wait))
    except Forbidden as error:
        invalid(run, me, str(error), said, decision=action.decision)
    me.refused = me.refused or refused
    return isinstance(intervention, Force)


async def do(me: Agent, action: Action, said: Said | None, extra: dict[str, Any]) -> None:
    """What the verb does, for programs that carry actions out themselves. Raises Forbidden where it makes no sense."""
    await _DO[type(action)](me.run, me, action, said, extra)


def invalid(run: RunState, me: Agent, message: str, said: Said | None, decision: Any = "none") -> None:
    """Write an answer that could not be carried out, and tell the agent; too many in a row end its task."""
    run.writer.emit(me, "orchestrator_decision", decision=decision, text=message, said=said, status="invalid")
    me.note(f"error: {message}")
    me.invalid += 1
    if me.invalid > me.role.max_invalid:
        run.give_up(me, f"{me.invalid} answers in a row were invalid")


async def _spawn(run: RunState, me: Agent, action: Spawn, said: Said | None, extra: dict[str, Any]) -> None:
    if action.role not in me.role.spawns:
        raise Forbidden(f"you cannot spawn a {action.role!r}. {hint_for_agent(action.role, me.role.spawns)}")
    given = None if run.guard is None else for_reader(run.guard, action.role, action.task)
    number = me.num_children.get(action.role, 0) + 1
    me.num_children[action.role] = number
    prefix = "" if me.parent is None else f"{me.id}."
    id_ = f"{prefix}{action.role}{number}"
    if run.is_barred(id_):
        run.writer.emit(
            me,
            "safety_event",
            decision="spawn",
            said=said,
            status="failed",
            extra={"intervention": "bar", "agent": id_},
        )
        used = {role: me.num_children.get(role, 0) for role in me.role.spawns}
        left = run.is_anybody_left(prefix, used)
        me.note(f"error: {id_} is unavailable{'' if left else ', and so is anybody else'}.")
        return
    place = run.capped("agents") or run.budget.reserve(agents=1, depth=me.depth + 1)
    slot = run.budget.reserve(concurrent=1)
    if isinstance(place, Refusal) or isinstance(slot, Refusal):
        refusal = place if isinstance(place, Refusal) else slot
        for held in (place, slot):
            if isinstance(held, Reservation):
                held.release()
        run.refuse(me, refusal, decision="spawn", said=said, what=f"spawning {id_}")  # type: ignore[arg-type]  # one of the two
        return
    place.settle()
    if run.guard is not None and run.harness.role(action.role).inherit:
        extra = extra | CARRIES_ALL
    event = run.writer.emit(
        me, "spawn", decision="spawn", role=action.role, to=id_, text=action.task, said=said, extra=extra
    )
    child = run.add_agent(id_, run.harness.role(action.role), me)
    child.slot, child.born = slot, event.id
    me.children.append(child)
    child.inbox.append(Item(event.id, "spawn", me.id, f"task: {action.task}"))
    if run.guard is not None and given is not None:
        hand_to_reader(run.guard, child, event.id, given)
    me.note(f"spawned {id_}")


async def _delegate(
    run: RunState, me: Agent, action: Delegate, said: Said | None, extra: dict[str, Any]
) -> None:
    agent = _find(run, me, action.agent)
    if agent.parent is not me:
        raise Forbidden(f"you can delegate only to agents you spawned; {agent.id} is not one")
    if agent.state != "idle":
        raise Forbidden(f"{agent.id} is still busy; wait for it, or send it a message")
    given = None if run.guard is None else for_reader(run.guard, agent.role.name, action.task)
    slot = run.budget.reserve(concurrent=1)
    if isinstance(slot, Refusal):
        run.refuse(me, slot, decision="delegate", said=said, what=f"delegating to {agent.id}")
        return
    freed: list[tuple[str, EdgeType]] = []
    if agent.id in me.results:  # its return made it free to take this
        freed.append((me.results[agent.id][0], "causal"))
    event = run.writer.emit(
        me,
        "message",
        decision="delegate",
        from_=me.id,
        to=agent.id,
        text=action.task,
        said=said,
        extra=extra,
        causes=freed,
    )
    agent.slot = slot
    agent.state = "active"
    run.begin_again(agent)
    agent.turns = agent.invalid = agent.failures = 0
    run.active.add(agent.id)
    run.start_timer(agent)
    agent.inbox.append(Item(event.id, "message", me.id, f"task: {action.task}"))
    if run.guard is not None and given is not None:
        hand_to_reader(run.guard, agent, event.id, given)
    run.wake(agent)


async def _send(run: RunState, me: Agent, action: Send, said: Said | None, extra: dict[str, Any]) -> None:
    agent = _find(run, me, action.agent)
    event = run.writer.emit(
        me,
        "message",
        decision="communicate",
        from_=me.id,
        to=agent.id,
        text=action.text,
        said=said,
        extra=extra,
    )
    run.deliver(agent, Item(event.id, "message", me.id, f"{me.id}: {action.text}"))


async def _call_tool(
    run: RunState, me: Agent, action: CallTool, said: Said | None, extra: dict[str, Any]
) -> None:
    if action.tool not in me.role.tools:
        raise Forbidden(f"you have no tool {action.tool!r}. {hint_for_agent(action.tool, me.role.tools)}")
    tool = run.harness.tools[action.tool]
    if run.guard is not None:
        args, filled = fill(run.guard, tool, action.args)
        if filled is not None:
            action, extra = structs.replace(action, args=args), extra | {FILLED: list(filled.events)}

        def go(said: Said | None, allowed: dict[str, Any], causes: Sequence[tuple[str, EdgeType]]) -> None:
            _make_call(run, me, action, tool, said, extra | allowed, causes)

        allowed = may_call(run, run.guard, me, tool, action.args, said, go, filled)
        if allowed is None:
            return
        extra = extra | allowed
    _make_call(run, me, action, tool, said, extra)


def _make_call(
    run: RunState,
    me: Agent,
    action: CallTool,
    tool: Tool,
    said: Said | None,
    extra: dict[str, Any],
    causes: Sequence[tuple[str, EdgeType]] = (),
) -> None:
    spent = run.budget.reserve(tool_calls=1)
    if isinstance(spent, Refusal):
        run.refuse(me, spent, decision="none", said=said, what=f"calling {action.tool}")
        return
    spent.settle()
    args = msgspec.json.encode(action.args).decode()
    guard = run.guard
    if guard is not None:
        guard.knows_tool(tool)
    if tool.consequential if guard is None else guard.guard.is_consequential(tool):
        extra = extra | {"consequential": True}
    event = run.writer.emit(
        me,
        "tool_call",
        tool=action.tool,
        text=args,
        media_type="application/json",
        said=said,
        pure=tool.pure,
        extra=extra,
        causes=causes,
    )
    run.outside.start_tool(Op("tool", event.id, me, (tool, action.args)))
    if guard is not None:
        planned(run, guard, tool)


async def _wait(run: RunState, me: Agent, action: Wait, said: Said | None, extra: dict[str, Any]) -> None:
    for name in action.agents:
        _find(run, me, name)
    if not action.agents and not me.inbox and not any(child.state == "active" for child in me.children):
        raise Forbidden("there is nobody to wait for")
    run.writer.emit(me, "orchestrator_decision", decision="wait", said=said, extra=extra)
    await run.wait(me, action.agents, action.mode, chosen=said is not None)


async def _cancel(run: RunState, me: Agent, action: Cancel, said: Said | None, extra: dict[str, Any]) -> None:
    agents = [_find(run, me, name) for name in action.agents]
    for agent in agents:
        if agent.parent is not me:
            raise Forbidden(f"you can cancel only agents you spawned; {agent.id} is not one")
    run.writer.emit(me, "orchestrator_decision", said=said, extra=extra | {"cancel": list(action.agents)})
    for agent in agents:
        run.kill(agent, "cancelled")


async def _aggregate(
    run: RunState, me: Agent, action: Aggregate, said: Said | None, extra: dict[str, Any]
) -> None:
    allowed = me.role.aggregators
    if allowed and action.method not in allowed:
        raise Forbidden(
            f"you cannot aggregate by {action.method!r}. {hint_for_agent(action.method, allowed)}"
        )
    names = action.sources or tuple(me.results)
    if not names:
        raise Forbidden("nobody has returned anything to aggregate yet")
    for name in names:
        if name not in me.results:
            raise Forbidden(f"{name!r} has returned nothing to you. {hint_for_agent(name, me.results)}")
    try:
        method = aggregator(action.method, run.harness.aggregators)
        claims = [Claim(name, me.results[name][1], me.confidence.get(name)) for name in names]
        fused = method.fuse(claims, run.assignment.fusion.get(action.method, {}))
    except BatonError as error:
        raise Forbidden(str(error)) from None
    causes: list[tuple[str, EdgeType]] = [(me.results[name][0], "aggregate") for name in names]
    detail: dict[str, Any] = {"method": action.method, "sources": list(names), "weights": list(fused.weights)}
    if "posterior" in fused.detail:
        detail["posterior"] = fused.detail["posterior"]
    text = fused.text
    decision: Decision = "aggregate"
    if not method.pure:  # a model has to write it: the choice to have it written is an event of its own
        run.writer.emit(me, "orchestrator_decision", decision=decision, said=said, extra=extra | detail)
        drafted = await run.ask(me, [Entry("user", fused.text)])
        if drafted is None:
            return
        (answer, said), decision, extra = drafted, "none", {}
        text = answer.text
    run.writer.emit(
        me,
        "aggregate",
        decision=decision,
        text=text,
        said=said,
        causes=causes,
        extra=extra | detail,
    )
    me.answered = text
    me.note(f"{action.method}: {text}")


async def _return(run: RunState, me: Agent, action: Return, said: Said | None, extra: dict[str, Any]) -> None:
    if me.parent is None:
        raise Forbidden("nobody gave you a task to return from; stop instead")
    if run.guard is not None:
        text, kept = may_return(run.writer, run.guard, me, action.text)
        if kept:
            action, extra = Return(text), extra | kept
    if action.confidence is not None:
        extra = extra | {"confidence": action.confidence}
    if run.guard is not None and me.role.returns == "transcript":
        extra = extra | CARRIES_ALL
    event = run.writer.emit(
        me, "return", from_=me.id, to=me.parent.id, text=action.text, said=said, extra=extra
    )
    told = None
    if me.role.returns == "transcript" and me.id not in run.muted:
        told = "\n".join(f"{e.speaker}: {e.text}" for e in me.context.entries if e.speaker != "system")
    me.answered = action.text
    run.hand_over(me, returned(event.id, me.id, action.text, action.confidence, told))


async def _stop(run: RunState, me: Agent, action: Stop, said: Said | None, extra: dict[str, Any]) -> None:
    sure = 1.0 if said is None else None  # a program that stops does so with certainty
    answer = action.answer
    if run.guard is not None:
        answer, judged = may_say(run.writer, run.guard, me, answer)
        extra = extra | judged
    run.writer.emit(
        me,
        "orchestrator_decision",
        decision="stop",
        text=answer,
        said=said,
        propensity=sure,
        extra=extra,
    )
    run.answer, run.stopped = answer, True


def _find(run: RunState, me: Agent, name: str) -> Agent:
    """Another agent by name. Whether it is there is something this event depends on."""
    agent = run.agents.get(name)
    if agent is me:
        raise Forbidden("you cannot do that to yourself")
    if agent is not None and agent.parent is not me and agent.born is not None:
        me.causes.append((agent.born, "causal"))
    if agent is None or agent.state == "dead":
        if agent is not None and agent.parent is not me and agent.died is not None:
            me.causes.append((agent.died, "causal"))
        # Only those it can know of: the rest of the team is none of its business.
        known = [child.id for child in me.children if child.state != "dead"]
        known += [me.parent.id] if me.parent is not None else []
        hint = hint_for_agent(name, known) if known and len(known) <= 50 else "Use the name its spawn gave."
        raise Forbidden(f"there is no agent {name!r}. {hint}")
    return agent


def _spoken(answer: Answer, said: Said, start: int, end: int, first: bool, command: str) -> Said:
    """Which tokens said this, and how likely they were. Costs are charged to the first event alone."""
    span = _span(answer.token_ends, start, end)
    options = answer.option_propensities if first else None
    if options is not None and answer.choice is not None:
        propensity: float | None = options[answer.choice]
    elif span is not None and answer.logprobs is not None:
        propensity = math.exp(min(0.0, math.fsum(answer.logprobs[span[0] : span[1]])))
    else:
        propensity = None
    propensity = propensity or None  # zero: too small to be represented
    choice = answer.choice if first else None
    if choice is None and said.options is not None and command in said.options:
        choice = said.options.index(command)  # a language model says it; nobody told which one it is
    own = said if first else Said(call=said.call, options=said.options, seed_key=said.seed_key)
    return structs.replace(own, span=span, choice=choice, propensity=propensity, option_propensities=options)


def _span(token_ends: Ints | None, start: int, end: int) -> tuple[int, int] | None:
    """The tokens that cover a range of characters."""
    if not token_ends:
        return None
    # Bisected where they are: a copy for each of thousands of lines would take minutes.
    last = min(bisect_left(token_ends, end), len(token_ends) - 1)
    return (min(bisect_right(token_ends, start), last), last + 1)


_DO: dict[type, Any] = {
    Spawn: _spawn,
    Delegate: _delegate,
    Send: _send,
    CallTool: _call_tool,
    Wait: _wait,
    Cancel: _cancel,
    Aggregate: _aggregate,
    Return: _return,
    Stop: _stop,
    WriteShared: write,
    ReadShared: read,
}

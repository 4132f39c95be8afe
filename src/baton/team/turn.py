"""A turn: read the inbox, ask the policy, carry out what it says."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from baton.team.agent import Agent, CarryOut
from baton.team.budget import Refusal, Reservation
from baton.team.clock import Op, Resting
from baton.team.outside import unanswered
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.surface import ParseError
from baton.team.verbs import invalid, perform
from baton.team.writer import Said
from baton.trace.numbers import Ints
from baton.trace.records import Call

if TYPE_CHECKING:
    from baton.team.run import Run


_MAX_TOKENS = 1024  # for roles that name no limit of their own
_OVERHEAD_TOKENS = 8  # what a chat template adds to an entry, where only the text is known


class Question(Struct, frozen=True, kw_only=True):
    """A call on its way: what is asked, and what of it is new."""

    engine: Engine
    request: Request
    ids: Ints | None
    prompt_ref: str
    parent: str | None
    keep: int
    harness: str


async def take_turn(run: Run, me: Agent, carry_out: CarryOut | None = None) -> None:
    """One call, and the actions in its answer."""
    if me.done():  # a program that goes on after its run or its task has ended
        await Resting()
    me.turns += 1
    if me.turns > me.role.max_turns:
        run.give_up(me, f"it took more than {me.role.max_turns} turns")
        return
    asked = await ask(run, me, me.drain())
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


async def ask(run: Run, me: Agent, entries: Sequence[Entry]) -> tuple[Answer, Said] | None:
    """One call. None: the budget or the engine refused, and that has been dealt with."""
    engine = run.team.engine(me.role)
    context = me.context
    if me.role.memory == "latest":
        entries = context.renewed(entries, again=bool(me.invalid))
    parent, keep = context.parent_call, context.keep
    ids, text = context.read(entries, engine)
    new_tokens = len(ids) if ids is not None else len(text) + _OVERHEAD_TOKENS * len(entries)
    reserved = _reserve(run, me, new_tokens)
    if isinstance(reserved, Refusal):
        me.unread = context.forget(len(entries))
        run.refuse(me, reserved, decision="none", said=None, what="another turn")
        run.give_up(me, f"the team's {reserved.resource} are used up")
        return None
    max_tokens, reservation = reserved
    me.num_calls += 1
    call_id = f"{me.id}:{me.num_calls}"
    sampling = structs.replace(me.role.sampling, max_tokens=max_tokens, key=run.sampling_key(call_id))
    assignment = run.assignment
    question = Question(
        engine=engine,
        request=Request(
            call=call_id,
            agent=me.id,
            role=me.role.name,
            entries=context.entries,
            prompt_ids=context.ids,
            sampling=sampling,
            options=assignment.options(me) if assignment.options else None,
            state=assignment.state(me) if assignment.state else None,
            tools=run.harness.schemas[me.role.name],
        ),
        ids=ids,
        prompt_ref=run.text(text.decode()) or "",
        parent=parent,
        keep=keep,
        harness=run.harness.hash,
    )
    op = Op("call", call_id, me, question)
    op.start = run.driver.now
    me.op, me.reservation = op, reservation
    run.outside.start_call(run, op)
    answer: Answer | EngineError = await op
    me.reservation = None
    if isinstance(answer, EngineError):
        reservation.settle_call(0)
        me.unread = context.forget(len(entries))
        _failed(run, me, op, answer)
        return None
    completion = _count(answer)
    charged = min(new_tokens + completion, new_tokens + max_tokens)
    reservation.settle_call(charged)
    me.failures = 0
    context.say(answer, call_id)
    run.add_call(_record(run, me, op, answer, completion))
    said = Said(
        call=call_id,
        start=op.start,
        duration_s=run.driver.now - op.start,
        options=question.request.options,
        tokens=charged,
        seed_key=op.work.request.sampling.key,  # with the replicate that drew it, of a fork
    )
    return answer, said


def _reserve(run: Run, me: Agent, new_tokens: int) -> Refusal | tuple[int, Reservation]:
    """Room for this call in the budget: (tokens it may say, the reservation)."""
    wanted = me.role.sampling.max_tokens or _MAX_TOKENS
    left = run.ledger.remaining("tokens")
    if left is not None:
        if me.parent is not None:
            left -= run.team.hold_back_tokens
        wanted = max(1, min(wanted, int(left) - new_tokens))
        if new_tokens + wanted > left:
            ledger = run.ledger
            limit = ledger.limits.tokens or 0
            return Refusal(
                "tokens", limit, ledger.used("tokens"), ledger.reserved("tokens"), new_tokens + wanted
            )
    reservation = run.ledger.reserve_call(new_tokens + wanted)
    return reservation if isinstance(reservation, Refusal) else (wanted, reservation)


def _failed(run: Run, me: Agent, op: Op, error: EngineError) -> None:
    """The engine could not answer: written down, and tried again a few times."""
    run.add_call(unanswered(run, op, "error"))
    said = Said(call=op.id, start=op.start, duration_s=run.driver.now - op.start)
    run.emit(me, "orchestrator_decision", text=str(error), said=said, status="failed")
    me.failures += 1
    if me.failures > me.role.max_failures:
        run.give_up(me, f"its engine failed {me.failures} times in a row: {error}")


def _count(answer: Answer) -> int:
    if answer.completion_tokens is not None:
        return answer.completion_tokens
    return len(answer.completion_ids) if answer.completion_ids is not None else len(answer.text) // 4 + 1


def _record(run: Run, me: Agent, op: Op, answer: Answer, completion: int) -> Call:
    question: Question = op.work
    return Call(
        id=op.id,
        agent=me.id,
        role=me.role.name,
        policy=answer.policy,
        policy_version=answer.policy_version,
        harness=question.harness,
        parent=question.parent,
        keep=question.keep,
        prompt_ids=question.ids,
        completion_ids=answer.completion_ids,
        logprobs=answer.logprobs,
        token_ends=answer.token_ends,
        prompt_ref=question.prompt_ref,
        completion_ref=run.text(answer.text),
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=completion,
        sampling=question.request.sampling,
        finish_reason=answer.finish_reason,
        t=op.start,
        duration_s=run.driver.now - op.start,
    )


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
    if not first:
        return Said(
            call=said.call,
            span=span,
            options=said.options,
            choice=choice,
            propensity=propensity,
            seed_key=said.seed_key,
        )
    return Said(
        call=said.call,
        start=said.start,
        span=span,
        options=said.options,
        choice=choice,
        propensity=propensity,
        option_propensities=options,
        duration_s=said.duration_s,
        tokens=said.tokens,
        seed_key=said.seed_key,
    )


def _span(token_ends: Ints | None, start: int, end: int) -> tuple[int, int] | None:
    """The tokens that cover a range of characters."""
    if not token_ends:
        return None
    ends = token_ends.tolist()
    last = min(bisect_left(ends, end), len(ends) - 1)
    return (min(bisect_right(ends, start), last), last + 1)

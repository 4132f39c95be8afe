"""A rollout of a program as a trace that can be trained on: what the session tells, and what the run knows besides.

The session's trace says who asked whom. Here calls get what they were drawn with (a policy answers at the run's
temperature, whatever the program asked for) and the role whose policy answered; the trace gets its instance, its reward
and how the program ended. A session in which nothing was answered is a trace too: it has no calls, and earns what it
earns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from baton.learn.program.part import ProgramPart
from baton.learn.program.result import ProgramResult
from baton.learn.program.roles import ProgramRoles, as_drawn
from baton.learn.stage import Episode
from baton.serve.exchange import Exchange
from baton.serve.journal import SpansLine
from baton.serve.session_trace import session_trace
from baton.trace.graph.lineage import Lineage
from baton.trace.outcome import TASK_CHANNEL, cut_off, final_event
from baton.trace.recorder import Recorder
from baton.trace.records import Call, Edge, Event, Payload, Reward
from baton.trace.trace import Trace


def rollout_trace(
    part: ProgramPart,
    result: ProgramResult,
    episode: Episode,
    *,
    reward: float,
    spans: Sequence[SpansLine],
    told: Mapping[str, Any],
) -> Trace:
    """The trace of one run; `told` is what its header says of the program."""
    answered = [each for each in result.exchanges if each.reply is not None]
    if answered:
        trace = session_trace(result.exchanges, result.posted, spans, name=result.session)
        trace = _ended(trace, result)
    else:
        trace = _nothing(part, result)
    meta = {
        "train": {"step": episode.step, "instance": episode.instance, "split": episode.split},
        "program": dict(told),
    }
    header = structs.replace(
        trace.header,
        trace_id=episode.name,
        task_id=result.instance.id,
        meta={**trace.header.meta, **meta},
    )
    own = [each for each in trace.rewards if each.unit != "team" or each.channel != TASK_CHANNEL]
    earned = Reward(family="shared", unit="team", target=episode.name, value=reward, by="program")
    return structs.replace(
        trace,
        header=header,
        calls=_drawn(trace, answered, part, f"{episode.seed}/{result.session}"),
        rewards=(*own, earned),
        costs={**trace.costs, "tokens": float(sum(_tokens(each) for each in answered))},
        finished=True,
    )


def _tokens(exchange: Exchange) -> int:
    reply = exchange.reply
    return 0 if reply is None else (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)


def _drawn(trace: Trace, answered: Sequence[Exchange], part: ProgramPart, stream: str) -> tuple[Call, ...]:
    """The calls, each with the role and the sampling of the exchange that it was.

    Which one that was is told by its tokens, prompt and completion; of exchanges with the same tokens the earliest.
    """
    roles = ProgramRoles(part)
    waiting: dict[tuple[bytes, bytes], list[Exchange]] = {}
    for exchange in sorted(answered, key=lambda each: -each.number):
        for key in _tokens_said(exchange):
            waiting.setdefault(key, []).append(exchange)
    found: list[Call] = []
    for call in trace.calls:
        prompt, said = trace.prompt_ids(call), call.completion_ids
        same = None if prompt is None or said is None else waiting.get((prompt.tobytes(), said.tobytes()))
        if not same:
            found.append(call)
            continue
        exchange = same.pop()
        sampling = structs.replace(as_drawn(exchange.ask, part).sampling, key=f"{stream}/{exchange.id}")
        found.append(structs.replace(call, role=roles.of(exchange.ask, exchange.headers), sampling=sampling))
    return tuple(found)


def _tokens_said(exchange: Exchange) -> list[tuple[bytes, bytes]]:
    reply = exchange.reply
    if reply is None or reply.prompt_ids is None:
        return []
    prompt = reply.prompt_ids.tobytes()
    return [
        (prompt, each.completion_ids.tobytes()) for each in reply.choices if each.completion_ids is not None
    ]


def _ended(trace: Trace, result: ProgramResult) -> Trace:
    """The trace with its end, where the session's own does not say how it came about."""
    cut = result.ending == "cut"
    final = final_event(trace)
    told = any(event.decision == "stop" and event.status == "failed" for event in trace.events)
    if cut_off(trace) if cut else final is not None or told:
        return trace
    if final is not None:  # what looked like its last word was only the last one that it had time for
        events = tuple(structs.replace(e, status="forced") if e is final else e for e in trace.events)
        return structs.replace(trace, events=events)
    root = Lineage.of(trace).root or trace.events[0].agent
    last = trace.events[-1]
    mine = next((event for event in reversed(trace.events) if event.agent == root), last)
    payload = Payload.of(result.answer)
    end = Event(
        id=f"{last.id}.end",
        t=last.t,
        type="orchestrator_decision",
        agent=root,
        seq=last.seq + 1,
        decision="stop",
        status="forced" if cut else "failed" if result.ending == "failed" else "ok",
        content_ref=payload.ref,
        inferred=True,
        why="the program ended",
    )
    return structs.replace(
        trace,
        events=(*trace.events, end),
        edges=(*trace.edges, Edge(mine.id, end.id, "temporal")),
        payloads={**trace.payloads, payload.ref: payload},
    )


def _nothing(part: ProgramPart, result: ProgramResult) -> Trace:
    """A run in which nobody was answered."""
    with Recorder(None, task_id=result.instance.id, trace_id=result.session) as team:
        team.agent(part.role, role=part.role).stop(result.answer)
    trace = team.trace()
    if result.ending != "cut":
        return trace
    events = tuple(
        structs.replace(event, status="forced") if event.decision == "stop" else event
        for event in trace.events
    )
    return structs.replace(trace, events=events)

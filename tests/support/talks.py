"""Rollouts in which agents speak in turn: who said what, and what it came to."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import structs

from baton.trace import Call, Event, Floats, Header, Ints, Payload, Reward, Trace


def talk(name: str, total: float, said: Sequence[tuple[str, str]], *, task: str = "task") -> Trace:
    """A trace of messages (agent, text), in this order, and the team's return."""
    payloads = [Payload.of(text) for _, text in said]
    events = tuple(
        Event(
            id=f"{agent}#{number}", t=float(number), type="message", agent=agent, seq=number, role=agent,
            decision="communicate", content_ref=payload.ref,
        )
        for number, ((agent, _), payload) in enumerate(zip(said, payloads, strict=True), 1)
    )  # fmt: skip
    return Trace(
        header=Header(trace_id=name, task_id=task),
        events=events,
        payloads={payload.ref: payload for payload in payloads},
        rewards=(Reward(family="shared", unit="team", target=name, value=total),),
    )


def with_options(trace: Trace, last: Sequence[str], chances: Sequence[float]) -> Trace:
    """The last message as a choice among options with these chances."""
    event = trace.events[-1]
    text = trace.text(event.content_ref) or ""
    told = structs.replace(
        event, call="last", options=tuple(last), choice=last.index(text), option_propensities=tuple(chances)
    )
    call = Call(id="last", agent=event.agent)
    return structs.replace(trace, events=(*trace.events[:-1], told), calls=(*trace.calls, call))


def with_chances(trace: Trace, chances: Sequence[float]) -> Trace:
    """Each message said by a call of its own, as likely as this."""
    calls, events = [], []
    for number, (event, chance) in enumerate(zip(trace.events, chances, strict=True)):
        ids = Ints(list((trace.text(event.content_ref) or "").encode()))
        logprobs = Floats([math.log(chance), *[0.0] * (len(ids) - 1)])
        calls.append(Call(id=f"c{number}", agent=event.agent, completion_ids=ids, logprobs=logprobs))
        events.append(structs.replace(event, call=f"c{number}"))
    return structs.replace(trace, events=tuple(events), calls=tuple(calls))

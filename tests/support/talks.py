"""Rollouts in which agents speak in turn: who said what, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence

from baton.trace import Event, Header, Payload, Reward, Trace


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

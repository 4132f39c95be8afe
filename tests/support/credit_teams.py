"""Small traces to give credit on: a lead, some workers, tokens, spans, rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from baton.trace import Call, Credit, Edge, Event, Header, Ints, Reward, Trace


def make_trace(
    name: str = "a",
    total: float | None = 1.0,
    *,
    workers: int = 2,
    said: Sequence[str] = (),
    more_rewards: Sequence[Reward] = (),
    stop_status: Any = "ok",
    tool_status: Any = "ok",
) -> Trace:
    """lead spawns workers; each calls a tool, then returns; lead aggregates and stops.

    `said[i]` is what worker i+1 returns ("x" otherwise). Completions are 6 tokens a call; every call's first
    token is reasoning. Each event names its span.
    """
    events: list[Event] = []
    calls: list[Call] = []
    edges: list[Edge] = []

    def call(agent: str, role: str, number: int, tokens: Sequence[int], prompt: Sequence[int] = (7,)) -> str:
        id_ = f"{agent}:{number}"
        calls.append(
            Call(id=id_, agent=agent, role=role, prompt_ids=Ints(prompt), completion_ids=Ints(tokens))
        )
        return id_

    def event(agent: str, role: str, type_: Any, **more: Any) -> str:
        seq = len(events) + 1
        id_ = f"{agent}#{seq}"
        more.setdefault("t", float(seq))
        events.append(Event(id=id_, type=type_, agent=agent, seq=seq, role=role, **more))
        return id_

    first = call("lead", "orchestrator", 1, range(2 * workers + 1))
    for worker in range(1, workers + 1):
        event(
            "lead", "searcher", "spawn", to=f"w{worker}", decision="spawn", call=first,
            span=(2 * worker - 1, 2 * worker + 1), tokens=10, options=("spawn", "stop"), choice=0, propensity=0.75,
            option_propensities=(0.75, 0.25),
        )  # fmt: skip
    for worker in range(1, workers + 1):
        agent = f"w{worker}"
        words = said[worker - 1] if worker <= len(said) else "x"
        asked = call(agent, "searcher", 1, (1, 2, 3, 4, 5, 6))
        asking = event(agent, "searcher", "tool_call", tool="grep", call=asked, span=(1, 4), tokens=9)
        answer = event(agent, "searcher", "tool_result", tool="grep", status=tool_status)
        edges.append(Edge(asking, answer, "tool_dependency"))
        told = call(agent, "searcher", 2, (1, 2, 3, 4, 5, sum(map(ord, words))), prompt=(7, 8))
        event(
            agent, "searcher", "return", to="lead", decision="communicate", call=told, span=(2, 6),
            content_ref=f"text:{words}", tokens=6,
        )  # fmt: skip
    last = call("lead", "orchestrator", 2, (1, 2, 3, 4, 5, 6), prompt=(7, 8, 9))
    event("lead", "orchestrator", "aggregate", decision="aggregate", call=last, span=(1, 3), tokens=8)
    forced = stop_status == "forced"
    event(
        "lead", "orchestrator", "orchestrator_decision", decision="stop", status=stop_status,
        call=None if forced else last, span=None if forced else (4, 6),
    )  # fmt: skip
    rewards = [] if total is None else [Reward(family="shared", unit="team", target=name, value=total)]
    return Trace(
        header=Header(trace_id=name, task_id="task"),
        events=tuple(events),
        edges=tuple(edges),
        calls=tuple(calls),
        rewards=(*rewards, *more_rewards),
    )


def group_of(totals: Sequence[float], **more: Any) -> list[Trace]:
    return [make_trace(f"t{place}", total, **more) for place, total in enumerate(totals)]


def values_of(credits: Sequence[Sequence[Credit]]) -> list[list[float]]:
    return [[credit.value for credit in mine] for mine in credits]


def by_target(credits: Sequence[Credit]) -> dict[str, float]:
    return {credit.target: credit.value for credit in credits}


returns_lists = st.lists(st.floats(-100, 100).map(lambda x: round(x, 6)), min_size=2, max_size=8)

"""Traces made by hand: events and edges, and small teams recorded on a scripted clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from baton.measure.measured import MeasuredTrace
from baton.trace.gold import Gold
from baton.trace.recorder import Recorder
from baton.trace.records import Edge, Event
from baton.trace.trace import Header, Trace


def event(seq: int, agent: str, type_: str = "message", **fields: Any) -> Event:
    return Event(**{"id": f"e{seq}", "t": float(seq), "type": type_, "agent": agent, "seq": seq, **fields})


def trace_of(
    events: Iterable[Event], edges: Iterable[tuple[str, str, str]] = (), trace_id: str = "t", **fields: Any
) -> Trace:
    return Trace(
        header=Header(trace_id=trace_id, task_id=fields.pop("task_id", "k")),
        events=tuple(events),
        edges=tuple(Edge(*edge) for edge in edges),
        **fields,
    )


class Scene:
    """A recorder with a clock that only moves when told."""

    def __init__(self, trace_id: str = "t", task_id: str = "k", topology: Any = "centralized") -> None:
        self.seconds = 0.0
        self.team = Recorder(
            None, task_id=task_id, trace_id=trace_id, topology=topology, clock=lambda: self.seconds
        )

    def says(self, agent: Any, took: float = 1.0, tokens: int = 10, prompt: list[int] | None = None) -> None:
        self.seconds += took
        ids = {} if prompt is None else {"prompt_ids": prompt}
        agent.call(completion_ids=list(range(tokens)), duration_s=took, finish_reason="stop", **ids)


@contextmanager
def scene(**named: Any) -> Iterator[Scene]:
    made = Scene(**named)
    with made.team:
        yield made


def reading(make: Callable[[Scene], None], gold: Gold | None = None, **named: Any) -> MeasuredTrace:
    """A team's trace, ready to be measured."""
    with scene(**named) as made:
        make(made)
    return MeasuredTrace(made.team.trace(), gold)


def is_right(text: str) -> Callable[[str], float]:
    return lambda answer: float(answer.strip() == text)


def team_of(
    answer: str = "42", *, workers: int = 2, tokens: int = 10, success: float | None = None, **named: Any
) -> MeasuredTrace:
    """A lead and workers that each take a second at once, an aggregate, a stop."""

    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="orchestrator")
        stage.says(lead, tokens=tokens)
        crew = [lead.spawn(f"w{k}", role="worker", task=f"part {k}") for k in range(workers)]
        stage.seconds += 1
        for worker in crew:
            worker.call(completion_ids=list(range(tokens)), duration_s=1.0)
            worker.returns(answer)
        stage.says(lead, tokens=tokens)
        if crew:
            lead.aggregate(crew, answer, method="first")
        lead.stop(answer)
        if success is not None:
            stage.team.reward("shared", success)

    return reading(play, **named)

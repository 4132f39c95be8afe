"""Small recorded teams to reward, honest and not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from baton.reward import Gold
from baton.trace.formats import read
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import Topology

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "v1").glob("*.jsonl"))


def golden(name: str) -> Trace:
    return read(Path(__file__).parents[1] / "golden" / "v1" / f"{name}.jsonl")


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def recorded(
    play: Callable[[Recorder, RecordedAgent, Clock], None],
    topology: Topology = "centralized",
    outcome: float | None = None,
    trace_id: str = "t",
) -> Trace:
    """What `play` does with a team of one orchestrator, as a trace."""
    clock = Clock()
    with Recorder(None, task_id="task", topology=topology, trace_id=trace_id, clock=clock) as team:
        play(team, team.agent("lead", role="orchestrator"), clock)
        if outcome is not None:
            team.reward("shared", outcome)
    return team.trace()


def star(
    num_workers: int, *, serial: bool = False, hollow: Sequence[int] = (), outcome: float = 1.0
) -> Trace:
    """Workers sent out together; one after the other, or with some that are never heard."""

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        workers = [lead.spawn(f"w{n}", role="worker", task=f"part {n}") for n in range(num_workers)]
        clock.seconds += 1.0
        for n, worker in enumerate(workers):
            if n in hollow:
                continue
            if serial:
                clock.seconds += 1.0
            worker.tool("look", {"part": n}).result(f"found {n}", duration_s=1.0)
        clock.seconds += 1.0
        for n, worker in enumerate(workers):
            if n not in hollow:
                worker.returns(f"part {n} done")
        lead.stop("done")

    return recorded(play, outcome=outcome)


def checked(answer: str, verdict: str, *, outcome: float | None = None, trace_id: str = "t") -> Trace:
    """A solver answers, a verifier reads it and gives its verdict."""

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        solver = lead.spawn("solver", role="solver", task="solve")
        verifier = lead.spawn("verifier", role="verifier", task="verify")
        solver.send(verifier, answer)
        solver.returns(answer)
        verifier.returns(verdict)
        lead.stop(answer)

    return recorded(play, outcome=outcome, trace_id=trace_id)


def with_verdicts(trace: Trace, **verdicts: float) -> Trace:
    """Judges' scores, recorded on agents."""
    return trace.with_records(
        rewards=[
            Reward(family="debate", unit="agent", target=agent, value=value, name="verdict", by="j")
            for agent, value in verdicts.items()
        ]
    )


def full_gold(answer: str = "8080") -> Gold:
    """Something for every rule, for any golden trace."""
    return Gold(
        answer=answer,
        items=(answer,),
        parts=("docs", "code", "1", "2"),
        milestones=("half", "all"),
        reached=lambda prefix: {name for name, n in (("half", 5), ("all", 12)) if len(prefix.events) >= n},
        scorer=lambda prefix: len(prefix.events) / 32,
        judges={"a": lambda trace, event: 1 + trace.event(event).seq % 10, "b": lambda trace, event: 4.0},
        solo=0.5,
        least_work_s=3.0,
    )


def values(rewards: Sequence[Reward]) -> dict[str, float]:
    return {reward.target: reward.value for reward in rewards}

"""Spawn credit where there are more than two options: each is worth Q(o) - sum pi(o') Q(o'), by plain arithmetic."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from fork_teams import draw, team_of, turn_of
from msgspec import structs

from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits
from baton.credit.estimators.spawn_options import decisions_of
from baton.team.clock import uniform
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.trace.trace import Trace

THREE = {"spawn worker: help": (0.4, 0.8), "stop A": (0.3, 0.7), "stop B": (0.3, 0.1)}
MANY = {
    "spawn worker: help": (0.05, 0.9),
    **{f"stop answer {k}!": (0.1 + 0.02 * (k % 3 - 1), 0.1 * k) for k in range(9)},
    "spawn worker: the other way": (0.07, 0.35),
}
"""Option -> its chance and its worth; those that spawn stop with what they were asked for."""


def chooser(table: dict[str, tuple[float, float]], seed: int, luck: float = 0.0) -> tuple[Team, Assignment]:
    """A root that picks one option; the return is the option's worth and, with `luck`, a coin of its own."""
    options, chances = tuple(table), tuple(p for p, _ in table.values())
    scale = sum(chances)

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            return f"return {request.entries[-1].text.rpartition(': ')[2]}"
        if turn_of(request) == 0:
            return draw(request, options, tuple(p / scale for p in chances))
        return "wait all" if turn_of(request) == 1 else f"stop {request.entries[-1].text.rpartition(': ')[2]}"

    worth = {option.partition(" ")[2].removeprefix("worker: "): q for option, (_, q) in table.items()}
    sign = 1 if uniform(f"luck/{seed}") < 0.5 else -1

    def verify(answer: str) -> float:
        return worth[answer] + luck * sign

    team, _ = team_of(script, seed)
    return team, Assignment(
        task_id="pick",
        prompt="p",
        verify=verify,
        options=lambda me: options if me.role.name == "orchestrator" and me.turns == 1 else None,
    )


def played(table: dict[str, tuple[float, float]], num: int, luck: float = 0.0) -> tuple[list[Trace], Forks]:
    group = [asyncio.run(run(*chooser(table, seed, luck), trace_id=f"t{seed:03}")) for seed in range(num)]
    team, _ = chooser(table, 0)
    return group, Forks(team, lambda trace: chooser(table, int(trace.trace_id[1:4]), luck)[1])


def truth(table: dict[str, tuple[float, float]]) -> dict[str, float]:
    total = sum(p for p, _ in table.values())
    mean = sum(p * q for p, q in table.values()) / total
    return {option: q - mean for option, (_, q) in table.items()}


def taken(trace: Trace) -> str:
    (event,) = decisions_of(trace)
    assert event.options is not None
    assert event.choice is not None
    return event.options[event.choice]


def asked(name: str, group: list[Trace], forks: Forks, **settings: Any) -> Credits:
    found = ESTIMATORS[name]
    if "runtime" in found.needs:
        made: Credits = asyncio.run(found.function(group, runner=forks, **settings))
        return made
    return found(group, **settings)


def test_three_options_have_the_credit_that_arithmetic_gives() -> None:
    """It was .42 for the spawn (true .24) and -.04 for "stop A" (true +.14): the other stop was never asked."""
    assert truth(THREE) == pytest.approx({"spawn worker: help": 0.24, "stop A": 0.14, "stop B": -0.46})
    group, forks = played(THREE, 12, luck=0.3)
    seen = {}
    for trace, (credit,) in zip(group, asked("spawn-fork", group, forks), strict=True):
        assert credit.value == pytest.approx(truth(THREE)[taken(trace)])
        seen[taken(trace)] = credit
    assert set(seen) == set(THREE)
    assert any("every option" in note for note in seen["stop A"].assumes)


def test_options_beyond_the_budget_are_drawn_and_weighed() -> None:
    """Eleven options, two forked at a time: right on average over the draws, and at most two forks each."""
    group, forks = played(MANY, 20)
    exact, errors, stated = truth(MANY), [], []
    for seed in range(60):
        before = forks.num_run
        credits = asked("spawn-fork", group, forks, num_options=2, seed=seed)
        assert forks.num_run - before <= 2 * len(group)
        for trace, (credit,) in zip(group, credits, strict=True):
            errors.append(credit.value - exact[taken(trace)])
    assert np.std(errors) > 0.02
    assert abs(np.mean(errors)) < 4 * np.std(errors) / len(errors) ** 0.5
    for trace, (credit,) in zip(group, asked("spawn-fork", group, forks, num_options=10), strict=True):
        assert credit.value == pytest.approx(exact[taken(trace)])
    for trace, (credit,) in zip(
        group, asked("spawn-fork", group, forks, num_options=2, num_replicates=64), strict=True
    ):
        assert credit.stderr is not None
        stated.append(abs(credit.value - exact[taken(trace)]) / credit.stderr)
    assert np.mean(np.array(stated) < 2) > 0.7


@pytest.mark.parametrize("name", ["spawn-doubly-robust", "spawn-combined"])
def test_each_option_is_credited_for_itself_from_a_log(name: str) -> None:
    group, forks = played(THREE, 90, luck=0.2)
    credits = asked(name, group, forks)
    for trace, (credit,) in zip(group, credits, strict=True):
        exact = truth(THREE)[taken(trace)]
        assert credit.stderr is not None
        assert abs(credit.value - exact) < 4 * credit.stderr, (name, taken(trace), credit)
        assert np.sign(credit.value) == np.sign(exact)


def test_options_that_differ_from_rollout_to_rollout_are_judged_by_their_kind() -> None:
    """Where like decisions had other options, the log can only tell a spawn from none, and says so."""
    group, forks = played(THREE, 40)
    varied = []
    for k, trace in enumerate(group):
        (event,) = decisions_of(trace)
        options = ("spawn worker: help", f"stop A{k}", "stop B")
        events = tuple(structs.replace(e, options=options) if e.id == event.id else e for e in trace.events)
        varied.append(structs.replace(trace, events=events))
    kinds = {"spawn": 0.24, "stop": -0.16}
    for trace, (credit,) in zip(varied, asked("spawn-doubly-robust", varied, forks), strict=True):
        exact = kinds[taken(trace).split()[0]]
        assert credit.stderr is not None
        assert abs(credit.value - exact) < 4 * credit.stderr
        assert any("spawn or none" in note for note in credit.assumes)

"""Credit of an outside program's words through forks, against a game whose values are known in closed form."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from dig_game import ALONE, MEAN, PLACES, SPAWN_CHANCE, WORTH, DigProgram, answer

from baton.compose.credit_traces import CreditWatch, Expected, credits_of
from baton.credit import find
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.exchange import Posted
from baton.serve.journal import KeptSession, read_session
from baton.serve.replay.program_forks import ProgramForks
from baton.serve.server import Serving
from baton.team.altered import ForkError
from baton.team.forks import WhatIf
from baton.team.intervene import Replace
from baton.trace.records import Credit


def recorded(folder: Path, program: DigProgram, seed: int) -> KeptSession:
    name = f"dig-{seed}"
    with Serving(folder, ScriptedBackend(answer), seed=str(seed), traces=False) as serving:
        run = asyncio.run(program(serving, name))

        async def end() -> None:
            serving.session(name).post(Posted(session=name, ended=True, status="ok", answer=run.text))

        serving.call(end())
    return read_session(folder / "sessions" / f"{name}.jsonl")


def credited(
    session: KeptSession, program: DigProgram, estimator: str, seed: int, **settings: object
) -> tuple[ProgramForks, list[Credit]]:
    told: list[Expected] = []

    def hear(expected: Expected) -> None:
        assert forks.num_run == 0  # said first
        told.append(expected)

    with ProgramForks(session, program, ScriptedBackend(answer), seed=str(seed), score=float) as forks:
        found = asyncio.run(
            credits_of(
                find(estimator),
                [forks.trace],
                settings={"spend": None, **settings},
                runner=forks,
                watch=CreditWatch(spending=hear),
            )
        )
    assert len(told) == 1
    return forks, found[0]


def words(forks: ProgramForks, event: str) -> str:
    return forks.trace.text(forks.trace.event(event).content_ref) or ""


def test_the_credit_of_a_message_is_its_total_effect_in_closed_form(tmp_path: Path) -> None:
    """TE(m) = E[R | m] - sum p(m') E[R | m']; of what the digger said, its worth less what it was expected to be."""
    program, places = DigProgram(leads=False), []
    misses: list[float] = []
    for seed in range(6):
        session = recorded(tmp_path, program, seed)
        forks, credits = credited(
            session, program, "message-replay", seed, num_alternatives=6, num_continuations=5
        )
        scout, digger = credits
        place, found = words(forks, scout.target), words(forks, digger.target)
        places.append(place)
        truth = (WORTH[place] - MEAN, (PLACES[place][2] if found == "gold" else 0.0) - WORTH[place])
        for credit, value in zip(credits, truth, strict=True):
            if credit.stderr is not None:
                misses.append((credit.value - value) / credit.stderr)
            else:  # all draws came out alike: with six of them the chance of the other word is small or its worth is
                assert abs(credit.value) <= 1e-9
        assert forks.usage.calls_reused > 0
        assert forks.cost.calls >= forks.usage.calls_run
    assert len(set(places)) > 1
    assert max(map(abs, misses)) < 4
    assert abs(math.fsum(misses)) / math.sqrt(len(misses)) < 3


def test_the_credit_of_a_spawn_against_not_spawning(tmp_path: Path) -> None:
    """TE(spawn) = E[R | spawn] - (p E[R | spawn] + (1 - p) alone) = (1 - p)(MEAN - ALONE)."""
    program = DigProgram(leads=True)
    seed = next(seed for seed in range(20) if len(recorded(tmp_path, program, seed).exchanges) > 1)
    session = read_session(tmp_path / "sessions" / f"dig-{seed}.jsonl")
    forks, (credit,) = credited(
        session, program, "spawn-replay", seed, num_alternatives=8, num_continuations=8
    )
    assert forks.trace.event(credit.target).type == "spawn"
    assert credit.stderr is not None
    assert abs(credit.value - (1 - SPAWN_CHANCE) * (MEAN - ALONE)) < 3 * credit.stderr
    assert credit.stderr < 0.6


def test_a_branch_is_made_once_and_a_repeat_costs_nothing(tmp_path: Path) -> None:
    program = DigProgram(leads=False)
    session = recorded(tmp_path, program, 1)
    with ProgramForks(session, program, ScriptedBackend(answer), seed="1", score=float) as forks:
        call = forks.trace.calls[0].id
        one = asyncio.run(forks.ask(forks.trace, call, [7, 8]))
        before, runs = forks.cost, program.num_runs
        assert asyncio.run(forks.ask(forks.trace, call, [7, 8])) == one
        assert forks.cost == before
        event = next(event.id for event in forks.trace.events if event.call == call)
        branch = WhatIf(replicate=3, redraw=event)
        made = asyncio.run(forks.fork_all(forks.trace, [branch, branch]))
        assert made[0] is made[1]
        assert program.num_runs == runs + 1
        assert (made[0].usage.calls_reused, made[0].usage.calls_run) == (1, 1)
        with pytest.raises(ForkError, match="only what a model says"):
            asyncio.run(forks.fork(forks.trace, (Replace(event, "x"),)))
        with pytest.raises(ForkError, match="only what a model says"):
            asyncio.run(
                credits_of(find("message-replay"), [forks.trace], settings={"level": "edge"}, runner=forks)
            )

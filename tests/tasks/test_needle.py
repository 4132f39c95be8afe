"""The needle: its score and what each report is worth, against coalitions counted out; its team; strangers' answers."""

from __future__ import annotations

import asyncio
import math
from itertools import permutations, product
from pathlib import Path

import pytest

from baton.cli import main
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.tasks.needle import (
    LETTERS,
    NOTHING,
    QUIET,
    Needle,
    answer_of,
    facts,
    found_in,
    part,
    play,
    reports_in,
)
from baton.team.forks import fork
from baton.team.intervene import BarAgent
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Team
from baton.testing import check_task
from baton.trace.formats import read
from baton.trace.outcome import answer_of as answer_in


def test_the_task_keeps_its_contract() -> None:
    check_task(Needle())
    check_task(Needle(num_shards=2, per_shard=25), seeds=2)


def test_one_shard_holds_the_fact_and_splits_share_none() -> None:
    assert not set(facts("train")) & set(facts("test"))
    assert len(facts("train")) + len(facts("test")) == 260
    assert {n for _, n in facts("test")} == {n for _, n in facts("train")} == set(range(10))
    assert {letter for letter, _ in facts("test")} == {letter for letter, _ in facts("train")} == set(LETTERS)
    for split in ("train", "test"):
        for seed in range(40):
            one = Needle(num_shards=5, per_shard=3).instance(seed, split)  # type: ignore[arg-type]
            assert (one.gold["letter"], one.gold["number"]) in facts(split)  # type: ignore[arg-type]
            looked = [found_in(part(one.gold["letter"], shard)) for shard in one.data]
            assert [k for k, found in enumerate(looked, 1) if found != QUIET] == [one.gold["shard"]]
            assert looked[one.gold["shard"] - 1] == str(one.gold["number"])
            assert all(len({letter for letter, _ in shard}) == 3 for shard in one.data)


def test_a_report_is_worth_its_shapley_value_and_its_difference() -> None:
    task = Needle(num_shards=4, per_shard=1)
    one = task.instance(3)
    right, holder = str(one.gold["number"]), one.gold["shard"]
    wrong = str((one.gold["number"] + 1) % 10)
    for said in product((QUIET, right, wrong, "zebra"), repeat=4):

        def score(who: tuple[int, ...], said: tuple[str, ...] = said) -> float:
            """Plainly: half for the fact, half for those without it who say nothing."""
            heard = {shard: said[shard - 1] if shard in who else QUIET for shard in range(1, 5)}
            quiet = sum(heard[shard] == QUIET for shard in heard if shard != holder)
            plain = 0.5 * (heard[holder] == right) + 0.5 * quiet / 3
            assert math.isclose(task.verify(one, answer_of(heard)), plain)
            return plain

        everybody = (1, 2, 3, 4)
        for shard in everybody:
            shares = []
            for order in permutations(everybody):
                before = order[: order.index(shard)]
                shares.append(score((*before, shard)) - score(before))
            worth = task.worth(one, shard, said[shard - 1])
            assert math.isclose(worth, math.fsum(shares) / 24, abs_tol=1e-12)
            without = tuple(each for each in everybody if each != shard)
            assert math.isclose(worth, score(everybody) - score(without), abs_tol=1e-12)


def test_an_advantage_is_the_expected_score_with_the_report_less_without_it() -> None:
    task = Needle(num_shards=3)
    one = task.instance(8)
    right = str(one.gold["number"])
    chances = [
        {QUIET: 0.5, right: 0.3, "x": 0.2},
        {QUIET: 0.1, right: 0.8, "x": 0.1},
        {right: 0.25, "x": 0.75},
    ]

    def expected(fixed: dict[int, str]) -> float:
        total = 0.0
        for said in product(*(each.items() for each in chances)):
            if all(said[k][0] == text for k, text in fixed.items()):
                chance = math.prod(p for k, (_, p) in enumerate(said) if k not in fixed)
                total += chance * task.verify(
                    one, answer_of({k + 1: text for k, (text, _) in enumerate(said)})
                )
        return total

    for k, mine in enumerate(chances):
        for text in mine:
            wanted = expected({k: text}) - expected({})
            assert math.isclose(task.advantage(one, k + 1, text, mine), wanted, abs_tol=1e-12)


@pytest.mark.parametrize(
    "answer",
    ["", " ", "\x00", "7", "1", "1 7;", "; 1 7", "1 7; 1 8", "0 7", "-1 7", "9 7", "1  7 7", "٣ 7", "9" * 5000,
     "9" * 5000 + " 7", "nothing; 1 7", "1 7\n2 8", "the number is 7", "1: 7", "\ud7ff" * 50],
)  # fmt: skip
def test_what_is_no_list_of_reports_scores_nothing(answer: str) -> None:
    task = Needle(num_shards=8)
    assert task.verify(task.instance(0), answer) == 0


def test_scores() -> None:
    task = Needle(num_shards=8)
    one = task.instance(0)
    holder, right = one.gold["shard"], one.gold["number"]
    other = 1 if holder != 1 else 2
    assert task.verify(one, NOTHING) == 0.5
    assert task.verify(one, f"{holder} {right}") == 1
    assert task.verify(one, f" {holder} {right} ;{other} {right}") == pytest.approx(1 - 0.5 / 7)
    assert task.verify(one, f"{holder} {right + 10}") == 0.5
    assert task.verify(one, "; ".join(f"{k} x" for k in range(1, 9))) == 0


def test_a_worker_cannot_speak_for_another() -> None:
    assert answer_of({1: "7; 2 8", 2: QUIET}) == "1 7,"
    assert answer_of({1: "", 2: " \n"}) == "1 ?; 2 ?"
    assert answer_of({}) == NOTHING
    assert reports_in(answer_of({3: "9;3", 12: "é"})) == {3: "9,3", 12: "é"}


@pytest.mark.parametrize("told", ["", "find", "find k in", "find k in a", "find k in k", "find ü in a 1 b 2"])
def test_what_workers_may_be_told(told: str) -> None:
    assert found_in(told) == QUIET


@pytest.mark.parametrize("given", [(1, 2), (8, 0), (8, 26), (1_000_000, 2)])
def test_sizes_out_of_bounds_are_refused(given: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="expected at least 2 shards"):
        Needle(num_shards=given[0], per_shard=given[1])


def test_a_team_is_run_and_scored_whatever_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for shards in (2, 128):
        place = tmp_path / f"run{shards}"
        assert main(["run", "needle", "--set", f"task.num_shards={shards}", "--out", str(place)]) == 0
        assert f"{shards + 1} agents" in capsys.readouterr().out
        trace = read(place)
        assert [each.value for each in trace.rewards] == [1.0]
        returned = [trace.text(e.content_ref) for e in trace.events if e.type == "return"]
        assert sorted(text != QUIET for text in returned if text)[-2:] == [False, True]
    assert main(["run", "needle", "--set", "limits.agents=3", "--out", str(tmp_path / "few")]) == 0
    assert read(tmp_path / "few").finished


def test_a_worker_that_is_barred_leaves_its_own_shard_unread_and_no_other() -> None:
    """So what the team is short of without it is what its report is worth."""
    task = Needle(num_shards=4, per_shard=1)
    one = task.instance(3)

    def say(request: Request) -> str:
        return "return 7" if request.agent == "worker2" else play(request)

    team = Team.of(
        task.topology(), dict.fromkeys(("worker", "orchestrator"), ScriptedEngine("say", say)), seed=0
    )
    assignment = task.assignment(one)
    trace = asyncio.run(run(team, assignment))
    said = {
        event.agent: trace.text(event.content_ref) or "" for event in trace.events if event.type == "return"
    }
    whole = task.verify(one, answer_in(trace) or "")
    for shard in range(1, 5):
        made = asyncio.run(fork(trace, team, assignment, [BarAgent(f"worker{shard}")]))
        short = whole - task.verify(one, answer_in(made.trace) or "")
        assert math.isclose(short, task.worth(one, shard, said[f"worker{shard}"]), abs_tol=1e-12)

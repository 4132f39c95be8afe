"""Dispatch: what choices are worth, what is read at any size, its team on the runtime, and what a recipe may set."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from baton.cli import main
from baton.compose.stage_from_recipe import make_stage
from baton.errors import UsageError
from baton.learn.recipe import TaskPart, load
from baton.learn.recipe_checks import check_credit
from baton.tasks.dispatch import (
    GRADES,
    JOBS,
    NOBODY,
    TRADES,
    Dispatch,
    best,
    directory_of,
    found_for,
    needed,
    worth,
)
from baton.testing import check_task
from baton.trace.formats import read
from baton.trace.outcome import answer_of, task_return


def test_the_task_keeps_its_contract() -> None:
    check_task(Dispatch(num_workers=12))
    check_task(Dispatch(num_workers=3, shows="all"), seeds=3)
    with pytest.raises(UsageError, match="num_workers"):
        Dispatch(num_workers=0)
    with pytest.raises(UsageError, match="num_trades"):
        Dispatch(num_trades=9)


def test_every_trade_is_needed_by_two_jobs_and_only_it_is_worth_something() -> None:
    assert [tuple(map(needed, jobs)) for jobs in JOBS] == [(trade, trade) for trade in TRADES]
    few = Dispatch(num_workers=500, num_trades=3).instance(0)
    assert {trade for trade, _ in few.data} == set(TRADES[:3])
    assert worth("leak", ("plumber", "able")) == GRADES["able"]
    assert worth("leak", ("tailor", "expert")) == 0
    one = Dispatch(num_workers=40).instance(3)
    scores = [Dispatch().verify(one, f"worker-{number}") for number in range(1, 41)]
    assert max(scores) == one.gold["best"] == best(one.gold["job"], one.data)
    for wrong in (
        "worker-0",
        "worker-41",
        "worker-",
        NOBODY,
        "",
        "worker-²",
        "worker--1",
        "worker-" + "9" * 50,
    ):
        assert Dispatch().verify(one, wrong) == 0


def test_what_is_read_grows_with_the_team_only_where_all_cards_are_shown() -> None:
    prompts = {
        (shows, size): Dispatch(num_workers=size, shows=shows).instance(1).prompt
        for shows in ("job", "all")
        for size in (10, 300)
    }
    assert prompts["job", 10] == prompts["job", 300]
    assert [prompts["all", size].count("\n") for size in (10, 300)] == [10, 300]


def test_a_description_or_a_name_finds_a_worker() -> None:
    directory = directory_of([["tailor", "expert"], ["plumber", "novice"]])
    assert found_for("plumber-expert", directory) == "worker-2"
    assert found_for("worker-1", directory) == "worker-1"
    assert found_for("welder-able", directory) == NOBODY


@pytest.mark.parametrize("shows", ["job", "all"])
def test_its_team_hands_the_job_to_one_worker_and_the_rest_costs_nothing(tmp_path: Path, shows: str) -> None:
    given = ["--set", f"task.shows={shows}", "--set", "task.num_workers=300", "--seed", "2"]
    assert main(["run", "dispatch", "--policy", "reference", *given, "--out", str(tmp_path)]) == 0
    trace = read(tmp_path)
    one = Dispatch(num_workers=300, shows=shows).instance(2)  # type: ignore[arg-type]
    assert task_return(trace) == one.gold["best"] == 0.9
    assert len(trace.calls) == 1
    assert sum(event.type == "spawn" for event in trace.events) == 1
    (choice,) = [event for event in trace.events if event.decision == "delegate"]
    assert choice.extra["wanted"] == f"{needed(one.gold['job'])}-expert"
    assert choice.extra["found"] == answer_of(trace)


def test_its_dispatcher_learns_to_delegate() -> None:
    recipe = load("dr-grpo", ['train.decisions=["delegate"]'])
    recipe = structs.replace(recipe, task=TaskPart(name="dispatch", settings={"num_workers": 9}))
    check_credit(recipe, make_stage(recipe))

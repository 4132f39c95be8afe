"""Result 21: counts of zero credit by plain loops, the plan of how long runs are, and tables by other sums."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from baton.credit.core.covering import grounds_of
from baton.trace.formats.jsonl import read_jsonl
from baton.trace.records import Credit
from baton.trace.trace import Trace

pytest.importorskip("torch")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PLACE = BENCHMARKS / "learning"
RECORDS = PLACE / "results" / "result21_again.json"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PLACE))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def traces() -> list[Trace]:
    return [
        trace
        for n in (1, 2)
        for trace in read_jsonl(BENCHMARKS / f"real_tasks/examples/stop-trained-{n}.jsonl")
    ]


def credits_of(trace: Trace, every: int) -> list[Credit]:
    """One on each event that a call said, of which every so many is zero; and a price, which is none."""
    told = [event for event in trace.events if event.call is not None]
    values = [0.0 if n % every == 0 else 0.5 for n in range(len(told))]
    return [
        Credit(unit="turn", target=event.call or "", value=value, estimator="made")
        for event, value in zip(told, values, strict=True)
        if value
    ] + [Credit(unit="orchestrator", target=told[0].id, value=-1.0, estimator="invalid")]


@pytest.mark.parametrize("every", [1, 2, 3])
def test_zero_credit_is_counted_as_a_training_step_counts_it(load: Any, every: int) -> None:
    zero = load("zero_credit")
    mine = traces()
    given = [credits_of(trace, every) for trace in mine]
    counts = zero.counted_of([(mine, given)], lambda trace: float(len(trace.events)))
    without_price = [[credit for credit in each if credit.estimator != "invalid"] for each in given]
    grounds = grounds_of(mine, without_price)
    assert counts["events"] == grounds.events > 4
    assert zero.share(counts) == pytest.approx(grounds.zero)
    assert sum(zero.share(counts, reason) for reason in zero.REASONS) == pytest.approx(zero.share(counts))
    assert counts["alike"] == 0 or len({len(trace.events) for trace in mine}) == 1


def test_where_all_returns_are_alike_that_is_the_reason(load: Any) -> None:
    zero = load("zero_credit")
    mine = traces()
    counts = zero.counted_of([(mine, [[] for _ in mine])], lambda trace: 0.25)
    assert counts["alike"] == counts["events"] > 0
    assert zero.added([counts, counts])["alike"] == 2 * counts["alike"]


def timed(model: ModuleType, start: float, pace: float) -> list[dict[str, Any]]:
    """Three timing runs of three steps, of which the first takes longer."""
    told = {
        "seconds": {"start": start, "test": 2.0},
        "curve": [[0, 0, 0, 0, seconds] for seconds in (9.0, pace, pace)],
        "tokens": 126_000,
    }
    return [told | {"arm": arm} for arm in (model.DECISION, model.SINGLE, model.WORKED)]


def test_a_plan_is_within_its_seconds_and_grows_with_them(load: Any) -> None:
    model = load("again_model")
    times = timed(model, 20.0, 1.0)
    plans = [model.planned(times, seconds, 5, 3) for seconds in range(300, 1500, 100)]
    for seconds, plan in zip(range(300, 1500, 100), plans, strict=True):
        taken = sum(model.needed(task, n, times, 5, 3) for task, n in plan.items() if n)
        assert taken <= seconds or (
            plan[model.STOP] == min(model.LENGTHS[model.STOP]) and not plan[model.SPAWN]
        )
        assert not plan[model.SPAWN] or plan[model.STOP] >= model.ENOUGH
    sums = [plan[model.STOP] + plan[model.SPAWN] for plan in plans]
    assert sums[0] < sums[-1]
    assert plans[-1][model.SPAWN]


def test_a_failed_timing_gives_the_plan_that_is_written_down(load: Any) -> None:
    model = load("again_model")
    assert model.planned([{"failed": "no"}], 900.0, 5, 3) == model.UNTIMED


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    if not RECORDS.exists():
        pytest.skip("result 21 has not been run")
    found: dict[str, Any] = json.loads(RECORDS.read_text("utf-8"))
    return found


def half(values: list[float]) -> float:
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def test_games_were_tuned_apart_and_by_the_least_regret(load: Any, kept: dict[str, Any]) -> None:
    games = load("again_games")
    tuning = [r for r in kept["games"] if r["phase"] == "tuning"]
    tests = [r for r in kept["games"] if r["phase"] == "test"]
    assert not {r["seed"] for r in tuning} & {r["seed"] for r in tests}
    for record in tests:
        for arm in games.arms_of(record["game"]):
            regrets = {
                rate: np.mean([
                    r["arms"][arm]["after"]["regret"]["total"]
                    for r in tuning
                    if r["game"] == record["game"] and r["rates"][arm] == rate
                ])
                for rate in games.RATES
            }  # fmt: skip
            assert regrets[record["rates"][arm]] == min(regrets.values())


def test_uniform_credit_had_the_tokens_of_credit_by_decision(load: Any, kept: dict[str, Any]) -> None:
    games = load("again_games")
    for record in (r for r in kept["games"] if r["phase"] == "test"):
        by, uniform = (record["arms"][arm] for arm in (games.DECISION, games.UNIFORM))
        assert "diverged" not in uniform
        assert uniform["curve"][-2][0] < by["tokens"] <= uniform["tokens"]


def test_a_table_of_games_by_other_sums(load: Any, kept: dict[str, Any]) -> None:
    games = load("again_games")
    rows = [line.split(" | ") for line in games.table(kept["games"]).splitlines()]
    game = "stopping-chain"
    mine = [r["arms"] for r in kept["games"] if r["phase"] == "test" and r["game"] == game]
    for arm in games.ARMS:
        values = [each[arm]["after"]["regret"]["total"] for each in mine]
        [row] = [row for row in rows if row[0] == f"| {game}" and row[1] == arm and len(row) == 11]
        mean, error = map(float, row[5].split(" ± "))
        assert (mean, error) == pytest.approx((np.mean(values), half(values)), abs=6e-5 + 1e-3 * half(values))


def test_model_runs_spent_their_tokens_and_no_more_than_a_step_over(load: Any, kept: dict[str, Any]) -> None:
    model = load("again_model")
    if "model" not in kept:
        pytest.skip("the language model's part has not been run")
    runs = [r for r in kept["model"] if r["seed"] != model.TIMING and "failed" not in r]
    assert {len([r for r in runs if r["task"] == task]) % 4 for task in (model.STOP, model.SPAWN)} == {0}
    for record in runs:
        spent = [0, *(line[0] for line in record["curve"])]
        assert spent[-2] < record["tokens_asked"] <= spent[-1] == record["tokens"]
        assert all(a < b for a, b in pairwise(spent))
        for line in (record["before"], record["after"]):
            price = {model.STOP: 2e-3, model.SPAWN: 5e-4}[record["task"]]
            assert line["reward"] == pytest.approx(line["success"] - price * line["tokens"], abs=2e-3)
            assert line["charged"] == pytest.approx(line["reward"] - 0.2 * line["invalid"], abs=1e-4)

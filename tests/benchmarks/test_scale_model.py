"""The simulation of training past one process: closed forms where there are such, and what the page prints of it."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest

import scale
import wide
from scale_model import Service, simulate
from scale_picture import draw

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("workers", "lots"), [(1, 5), (2, 5), (3, 7), (4, 4), (9, 4)])
def test_without_lag_a_step_is_the_sum_of_its_parts(workers: int, lots: int) -> None:
    service = Service(lots=(0.7,) * 5, train=1.1, publish=0.3)
    found = simulate(service, workers=workers, lag=0, lots=lots, steps=6)
    rounds = math.ceil(lots / workers)
    assert found.step_seconds == pytest.approx(0.7 * rounds + 1.1 * lots / 5 + 0.3)


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
def test_with_lag_the_slower_side_is_the_step(workers: int) -> None:
    service = Service(lots=(0.5,) * 6, train=0.8, publish=0.2)
    found = simulate(service, workers=workers, lag=1, lots=6, steps=40)
    play, train = 0.5 * 6 / workers, 0.8 + 0.2
    assert found.step_seconds == pytest.approx(max(play, train))
    assert found.limit == ("workers" if play >= train else "training")


def test_one_core_does_all_of_the_work_one_after_the_other() -> None:
    service = Service(lots=(0.5,) * 6, encode=0.1, decode=0.05, train=0.8, publish=0.2)
    for workers in (1, 4):
        for lag in (0, 2):
            found = simulate(service, workers=workers, lag=lag, lots=6, steps=20, cores=1)
            # With lag, how much is under way when the first and the last step end is not the same.
            slack = 0.03 if lag else 1e-9
            assert found.step_seconds == pytest.approx(6 * (0.5 + 0.1 + 0.05) + 0.8 + 0.2, rel=slack)


def test_a_store_that_serves_one_reader_at_a_time_becomes_the_limit() -> None:
    service = Service(lots=(1.0,) * 4, load=0.5, store=0.5)
    found = simulate(service, workers=400, lag=3, lots=400, steps=8)
    assert found.limit == "store"
    assert found.lots_per_second == pytest.approx(1 / 0.5, rel=0.05)


@pytest.mark.parametrize("lag", [0, 1, 2, 4, 7])
@pytest.mark.parametrize(("workers", "lots"), [(1, 8), (3, 8), (5, 16), (40, 8), (64, 256)])
def test_no_rate_is_above_what_the_slower_side_can_do(workers: int, lots: int, lag: int) -> None:
    """The trainer reads every lot, trains and publishes; a worker loads, plays and writes each of its lots."""
    played = (0.28, 0.24, 0.19, 0.24, 0.2, 0.1, 0.24, 0.27)
    service = Service(lots=played, encode=0.01, decode=0.02, train=0.4, publish=0.01, load=0.02, store=0.001)
    found = simulate(service, workers=workers, lag=lag, lots=lots, steps=12, seed=7)
    trainer = lots / (0.4 * lots / 8 + 0.02 * lots + 0.01)
    player = workers / (sum(played) / 8 + 0.01 + 0.02)
    assert found.lots_per_second < min(trainer, player) * 1.01
    if lag:
        assert found.lots_per_second > min(trainer, player) * 0.85
    assert all(share < 1 + 1e-9 for share in found.busy.values())


def test_what_an_untrained_team_reaches_by_luck_was_not_learned() -> None:
    """With a lag of 2 the first three steps are untrained; steps 4, 5 and 6 are the first three that are not."""
    told = [0.1, 0.1, 0.1, 0.5, 0.2, 0.1, 0.2, 0.1]
    steps = [{"seconds": 10.0 + 3 * n, "regret": {"total": each}} for n, each in enumerate(told)]
    assert scale.to_regret(steps, 2) == 15.0
    assert scale.to_regret(steps, 5) is None


def test_chance_is_of_the_seed_and_more_workers_are_not_slower() -> None:
    service = Service(lots=(0.2, 0.9, 0.4, 2.0), encode=0.01, decode=0.01, train=0.5, publish=0.1)
    told = [simulate(service, workers=3, lag=1, lots=12, steps=9, seed=5) for _ in range(2)]
    assert told[0] == told[1]
    steps = [simulate(service, workers=n, lag=2, lots=24, steps=30).step_seconds for n in (1, 2, 4, 8, 16)]
    assert all(later < earlier * 1.05 for earlier, later in itertools.pairwise(steps))


def test_the_readme_prints_the_records() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text()
    for line in scale.tables():
        assert line in page


def test_figures_of_a_run_by_hand() -> None:
    """Of one kept run, recomputed from its lines alone."""
    run = json.loads(scale.RUNS.read_text())["runs"][-1]
    at = [step["seconds"] for step in run["steps"]]
    took = sorted(b - a for a, b in itertools.pairwise(at))
    told = scale.per_step(run)
    middle = took[len(took) // 2] if len(took) % 2 else (took[len(took) // 2 - 1] + took[len(took) // 2]) / 2
    assert told["step_seconds"] == pytest.approx(middle)
    tokens = sum(step["rollout_tokens"] for step in run["steps"][1:])
    assert told["tokens_per_second"] == pytest.approx(tokens / (at[-1] - at[0]))


def test_the_picture_is_of_the_records() -> None:
    told = json.loads(scale.SERVICE.read_text())
    curves = {
        name: list(scale.curve(told, lots_per_worker=n)) for name, n in (("fixed", None), ("growing", 4))
    }
    kept = (ROOT / "benchmarks" / "scale.svg").read_text("utf-8")
    assert draw(curves) == kept


def test_the_tables_of_wide_teams_are_of_the_records() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text()
    for line in wide.tables():
        assert line in page
    kept = json.loads(wide.RECORDS.read_text())
    assert any(each["agents"] >= 300 and each["events"] >= 4_000 for each in kept["training step"])
    assert any(each["agents"] >= 1_000 and each["events"] >= 20_000 for each in kept["trace"])


def test_growth_is_a_power() -> None:
    sizes = [3.0, 7.0, 19.0, 40.0]
    for power in (0.5, 1.0, 1.7):
        assert wide.growth(sizes, [5 * size**power for size in sizes]) == pytest.approx(power)

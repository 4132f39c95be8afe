"""Result 13: the derived signal to noise against teams thrown with dice, which share no line with it; its figures."""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.tasks.needle import Needle, play
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Team
from baton.trace.records import Credit

PLACE = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PLACE))
    before = set(sys.modules)
    yield importlib.import_module("result13_diffusion")
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(PLACE) in str(sys.modules[name].__file__):
            del sys.modules[name]


def team_score(right: np.ndarray) -> np.ndarray:
    """Column 0 holds the fact. Half for the number, half for the share of the others that say nothing."""
    return 0.5 * right[..., 0] + 0.5 * right[..., 1:].mean(-1)


def dice(credit: str, n: int, p: float, q: float, draws: int, group: int) -> np.ndarray:
    """The skill's gradient of many rollouts (of many groups for uniform credit), by the definition of each credit."""
    random = np.random.default_rng(hash_of(credit, n))
    chance = np.array([p] + [q] * (n - 1))

    def said(*shape: int) -> np.ndarray:
        return (random.random((*shape, n)) < chance).astype(float)

    if credit == "uniform":
        right = said(100_000, group)
        score = team_score(right)
        less = (score.sum(1, keepdims=True) - score) / (group - 1)
        return ((score - less)[..., None] * (right - chance)).sum((1, 2)) / math.sqrt(group)
    right = said(100_000)
    total = np.zeros(len(right))
    for k in range(n):
        other = right.copy()
        if credit == "agent":
            other[:, k] = float(k > 0)  # nobody there says nothing
            gain = team_score(right) - team_score(other)
        else:
            gain = np.zeros(len(right))
            for _ in range(draws):
                other[:, k] = said(len(right))[:, k]
                gain += (team_score(right) - team_score(other)) / draws
            if credit == "fork":
                gain *= (random.random(len(right)) < 1 / n) * n
        total += gain * (right[:, k] - chance[k])
    return total


def hash_of(credit: str, n: int) -> int:
    return 1000 * n + len(credit)


@pytest.mark.parametrize("credit", ["uniform", "agent", "message", "fork"])
@pytest.mark.parametrize(("n", "p", "q"), [(2, 0.6, 0.7), (5, 0.8, 0.55), (12, 0.5, 0.9)])
def test_what_is_derived_is_what_dice_say(
    result: ModuleType, credit: str, n: int, p: float, q: float
) -> None:
    snr = importlib.import_module("diffusion_snr")
    thrown = dice(credit, n, p, q, snr.DRAWS.get(credit, 1), snr.GROUP)
    scale = math.sqrt(snr.GROUP) if credit == "uniform" else 1.0
    signal, noise = thrown.mean() / scale, thrown.std()
    assert signal == pytest.approx((p * (1 - p) + q * (1 - q)) / 2, abs=5 * noise / math.sqrt(len(thrown)))
    assert noise == pytest.approx(math.sqrt(snr.variance(credit, n, p, q)), rel=0.03)
    bought = 1000 / snr.reports(credit, n)
    assert snr.predicted(credit, n, p, q, 1000) == pytest.approx(
        (p * (1 - p) + q * (1 - q)) / 2 / noise * math.sqrt(bought), rel=0.03
    )


def test_rates_in_n_are_those_that_the_page_tells(result: ModuleType) -> None:
    snr = importlib.import_module("diffusion_snr")

    def falls(credit: str) -> float:
        far, near = (snr.predicted(credit, n, 0.6, 0.7, 1000) for n in (4_000_000, 1_000_000))
        return float(math.log(near / far) / math.log(4))

    assert [falls(credit) for credit in snr.CREDITS] == pytest.approx([1, 0.5, 0.5, 1], abs=0.02)


def test_speed_is_the_mean_skill_less_that_of_the_start(result: ModuleType) -> None:
    record = {"curve": [[0, 0.4, 0.6], [50, 0.6, 0.6], [100, 1.0, 1.0], [150, 0.0, 0.0]]}
    assert result.speed(record, 100) == pytest.approx((0.55 + 0.8) / 2 - 0.5)
    assert result.speed(record, 125) == pytest.approx((50 * 0.55 + 50 * 0.8 + 25 * 0.75) / 125 - 0.5)
    assert result.at_end(record) == 0.0


@pytest.mark.parametrize("unit", ["agent", "message"])
def test_the_gradient_is_read_off_a_trace(result: ModuleType, unit: str) -> None:
    """The holder is right and was credited 0.5, worker by worker; another said a number and was credited -0.125."""
    snr = importlib.import_module("diffusion_snr")
    task = Needle(num_shards=3, per_shard=1)
    one = task.instance(5)
    holder = f"worker{one.gold['shard']}"
    talker = next(name for name in ("worker1", "worker2", "worker3") if name != holder)

    def say(request: Request) -> str:
        return "return 7" if request.agent == talker else play(request)

    engines = dict.fromkeys(("worker", "orchestrator"), ScriptedEngine("say", say))
    trace = asyncio.run(run(Team.of(task.topology(), engines, seed=0), task.assignment(one)))
    trace.header.meta["train"] = {"instance": 5, "split": "train"}
    end = {"agent": "", "message": "#1"}[unit]
    credits = tuple(
        Credit(unit=unit, target=f"{who}{end}", value=value, estimator="made-up")  # type: ignore[arg-type]
        for who, value in ((holder, 0.5), (talker, -0.125))
    )
    assert snr.gradients(task, [structs.replace(trace, credits=credits)], 0.75, 0.8) == pytest.approx(
        0.5 * (1 - 0.75) - 0.125 * (0 - 0.8)
    )


def cell(n: int, credit: str, end: float) -> dict[str, object]:
    curve = [[0, 0.5, 0.7], [80_000, end, end]]
    return {"n": n, "credit": credit, "seed": 0, "still": False, "curve": curve, "steps": 3}


def test_a_table_and_a_picture_come_of_what_there_is(result: ModuleType) -> None:
    """Runs that were not made leave no row, and what was not measured is not drawn."""
    records = [cell(2, "uniform", 0.8), cell(2, "agent", 0.9), cell(20, "agent", 0.7)]
    lines = result.table(records).splitlines()
    assert len(lines) == 7
    assert "| +0.050 |" in lines[3]
    assert "| – |" in lines[3]
    picture = importlib.import_module("diffusion_picture").draw(result.rows(records), result.speed)
    assert picture.count("<circle") == 4 + 3
    assert "nan" not in picture


def test_the_picture_is_that_of_the_records_kept(result: ModuleType) -> None:
    rows = result.rows(json.loads(result.KEPT.read_text("utf-8")))
    kept = (PLACE.parents[1] / "docs" / "images" / "credit_diffusion.svg").read_text("utf-8")
    assert importlib.import_module("diffusion_picture").draw(rows, result.speed) == kept

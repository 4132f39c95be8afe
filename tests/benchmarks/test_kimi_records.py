"""The kept records of result 19: what was written before is what was run, and the tables come from them."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PLACE))
    before = set(sys.modules)
    yield importlib.import_module("result19_kimi")
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(PLACE) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def kept() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((PLACE / "results" / "result19_kimi.json").read_text("utf-8"))
    return found


def test_seeds_arms_steps_and_tuning_are_those_of_the_protocol(
    result: ModuleType, kept: list[dict[str, Any]]
) -> None:
    runs = [each for each in kept if each.get("brief") == "first"]
    tuning = [each for each in kept if "curve" not in each]
    seeds = {each["seed"] for each in runs}
    assert seeds == set(range(result.FIRST, result.FIRST + 10))
    assert not seeds & {each["seed"] for each in tuning}
    for arm in result.ARMS:
        mine = [each for each in runs if each["arm"] == arm]
        assert {each["seed"] for each in mine} == seeds
        assert {(each["lead"], each["weight"]) for each in mine} == {result.settings(tuning, arm)[:2]}
        assert {each["curve"][-1]["step"] for each in mine} == {result.FROZEN}
        tried = [each for each in tuning if each["arm"] == arm]
        assert len(tried) == (len(result.RATES[arm]) + len(result.WORKER_RATES)) * len(result.TUNING)


def test_figures_hang_together(result: ModuleType, kept: list[dict[str, Any]]) -> None:
    for stage in result.stages([each for each in kept if "curve" in each]):
        job = result.job_of(int(stage.name.split(",")[0]))
        for look in stage.looks.values():
            assert look["value"] <= stage.best + 1e-4
            spent = look["steps"] + job.overhead * look["agents"]
            expected = look["success"] - job.price * spent - job.latency * look["critical"]
            assert math.isclose(look["value"], expected, abs_tol=2e-4)


def test_the_tables_and_the_picture_come_from_the_records(
    result: ModuleType, kept: list[dict[str, Any]]
) -> None:
    told = result.table(kept)
    assert all(f"| {arm} |" in told for arm in result.ARMS)
    picture = result.draw([each for each in kept if each.get("brief") == "first"], [0.6])
    assert picture.count("<polyline") == 4 * len(result.ARMS)

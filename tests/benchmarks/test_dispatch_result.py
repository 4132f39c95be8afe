"""Result 20: the start reads what dispatchers read, what is known without training, and tables of made-up records."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from msgspec import structs

pytest.importorskip("torch")
from baton.compose.stage_from_recipe import make_stage
from baton.learn.models.start import spoken_in
from baton.learn.stage import Episode

PLACE = Path(__file__).parents[2] / "benchmarks" / "learning"


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PLACE))
    before = set(sys.modules)
    yield importlib.import_module("result20_dispatch")
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(PLACE) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def play(result: ModuleType) -> ModuleType:
    return importlib.import_module("dispatch_play")


@pytest.mark.parametrize("shows", ["job", "all"])
def test_the_start_reads_what_a_dispatcher_reads(play: ModuleType, shows: str) -> None:
    recipe = play.recipe_of(shows, 7, 1, "slow", 1, 1, "tiny")
    stage = make_stage(recipe)
    script = dict.fromkeys(stage.roles, stage.script("reference"))
    played = stage.with_max_tokens(1000).play(script, [Episode(name="one", instance=3, seed=0)])
    ((context, said),) = spoken_in(asyncio.run(played))
    one = play.task_of(shows, 7).instance(3)
    assert context == play.reading(one.prompt)
    assert said.endswith(f"-expert: {one.gold['job']}")


def test_what_is_known_without_training(play: ModuleType) -> None:
    small, large = (play.expected(size, 150) for size in (10, 300))
    assert large["best"] == large["knows"] == pytest.approx(0.9)
    assert large["random worker"] == pytest.approx(0.15, abs=0.01)
    assert small["random words"] < small["knows"] <= small["best"] < large["best"]


def test_every_arm_of_a_seed_comes_before_the_next_seed(result: ModuleType) -> None:
    seeds = [job["seed"] for job in result.jobs(3, False) if job["part"] != "cost"]
    assert seeds == sorted(seeds)
    assert len(seeds) == 3 * (2 * len(result.TEAMS) + 1 + len(result.CHAINS))
    assert min(seeds) == result.FIRST_SEED != result.QUICK_SEED


def test_the_arms_of_sizes_differ_in_what_is_drawn_and_what_is_read(result: ModuleType) -> None:
    games = {arm: make_stage(structs.replace(result.chain_recipe(arm, 1))).game for arm in result.CHAINS}
    assert {arm: game.name for arm, game in games.items() if game} == {
        "three": "stopping-chain",
        "drawn": "varied",
        "ratio": "stopping-chain",
        "drawn, ratio": "varied",
    }
    read = {arm: game.text(game.start()[0].state) for arm, game in games.items() if game}
    assert ["beside" in read[arm] for arm in result.CHAINS] == [False, False, True, True]


def test_differences_are_paired_by_seed(result: ModuleType) -> None:
    def runs(values: dict[int, float]) -> list[dict[str, float]]:
        return [{"seed": seed, "value": value} for seed, value in values.items()]

    told = result.paired(
        runs({1: 1.0, 2: 3.0, 3: 9.0}), runs({2: 2.0, 1: 0.0}), lambda record: record["value"], ".1f"
    )
    assert told == "+1.0 ± 0.0"

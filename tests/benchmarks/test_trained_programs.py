"""Trained programs with SmolLM2: what is told is derived from records, and whole seeds alone count."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "learning" / "results" / "programs_smollm2"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "learning"))
    for name in ("runs", "trained_programs", "trained_programs_picture"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import trained_programs

    return trained_programs


def write(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def test_the_rate_is_that_of_the_higher_last_returns_and_the_lower_of_equal_ones(
    programs: Any, tmp_path: Path
) -> None:
    low, high = programs.RATES

    def run(arm: str, rate: float, last: float, steps: int = programs.RATE_STEPS) -> None:
        values = [0.9] * (steps - programs.RATE_LAST) + [last] * programs.RATE_LAST
        write(
            tmp_path / f"rate-{arm}-{rate:g}.metrics.jsonl", *({"return": {"mean": each}} for each in values)
        )

    run("plain", low, 0.5)
    run("plain", high, 0.6)
    assert programs.chosen_rate(tmp_path, "plain") == high
    run("plain", high, 0.5)
    assert programs.chosen_rate(tmp_path, "plain") == low
    run("plain", high, 0.9, steps=programs.RATE_STEPS - 1)  # one that did not end is no candidate
    assert programs.chosen_rate(tmp_path, "plain") == low


def test_tries_are_worth_their_best_and_their_most_frequent_answer(programs: Any) -> None:
    line = {"returns": [[0, 1, 1], [1, 0, 0]], "answers": [["A1", "B2", "B2"], ["C3", "D4", "A1"]]}
    assert programs.by_tries(line, 1) == (0.5, 0.5)
    assert programs.by_tries(line, 2) == (1.0, 0.5)  # of equally frequent ones the first
    assert programs.by_tries(line, 3) == (1.0, 1.0)


def test_a_seed_counts_when_all_its_arms_ended(programs: Any, tmp_path: Path) -> None:
    def line(who: str, **more: Any) -> dict[str, Any]:
        return {"who": who, "return": {"mean": 0.5, "half": 0.1}, "tokens": 148.0, **more}

    ended = [line("untrained"), line("team"), line("best-of-1"), line("alone-3")]
    tries = line("tries", returns=[[1.0, 0.0]], answers=[["A1", "B2"]]) | {"tokens": 44.0}
    for seed in (1, 2):
        for arm in programs.ARMS:
            write(tmp_path / f"{arm}{seed}.evals.jsonl", *ended, *([tries] if arm == "alone" else []))
    assert programs.whole_seeds(tmp_path) == [1, 2]
    write(tmp_path / "tools2.evals.jsonl", *ended[:1])
    assert programs.whole_seeds(tmp_path) == [1]
    assert "whole seeds: [1]" in programs.table(tmp_path)


def test_every_arm_is_a_recipe_with_its_own_command(programs: Any) -> None:
    from baton.learn.recipe import load

    options = {"python": "python3", "packages": "/there", "model": "", "device": "cpu", "set": []}
    tokens = {}
    for arm in programs.ARMS:
        job = {"kind": "arm", "arm": arm, "seed": 3, "rate": 6e-4}
        file = programs.PROGRAMS / f"desk_{'plain' if arm == 'alone' else arm}_smollm2.toml"
        recipe = load(str(file), programs.changes_of(job, options), trust=True)
        assert recipe.program is not None
        assert (recipe.program.command[2] == "--alone") == (arm == "alone")
        assert recipe.program.env["PYTHONPATH"] == "/there"
        assert (recipe.train.seed, recipe.train.learning_rate, recipe.train.steps) == (3, 6e-4, 16)
        assert (recipe.policies["main"].model, recipe.policies["main"].train) == ("smollm2", "lora")
        tokens[arm] = recipe.rollout.groups * recipe.rollout.group_size
    assert tokens == {"tools": 48, "handoff": 48, "graph": 48, "plain": 48, "alone": 160}

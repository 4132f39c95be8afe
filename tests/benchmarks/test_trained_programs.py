"""Trained programs with SmolLM2: what is told is derived from records, and whole seeds alone count."""

from __future__ import annotations

import json
import re
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

    ended = [line("untrained"), line("team"), line("best-of-1", one_try=0.5), line("alone-3")]
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


def test_the_page_and_the_picture_are_what_was_kept(programs: Any) -> None:
    page = (ROOT / "docs" / "serve" / "training_smollm2.md").read_text("utf-8")
    _, *tables = programs.table(RECORDS).split("\n\n")
    assert len(tables) == 2
    assert all(each in page for each in tables)
    picture = ROOT / "docs" / "images" / "program_training_smollm2.svg"
    assert programs.drawn(RECORDS) == picture.read_text("utf-8")
    for link in re.findall(r"\]\((?!http)([^)#]+)", page):
        assert (ROOT / "docs" / "serve" / link).exists(), link


def test_the_page_counts_steps_of_one_mind_as_they_were(programs: Any) -> None:
    page = (ROOT / "docs" / "serve" / "training_smollm2.md").read_text("utf-8")
    right = [
        round(48 * line["return"]["mean"])
        for run in ("plain1", "handoff1", "handoff2", "tools1", "tools2", "graph1")
        for line in programs.lines_of(RECORDS / f"{run}.metrics.jsonl")[8:]
    ]
    near = sum(min(each % 8, -each % 8) <= 1 for each in right)
    assert f"{near} of the {len(right)} last steps" in page


def test_the_measurement_before_training_was_without_a_start(programs: Any) -> None:
    for arm in ("plain", "handoff", "graph", "alone"):
        (raw,) = programs.lines_of(RECORDS / f"raw-{arm}.evals.jsonl")
        assert programs.measured(RECORDS, f"{arm}1")["untrained"] == raw

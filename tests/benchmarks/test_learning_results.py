"""Results of learning: every table prints from the records kept, and every command still runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from child_process import on_path

from baton.games.game import State
from baton.games.library import make_game
from baton.learn.recipe import load

pytest.importorskip("torch")
LEARNING = Path(__file__).parents[2] / "benchmarks" / "learning"
COMMANDS = sorted(path.name for path in LEARNING.glob("result*.py"))
KEPT = sorted(path.stem for path in (LEARNING / "results").glob("*.json"))


def printed(command: str, *given: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(LEARNING / command), *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", KEPT)
def test_a_table_is_printed_from_the_records_kept_and_stands_in_the_readme(name: str) -> None:
    lines = [line for line in printed(f"{name}.py", "--kept") if line]
    assert len(lines) > 2
    shown = (LEARNING.parent / "README.md").read_text("utf-8").splitlines()
    assert [line for line in lines if line not in shown] == []


def test_every_result_stands_on_the_page() -> None:
    page = (LEARNING.parents[1] / "docs" / "learning.md").read_text("utf-8")
    numbers = [int(name.removeprefix("result").partition("_")[0]) for name in COMMANDS]
    assert len(set(numbers)) == len(numbers) >= 11
    assert [name for name in COMMANDS if f"`{name}`" not in page] == []


CHECKED = """
import importlib, sys
from baton.compose.stage_from_recipe import make_stage
from baton.learn.recipe_checks import check_asked, check_idle
from baton.learn.recipe import load
from baton.learn.recipe_checks import check_credit, check_numbers

count = 0
for command in sys.argv[1:]:
    module = importlib.import_module(command.removesuffix(".py"))
    jobs = module.jobs(1, False) if hasattr(module, "jobs") else ()  # some make recipes of their own, by other names
    for name, changes in {(job["recipe"], tuple(job["changes"])) for job in jobs if "recipe" in job}:
        recipe = load(name, list(changes))
        check_numbers(recipe)
        check_idle(recipe)
        check_credit(recipe, make_stage(recipe))
        check_asked(recipe)
        count += 1
print(count)
"""


def test_the_recipes_of_the_results_are_not_refused() -> None:
    command = [sys.executable, "-c", CHECKED, *COMMANDS]
    done = subprocess.run(
        command, env=on_path(LEARNING), capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_result_runs(command: str) -> None:
    lines = printed(command, "--quick")
    assert lines[0].startswith("| ")
    assert set(lines[1]) == {"|", "-"}
    assert len(lines) > 2


TWICE = """
import os, sys
from pathlib import Path
from runs import run_jobs

def worker(job):
    with open(sys.argv[1] + ".told", "a") as file:
        file.write(f"{job['seed']}\\n")
    if job["seed"] == 2 and not os.path.exists(sys.argv[1] + ".mended"):
        raise ValueError("not yet")
    return {"arm": "a", "seed": job["seed"]}

if __name__ == "__main__":
    jobs = [{"seed": seed, "changes": ()} for seed in range(4)]
    print([record["seed"] for record in run_jobs(jobs, worker, 1, Path(sys.argv[1]))])
"""


def test_a_command_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    script, part = tmp_path / "twice.py", tmp_path / "part.jsonl"
    script.write_text(TWICE, "utf-8")
    command, env = [sys.executable, str(script), str(part)], on_path(LEARNING)
    assert subprocess.run(command, env=env, capture_output=True, check=False).returncode
    with part.open("a") as file:
        file.write('["half a line')
    (tmp_path / "part.jsonl.mended").touch()
    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[0, 1, 2, 3]"
    told = (tmp_path / "part.jsonl.told").read_text().split()
    assert told.count("0") == told.count("1") == 1


def test_kept_records_are_charged_for_invalid_answers_by_the_plain_formula() -> None:
    """New total = old total + price x invalid answers, price = (V* - V of random play) / choices of random play; the
    share of the regret that is left is as the README and docs/learning.md print it."""
    game = make_game("parallel-pandora", load("flagship").task.settings)

    @cache
    def values(state: State) -> tuple[float, float, float]:
        """The best value, random play's, and how many choices random play makes."""
        best, random, choices = float("-inf"), 0.0, 0.0
        options = game.options(state)
        for option in options:
            after = [(p, r, values(s)) for p, s, r in game.step(state, option)]
            best = max(best, sum(p * (r + v[0]) for p, r, v in after))
            random += sum(p * (r + v[1]) for p, r, v in after) / len(options)
            choices += sum(p * (1 + v[2]) for p, _, v in after) / len(options)
        return (best, random, choices) if options else (0.0, 0.0, 0.0)

    start = [(p, values(s)) for p, s, _ in game.start()]
    price = sum(p * (v[0] - v[1]) for p, v in start) / sum(p * v[2] for p, v in start)
    records = json.loads((LEARNING / "results" / "result1_flagship.json").read_text("utf-8"))
    assert all("invalid" not in each["after"]["regret"] for each in records)  # made before the charge
    shares = []
    for record in records:
        if record["arm"] == "credit by decision":
            was, now = (
                record[w]["regret"]["total"] + price * record[w]["invalid"] for w in ("before", "after")
            )
            shares.append(now / was)
    mean = sum(shares) / 5
    half = 2.776 * math.sqrt(sum((share - mean) ** 2 for share in shares) / 4 / 5)
    said = f"{mean:.3f} ± {half:.3f} of the "
    root = LEARNING.parents[1]
    assert f"{said}regret" in " ".join((root / "README.md").read_text("utf-8").split())
    assert f"{said}untrained team's" in (root / "docs" / "learning.md").read_text("utf-8")

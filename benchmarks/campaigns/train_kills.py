"""Training that is killed with SIGKILL at any moment and resumed: the numbers of a run that nobody killed."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

from baton.cli import main
from campaigns.campaign import Row, Tally, is_traceback, run_child, warm

_TIMES = ("seconds", "rollout_seconds", "update_seconds", "tokens_per_second")
_DEATHS_OF_A_RUN = 5
_STEPS = 5
_NETWORK = (
    '[[credit]]\nestimator = "gae"\nsettings = {gamma = 1.0}\n'
    '[critic]\nkind = "network"\nsteps = 3\nlearning_rate = 0.003\n'
)


def _recipes() -> list[str]:
    """The small run of the tests, by three kinds of credit."""
    sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
    from small_run import BASE, COMA, GROUP

    return [BASE + credit for credit in (COMA, GROUP, _NETWORK)]


def train_kills(count: int, seed: int, folder: Path) -> Row:
    import torch

    warm("baton.compose.training", "baton.cli.train")
    torch.set_num_threads(1)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    tally = Tally("training killed and resumed")
    draw = random.Random(seed)
    recipes = _recipes()
    wholes: dict[int, tuple[dict[str, Any], float]] = {}
    number = 0
    while tally.tries < count:
        kind = number % len(recipes)
        recipe = folder / f"recipe{kind}.toml"
        if kind not in wholes:
            recipe.write_text(recipes[kind])
            began = time.monotonic()
            out = folder / f"whole{kind}"
            died = run_child(lambda _: main([*_begin(recipe), "--out", str(out)]), folder / "said")  # noqa: B023
            if died.code:
                tally.wrong(f"recipe {kind} fails without being killed: {died.said.strip()[-300:]}")
                return tally.row()
            wholes[kind] = _numbers(out), time.monotonic() - began
        _one(tally, folder, number, recipe, *wholes[kind], draw, count - tally.tries)
        number += 1
    return tally.row()


def _begin(recipe: Path) -> list[str]:
    return ["train", str(recipe), "--set", f"train.steps={_STEPS}"]


def _one(
    tally: Tally,
    folder: Path,
    number: int,
    recipe: Path,
    whole: dict[str, Any],
    takes: float,
    draw: random.Random,
    left: int,
) -> None:
    out, said = folder / f"killed{number}", folder / f"killed{number}.said"
    moments: list[float] = []
    while True:
        going = (out / "run.json").exists()
        command = ["train", "--resume", "--out", str(out)] if going else [*_begin(recipe), "--out", str(out)]
        spare = len(moments) >= min(_DEATHS_OF_A_RUN, left)
        after = None if spare else draw.uniform(0.0, takes * 0.8)
        died = run_child(lambda _, command=command: main(command), said, kill_after=after)
        if is_traceback(died.said):
            tally.wrong(f"run {number}, killed after {moments}: {died.said.strip().splitlines()[-1]}")
            return
        if not died.killed:
            break
        assert after is not None
        moments.append(round(after, 3))
    tally.tries += len(moments)
    tally.faults += len(moments)
    if (
        died.code and f"all {_STEPS} steps are done" not in died.said
    ):  # killed after its last word, it has nothing to go on with
        tally.wrong(f"run {number}, killed after {moments}: {died.said.strip()[-300:]}")
        return
    found = _numbers(out)
    for name, wanted in whole.items():
        if found.get(name) != wanted:
            tally.wrong(
                f"run {number}, killed after {moments}: {name} differs: {_first(wanted, found.get(name))}"
            )


def _numbers(out: Path) -> dict[str, Any]:
    """Everything that does not hang on the clock: metrics, evaluations, and the last weights."""
    found: dict[str, Any] = {}
    for name in ("metrics.jsonl", "evals.jsonl"):
        lines = [json.loads(line) for line in (out / name).read_text().splitlines()]
        found[name] = [{k: v for k, v in line.items() if k not in _TIMES} for line in lines]
    for file in sorted((out / "checkpoints").rglob("*.safetensors")):
        found[str(file.relative_to(out))] = blake2b(file.read_bytes()).hexdigest()
    return found


def _first(wanted: Any, found: Any) -> str:
    """The first difference, to be read by a person."""
    if isinstance(wanted, list) and isinstance(found, list):
        for k, (left, right) in enumerate(zip(wanted, found, strict=False)):
            if left != right:
                return (
                    f"line {k}: {[(n, left[n], right.get(n)) for n in left if left[n] != right.get(n)][:3]}"
                )
        return f"{len(wanted)} and {len(found)} lines"
    return f"{str(wanted)[:100]} and {str(found)[:100]}"

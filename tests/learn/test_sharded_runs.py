"""Runs in several processes: as in one, cut off, gone on with in other numbers, and taken out as a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import COMA, GROUP, small
from test_session import numbers
from transformers import AutoModelForCausalLM

from baton.cli import main
from baton.compose.training import begin, go_on, make_trainer, measure_again
from baton.errors import UsageError
from baton.learn.run import checkpoint
from baton.learn.run.folder import read_lines

pytestmark = pytest.mark.usefixtures("first_weights")


def alike(lines: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """The same but for rounding, whatever is counted or measured; but for what other cuts of the rows compute."""
    assert len(lines) == len(others)
    for line, other in zip(numbers(lines), numbers(others), strict=True):
        assert flat(line) == pytest.approx(flat(other), rel=2e-3, abs=1e-5, nan_ok=True)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, each in value.items() for k, v in flat(each, f"{path}/{key}").items()}
    if isinstance(value, int | float) and not isinstance(value, bool) and "computed" not in path:
        return {path: value}
    return {}


def weights(out: Path, step: int) -> dict[str, torch.Tensor]:
    return checkpoint.weights_of(out / "checkpoints" / f"step-{step:05d}", "main")


def near(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], slack: float = 2e-4) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, atol=slack, rtol=0)


@pytest.mark.parametrize("train", ["full", "lora"])
def test_gone_on_with_in_other_numbers(tmp_path: Path, train: str) -> None:
    """Step by step in 2, 1, 3 and 1 processes: the run of one, and its checkpoints are read by all of them."""
    more: dict[str, Any] = {"policies__main__train": train, "train__checkpoint_every": 1}
    recipe = small(COMA, train__steps=4, **more)
    session = begin(recipe, "small", tmp_path / "one")
    expected = list(session.steps())
    session.close()
    out = tmp_path / "many"
    counts = [2, 1, 3, 1] if train == "full" else [1, 2]
    session = begin(small(COMA, train__steps=1, scale__trainer_processes=counts[0], **more), "small", out)
    try:
        found = list(session.steps())
    finally:
        session.close()
    for step, world in enumerate(counts[1:], 2):
        session = go_on(out, changes=[f"train.steps={step}", f"scale.trainer_processes={world}"])
        try:
            found += list(session.steps())
        finally:
            session.close()
        kept = out / "checkpoints" / f"step-{step:05d}"
        assert (kept / "main.shards").is_dir() == (world > 1)
        assert (kept / "main.safetensors").is_file() == (world == 1)
    alike(found, expected[: len(counts)])
    near(weights(tmp_path / "one", len(counts)), weights(out, len(counts)))


def test_a_run_of_two_is_finished_measured_and_taken_out(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "two"
    session = begin(small(GROUP, train__steps=2, scale__trainer_processes=2), "small", out)
    try:
        list(session.steps())
        session.finish()
        policy = session.trainer.policies["main"]
        ids = torch.tensor([[3, 1, 4, 1, 5]])
        session.trainer.rollouts.publish()
        with torch.no_grad():
            said = policy.sampler(input_ids=ids).logits
    finally:
        session.close()
    lines = measure_again(out)  # by one process: nothing is trained
    team = next(line for line in read_lines(out / "evals.jsonl") if line["who"] == "team")
    assert lines[1]["return"] == pytest.approx(team["return"])
    model = tmp_path / "model"
    assert main(["export", "model", str(out), "--out", str(model)]) == 0
    assert "policy main after step 2" in capsys.readouterr().out
    assert [each.name for each in model.glob("*.safetensors")] == ["model.safetensors"]
    opened = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        torch.testing.assert_close(opened(input_ids=ids).logits, said)
    for wrong, why in (
        (["--out", str(model)], "already there"),
        (["--out", str(tmp_path / "x"), "--step", "9"], "There are: 0, 2."),
        (["--out", str(tmp_path / "x"), "--policy", "mian"], "Did you mean 'main'?"),
    ):
        assert main(["export", "model", str(out), *wrong]) == 2
        assert why in capsys.readouterr().err


def test_a_damaged_shard_is_passed_over(tmp_path: Path) -> None:
    out = tmp_path / "two"
    recipe = small(COMA, train__steps=2, train__checkpoint_every=1, scale__trainer_processes=2)
    session = begin(recipe, "small", out)
    try:
        list(session.steps())
    finally:
        session.close()
    place = out / "checkpoints" / "step-00002"
    told = json.loads((place / "state.json").read_text())["files"]
    shards = sorted(name for name in told if name.endswith(".distcp"))
    assert len(shards) == 2
    content = bytearray((place / shards[1]).read_bytes())
    content[len(content) // 2] ^= 1
    (place / shards[1]).write_bytes(content)
    said: list[str] = []
    assert checkpoint.latest(out / "checkpoints", said.append).name == "step-00001"
    assert "has changed" in said[0]


def test_what_several_processes_cannot_do() -> None:
    for changes, why in (
        ({"train__conflict": "roles"}, "projects between roles"),
        ({"scale__trainer_patience": 5.0, "scale__trainer_processes": 1}, "would do nothing"),
    ):
        with pytest.raises(UsageError, match=why):
            make_trainer(small(GROUP, **{"scale__trainer_processes": 2, **changes}))


def test_the_flagship_by_its_command(tmp_path: Path) -> None:
    """`baton train flagship` in two processes gives the numbers of one."""
    found = []
    for world in (1, 2):
        out = tmp_path / str(world)
        words = ["train", "flagship", "--out", str(out), "--set", "train.steps=2"]
        words += [
            "--set",
            f"scale.trainer_processes={world}",
            "--set",
            "eval.episodes=8",
            "--set",
            "rollout.groups=16",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "baton", *words], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        found.append(read_lines(out / "metrics.jsonl"))
    alike(*found)
    near(weights(tmp_path / "1", 2), weights(tmp_path / "2", 2), 2e-3)

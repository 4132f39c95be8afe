"""All runs with one command: what is started, what is gone on with, what a failure leaves."""

from __future__ import annotations

import itertools
import json
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest

from baton.errors import UsageError
from real_tasks import reproduce as module


def arguments(folder: Path, **changes: object) -> Namespace:
    given = {
        "reproduce": str(folder),
        "only": [],
        "seeds": 2,
        "processes": 2,
        "minutes": 1.0,
        "finish": False,
    }
    return Namespace(**{**given, "instances": 4, "tries": 2, "changes": ["train.steps=2"], **changes})


def test_every_run_has_its_recipe_seed_and_changes(tmp_path: Path) -> None:
    command = module._run(tmp_path, "spawn-course", 1, arguments(tmp_path)).command
    assert command[command.index("--train") + 1] == "reasoning-spawn"
    sets = [value for flag, value in itertools.pairwise(command) if flag == "--set"]
    assert sets == [module.COURSES, "train.seed=1", "train.steps=2"]


def test_a_begun_run_goes_on_as_it_began(tmp_path: Path) -> None:
    folder = tmp_path / "team-0"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"status": "stopped"}))
    run = module._run(tmp_path, "team", 0, arguments(tmp_path))
    assert "--set" not in run.command
    assert run.begun
    assert not run.finished
    (folder / "run.json").write_text(json.dumps({"status": "finished"}))
    assert not run.finished  # not measured yet
    (folder / "measured.jsonl").write_text("")
    assert run.finished


def fake(tmp_path: Path, name: str, code: str) -> module._Run:
    return module._Run(tmp_path / name, (sys.executable, "-c", code))


def test_one_that_fails_takes_nothing_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.05)
    good = [fake(tmp_path, f"good-{n}", "print('done')") for n in range(3)]
    bad = fake(tmp_path, "bad", "raise SystemExit('no such thing')")
    failed = module._play([bad, *good], 2, time.monotonic() + 60, finish=False)
    assert failed == [bad]
    assert "no such thing" in module._last_words(bad)
    assert [(tmp_path / f"good-{n}.log").read_text() for n in range(3)] == ["done\n"] * 3


def test_after_the_slice_nothing_is_started(tmp_path: Path) -> None:
    run = fake(tmp_path, "late", "print('done')")
    assert module._play([run], 2, time.monotonic() - 1, finish=False) == []
    assert not (tmp_path / "late.log").exists()


def test_an_unknown_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="team"):
        module.reproduce(arguments(tmp_path, only=["tema"]))

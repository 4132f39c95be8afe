"""`baton train` killed by SIGKILL at any moment goes on to the numbers of a run that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_run import BASE, COMA
from test_session import numbers

from baton.compose import training
from baton.learn.recipe import parse
from baton.learn.run.folder import read_lines

TEXT = BASE + COMA


def begin(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "baton", "train", *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def num_lines(place: Path) -> int:
    return place.read_bytes().count(b"\n") if place.exists() else 0


def kill_after(process: subprocess.Popen[bytes], place: Path, lines: int, seconds: float) -> None:
    """Once so many steps are written, and a while later."""
    until = time.monotonic() + 120
    while num_lines(place) < lines and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_killed_and_resumed(tmp_path: Path, first_weights: None, kills: int) -> None:
    draw = random.Random()  # any moment will do, so each test run tries others
    session = training.begin(parse(TEXT, "small"), "small", tmp_path / "whole")
    expected = numbers(list(session.steps()))
    session.finish()
    session.close()
    out, recipe = tmp_path / "killed", tmp_path / "small.toml"
    recipe.write_text(TEXT)
    moments = []
    process = begin(str(recipe), "--out", str(out))
    for _ in range(kills):
        wait = draw.uniform(0, 0.3) if kills == 1 else draw.uniform(0, 8)
        moments.append((1 if kills == 1 else 0, wait))
        kill_after(process, out / "metrics.jsonl", *moments[-1])
        if not (out / "run.json").exists():
            process = begin(str(recipe), "--out", str(out))
        else:
            process = begin("--resume", "--out", str(out))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, (moments, said.decode())
    assert numbers(read_lines(out / "metrics.jsonl")) == expected, moments
    who = [[line["who"] for line in read_lines(tmp_path / n / "evals.jsonl")] for n in ("whole", "killed")]
    assert who[0] == who[1], moments


def test_terminated_it_ends_after_its_step_and_goes_on(tmp_path: Path, first_weights: None) -> None:
    out, recipe = tmp_path / "run", tmp_path / "small.toml"
    text = TEXT.replace(
        "[train]\nsteps = 4\ncheckpoint_every = 2", "[train]\nsteps = 400\ncheckpoint_every = 300"
    )
    recipe.write_text(text)
    process = begin(str(recipe), "--out", str(out))
    until = time.monotonic() + 120
    while num_lines(out / "metrics.jsonl") < 2 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 143, said.decode()
    told = json.loads((out / "run.json").read_text())
    assert (told["status"], told["why"]) == ("stopped", "terminated")
    done = len(read_lines(out / "metrics.jsonl"))
    assert f"Stopped after step {done}; the last checkpoint is step-{done:05d}." in said.decode()
    session = training.go_on(out, changes=[f"train.steps={done + 1}"])
    assert [line["step"] for line in session.steps()] == [done + 1]
    session.close()

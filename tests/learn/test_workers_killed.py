"""Rollout workers that die, hang, lie or cannot be: real processes and signals, around a worker without a model."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from child_process import with_support
from light_worker import rollout
from small_run import GROUP

from baton.errors import UsageError
from baton.learn.recipe import RolloutPart, ScalePart
from baton.learn.rollouts import RolloutGroup
from baton.learn.scale import workers as module
from baton.learn.scale.workers import Workers
from baton.learn.scale.workers_lots import WorkerSetup, WorkersFailed
from baton.learn.scale.workers_process import ProcessSeats

GROUPS = 5


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what happens to processes, in the order in which they are started."""
    place = tmp_path / "plan"
    monkeypatch.setenv("LIGHT_PLAN", str(place))

    def write(*faults: str) -> None:
        place.write_text("\n".join(faults))

    write()
    return write


@contextmanager
def workers(count: int = 2, notes: list[str] | None = None, **scale: Any) -> Iterator[Workers]:
    policy = SimpleNamespace(
        name="odd name", version=0, learns=True, sampler=object(), part=SimpleNamespace(engine=None)
    )
    policy.state_dict = lambda: {"w": torch.full((3,), float(policy.version))}
    made = Workers(
        ProcessSeats(lambda n: WorkerSetup(number=n, baton="0", recipe="", given={}), "light_worker"),
        {"odd name": policy},  # type: ignore[dict-item]  # as much of a policy as is asked for
        ScalePart(rollout_workers=count, **scale),
        lambda _: RolloutPart(groups=GROUPS, group_size=2),
        lambda _: None,
        (notes if notes is not None else []).append,
    )
    made.policy = policy  # type: ignore[attr-defined]  # for the test
    try:
        yield made
    finally:
        made.close()


def expected(step: int, version: int) -> list[RolloutGroup]:
    return [
        RolloutGroup(
            step=step,
            version=version,
            traces=tuple(rollout(f"step-{step:04d}/{g:02d}-{n:02d}", version) for n in range(2 + g % 2)),
        )
        for g in range(GROUPS)
    ]


FAULTS = ["start", "building", "weights", "playing", "sending", "checksum", "damaged", "foreign"]


def test_deaths_at_every_moment_one_after_the_other(plan: Any) -> None:
    plan(*FAULTS)
    with workers(1, restarts=len(FAULTS)) as made:
        made.publish(0)
        assert made.play(1, 0) == expected(1, 0)
        told = made.figures(1)
        assert (told["worker_deaths"], told["lots_again"]) == (len(FAULTS), len(FAULTS) - 2)


@pytest.mark.parametrize(
    "fault", ["start", "building", "weights", "playing", "sending", "checksum", "damaged", "foreign"]
)
def test_a_worker_that_dies_at_any_moment_loses_nothing(plan: Any, fault: str) -> None:
    plan(fault)
    notes: list[str] = []
    with workers(1, notes) as made:
        made.publish(0)
        assert made.play(1, 0) == expected(1, 0)
        told = made.figures(1)
    assert told["worker_deaths"] == 1
    assert told["lots_again"] == (fault not in ("start", "building"))
    assert len(notes) == 1
    assert "rollout worker 1" in notes[0]


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_schedule_of_deaths_with_several_steps_under_way(plan: Any, seed: int) -> None:
    draw = random.Random(seed)
    plan(*draw.choices(["start", "weights", "playing", "sending", "checksum", "-", "-"], k=9))
    with workers(2, restarts=9, batch=2) as made:
        futures = []
        for step in range(1, 4):
            made.policy.version = step - 1  # type: ignore[attr-defined]  # for the test
            made.publish(step - 1)
            futures.append((step, made.begin(step, step - 1)))
        for step, future in futures:
            assert future.result(60) == expected(step, step - 1)


def test_weights_are_dropped_when_no_play_needs_them(plan: Any) -> None:
    with workers(1) as made:
        for step in range(1, 4):
            made.policy.version = step - 1  # type: ignore[attr-defined]  # for the test
            made.publish(step - 1)
            made.play(step, step - 1)
        folder = made._folder
        assert folder is not None
        assert [path.name for path in folder.glob("*.safetensors")] == ["odd name-000002.safetensors"]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            "playing",
            "died 2 times in a row, the last time while it played groups 0, 1, 2, 3, … of step 1: it was killed",
        ),
        ("code", "ended with code 3 and said: ModuleNotFoundError: no such thing"),
    ],
)
def test_one_that_dies_again_and_again_ends_the_run(plan: Any, fault: str, said: str) -> None:
    plan(*[fault] * 4)
    with workers(1, restarts=1) as made:
        made.publish(0)
        with pytest.raises(WorkersFailed) as found:
            made.play(1, 0)
        with pytest.raises(WorkersFailed):
            made.play(2, 0)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("refuse", "rollout worker 1: cannot import my_package. Type: pip install my-package"),
        ("error", "rollout worker 1: ValueError: the task broke ("),
        ("full", "No space left on device"),
    ],
)
def test_what_would_not_help_is_not_tried_again(plan: Any, fault: str, said: str) -> None:
    plan(fault)
    with workers(1) as made:
        made.publish(0)
        with pytest.raises(WorkersFailed) as found:
            made.play(1, 0)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("fault", ["hang", "stop"])
def test_one_that_hangs_is_ended_and_its_lot_played_again(
    plan: Any, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GLANCE_SECONDS", 0.05)
    plan(fault)
    notes: list[str] = []
    with workers(1, notes, patience=1.5) as made:
        made.publish(0)
        assert made.play(1, 0) == expected(1, 0)
    assert "did not get on for 1.5 s (scale.patience) and was ended" in notes[0]


def test_what_a_dead_worker_had_started_ends_too(plan: Any) -> None:
    plan("child")
    with workers(1) as made:
        made.publish(0)
        made.play(1, 0)
    assert not [pid for pid in _processes("sleep 3600") if _ours(pid)]


def test_a_full_disk_is_one_line(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with workers(1) as made, pytest.raises(UsageError, match=r"No space left on device .* set TMPDIR"):
        made.publish(0)


TRAINER = """
import sys, time
from pathlib import Path
from test_workers_killed import workers
with workers(2) as made:
    made.publish(0)
    future = made.begin(1, 0)
    while not all(place.ready for place in made._places):
        time.sleep(0.01)
    print(made._folder, *(place.seat.pid for place in made._places), flush=True)
    future.result()
"""


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGINT])
def test_a_trainer_that_ends_leaves_no_workers_and_no_files(tmp_path: Path, signal_: signal.Signals) -> None:
    environment = with_support() | {"LIGHT_SECONDS": "600", "LIGHT_PLAN": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), environment["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().split()
    folder, pids = Path(line[0]), [int(each) for each in line[1:]]
    assert folder.is_dir()
    process.send_signal(signal_)
    _, said = process.communicate(timeout=60)
    assert ("KeyboardInterrupt" in said) == (signal_ == signal.SIGINT)
    until = time.monotonic() + 30
    while (any(map(_alive, pids)) or folder.exists()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(_alive, pids))
    assert not folder.exists()


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _processes(words: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() == words:
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def _ours(pid: int) -> bool:
    try:
        return b"LIGHT_PLAN=" in Path(f"/proc/{pid}/environ").read_bytes() and _alive(pid)
    except OSError:
        return False


@pytest.mark.slow
def test_a_run_whose_workers_are_killed_gives_the_numbers_of_one_process(
    tmp_path: Path, first_weights: None
) -> None:
    from small_run import BASE
    from test_session import TIMES

    from baton.learn.run.folder import read_lines

    draw = random.Random()  # any moment will do, so each test run tries others
    text = BASE + GROUP + "[scale]\nbatch = 2\nlag = 1\n"
    recipe = tmp_path / "small.toml"
    recipe.write_text(text)
    command = [sys.executable, "-m", "baton", "train", str(recipe)]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True)
    process = subprocess.Popen(
        [*command, "--out", str(killed), "--set", "scale.rollout_workers=2", "--set", "scale.restarts=9"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    moments, died = [], 0
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and died < 3:
        moments.append(draw.uniform(0.1, 12))
        time.sleep(moments[-1])
        pids = children.read_text().split() if children.exists() else []
        if pids:
            os.kill(int(draw.choice(pids)), signal.SIGKILL)
            died += 1
    _, said = process.communicate(timeout=400)
    assert process.returncode == 0, (moments, said.decode())
    compared = [
        [
            {
                k: v
                for k, v in line.items()
                if k not in (*TIMES, "idle") and "worker" not in k and "lots" not in k
            }
            for line in read_lines(out / "metrics.jsonl")
        ]
        for out in (whole, killed)
    ]
    for line in (*compared[0], *compared[1]):
        line.pop("busy_seconds", None)
    assert compared[0] == compared[1], moments

"""A process that is killed, stopped or refused ends the run with one line; nobody waits, and nobody is left."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model
from msgspec import structs
from sharded_policies import PACKED, policy_of, rows_of_odd_sizes
from small_run import BASE, COMA
from test_session import numbers

from baton.errors import BatonError, CorruptError, UsageError
from baton.learn.loss import Loss
from baton.learn.run.folder import read_lines
from baton.learn.scale.sharded import hand_over
from baton.learn.scale.sharded_checkpoint import contents_of
from baton.learn.scale.sharded_ranks import Ranks, UpdateLost


@contextmanager
def learning(patience_seconds: float = 60.0) -> Iterator[tuple[Ranks, Any, list[Any]]]:
    """Two processes, a learner in them and rows."""
    ranks = Ranks(2, "cpu", patience_seconds=patience_seconds, threads=1)
    try:
        model = exact_model()
        there = policy_of(model)
        hand_over(ranks, [there])
        yield ranks, there.learning(Loss(), PACKED, None), rows_of_odd_sizes(model)  # type: ignore[misc]
    finally:
        ranks.close()


def test_a_killed_process_is_named_and_so_is_what_to_type() -> None:
    with learning() as (ranks, learner, rows):
        learner.backward(rows, version="0")
        os.kill(ranks._processes[0].pid, signal.SIGKILL)  # type: ignore[union-attr]
        with pytest.raises(UpdateLost, match=r"process 1 of the 2 .* was killed by SIGKILL.*--resume"):
            learner.backward(rows, version="0")
        with pytest.raises(UpdateLost, match="SIGKILL"):  # and not something else afterwards
            learner.advance(1.0)
        assert not torch.distributed.is_initialized()


def test_a_process_that_hangs_is_given_up() -> None:
    with learning(patience_seconds=8.0) as (ranks, learner, rows):
        process = ranks._processes[0]
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(UpdateLost, match=r"process 1 of the 2 .* did not answer within 8 seconds"):
            learner.backward(rows, version="0")
        assert process.poll() is not None


def test_what_rows_lack_is_said_as_in_one_process() -> None:
    """Whichever process meets it: here both, then the other alone."""
    for which in (slice(None), slice(5, None)):
        with learning() as (_, learner, rows):
            blank = [structs.replace(row, sampler=np.full(len(row.places), np.nan)) for row in rows[which]]
            rest = [row for row in rows if row.call not in {each.call for each in blank}]
            with pytest.raises(BatonError, match="no recorded log-probabilities"):
                learner.backward([*rest, *blank], version="0")


def test_a_group_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with pytest.raises(UsageError, match=r"in a group of torch\.distributed already"):
            Ranks(2, "cpu", patience_seconds=60, threads=1)
        assert torch.distributed.is_initialized()
    finally:
        torch.distributed.destroy_process_group()


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch was-run",)


def test_a_list_of_shards_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for content in (pickle.dumps(Evil()), pickle.dumps({"a": 1}), b"", pickle.dumps(subprocess.Popen)):
        (tmp_path / ".metadata").write_bytes(content)
        with pytest.raises(CorruptError):
            contents_of(tmp_path)
    assert not (tmp_path / "was-run").exists()


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found if b"sharded_rank" in Path(f"/proc/{each}/cmdline").read_bytes()]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(asked: Any, seconds: float = 200.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := asked():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("who", ["first", "other"])
@pytest.mark.parametrize("lines", [0, 1])
def test_kill_9_of_each_process(tmp_path: Path, first_weights: None, who: str, lines: int) -> None:
    """The run ends, nothing is left behind, and going on gives the numbers of a run that was not killed."""
    recipe, out, whole = tmp_path / "small.toml", tmp_path / "run", tmp_path / "whole"
    recipe.write_text(BASE.replace("checkpoint_every = 2", "checkpoint_every = 1") + COMA)
    many = ["--set", "scale.trainer_processes=2"]

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "baton", "train", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    process = start(str(recipe), "--out", str(out), *many)
    try:
        others = until(lambda: process.poll() is not None or children(process.pid))
        metrics = out / "metrics.jsonl"
        until(
            lambda: (
                (out / "checkpoints" / "latest").exists()
                if not lines
                else metrics.exists() and metrics.read_bytes()
            )
        )
        os.kill(process.pid if who == "first" else others[0], signal.SIGKILL)
        _, said = process.communicate(timeout=200)
        until(lambda: not any(map(is_there, others)), 30)
    finally:
        process.kill()
    if who == "other":
        assert process.returncode == 2
        last = said.decode().strip().splitlines()[-1]
        assert "was killed by SIGKILL" in last
        assert "--resume" in last
        assert "Traceback" not in said.decode()
    done = start("--resume", "--out", str(out))
    _, said = done.communicate(timeout=200)
    assert done.returncode == 0, said.decode()
    done = start(str(recipe), "--out", str(whole))
    done.communicate(timeout=200)
    found, expected = (numbers(read_lines(each / "metrics.jsonl")) for each in (out, whole))
    for line, other in zip(found, expected, strict=True):
        assert line["return"] == pytest.approx(other["return"])
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-3, abs=1e-5)

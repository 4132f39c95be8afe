"""What version 0.1 left still opens: a live store that was killed, sealed shards, a training run with its checkpoints.

`v0.1.tar.gz` was written by version 0.1.0 itself: `baton run shard-sum --topology hierarchical` killed in the middle,
`baton convert` of six runs into sealed shards and into the survey's form, and `baton train grpo` of two steps at small
sizes. What it expects (the finished run, the third step) was computed by that version too.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import baton
from baton.cli import main
from baton.trace.formats import read_all

pytest.importorskip("torch", reason="needs the extra `torch`")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "v0.1.tar.gz") as archive:
        # Python 3.11 before .4 knows no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(tmp_path)
    return tmp_path / "0.1"


def test_a_killed_run_is_resumed_to_the_same_trace(old: Path) -> None:
    assert main(["resume", str(old / "unfinished")]) == 0
    (trace,) = read_all(old / "unfinished")
    assert trace == baton.read(old / "unfinished-expected.jsonl")
    assert main(["replay", str(old / "unfinished")]) == 0


@pytest.mark.parametrize("place", ["sealed", "survey.json"])
def test_traces_open_in_every_form(old: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(old / place)]) == 0
    assert main(["validate", str(old / place)]) == 0
    assert capsys.readouterr().out


def test_a_training_run_is_measured_forked_and_gone_on_with(
    old: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(old / "cache"))
    run = str(old / "trained")
    assert main(["eval", run, "--episodes", "4", "--json"]) == 0
    assert main(["train", "--resume", "--out", run, "--set", "train.steps=3"]) == 0
    capsys.readouterr()
    (*_, mine) = _lines(old / "trained" / "metrics.jsonl")
    (*_, expected) = _lines(old / "trained-resumed-expected" / "metrics.jsonl")
    assert mine["step"] == expected["step"] == 3
    # Another chip's kernels may draw another token, and from there on everything is different; not on average.
    assert mine["return"]["mean"] == pytest.approx(expected["return"]["mean"], abs=0.5)
    assert set(expected) <= set(mine)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]

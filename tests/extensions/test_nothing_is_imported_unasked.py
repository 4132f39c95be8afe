"""A stranger's trace or recipe names code of every kind: it is refused with what to type, and nothing is imported.

What a model says is never imported at all, whatever anybody trusts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changed import unsealed
from cli_runs import made, traces

import baton
from baton.cli import main
from baton.trace.formats import write

NAME = "strange_code:thing"
RECIPE: dict[str, Any] = {
    "about": "somebody else's",
    "task": {"name": "shard-sum"},
    "policies": {"main": {"model": "tiny"}},
    "warm": {"play": "reference", "episodes": 4, "steps": 1},
    "credit": [{"estimator": "group"}],
}
IN_A_RECIPE: dict[str, dict[str, Any]] = {
    "topology": {"team": {"topology": NAME}},
    "aggregator": {"team": {"aggregators": [NAME]}},
    "surface": {"team": {"surface": NAME}},
    "tool": {"team": {"tools": [NAME]}},
    "engine": {"policies": {"main": {"model": NAME, "train": "frozen"}}},
    "engine with more": {"policies": {"main": {"model": f"{NAME}:return 1", "train": "frozen"}}},
    "scripted": {"policies": {"main": {"model": f"scripted:{NAME}", "train": "frozen"}}},
    "task": {"task": {"name": NAME}},
    "game": {"task": {"name": f"game:{NAME}"}},
    "reward": {"reward": {"rules": [{"rule": NAME}]}},
    "rewards": {"reward": {"recipe": NAME}},
    "estimator": {"credit": [{"estimator": NAME}]},
    "loss": {"loss": {"kind": NAME}},
    "critic": {"critic": {"kind": NAME}},
    "metric": {"eval": {"metrics": [NAME]}},
    "monitor": {"train": {"monitors": [NAME]}},
    "cost": {"constraints": [{"cost": NAME, "limit": 1.0}]},
    "sanitiser": {"team": {"tools": ["python"]}, "guard": {"tools": {"python": {"sanitise": NAME}}}},
    "recipe": {"base": NAME},
    "import": {"import": ["strange_code"]},
}
IN_A_TRACE: dict[str, dict[str, Any]] = {
    "topology": {"topology": NAME},
    "aggregator": {"aggregators": [NAME]},
    "surface": {"surface": NAME},
    "tool": {"tools": [NAME]},
    "task": {"task": NAME},
    "game": {"task": f"game:{NAME}"},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a module lies that says when it is imported; at the end, it was not."""
    (tmp_path / "strange_code.py").write_text('open(__file__ + ".imported", "w").close()\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    assert not (tmp_path / "strange_code.py.imported").exists()
    assert "strange_code" not in sys.modules


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    assert main(list(words)) == 2, words
    said = capsys.readouterr().err
    assert "strange_code" in said
    assert said.rstrip().endswith("type: --trust"), said


def toml(table: dict[str, Any]) -> str:
    return pytest.importorskip("tomli_w").dumps(table)


@pytest.mark.parametrize("kind", IN_A_RECIPE)
def test_a_recipe(kind: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = toml(RECIPE | IN_A_RECIPE[kind])
    (here / "theirs.toml").write_text(text)
    refused(capsys, "train", "theirs.toml", "--out", "run")
    main(["recipes", "theirs.toml"])
    with pytest.raises(baton.BatonError, match="--trust"):
        baton.train("theirs.toml", out="run")
    assert not (here / "run").exists()
    (here / "run" / "checkpoints").mkdir(parents=True)
    (here / "run" / "run.json").write_text('{"recipe": "theirs", "status": "running"}')
    (here / "run" / "recipe.toml").write_text(text)
    refused(capsys, "train", "--resume", "--out", "run")
    refused(capsys, "eval", "run")


@pytest.mark.parametrize("kind", IN_A_TRACE)
def test_a_trace(kind: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trace,) = traces(made(here / "run"))
    write(trace, here / "theirs.jsonl")
    header, rest = unsealed((here / "theirs.jsonl").read_text()).split("\n", 1)
    told = json.loads(header)
    told["meta"]["run"]["settings"] |= IN_A_TRACE[kind]
    (here / "theirs.jsonl").write_text(json.dumps(told) + "\n" + rest)
    refused(capsys, "replay", "theirs.jsonl")
    refused(capsys, "fork", "theirs.jsonl", "--bar", "worker1", "--out", "fork.jsonl")
    refused(capsys, "credit", "theirs.jsonl", "--estimator", "shapley")
    (here / "cut").mkdir()
    baton.write(baton.read("theirs.jsonl").prefix(4), "cut/run.db")
    refused(capsys, "resume", "cut")
    for words in ("show", "stats", "validate", "measure", "measure --replay", "reward --recipe shared"):
        command, *more = words.split()
        main([command, "theirs.jsonl", *more])  # takes the trace as one of another system's
    with pytest.raises(baton.BatonError, match="--trust"):
        baton.replay("theirs.jsonl")
    baton.measure("theirs.jsonl")


def test_a_reward_recipe_and_a_record(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trace,) = traces(made(here / "run"))
    (here / "theirs.toml").write_text(toml({"about": "theirs", "rules": [{"rule": NAME}]}))
    refused(capsys, "reward", "run", "--recipe", "theirs.toml")
    with pytest.raises(baton.BatonError, match="--trust"):
        baton.score(trace, "theirs.toml")


@pytest.mark.parametrize(
    "said", [f"aggregate {NAME}", f"call {NAME} {{}}", f"spawn {NAME}: work", "aggregate os:system"]
)
def test_a_model(said: str, here: Path) -> None:
    trace = baton.run("shard-sum", policy=lambda _: said)
    assert {event.status for event in trace.events if event.agent == "orchestrator"} >= {"invalid"}
    assert not trace.finished or trace.rewards[0].value == 0

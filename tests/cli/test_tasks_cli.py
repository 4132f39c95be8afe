"""`baton tasks`: every task that has a name, each with what a person needs to run it."""

from __future__ import annotations

import inspect
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baton
from baton import registry
from baton.cli import main
from baton.compose.task_cards import card_of, task_cards
from baton.errors import MissingExtraError
from baton.games.library import GAMES
from baton.tasks.catalog import TASKS
from baton.tasks.shard_sum import ShardSum
from baton.tasks.task import Instance, Task


class Riddle(Task):
    """Which of three doors? A second sentence.

    And more that is not shown in a list.
    """

    name = "odd task/5"

    def __init__(
        self, doors: int = 3, hint: str = "left", *, weights: tuple[float, ...] = (0.5, 0.25)
    ) -> None:
        self.doors = doors

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return f"One of {self.doors} doors.\x1b[2J", int(random.integers(self.doors)), None

    def verify(self, instance: Instance, answer: str) -> float:
        return float(answer == str(instance.gold))


def broken() -> Task:
    raise MissingExtraError("the riddle", "torch")


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of this process, beside the shipped ones; a game of another name among them."""
    mine = {kind: dict(known) for kind, known in registry._registered.items()}
    mine["task"] |= {"odd task/5": Riddle, "ready": Riddle(7), "broken": broken}
    mine["game"] |= {"other-usl": GAMES["usl"]}
    monkeypatch.setattr(registry, "_registered", mine)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["tasks", *words]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_the_list_has_every_task_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys)
    starts = {line.split("  ")[0] for line in out.splitlines() if line and not line.startswith(" ")}
    assert set(TASKS) | {f"game:{name}" for name in GAMES} <= starts
    assert {"odd task/5", "ready", "broken", "game:other-usl"} <= starts
    assert max(map(len, out.splitlines())) <= 80
    assert "  num_shards=4  per_shard=5  largest=99\n" in out
    assert "Which of three doors? A second sentence.\n" in out
    assert "needs packages that are not installed" in out


def test_cards_say_what_the_tasks_say(capsys: pytest.CaptureFixture[str]) -> None:
    cards = {card["name"]: card for card in json.loads(said(capsys, "--json"))}
    shards = cards["shard-sum"]
    defaults = {name: each.default for name, each in inspect.signature(ShardSum).parameters.items()}
    assert shards["settings"] == defaults
    assert (shards["gold"], shards["own_team"], shards["game"]) == ("answer", None, False)
    assert set(shards["topologies"]) == set(registry.names("topology"))
    assert all(cards[f"game:{name}"]["gold"] == "optimum" for name in GAMES)
    assert cards["game:pandora"]["own_team"] == "centralized"
    assert cards["game:other-usl"]["settings"] == cards["game:usl"]["settings"] != {}
    assert cards["kuhn-poker"]["gold"] == "score"
    odd = cards["odd task/5"]
    assert odd["settings"] == {"doors": 3, "hint": "left", "weights": [0.5, 0.25]}
    assert (odd["gold"], odd["scripted"], odd["package"]) == ("verifier", False, __name__.partition(".")[0])
    assert cards["broken"]["unavailable"].startswith("the riddle needs packages")


def test_one_task_with_an_instance(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "shard-sum", "--seed", "3", "--split", "test")
    task = ShardSum()
    instance = task.instance(3, "test")
    assert f"answer        {sum(map(sum, instance.data))}\n" in out
    assert instance.prompt in out
    assert "read_shard: The numbers in one shard" in out
    other = said(capsys, "odd task/5")
    assert "\x1b" not in other
    assert "One of 3 doors.\\e[2J" in other
    assert "--policy openai:MODEL@URL" in other


def test_what_is_printed_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("shard-sum", "kuhn-poker", "game:other-usl"):
        found = json.loads(said(capsys, name, "--json"))
        assert f"Type: {found['command']}\n" in said(capsys, name)
        program, *words = shlex.split(found["command"])
        assert program == "baton"
        assert main(words) == 0


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'shard-sum'?" in said(capsys, "shardsum", code=2)
    assert "cannot be made here: the riddle needs packages" in said(capsys, "broken", code=2)
    assert "--seed -1: expected" in said(capsys, "shard-sum", "--seed", "-1", code=2)
    assert "No module named 'nowhere_at_all'" in said(capsys, "nowhere_at_all:Task", code=2)


def test_a_task_that_is_made_already_has_no_settings() -> None:
    assert card_of("ready").settings == {}
    assert len({card.name for card in task_cards()}) == len(task_cards())


def test_a_task_that_brings_its_team_needs_no_topology(tmp_path: Path) -> None:
    trace = baton.run("kuhn-poker")
    assert trace.header.topology == "debate"
    assert main(["run", "kuhn-poker", "--out", str(tmp_path / "kuhn")]) == 0
    assert main(["run", "kuhn-poker", "--topology", "swarm", "--out", str(tmp_path / "swarm")]) == 2

"""`baton credit --partition`: every unit at once, adding up, from saved traces."""

from __future__ import annotations

import json
import re
import shlex
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from game_teams import play

from baton.cli import main
from baton.games.game_trace import regret_of_trace
from baton.games.library import make_game
from baton.games.solve import solve
from baton.trace.formats import read_all, write


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("games") / "played games.jsonl"
    write(play("parallel-pandora", 5)[0], path)
    return path


def told(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    assert main(["credit", *args, "--partition", "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_against_the_optimum_it_is_the_regret_ledger(games: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solution = solve(make_game("parallel-pandora", {}))
    for trace, found in zip(read_all(games), told(capsys, str(games), "--value", "optimum"), strict=True):
        ledger = regret_of_trace(trace, lambda _: solution)
        assert found["return"] == ledger.value
        assert -fsum(c["value"] for c in found["credits"]) == pytest.approx(ledger.regret, abs=1e-9)
        assert found["luck"]["environment"] == pytest.approx(ledger.luck, abs=1e-9)


@pytest.mark.parametrize(
    "layers",
    [
        (),
        ("telescope/orchestrator",),
        ("mean", "telescope/orchestrator"),
        ("telescope/message", "mean", "telescope/orchestrator", "return-to-go"),
    ],
)
def test_layers_and_luck_add_up(
    layers: tuple[str, ...], games: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part for layer in layers for part in ("--layer", layer)]
    for found in told(capsys, str(games), "--group-by", "task", *given):
        whole = found["return"] - found["baseline"]
        assert fsum((*(c["value"] for c in found["credits"]), *found["luck"].values())) == pytest.approx(
            whole
        )
        assert found["residual"] == pytest.approx(0, abs=1e-12)
        assert fsum(found["channels"].values()) == pytest.approx(whole)


def test_it_is_printed_and_written(games: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    typed = ["credit", str(games), "--partition", "--group-by", "task", "--layer", "mean", "--out", str(out)]
    assert main(typed) == 0
    printed = capsys.readouterr().out
    assert "mean/team" in printed
    assert "luck: environment" in printed
    written = list(read_all(out))
    assert all({c.estimator for c in trace.credits} == {"mean"} for trace in written)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["--partition", "--layer", "telescope/message", "--layer", "siblings/message"], "credited twice"),
        (
            ["--partition", "--layer", "agent-group", "--layer", "telescope"],
            "agent-group has a scale of its own",
        ),
        (["--partition", "--estimator", "group"], "--layer E/UNIT"),
        (["--partition", "--layer", "mean/message"], "gives credit to team"),
        (["--partition", "--layer", "meen"], "Did you mean 'mean'"),
        (["--partition", "--value", "best"], "Expected group, optimum or module:function"),
        (["--partition", "--layer", "mean", "--set", "eps=1"], "names no layer"),
        (["--partition", "--layer", "mean", "--set", "group.eps=1"], "is no layer here"),
        (["--partition", "--layer", "telescope", "--set", "telescope.laater=1"], "Did you mean 'later'"),
        (["--estimator", "group", "--layer", "mean"], "Type: --partition"),
    ],
)
def test_what_cannot_be_partitioned_is_refused_before_a_file_is_read(
    typed: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["credit", "no such file.jsonl", *typed]) == 2
    assert says in capsys.readouterr().err


def test_the_page_prints_commands_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the training, which `tests/learn/test_recipes.py` does."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "credit.md").read_text("utf-8")
    section = page[page.index("## Exact partition") : page.index("## An estimator of your own")]
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)).splitlines()
    typed = [shlex.split(line)[1:] for line in lines]
    assert [words[0] for words in typed] == ["game", "credit", "credit", "train"]
    for words in typed[:3]:
        assert main(words) == 0

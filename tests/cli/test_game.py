"""`baton game`, as typed."""

from __future__ import annotations

import json

import pytest

from baton.cli import main
from baton.games.game import CHOICES
from baton.games.library import GAMES
from baton.games.reference import REFERENCE


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name}  [" in out for name in GAMES)
    assert main(["game", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(GAMES)
    assert rows[0]["parameters"]["num_boxes"] == 3


def test_solve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "solve", "pandora", "--set", "scales=[1]", "--set", "costs=[0.02]"]) == 0
    out = capsys.readouterr().out
    assert "reservation_1 = 0.8" in out
    assert "* spawn opener: next" in out
    assert main(["game", "solve", "dec-tiger", "--json", "--set", "horizon=2"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(-4)


def test_regret_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "regret", "parallel-pandora", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert list(out["policies"]) == list(REFERENCE)
    for ledger in out["policies"].values():
        assert sum(ledger["parts"].values()) == pytest.approx(out["optimum"] - ledger["value"], abs=1e-9)


def test_regret_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "regret", "best-of-n", "--policy", "fixed-3"]) == 0
    head, columns, row = capsys.readouterr().out.splitlines()
    assert "V* = 0.582351" in head
    assert columns.split() == [
        "policy",
        "value",
        "regret",
        "spawn",
        "delegate",
        "communicate",
        "aggregate",
        "stop",
        "invalid",
    ]
    assert row.split()[0] == "fixed-3"
    assert float(row.split()[2]) == pytest.approx(float(row.split()[3]))


def test_sampled_regret(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["game", "regret", "usl", "--policy", "random", "--episodes", "200", "--json"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    mean, half = first["policies"]["random"]["regret"]
    assert half > 0
    assert abs(mean - 1.6265) < 3 * half
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert set(first["policies"]["random"]["parts"]) == set(CHOICES)


def test_play(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "play", "gloves"]) == 0
    shown = capsys.readouterr().out
    assert "> delegate player: 3" in shown
    assert shown.endswith("return 0.9\n")
    assert main(["game", "play", "gloves", "--policy", "random", "--episodes", "50"]) == 0
    assert "over 50 episodes" in capsys.readouterr().out
    assert main(["game", "play", "gloves", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["steps"][0]["decision"] == "spawn"


def test_play_past_exact_solution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", "play", "parallel-pandora", "--policy", "greedy", "--set", "num_boxes=40"]) == 0
    assert "return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["solve", "pandorra"], "Did you mean 'pandora'?"),
        (["solve", "pandora", "--set", "cost=1"], "Did you mean 'costs'?"),
        (["solve", "pandora", "--set", "costs"], "Type: --set costs=VALUE"),
        (["solve", "best-of-n", "--set", "p=2"], "a probability lies from 0 to 1"),
        (["solve", "best-of-n", "--set", "p=lots"], "expected a number"),
        (["solve", "parallel-pandora", "--set", "num_boxes=7"], "takes at most 6"),
        (["solve", "dag-schedule", "--set", "num_slots=0"], "at least 1 slot"),
        (["regret", "usl", "--policy", "gredy"], "Did you mean 'greedy'?"),
        (["regret", "usl", "--policy", "random", "--episodes", "1"], "at least 2"),
        (["play", "usl", "--episodes", "0"], "at least 1"),
    ],
)
def test_mistakes(command: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["game", *command]) == 2
    out = capsys.readouterr()
    assert said in out.err
    assert not out.out
    assert len(out.err.splitlines()) == 1


def test_no_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["game"])
    assert "baton game --help" in capsys.readouterr().err

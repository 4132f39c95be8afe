"""Runs that go astray: caps that nobody set, limits that somebody did, and a word to the user where one binds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import baton
from baton.cli import main
from baton.compose import runs
from baton.team.budget import LedgerRules, Limits
from baton.trace.formats import read_all
from baton.trace.trace import Trace, meta_as

_HIERARCHY = ("run", "shard-sum", "--topology", "hierarchical")


def one(out: Path) -> Trace:
    (trace,) = read_all(out)
    return trace


def test_a_hierarchy_that_may_not_be_deep_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ran to 101 agents, 5,050 calls and no answer: every lead asked again for what had been refused."""
    assert main([*_HIERARCHY, "--set", "limits.depth=1", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "answer   no answer: depth is limited to 1, and this would be 2." in said.out
    assert "3 agents, 6 calls" in said.out
    assert said.err.splitlines() == [
        "baton run: limits.depth=1 was reached: 4 spawns refused. For more, type: --set limits.depth=2"
    ]
    assert main(["replay", str(tmp_path)]) == 0


@pytest.mark.parametrize("surface", ["lines", "tools"])
def test_whoever_is_refused_again_and_again_gives_up(surface: str) -> None:
    """A policy that does not learn from a refusal: all its turns but the first few would be in vain."""
    asked: list[str] = []

    def stubborn(request: Any) -> str:
        asked.append(request.agent)
        return "spawn worker: once more\nwait all" if surface == "lines" else "nonsense"

    trace = baton.run(
        baton.Task.of("Anything."), policy=stubborn, settings={"limits.agents": 0}, surface=surface
    )
    assert isinstance(trace, Trace)
    assert len(asked) == 4
    if surface == "lines":
        assert trace.events[-1].extra["why"] == "the budget refused all that it did, 4 turns in a row"
    assert baton.validate(trace) == []


def test_a_turn_that_does_something_is_not_in_vain() -> None:
    turns = iter(["spawn worker: a\nspawn worker: b\nwait all"] * 9 + ["stop 1"])

    def lead(request: Any) -> str:
        return "return 1" if request.role == "worker" else next(turns)

    trace = baton.run(baton.Task.of("Anything."), policy=lead, settings={"limits.agents": 5})
    assert isinstance(trace, Trace)
    assert trace.events[-1].type == "despawn" or trace.events[-1].status == "forced"
    refused = sum(event.type == "safety_event" for event in trace.events)
    assert refused == 1 + 2 * 4  # the sixth; then four turns with nothing but refusals


def _endless(request: Any) -> str:
    return "return 7" if request.role == "worker" else "spawn worker: größer 大\nwait all"


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        (
            Limits(agents=3),
            r"the cap of 3 agents, .* reached: \d+ spawns refused\. .*limits\.agents.: 6",
        ),
        (
            Limits(tokens=900),
            r"the cap of 900 tokens, .*: 2 calls refused, worker\d, orchestrator cut off\. .*limits\.tokens.: 1800",
        ),
        (Limits(seconds=9.5), r"the cap of 9\.5 seconds, .* orchestrator cut off\. .*limits\.seconds.: 19"),
    ],
)
def test_caps_end_a_run_and_say_so(
    caps: Limits, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runs, "CAPS", caps)
    task, team = baton.Task.of("Go on."), baton.Team.of("centralized", _endless)
    with pytest.warns(RuntimeWarning, match=said):
        trace = baton.run(task, team, out=str(tmp_path))
    assert isinstance(trace, Trace)
    assert trace.finished
    bound = [event for event in trace.events if event.extra.get("cap")]
    assert bound
    assert {event.type for event in bound} == {"safety_event"}
    assert baton.validate(trace) == []
    monkeypatch.undo()  # a run keeps the caps it had
    assert baton.replay(trace, team, task) == trace


def test_a_limit_that_is_set_takes_the_place_of_its_cap(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "CAPS", Limits(agents=2, tokens=50_000))
    assert main(["run", "shard-sum", "--out", str(tmp_path / "capped")]) == 0
    said = capsys.readouterr().err
    assert re.search(r"the cap of 2 agents.*--set limits\.agents=4", said)
    assert main(["run", "shard-sum", "--set", "limits.agents=4", "--out", str(tmp_path / "set")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "reward   shared 1" in said.out
    rules = meta_as(one(tmp_path / "set").header, LedgerRules, "run", "ledger")
    assert rules is not None
    assert rules.caps == Limits(tokens=50_000)


def test_several_runs_say_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--instances", "0:3", "--set", "limits.agents=1", "--out", str(tmp_path))
    main(["run", "shard-sum", *more])
    assert capsys.readouterr().err.splitlines() == [
        "baton run: limits.agents=1 was reached in 3 runs: 9 spawns refused. For more, type: --set limits.agents=2"
    ]


def test_workers_that_a_budget_cut_off_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "shard-sum", "--set", "limits.calls=6", "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert re.search(
        r"limits\.calls=6 was reached: \d calls refused, (worker\d, )+orchestrator cut off\.", said
    )
    forced = {event.agent for event in one(tmp_path).events if event.status == "forced"}
    assert all(agent in said for agent in forced)


def test_training_has_no_caps() -> None:
    """Or a long episode of a recipe could be cut short: only what a person starts is capped."""
    from baton.team.running import header_of

    team = baton.Team.of("centralized", _endless)
    task = baton.Task.of("Go on.")
    header = header_of(team, task.assignment(task.instance(0, "train")))
    rules = meta_as(header, LedgerRules, "run", "ledger")
    assert rules is not None
    assert rules.caps == Limits()


def test_the_limit_that_is_named_would_let_the_call_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "shard-sum", "--set", "limits.tokens=3", "--out", str(tmp_path)]) == 0
    (refused,) = [e.extra for e in one(tmp_path).events if "budget" in e.extra]
    assert refused["asked"] > 6
    assert f"type: --set limits.tokens={refused['asked']:g}" in " ".join(capsys.readouterr().err.split())


def test_a_training_run_is_not_resumed_as_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.toml").touch()
    assert main(["resume", str(tmp_path)]) == 2
    assert f"baton train --resume --out {tmp_path}" in " ".join(capsys.readouterr().err.split())

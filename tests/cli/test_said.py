"""What commands say: how a run ended and why, what was meant, what luck did, that something is going on."""

from __future__ import annotations

import json
import sys
import time
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from tests.support.terminal import Terminal

import baton
from baton.cli import COMMANDS, main
from baton.errors import closest, nearest
from baton.games.ledger import SampledLedger, sampled_regret
from baton.registry import names
from baton.trace.formats import read_all, write
from baton.trace.recorder import Recorder
from baton.view.terminal import live


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(map(str, words))) == code
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def broken(request: baton.Request) -> str:
    """Workers that cannot answer; a leader that makes do."""
    if request.role == "worker":
        raise RuntimeError("the scales are out of order")
    first = not any(entry.speaker == "assistant" for entry in request.entries)
    return "spawn worker: weigh it\nwait all" if first else "stop 3 kilos"


def test_run_says_in_one_line_how_it_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "run", "shard-sum", "--topology", "hierarchical", "--out", tmp_path / "sum")
    (trace,) = read_all(tmp_path / "sum")
    tokens = f"{trace.costs['tokens']:,.0f}"
    (line,) = [line for line in out.splitlines() if line.startswith("ended ")]
    assert line.split(maxsplit=1)[1].startswith("orchestrator stopped; reward shared 1, 7 agents, ")
    assert tokens in line
    tight = ("--set", "limits.tokens=600")
    out = said(capsys, "run", "shard-sum", *tight, "--out", tmp_path / "tight")
    assert "ended    orchestrator was forced to stop: the team's tokens are used up; reward shared 0" in out


def test_show_says_why_a_run_ended_and_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = baton.Task.of("How heavy is it?", verify="3 kilos")
    trace = baton.run(task, baton.Team.of("centralized", broken))
    write(trace, tmp_path / "broken.jsonl")
    out = said(capsys, "show", tmp_path / "broken.jsonl")
    failed = sum(call.finish_reason == "error" for call in trace.calls)
    assert "ended  orchestrator stopped\n" in out
    assert f"failed  {failed} of {len(trace.calls)} calls not answered; first, worker1: " in out
    assert "RuntimeError: the scales are out of order" in out
    assert "cut off  worker1: its engine failed 3 times in a row" in out
    assert "FORCED: its engine failed 3 times in a row" in out


def test_show_says_that_a_trace_breaks_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "whole.jsonl"
    with Recorder(place, task_id="t") as team:
        lead = team.agent("lead")
        lead.spawn("w", task="look")
        lead.stop("x")
    lines = place.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if '"stop"' not in line and '"end"' not in line]
    (tmp_path / "torn.jsonl").write_text("".join(kept[: len(kept) - 1]))
    out = said(capsys, "show", tmp_path / "torn.jsonl")
    assert "ended  unfinished: it breaks off after e3, at " in out


def test_show_prompts_has_what_was_asked_and_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys, "run", "shard-sum", "--out", tmp_path / "sum")
    (trace,) = read_all(tmp_path / "sum")
    plain, out = said(capsys, "show", tmp_path / "sum"), said(capsys, "show", tmp_path / "sum", "--prompts")
    assert "Act by writing commands" not in plain
    for call in trace.calls:
        assert f"asked ({call.id}" in out
        for entry in json.loads(trace.text(call.prompt_ref) or "[]"):
            assert f"{entry['speaker']}: {entry['text'].splitlines()[0]}" in out
        answer = trace.text(call.completion_ref)
        assert answer
        assert f"answer: {answer.splitlines()[0]}" in out


def test_regret_of_traces_has_its_luck(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = ("--instances", "0:3", "--rollouts", "2", "--policy", "random", "--out", tmp_path / "g")
    said(capsys, "run", "game:parallel-pandora", *group)
    out = said(capsys, "game", "regret", tmp_path / "g")
    head, row = [line.split() for line in out.splitlines()[1:3]]
    assert head[-1] == "luck"
    (ledgers,) = json.loads(said(capsys, "game", "regret", tmp_path / "g", "--json")).values()
    (ledger,) = ledgers.values()
    returns = [reward.value for trace in read_all(tmp_path / "g") for reward in trace.rewards]
    # Six plays, no invalid answers: what is lost and what luck gave make up the whole way from the optimum.
    assert ledger["luck"][0] == pytest.approx(
        fsum(returns) / 6 - ledger["optimum"] + fsum(part[0] for part in ledger["parts"].values()), abs=1e-12
    )
    assert float(row[-2]) == pytest.approx(ledger["luck"][0], abs=1e-4)
    assert "value = V* - regret + luck" in out
    assert "luck" not in said(
        capsys, "game", "regret", "pandora", "--policy", "greedy"
    )  # an expectation has none


GAME = """
from baton.games.library.pandora import *
from baton.games.library import GAMES

class Odd(GAMES["pandora"]):
    pass
"""


def test_regret_imports_a_traces_game_only_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd_game_of_mine.py").write_text(GAME)
    monkeypatch.syspath_prepend(tmp_path)
    place = tmp_path / "odd"
    name = "game:odd_game_of_mine:Odd"
    said(capsys, "run", name, "--policy", "greedy", "--out", place)
    monkeypatch.delitem(sys.modules, "odd_game_of_mine")
    err = said(capsys, "game", "regret", place, code=2)
    assert "would import the Python module 'odd_game_of_mine'" in err
    assert "--trust" in err
    assert "odd_game_of_mine" not in sys.modules
    assert "luck" in said(capsys, "game", "regret", place, "--trust")


def test_force_replaces_files_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "run", "shard-sum", "--out", tmp_path / "sum")
    fork = ("fork", tmp_path / "sum", "--at", "orchestrator#1", "--out", tmp_path / "f.jsonl")
    err = said(capsys, *fork, "--force", "stop 7 8", code=2)
    assert "--force replaces files" in err
    assert "type: --do 'stop 7 8'" in err
    assert "answer   7 8" in said(capsys, *fork, "--do", "stop 7 8")
    for command in ("convert", "credit", "export"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--force " in capsys.readouterr().out.replace("--force]", "--force ")


MEANT = [
    ("trian", "train"), ("shwo", "show"), ("runn", "run"), ("evall", "eval"), ("recipe", "recipes"),
    ("Credit", "credit"), ("corupus", "corpus"), ("meas", "measure"), ("stat", "stats"), ("viwe", "view"),
    ("advice", "advise"), ("vaildate", "validate"), ("completions", "completion"),
]  # fmt: skip
WILD = [
    "x", "qq", "ls", "foo", "banana", "make", "install", "--", "...", "42", "näh", "名前", "trace", "list", "quit",
    "git", "start", "please", "python", "do-it",
]  # fmt: skip


@pytest.mark.parametrize(("given", "meant"), MEANT)
def test_a_slip_is_answered_with_what_was_meant(
    given: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"Did you mean {meant!r}?" in said(capsys, given, code=2)


@pytest.mark.parametrize("given", WILD)
def test_something_else_is_answered_with_what_there_is(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    err = said(capsys, given, code=2)
    assert "Did you mean" not in err
    assert all(name in err for name in COMMANDS)


def test_names_of_other_things_are_suggested_as_carefully() -> None:
    recipes, estimators = names("recipe"), names("estimator")
    assert closest("gpro", recipes) == "grpo"
    assert closest("dr_mas", recipes) == "dr-mas"
    assert closest("game:zzz", ["game:usl", "game:pandora"]) is None
    assert closest("game:pandra", ["game:usl", "game:pandora"]) == "game:pandora"
    assert closest("flagshp", recipes) == "flagship"
    assert closest("leave one out", estimators) == "leave-one-out"
    for wild in ("ppo2000", "sft", "adam", "my-own-recipe", "q"):
        assert closest(wild, recipes) is None
    many = nearest("zzz", [f"event#{n}" for n in range(5000)])
    assert many.startswith("There are 5,000, such as event#0, event#1, ")
    assert len(many) < 200
    assert nearest("zzz", []) == "There are none."


def waiting(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error is a terminal, and little patience is asked of tests."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(live, "_AFTER_SECONDS", 0.02)
    monkeypatch.setattr(live, "_EVERY_SECONDS", 0.01)
    found = Terminal()
    monkeypatch.setattr("sys.stderr", found)
    return found


def shows(terminal: Terminal, text: str) -> bool:
    until = time.monotonic() + 10
    while text not in terminal.raw_text and time.monotonic() < until:
        time.sleep(0.005)
    return text in terminal.raw_text


def test_the_innermost_has_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = waiting(monkeypatch)
    with live.live_line(lambda _: "the whole of it", logged=False):
        assert shows(terminal, "the whole of it")
        with live.live_line(lambda _: "a part, of which there is more to say than fits"):
            assert shows(terminal, "a part, of which there is mor")
            assert not shows_now(terminal, "than fits")
        live.hush()
        assert terminal.lines[-1] == ""  # gone, for something is printed now
        assert shows(terminal, "the whole of it")
    assert terminal.lines[-1] == ""


def shows_now(terminal: Terminal, text: str) -> bool:
    return text in terminal.raw_text


def test_a_large_library_is_announced_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(monkeypatch)
    (tmp_path / "large_library_of_mine.py").write_text("import sys\nSEEN = sys.stderr.raw_text\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(live, "_SLOW_IMPORTS", ("large_library_of_mine",))
    monkeypatch.setattr(live, "_AFTER_SECONDS", 60.0)
    before = list(sys.meta_path)
    with live.live_line(lambda _: "at work"):
        import large_library_of_mine  # type: ignore[import-not-found]
    assert "loading large_library_of_mine" in large_library_of_mine.SEEN
    assert sys.meta_path == before


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = waiting(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with live.live_line(lambda _: "at work"):
        assert shows(terminal, "at work\n")
    assert "\x1b" not in terminal.raw_text


def test_a_command_that_takes_long_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = waiting(monkeypatch)

    def long(*args: Any) -> SampledLedger:
        found = sampled_regret(*args)
        assert shows(terminal, "pandora, random, 40 episodes")
        return found

    monkeypatch.setattr("baton.cli.game.sampled_regret", long)
    assert main(["game", "regret", "pandora", "--policy", "random", "--episodes", "40"]) == 0
    assert terminal.lines[-1] == ""

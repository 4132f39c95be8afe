"""`baton blame`: the decision responsible, by forks where they can be made, and by the trace where not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from baton.cli import main
from baton.measure.blame.by_forks import blame_by_forks
from baton.measure.blame.by_trace import suspicions
from baton.measure.blame.state import bad_state
from baton.team.forks import Forks
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace
from blame import KEPT, TOPOLOGIES, of_who_and_when, planted, table

WRONG = """
from baton.team.protocol import Request
from baton.tasks.shard_sum import play


def engine(*_):
    from baton.engine.scripted import ScriptedEngine

    def say(request: Request) -> str:
        text = play(request)
        if request.sampling.key == "0/worker2:2":
            return "return 1"
        return text

    return ScriptedEngine("wrong", say)
"""


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of the command line that fails for worker2's answer."""
    (tmp_path / "one_wrong_engine.py").write_text(WRONG)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = str(tmp_path / "run")
    assert main(["run", "shard-sum", "--policy", "one_wrong_engine:engine", "--out", out]) == 0
    return out


def said(capsys: pytest.CaptureFixture[str], *typed: str) -> str:
    capsys.readouterr()
    assert main(["blame", *typed]) == 0
    return capsys.readouterr().out


def test_it_names_the_turn_that_was_wrong(failed: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, failed, "--trust")
    first = next(line for line in shown.splitlines() if line.startswith("blame"))
    assert 'worker2 at worker2#2 (return "1")' in first
    assert "in 4 of 4 all is well (effect +1.00)" in first
    assert "state    the team scored 0 of 1" in shown
    found = json.loads(said(capsys, failed, "--trust", "--json"))
    assert found["how"] == "forks"
    assert [each["call"] for each in found["suspects"]] == ["worker2:2"]
    assert found["cost"]["tokens"] > 0


def test_what_it_may_cost_is_bounded(failed: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, failed, "--trust", "--json", "--spend", "0.01"))
    assert found["untried"]
    assert len(found["suspects"]) + len(found["cleared"]) == 1


def test_an_event_that_should_not_have_been(failed: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, failed, "--trust", "--json", "--state", "worker2#2"))
    assert [each["agent"] for each in found["suspects"]] == ["worker2"]


def test_a_trace_alone_says_so(failed: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, failed, "--no-forks")
    assert "read from the trace, without a fork" in shown
    assert "proves nothing" in shown
    assert "suspect" in shown


def imported(tmp_path: Path, score: float | None, text: str = "it is 7 \x1b[31m") -> str:
    path = tmp_path / "théirs.jsonl"
    with Recorder(path, task_id="t") as team:
        lead = team.agent("lead", role="orchestrator")
        other = lead.spawn("wörker one", role="worker", task="find it")
        other.returns(text)
        lead.stop("7")
        if score is not None:
            team.reward("shared", score)
    return str(path)


def test_another_systems_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, imported(tmp_path, 0.0))
    assert "suspect  wörker one, who did 100% of the work" in shown
    assert "\x1b" not in shown
    assert "cannot be run again" in shown


@pytest.mark.parametrize(
    ("score", "typed", "error"),
    [
        (1.0, [], "nothing is known to be wrong"),
        (None, [], "nobody scored it"),
        (1.0, ["--state", "failure"], "did not fail"),
        (0.0, ["--state", "violation"], "has no violation"),
        (0.0, ["--state", "lead#999"], "there is no event 'lead#999'"),
        (0.0, ["--spend", "0"], "expected more than 0"),
        (0.0, ["--draws", "0"], "expected more than 0"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], score: float | None, typed: list[str], error: str
) -> None:
    assert main(["blame", imported(tmp_path, score), *typed]) == 2
    shown = capsys.readouterr().err
    assert error in shown
    assert len(shown.strip().splitlines()) == 1


def test_without_trust_nothing_is_imported(failed: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["blame", failed]) == 2
    assert "--trust" in capsys.readouterr().err


@pytest.mark.parametrize("topology", ["centralized", "hierarchical", "harness", "planner_executor_critic"])
def test_planted_faults_are_found(topology: str) -> None:
    """The benchmark in small, its counts made anew from what was planted."""
    for trace, call, team, assignment in planted(topology, 2):
        found = asyncio.run(
            blame_by_forks(trace, bad_state(trace), Forks(team, assignment), spend=20.0, draws=4)
        )
        assert found.suspects[0].call == call
        assert found.suspects[0].num_mended >= 1
        assert {each.call for each in found.suspects} | set(found.cleared) <= set(trace.call_by_id)


def test_a_run_that_broke_off(tmp_path: Path) -> None:
    with Recorder(None, task_id="t") as team:
        lead = team.agent("lead")
        lead.spawn("w", task="x").returns("hi")
        trace: Trace = team.trace()
    state = bad_state(trace)
    assert state.told == "the run did not finish"
    assert suspicions(trace, state)


def test_the_kept_figures_are_what_the_page_prints() -> None:
    records: dict[str, Any] = json.loads(KEPT.read_text())
    page = (KEPT.parents[1] / "docs" / "safety.md").read_text()
    assert {row["topology"] for row in records["planted"]} == set(TOPOLOGIES)
    for line in table(records):
        assert line in page, line


def test_who_and_when_in_small(tmp_path: Path) -> None:
    half = tmp_path / "Hand-Crafted"
    half.mkdir()
    for k in range(2):
        history = [
            {"role": "human", "content": "Which museum?"},
            {"role": "Orchestrator (thought)", "content": "plan"},
            {
                "role": "Orchestrator (-> WebSurfer)",
                "content": "Search for it, please, with all the words there are.",
            },
            {"role": "WebSurfer", "content": "I clicked an advert."},
            {"role": "Orchestrator (termination condition)", "content": "Max rounds reached."},
        ]
        run = {
            "is_corrected": False, "question": "Which museum?", "question_ID": f"q-{k}", "level": 1, "history": history,
            "ground_truth": "Prado", "mistake_agent": "WebSurfer", "mistake_step": "3", "mistake_reason": "advert",
        }  # fmt: skip
        (half / f"{k}.json").write_text(json.dumps(run))
    rows = of_who_and_when(tmp_path)
    assert [(row["runs"], row["who"], row["when"]) for row in rows] == [(1, 1, 1), (1, 1, 1)]

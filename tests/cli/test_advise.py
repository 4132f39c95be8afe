from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import made
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from strategies import valid_traces

from baton.cli import advise as command
from baton.cli import main
from baton.compose.advise_traces import read_answers
from baton.trace.formats import read, read_all
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
SURVEY = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey" / "example_trace.json"


def advised(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, object]:
    capsys.readouterr()
    assert main(["advise", *map(str, args), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    capsys.readouterr()
    assert main(["advise", *map(str, args)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def answers(traces: list[Trace]) -> dict[str, str | None]:
    return {name: reading.answer for name, reading in read_answers(traces).items()}


def test_by_options(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--dynamic", "no", "--bottleneck", "no", "--long", "no", "--roles", "heterogeneous")
    found = advised(capsys, *given)
    assert found["type"] == "baton train dr-mas"
    assert main(["advise", *given]) == 0
    out = capsys.readouterr().out
    assert "agent, by the estimator agent-group" in out
    assert "baton train dr-mas" in out
    assert out.count("  because  ") == 3


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ("centralized", {"dynamic": "yes", "roles": "alike", "long": "no"}),
        ("debate", {"dynamic": "no", "roles": "debate", "bottleneck": "no"}),
        ("planner_executor_critic", {"dynamic": "no", "roles": "heterogeneous"}),
        ("swarm", {"dynamic": "no", "roles": "alike"}),
    ],
)
def test_read_off_a_run(tmp_path: Path, topology: str, expected: dict[str, str]) -> None:
    found = answers(list(read_all(made(tmp_path / "run", topology=topology))))
    assert {name: found[name] for name in expected} == expected


def test_traces_say_why_and_what_to_type(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = made(tmp_path / "a run")
    capsys.readouterr()
    assert main(["advise", str(run)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "in 1 of 1 trace a policy spawns agents" in out
    assert "% of the seconds on the critical path" in out
    assert "baton credit '" in out  # quoted, for there is a space in it
    changed = advised(capsys, run, "--bottleneck", "no")
    assert changed["answers"]["bottleneck"] == {"answer": "no", "why": "as you said"}  # type: ignore[index]


def test_a_debate_without_the_name(tmp_path: Path) -> None:
    with Recorder(tmp_path / "t.jsonl", task_id="demo", topology="unknown") as team:
        judge = team.agent("judge", role="resolver")
        one, two = (judge.spawn(name, role="debater", task="is it so?") for name in ("one", "two"))
        for _ in range(3):
            one.send(two, "yes")
            two.send(one, "no")
        one.returns("yes")
        two.returns("no")
        judge.stop("no")
    assert answers([read(tmp_path / "t.jsonl")])["roles"] == "debate"


def test_length_is_counted_in_turns() -> None:
    trace = read(GOLDEN / "hierarchical.jsonl")
    reading = read_answers([trace])["long"]
    assert (reading.answer, len(trace.calls)) == ("no", 14)
    assert "14 turns" in reading.why
    long = read_answers([_without_calls(trace)])["long"]
    assert (long.answer, "28 events (no turns are recorded)" in long.why) == ("yes", True)


def _without_calls(trace: Trace) -> Trace:
    return structs.replace(trace, calls=())


@pytest.mark.skipif(not SURVEY.exists(), reason="the survey's example trace is not here")
def test_what_a_trace_cannot_tell_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, SURVEY)
    assert "not answered: bottleneck (the traces record neither durations nor tokens)" in line
    assert line.endswith("--bottleneck yes|no")
    found = advised(capsys, SURVEY, "--bottleneck", "no")
    assert found["advice"]["recipe"] == "m-grpo"  # type: ignore[index]


def test_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "not answered: dynamic, bottleneck, long, roles. Type: baton advise --dynamic yes|no" in refused(
        capsys
    )
    assert refused(capsys, "--roles", "debating").endswith("Did you mean 'debate'?")
    with pytest.raises(SystemExit):
        main(["advise", "--bottelneck", "no"])
    assert "Did you mean '--bottleneck'?" in capsys.readouterr().err


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Somebody at the terminal who types these words."""

    def typing(*words: str) -> list[str]:
        asked: list[str] = []
        answers = iter(words)

        def answer(question: str) -> str:
            asked.append(question)
            try:
                return next(answers)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr("builtins.input", answer)
        monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True)
        return asked

    return typing


def test_it_asks(capsys: pytest.CaptureFixture[str], person: Callable[..., list[str]]) -> None:
    asked = person("y", "maybe", "no", "n", "het")
    found = advised(capsys)
    assert found["advice"]["recipe"] == "m-grpo"  # type: ignore[index]
    assert len(asked) == 5  # one was asked again
    assert asked[0].endswith("[yes/no] ")


def test_whoever_goes_away_is_told_the_option(
    capsys: pytest.CaptureFixture[str], person: Callable[..., list[str]]
) -> None:
    person("yes")
    assert refused(capsys) == "baton advise: not answered: bottleneck. Type: --bottleneck yes|no"


@settings(max_examples=60)
@given(st.lists(valid_traces(), min_size=1, max_size=3))
def test_any_traces_are_read_or_say_why_not(traces: list[Trace]) -> None:
    for name, reading in read_answers(traces).items():
        assert reading.why
        assert reading.answer is None or reading.answer in command._WORDS[name]

"""`baton notes` as it is typed: notes, labels and right answers, and what is made of them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from viewer_runs import run_team

from baton.cli import main
from baton.tasks.jsonl import JsonlTask
from baton.trace import Trace, write
from baton.trace.formats import read_all
from baton.trace.formats.sqlite.store import write_store
from baton.trace.outcome import team_return
from baton.trace.validation import validate


def typed(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["notes", *map(str, args)]) == code
    out, err = capsys.readouterr()
    assert not code or len(err.splitlines()) == 1
    return err if code else out


@pytest.fixture(scope="module")
def team() -> Trace:
    return run_team("shard-sum", "hierarchical", 3)


@pytest.fixture
def file(tmp_path: Path, team: Trace) -> Path:
    write(team, tmp_path / "team.jsonl")
    return tmp_path / "team.jsonl"


def test_written_listed_changed_and_removed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_bytes()
    assert "no notes" in typed(capsys, file)
    typed(
        capsys, file, "--add", "größe \u202e \n wrong", "--event", "lead1#1", "--label", "bad", "--score=-1"
    )
    listed = typed(capsys, file)
    assert "shard-sum-hierarchical-3 lead1#1" in listed
    assert "\u202e" not in listed
    (note,) = json.loads(typed(capsys, file, "--json"))
    assert (note["score"], note["labels"], note["event"]) == (-1.0, ["bad"], "lead1#1")
    typed(capsys, file, "--change", note["id"], "--score", "0.5", "--label", "fine")
    (changed,) = json.loads(typed(capsys, file, "--json"))
    assert (changed["score"], changed["labels"], changed["text"]) == (0.5, ["fine"], note["text"])
    typed(capsys, file, "--remove", note["id"])
    assert json.loads(typed(capsys, file, "--json")) == []
    assert file.read_bytes() == before, "never in the trace"


@pytest.mark.parametrize("form", ["store", "folder", "file"])
def test_places_of_every_form(
    tmp_path: Path, team: Trace, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    (tmp_path / "sum").mkdir()
    write_store([team], tmp_path / "sum" / "run.db")
    if form == "file":
        shutil.rmtree(tmp_path / "sum")
        write(team, tmp_path / "sum.jsonl")
    place = {
        "store": tmp_path / "sum" / "run.db",
        "folder": tmp_path / "sum",
        "file": tmp_path / "sum.jsonl",
    }[form]
    typed(capsys, place, "--label", "good")
    assert len(list(tmp_path.glob("*.notes"))) == 1
    assert "good" in typed(capsys, place)
    assert len(list(read_all(place))) == 1, "what was noted takes no trace away"
    if form == "store":
        assert "good" in typed(capsys, place.parent)


def test_rewards_that_stand_in_place_of_the_tasks_own(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(capsys, file, "--score", "0.25")
    typed(capsys, file, "--event", "lead1#1", "--label", "bad")
    out = tmp_path / "noted.jsonl"
    assert "2 rewards on 1 trace" in typed(capsys, file, "--rewards", out, "--worth", "bad=-2")
    (trace,) = read_all(out)
    assert not validate(trace)
    assert team_return(trace) == 0.25
    assert {(r.unit, r.target, r.value) for r in trace.rewards if r.channel == "notes"} == {
        ("team", trace.trace_id, 0.25),
        ("orchestrator", "lead1#1", -2.0),
    }
    assert "Type --force" in typed(capsys, file, "--rewards", out, code=2)
    assert main(["reward", str(out), "--recipe", "success"]) == 0
    assert main(["advise", str(out)]) == 0


def test_a_test_set_is_a_task(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed(capsys, file, "--answer", "1014")
    tests, gold = tmp_path / "tests.jsonl", tmp_path / "gold.json"
    assert "1 question with an answer" in typed(capsys, file, "--tests", tests)
    (line,) = map(json.loads, tests.read_text().splitlines())
    assert line["question"].startswith("Numbers are kept in shards 1 to 4.")
    assert line["answer"] == "1014"
    task = JsonlTask(file=str(tests), test_share=0.0)
    assert task.instance(0).prompt == line["question"]
    typed(capsys, file, "--gold", gold)
    assert json.loads(gold.read_text()) == {"shard-sum-hierarchical-3": {"answer": "1014"}}
    assert main(["reward", str(file), "--recipe", "success", "--gold", str(gold)]) == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--add", " "], "the note is empty"),
        (["--score", "nan"], "finite"),
        (["--event", "lead1#1"], "--add TEXT"),
        (["--add", "x", "--event", "lead1#99"], "has no event"),
        (["--add", "x", "--trace", "other"], "has no trace"),
        (["--answer", "x", "--event", "lead1#1"], "leave --event out"),
        (["--remove", "nothing"], "has no note"),
        (["--remove", "a", "--change", "b"], "give one of"),
        (["--rewards", "out.jsonl"], "--score X"),
        (["--tests", "out.jsonl"], "--answer TEXT"),
        (["--gold", "out.json"], "--answer TEXT"),
    ],
)
def test_mistakes_are_one_line(
    file: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert said in typed(capsys, file, *given, code=2)
    assert not file.with_name("team.jsonl.notes").exists()


def test_where_there_is_no_trace_there_are_no_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(capsys, tmp_path / "nowhere", "--add", "x", code=2)
    typed(capsys, tmp_path, "--add", "x", code=2)
    assert list(tmp_path.parent.glob("*.notes")) == []


def test_the_viewers_page_has_commands_and_prices_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "shard-sum", "--out", "runs/sum"]) == 0
    text = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text("utf-8")
    commands = re.findall(r"^baton notes .*$", text, re.MULTILINE)
    assert len(commands) == 6
    for line in commands:
        assert main(shlex.split(re.sub(r"\s+# .*", "", line))[1:]) == 0, line
    (prices,) = re.findall(r"^```toml\n(currency.*?)^```", text, re.MULTILINE | re.DOTALL)
    Path("prices.toml").write_text(prices, "utf-8")
    capsys.readouterr()
    assert main(["show", "runs/sum", "--prices", "prices.toml"]) == 0
    assert " USD in all, most in " in capsys.readouterr().out

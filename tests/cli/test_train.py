"""`baton train` and `baton eval`, as they are typed: a small run from start to end, going on, and mistakes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli import main
from baton.compose.waking import Unread
from baton.installed import install_hint
from baton.trace.formats import read_all
from baton.view.terminal.training_progress import _Console

pytest.importorskip("torch", reason="training needs torch: pip install 'baton-rl[train]'")

SMALL = [
    *("--set", "warm.episodes=60", "--set", "warm.steps=40", "--set", "warm.rows=16"),
    *("--set", "rollout.groups=2", "--set", "rollout.group_size=2", "--set", "eval.episodes=4"),
]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "run"
    assert main(["train", "flagship", *SMALL, "--set", "train.steps=2", "--out", str(out)]) == 0
    return out


def lines(place: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in place.read_text().splitlines()]


def test_a_run_says_where_it_stands_and_what_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "flagship", *SMALL, "--set", "train.steps=2", "--out", str(out)]) == 0
    said = capsys.readouterr()
    steps = [line for line in said.err.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["1/2", "2/2"]
    for word in (
        "return",
        "regret",
        "spawn",
        "delegate",
        "communicate",
        "aggregate",
        "stop",
        "tokens/s",
        "left",
    ):
        assert word in steps[0]
    table = {line.split("  ")[0]: line for line in said.out.splitlines()}
    for who in ("untrained", "trained", "single agent", "optimum"):
        assert who in table
    assert any(who.startswith("best of") for who in table)
    assert any(who.startswith("alone, best of") for who in table)
    for decision in ("spawn", "delegate", "communicate", "aggregate", "stop", "total"):
        assert "→" in table[decision]
    assert f"report   {out}/report.html" in said.out
    assert said.out.splitlines()[-1].endswith(f"baton view {out}")


def test_a_run_leaves_everything_in_its_folder(trained: Path) -> None:
    assert json.loads((trained / "run.json").read_text())["status"] == "finished"
    assert [line["step"] for line in lines(trained / "metrics.jsonl")] == [1, 2]
    ids = {trace.trace_id for trace in read_all(trained / "traces")}
    assert {"before-0", "after-0"} <= ids
    report = (trained / "report.html").read_text()
    assert report.startswith("<!doctype html>")
    assert "before-0" in report
    assert "after-0" in report
    assert list((trained / "tensorboard").iterdir())


def test_the_viewer_forks_a_trace_of_training_by_the_runs_checkpoint(trained: Path) -> None:
    from starlette.testclient import TestClient

    from baton.cli.view import attached
    from baton.view.web.server import make_app
    from baton.view.web.traces import Library

    page = TestClient(make_app(Library([trained]), attached(forks=True)), base_url="http://127.0.0.1:8321")
    setup = page.get("/api/setup").json()
    place = next(each["key"] for each in setup["places"] if each["training"])
    trace, first = next(
        (trace, event)
        for trace in read_all(trained / "traces")
        for event in trace.events
        if event.call is not None and event.status == "ok"
    )
    headers = {"origin": "http://127.0.0.1:8321", "x-baton-token": setup["token"]}
    body = json.dumps({"at": first.id, "do": "stop", "text": "0"}).encode()
    reply = page.post(f"/api/fork?place={place}&id={trace.trace_id}", headers=headers, content=body).json()
    assert "error" not in reply, reply
    assert reply["id"] != trace.trace_id
    found = page.get("/api/table", params={"q": "is:fork", "place": place}).json()
    assert reply["id"] in {row["id"] for row in found["rows"]}


def test_a_run_stands_for_its_traces(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(trained)]) == 0
    assert "traces" in capsys.readouterr().out


def test_eval_gives_the_numbers_of_the_run_and_changes_nothing(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in trained.glob("*.*") if path.is_file()}
    assert main(["eval", str(trained), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["run"]["recipe"] == "flagship"
    team = next(line for line in told["evals"] if line["who"] == "team")
    known = next(line for line in lines(trained / "evals.jsonl") if line["who"] == "team")
    assert {**known, "seed": 0} == team
    assert {line["who"] for line in told["evals"]} >= {"untrained", "team", "optimum", "single-agent"}
    assert {path: path.read_bytes() for path in before} == before


def test_eval_on_other_instances_is_kept_on_request(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    num = len(lines(trained / "evals.jsonl"))
    assert main(["eval", str(trained), "--episodes", "3", "--seed", "5", "--keep"]) == 0
    shown = capsys.readouterr().out
    assert "3 held-out episodes" in shown
    assert "seed 5" in shown
    assert "best of" not in shown, "it was measured on other instances"
    added = lines(trained / "evals.jsonl")[num:]
    assert [(line["who"], line["seed"], line["episodes"]) for line in added] == [
        ("untrained", 5, 3),
        ("team", 5, 3),
    ]


def test_a_run_that_was_stopped_says_how_to_go_on_and_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from baton.view.terminal.training_progress import Display

    out = tmp_path / "run"
    shown = Display.step

    def interrupted(self: Display, line: dict[str, object]) -> None:
        shown(self, line)
        raise KeyboardInterrupt

    monkeypatch.setattr(Display, "step", interrupted)
    asked = ["train", "flagship", *SMALL, "--set", "train.steps=2", "--set", "train.checkpoint_every=1"]
    assert main([*asked, "--out", str(out)]) == 130
    said = capsys.readouterr()
    assert "Stopped after step 1; the last checkpoint is step-00001." in said.err
    assert f"train --resume --out {out}" in said.out
    assert json.loads((out / "run.json").read_text())["status"] == "stopped"
    assert "stopped" in (out / "report.html").read_text()

    monkeypatch.setattr(Display, "step", shown)
    assert main(["train", "--resume", "--out", str(out)]) == 0
    assert "going on after step 1 of 2" in capsys.readouterr().err
    assert [line["step"] for line in lines(out / "metrics.jsonl")] == [1, 2]
    assert json.loads((out / "run.json").read_text())["status"] == "finished"


def test_a_run_that_nobody_reads_any_more_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from baton.view.terminal.training_progress import Display

    class Pipe(io.StringIO):
        closed_there = False

        def write(self, text: str) -> int:
            if self.closed_there:
                raise BrokenPipeError
            return len(text)

    pipe, shown, out = Pipe(), Display.step, tmp_path / "run"
    console = _Console(file=pipe)

    def closing(self: Display, line: dict[str, object]) -> None:
        pipe.closed_there = True
        shown(self, line)

    monkeypatch.setattr(Display, "_say", lambda _, text: console.print(text))
    monkeypatch.setattr(Display, "step", closing)
    assert main(["train", "flagship", *SMALL, "--out", str(out)]) == 141
    told = json.loads((out / "run.json").read_text())
    assert told["status"] == "stopped"
    assert "the pipe was closed" in told["why"]
    assert f"train --resume --out {out}" in capsys.readouterr().out


def test_a_run_that_nobody_reads_from_the_first_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from baton.view.terminal.training_progress import Display

    def note(_: Display, text: str) -> None:
        if text.startswith("measuring"):
            raise Unread

    monkeypatch.setattr(Display, "note", note)
    assert main(["train", "flagship", *SMALL, "--out", str(tmp_path / "run")]) == 141
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"


def test_a_run_that_diverges_keeps_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from baton.learn.trainer import Diverged, Trainer

    def diverged(self: Trainer) -> None:
        rate = "policies.main.learning_rate"
        raise Diverged(f"the loss is nan at step 1: the run has diverged. Lower {rate}.", rate)

    monkeypatch.setattr(Trainer, "step", diverged)
    out = tmp_path / "run"
    own = ["--set", "train.steps=2", "--set", "policies.main.learning_rate=0.3"]
    assert main(["train", "flagship", *SMALL, *own, "--out", str(out)]) == 1
    said = capsys.readouterr()
    assert "baton train: the loss is nan at step 1" in said.err
    assert f"train --resume --out {out} --set policies.main.learning_rate=0.1," in said.out
    assert f"eval {out}" in said.out
    report = (out / "report.html").read_text()
    assert "diverged" in report
    assert "Lower policies.main.learning_rate" in report


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["train"], "which recipe?"),
        (["train", "flagshp"], "Did you mean 'flagship'?"),
        (["train", "nowhere.toml"], "there is no file 'nowhere.toml'"),
        (["train", "flagship", "--set", "train.stepz=3"], "Did you mean 'steps'?"),
        (["train", "flagship", "--set", "train.steps"], "has no value"),
        (["train", "--resume"], "name its folder alone"),
        (["train", "--resume", "--out", "nowhere"], "nowhere holds no training run"),
        (["train", "flagship", "--resume", "--out", "x"], "name its folder alone"),
        (["eval", "nowhere"], "nowhere holds no training run"),
        (["eval", "."], "holds no training run"),
    ],
)
def test_a_mistake_is_one_line(
    args: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1
    assert error.startswith(f"baton {args[0]}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "typed", [["nosuch"], ["grpo", "--set", "train.stepz=3"], ["--resume", "--out", "nothing"]]
)
def test_a_mistyped_command_is_answered_without_loading_torch(typed: list[str], tmp_path: Path) -> None:
    said = "import sys; from baton.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", said, "train", *typed],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2 False\n"


@pytest.mark.parametrize("absent", ["torch", "transformers", "tomli_w"])
def test_a_missing_package_is_one_line(
    absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    assert main(["train", "flagship", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert error.endswith(f"Type: {install_hint('train')}")
    assert len(error.splitlines()) == 1


def test_mistakes_about_a_run_that_is_there(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, said in (
        (["train", "flagship", "--out", str(trained)], "holds a run already"),
        (["train", "--resume", "--out", str(trained)], "is finished: all 2 steps are done. Type: baton eval"),
        (["train", "flagship", "--out", str(trained / "run.json")], "is a file"),
        (["eval", str(trained), "--episodes", "0"], "expected 1 or more"),
        (["eval", str(trained), "--seed", "-1"], "expected 0 or more"),
    ):
        assert main(args) == 2
        error = capsys.readouterr().err.strip()
        assert said in error
        assert len(error.splitlines()) == 1

"""What all live recorders share: nothing seen is lost, nothing breaks the program, nothing secret is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from connect_story import recorded, story

import baton
from baton.cli import main
from baton.connect import record
from baton.connect.importing import import_traces
from baton.connect.live.prompts import Growth, spoken, text_of
from baton.connect.live.recording import LiveRecorder, guarded
from baton.connect.live.telling import as_text
from baton.errors import UsageError


class Plain(LiveRecorder):
    """A framework of our own: one agent that uses a tool."""

    framework = "plain"

    @guarded
    def work(self, session: str, tool: str = "look", result: object = "found", end: bool = True) -> None:
        telling, new = self.telling(session)
        if new:
            telling.begin()
            telling.asked(f"work on {session}")
        agent = telling.agent("a", "anna")
        telling.call(
            "c1",
            agent,
            prompt=(("user", "my password=hunter2hunter2"),),
            completion=f"{tool}()",
            prompt_tokens=7,
        )
        telling.tool_call("t1", agent, tool, {"q": session}, call="c1")
        telling.tool_result("t1", agent, tool, result)
        if end:
            telling.stop("s", agent, "done")
            telling.finish()

    @guarded
    def fail(self) -> None:
        raise KeyError("gone")


def test_a_folder_of_recordings_is_read_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Plain("runs/mine") as recorder:
        recorder.work("one")
        recorder.work("two")
    assert [story(trace) for trace in recorded(Path("runs/mine"))] == [
        {"anna": [f'uses look: {{"q": "{name}"}}', "gets look: found", "decides to stop: done"]}
        for name in ("one", "two")
    ]
    for command in ("show", "stats", "validate", "measure"):
        assert main([command, "runs/mine"]) == 0, command
    assert main(["import", "runs/mine", "--out", "runs/again"]) == 0
    assert {path.name: path.read_bytes() for path in Path("runs/mine").glob("*.jsonl")} == {
        path.name: path.read_bytes() for path in Path("runs/again").glob("*.jsonl")
    }
    assert json.loads(Path("runs/mine/import.json").read_text())["entries"] == recorder.report.entries == 16
    capsys.readouterr()


def test_a_journal_alone_is_imported_into_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that was killed before anything was assembled: the message says what to type, and that works."""
    monkeypatch.chdir(tmp_path)
    with Plain("runs/mine") as recorder:
        recorder.work("one")
    before = {path: path.read_bytes() for path in Path("runs/mine").glob("*.jsonl")}
    for path in [*before, Path("runs/mine/import.json")]:
        path.unlink()
    assert main(["show", "runs/mine"]) == 2
    command = capsys.readouterr().err.strip().partition("Type: baton ")[2]
    assert command == "import runs/mine --out runs/mine"
    assert main(command.split()) == 0
    assert {path: path.read_bytes() for path in Path("runs/mine").glob("*.jsonl")} == before
    assert main(["show", "runs/mine"]) == 0
    capsys.readouterr()


def test_it_is_there_while_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.connect.live.recording._EVERY_S", 0.01)
    with Plain(tmp_path) as recorder:
        recorder.work("one", end=False)
        deadline = time.monotonic() + 20
        while not list(tmp_path.glob("*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.01)
        (path,) = tmp_path.glob("*.jsonl")
        trace = baton.read(path)
        assert not trace.finished
        assert len(trace.events) == 2
        recorder.work("one")  # more of the same run
    trace = baton.read(path)
    assert trace.finished
    assert len(trace.events) == 3


def test_more_of_a_run_that_had_ended_is_joined_to_it(tmp_path: Path) -> None:
    with Plain(tmp_path) as recorder:
        recorder.work("one")
        telling, _ = recorder.telling("one")
        recorder._assembling.advance()
        telling.message("late", "b", "a", "in the background")
    (trace,) = map(baton.read, tmp_path.glob("*.jsonl"))
    assert len(trace.events) == 4


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from test_live_recorders import Plain
recorder = Plain(sys.argv[1])
for number in range(40):
    recorder.work(f"run {number}", end=number % 2 == 0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_program_loses_nothing_that_was_seen(tmp_path: Path) -> None:
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "runs"), *folders], env={**os.environ}
    )
    assert done.returncode == -signal.SIGKILL
    imported = import_traces(tmp_path / "runs")
    assert sorted(trace.header.task_id for trace in imported.traces) == sorted(
        f"work on run {n}" for n in range(40)
    )
    assert [len(trace.events) for trace in imported.traces if trace.finished] == [3] * 20
    assert [len(trace.events) for trace in imported.traces if not trace.finished] == [2] * 20


def test_an_error_of_ours_is_said_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Plain(tmp_path) as recorder:
        for _ in range(3):
            recorder.fail()
        recorder.work("one")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "KeyError" in said
    assert "Your program goes on" in said
    reason = "the recorder failed in fail: KeyError"
    assert recorder.failures == {reason: 3}
    assert recorder.report.skipped[reason] == 3
    assert json.loads((tmp_path / "import.json").read_text())["skipped"] == {reason: 3}
    assert import_traces(tmp_path).report.skipped[reason] == 3
    assert len(recorded(tmp_path)) == 1


def test_secrets_and_payloads_stay_out_of_the_journal(tmp_path: Path) -> None:
    with Plain(tmp_path / "clean", redact=("f.und",)) as recorder:
        recorder.work("one")
    written = (b"".join(path.read_bytes() for path in (tmp_path / "clean").rglob("*.*"))).decode()
    assert "hunter2" not in written
    assert '"found"' not in written
    assert "[redacted" in written
    assert recorder.report.redacted
    with Plain(tmp_path / "bare", payloads=False) as recorder:
        recorder.work("one", result={"deep": ["secret"]})
    written = (b"".join(path.read_bytes() for path in (tmp_path / "bare").rglob("*.*"))).decode()
    assert "hunter2" not in written
    assert "secret" not in written
    assert "work on" not in written
    (trace,) = recorded(tmp_path / "bare")
    assert [event.type for event in trace.events] == ["tool_call", "tool_result", "orchestrator_decision"]
    assert [call.prompt_tokens for call in trace.calls] == [7]


def test_recorders_of_one_process_and_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    with Plain(tmp_path) as one, Plain(tmp_path) as two:
        threads = [
            threading.Thread(target=lambda n=n: (one if n % 2 else two).work(f"run {n}"))  # type: ignore[misc]
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(trace.header.task_id for trace in recorded(tmp_path)) == sorted(
        f"work on run {n}" for n in range(20)
    )
    assert len(list(tmp_path.glob("*.jsonl"))) == 20
    one.close()  # a second time
    one.work("too late")  # says nothing, breaks nothing
    assert len(recorded(tmp_path)) == 20


def test_a_mistake_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot record into .*Give a folder that can be written"):
        Plain(tmp_path / "file")
    with pytest.raises(UsageError, match="is no regular expression"):
        Plain(tmp_path / "x", redact=("(",))


@pytest.mark.parametrize("name", ["openai_agents", "langgraph", "autogen", "crewai", "adk", "ag2"])
def test_a_framework_that_is_not_there_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("agents", "langchain_core", "autogen_agentchat", "crewai", "google", "google.adk", "ag2"):
        for known in [each for each in sys.modules if each == module or each.startswith(f"{module}.")]:
            monkeypatch.delitem(sys.modules, known)
        monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(UsageError, match=r"not installed here\. Type: pip install"),
        getattr(record, name)(tmp_path),
    ):
        pass


def test_prompts_grow() -> None:
    growth = Growth()
    first = [("system", "s"), ("user", "u")]
    assert growth.grow("a", "1", first) == (None, tuple(first))
    growth.answered("1", spoken("text", [("f", {"x": 1}), ("g", "{}")]))
    longer = [*first, ("assistant", 'text\nf({"x": 1})'), ("assistant", "g({})"), ("tool", "r")]
    assert growth.grow("a", "2", longer) == ("1", (("tool", "r"),))
    assert growth.grow("a", "3", longer) == (None, tuple(longer))  # asked again, not grown
    assert growth.grow("a", "4", [*longer[:3], ("user", "other")]) == (None, (*longer[:3], ("user", "other")))
    assert growth.grow("b", "5", longer) == (None, tuple(longer))


def test_any_content_is_some_text() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert as_text(None) == (None, "text/plain")
    assert as_text({"a": object})[1] == "application/json"
    assert as_text(circle)[0] == "[[...]]"
    assert as_text(b"\xff")[0] == "�"
    assert text_of([{"type": "text", "text": "a"}, {"type": "image"}, None, "b"]) == "a\n[image]\nb"


def test_a_run_that_ended_is_let_go_of(tmp_path: Path) -> None:
    """A server that runs for months: what is kept in memory does not grow with the runs that have ended."""
    with Plain(tmp_path) as recorder:
        for number in range(50):
            recorder.work(f"run {number}")
            recorder.forget(f"run {number}")
        recorder._assembling.advance()
        assert recorder._tellings == {}
        assert recorder._assembling._open == {}

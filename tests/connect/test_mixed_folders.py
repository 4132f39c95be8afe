"""A folder in which sessions of several programs lie: each is read, and what nobody knows is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from coder_files import Transcript, rollout

from baton.cli import main
from baton.connect.import_report import UNREADABLE
from baton.connect.importing import import_traces
from baton.errors import CorruptError, UsageError

STRANGER = "a file of no kind that is known"


def mixed(folder: Path, strangers: int) -> Path:
    """Many files of a program that nobody reads, then one session each of Claude Code and Codex."""
    for number in range(strangers):
        path = folder / "a-copilot" / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"type": "session.start", "data": {"sessionId": str(number)}}) + "\n")
    claude = Transcript("11111111-aaaa")
    claude.user("go")
    claude.says("a", "gone", reason="end_turn")
    claude.write(folder / "b-claude" / "x.jsonl")
    for number in range(2):
        meta = {"id": f"0199-{number}", "cwd": "/", "cli_version": "0.142.0"}
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}
        path = folder / "c-codex" / f"rollout-0199-{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rollout(("session_meta", meta), ("response_item", said)))
    return folder


@pytest.mark.parametrize("strangers", [1, 40])
def test_each_session_is_read_whatever_lies_before_it(tmp_path: Path, strangers: int) -> None:
    done = import_traces(mixed(tmp_path / "in", strangers))
    assert sorted(trace.trace_id for trace in done.traces) == [
        "claude-code-11111111-aaaa", "codex-0199-0", "codex-0199-1",
    ]  # fmt: skip
    assert done.report.skipped[STRANGER] == strangers
    assert done.report.places[STRANGER][0].endswith("a-copilot/0.jsonl")


def atif(number: int) -> str:
    steps = [
        {"step_id": 1, "source": "user", "message": "go"},
        {"step_id": 2, "source": "agent", "message": "gone"},
    ]
    agent = {"name": "a", "version": "1"}
    return json.dumps(
        {"schema_version": "ATIF-v1.6", "session_id": f"s{number}", "agent": agent, "steps": steps}
    )


@pytest.mark.parametrize("many", ["atif", "messages"])
def test_a_stranger_among_many_files_of_one_kind_is_read_or_told(tmp_path: Path, many: str) -> None:
    """Only the first files of a folder are looked at to tell what it is."""
    said = json.dumps([{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}])
    blamed = json.dumps({
        "history": [{"role": "Orchestrator (thought)", "content": "why"}, {"role": "WebSurfer", "content": "so"}],
        "question": "q", "mistake_agent": "WebSurfer", "mistake_step": "1", "mistake_reason": "r",
    })  # fmt: skip
    for number in range(20):
        (tmp_path / f"a{number}.json").write_text(atif(number) if many == "atif" else said)
    (tmp_path / "deeper").mkdir()
    for name, text in (("x", atif(99)), ("y", said), ("z", blamed), ("strange", '{"x": 1}')):
        (tmp_path / "deeper" / f"{name}.json").write_text(text)
    done = import_traces(tmp_path)
    systems = [trace.trace_id.split("-")[0] for trace in done.traces]
    assert {kind: systems.count(kind) for kind in ("atif", "messages", "who")} == (
        {"atif": 21, "messages": 1, "who": 1} if many == "atif" else {"atif": 1, "messages": 21, "who": 1}
    )
    assert done.report.skipped == {STRANGER: 1}
    assert done.report.places[STRANGER] == [str(tmp_path / "deeper" / "strange.json")]


def test_a_place_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    place = mixed(tmp_path / "in", 0)
    bundle = place / "d-codex" / "trace-1"
    bundle.mkdir(parents=True)
    (bundle / "manifest.json").write_text(
        json.dumps({"raw_event_log": "trace.jsonl", "root_thread_id": "0199-9"})
    )
    (place / "c-codex" / "rollout-0199-8.jsonl.zst").write_bytes(b"(\xb5/\xfd cut off")
    done = import_traces(place)
    assert sorted(trace.trace_id for trace in done.traces) == [
        "claude-code-11111111-aaaa", "codex-0199-0", "codex-0199-1",
    ]  # fmt: skip
    assert done.report.skipped[UNREADABLE] == 2
    assert any("A bundle is its whole folder" in at for at in done.report.places[UNREADABLE])
    with pytest.raises(CorruptError, match="A bundle is its whole folder"):
        import_traces(bundle)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    place = mixed(tmp_path / "in", 0)
    names = (
        "p.jsonl",
        "agent-1.jsonl",
        "rollout-1.jsonl",
        "p.json",
        "manifest.json",
        "p.eval",
        "p.seen.jsonl",
    )
    for folder in (place, *(each for each in place.iterdir() if each.is_dir())):
        for name in names:
            os.mkfifo(folder / name)
    assert len(import_traces(place).traces) == 3
    with pytest.raises(UsageError, match="is a pipe or a device"):
        import_traces(place / "p.jsonl")


def test_a_kind_that_is_given_takes_its_own_and_names_the_rest(tmp_path: Path) -> None:
    place = mixed(tmp_path / "in", 3)
    done = import_traces(place, source="codex")
    assert sorted(trace.trace_id for trace in done.traces) == ["codex-0199-0", "codex-0199-1"]
    assert done.report.skipped["a file of another kind than was asked for"] == 4


def test_a_file_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claude = Transcript("s9")
    claude.user("go")
    claude.says("a", "gone")
    claude.write(tmp_path / "in" / "s9.jsonl")
    (tmp_path / "in" / "history.jsonl").write_text('{"display":"go","project":"/p"}\n')
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--json"]) == 0
    skipped = json.loads(capsys.readouterr().out)["report"]["skipped"]
    assert skipped == {STRANGER: 1}


def test_what_one_file_loses_stands_before_what_every_file_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claude = Transcript("s9")
    claude.user("go")
    for kind in ("mode", "summary", "system", "tag", "last-prompt", "ai-title", "agent-name"):
        claude.add(kind)
        claude.add(kind)
    claude.says("a", "gone")
    path = claude.write(tmp_path / "in" / "s9.jsonl")
    path.write_bytes(path.read_bytes() + b"{ torn\n")
    (tmp_path / "in" / "strange.jsonl").write_text('{"display":"go"}\n')
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    skipped = [line for line in capsys.readouterr().out.splitlines() if "skipped" in line]
    assert "strange.jsonl" in skipped[0] or "strange.jsonl" in skipped[1]
    assert "s9.jsonl:17" in skipped[0] or "s9.jsonl:17" in skipped[1]
    assert "more reasons; all with: --json" in skipped[-1]


def test_a_wrong_kind_is_told_with_the_right_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claude = Transcript("s9")
    claude.user("go")
    claude.says(
        "a", ("t1", "Task", {"prompt": "p", "description": "d"}), ("t2", "Bash", {}), ("t3", "Ls", {})
    )
    path = claude.write(tmp_path / "s9.jsonl")
    out = str(tmp_path / "out")
    assert main(["import", str(path), "--from", "codex", "--out", out]) == 1
    assert "By its content it is claude-code: leave --from codex out." in capsys.readouterr().out
    assert main(["import", str(path), "--out", out]) == 0
    assert main(["show", out]) == 0
    shown = capsys.readouterr().out
    assert "finished, and nobody gave an answer: 1 agent and 2 tool calls had not come back" in shown

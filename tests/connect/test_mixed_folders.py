"""A folder in which sessions of several programs lie: each is read, and what nobody knows is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coder_files import Transcript, rollout

from baton.cli import main
from baton.connect.importing import import_traces

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

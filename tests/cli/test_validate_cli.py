"""`baton validate` as a person and as a script meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from baton.cli import main

INVALID = Path(__file__).parents[1] / "golden" / "invalid"
GOOD = (
    '{"kind":"trace","trace_id":"t","task_id":"k"}\n'
    '{"kind":"event","id":"e0","t":0,"type":"message","agent":"a","seq":0}\n'
    '{"kind":"end"}\n'
)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.jsonl"
    path.write_text(GOOD)
    return path


def test_valid(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(good)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{good}: valid (1 trace, 1 event)\n"
    assert err == ""


def test_problems_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    path = INVALID / "shape-negative.jsonl"
    assert main(["validate", str(path)]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(f"{path}: 1 problem")
    assert lines[1].startswith("  shape/negative  line 4, event e2, t: ")
    assert "found -2.0; expected a finite number >= 0" in lines[1]
    assert len(lines) == 2
    assert err == ""


def test_many_problems_of_one_kind_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    header, event, end = GOOD.splitlines(keepends=True)
    events = [
        event.replace("e0", f"e{i}").replace('"t":0', '"t":-1').replace('"seq":0', f'"seq":{i}')
        for i in range(1200)
    ]
    path.write_text(header + "".join(events) + end)
    assert main(["validate", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: 1,200 problems (1 trace, 1,200 events)"
    assert lines[-1] == "  and 200 more of shape/negative"
    assert len(lines) == 1002


def test_level(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(INVALID / "meaning-answered-twice.jsonl")
    assert main(["validate", "--level", "structure", path]) == 0
    assert main(["validate", "--level", "meaning", path]) == 1


def test_an_unreadable_file_does_not_keep_the_others_from_being_checked(
    tmp_path: Path, good: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, bad = tmp_path / "missing.jsonl", INVALID / "structure-cycle.jsonl"
    assert main(["validate", str(missing), str(bad), str(good)]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines() == [f"baton validate: there is no file {missing}."]
    assert "structure/cycle" in out
    assert f"{good}: valid" in out
    assert out.splitlines()[-1] == "3 files: 1 valid, 1 with problems, 1 unreadable"


def test_a_directory_that_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good.chmod(0)
    assert main(["validate", str(good)]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_an_error_while_reading(
    good: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert main(["validate", str(good)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"baton validate: {good} cannot be read: Permission denied")
    assert len(err.splitlines()) == 1


def test_json(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, bad = tmp_path / "missing.jsonl", INVALID / "meaning-acts-after-stop.jsonl"
    assert main(["validate", "--json", str(good), str(bad), str(missing)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["valid"] is False
    assert document["level"] == "meaning"
    first, second, third = document["files"]
    assert (first["valid"], first["problems"], first["unreadable"]) == (True, [], None)
    assert second["counts"] == {"meaning/acts-after-stop": 1}
    (problem,) = second["problems"]
    assert problem == {
        "code": "meaning/acts-after-stop",
        "level": "meaning",
        "message": "an agent acts after it, or who it was spawned by, stopped",
        "trace_id": "capital-1",
        "record": "event new",
        "event_id": "new",
        "position": 26,
        "field": "agent",
        "found": "aggregate at seq 90",
        "expected": "only cancellations after the stop at seq 80",
    }
    assert "there is no file" in third["unreadable"]


def test_what_a_file_holds_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sly.jsonl"
    path.write_text(GOOD.replace('"e0"', '"\\u001b[2J"').replace('"t":0', '"t":-1'))
    assert main(["validate", str(path)]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_a_wrong_level_is_a_usage_error(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["validate", "--level", "shapes", str(good)])
    assert stopped.value.code == 2
    assert "Type: baton validate --help" in capsys.readouterr().err


def test_the_command_itself(good: Path) -> None:
    bad = INVALID / "shape-empty.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "baton", "validate", str(good), str(bad)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == ""
    assert "shape/empty" in done.stdout


def test_a_pipe(good: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -m baton validate <(cat "{good}")'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

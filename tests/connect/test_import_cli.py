"""`baton import`: finds what a file is, keeps what it gives where other commands read it, and says what it did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import baton
from baton import registry
from baton.cli import main
from baton.connect.import_report import ImportReport
from baton.connect.importing import Importing, follow, import_traces
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenSession
from baton.errors import UsageError
from baton.testing import CheckFailed, check_source
from baton.trace.formats.files import read_all
from baton.view.web.places import find_places

KEY = "sk-ant-api03-Abcdefghijklmnop1234567890"


class Notes:
    """A format made for these tests: one note of somebody's a line."""

    kind = "notes"
    about = "notes of a team (.jsonl)"

    def recognises(self, place: Path) -> bool:
        if not place.is_file() or place.suffix != ".jsonl":
            return False
        with place.open("rb") as file:
            return file.readline(2000).startswith(b'{"note"')

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        with place.open("rb") as file:
            for number, line in enumerate(file, 1):
                report.read()
                try:
                    note = json.loads(line)
                    n, who, run = note["note"], note["who"], note["run"]
                except (ValueError, KeyError, TypeError, RecursionError):
                    report.skip("not a note", f"{place.name}:{number}")
                    continue
                base = {"session": run, "at": f"{place.name}:{number}"}
                yield SeenSession(
                    **base, key=run, finished=True if note.get("end") else None, task=note.get("task")
                )
                yield SeenAgent(**base, key=who, name=who, parent=note.get("by"))
                yield SeenCall(
                    **base, key=f"c{n}", agent=who, order=(n,), t=1e9 + n, prompt_tokens=n, completion=note["says"],
                    prompt_ids=(1, 2, n), completion_ids=(3,), prompt=(("user", note["says"]),),
                )  # fmt: skip
                yield SeenEvent(
                    **base, key=f"{n}", agent=who, order=(n,), t=1e9 + n, type="tool_call", tool="note", call=f"c{n}",
                    content=json.dumps({"text": note["says"]}), extra={"env": {"token": note["says"]}},
                )  # fmt: skip
                yield SeenEvent(
                    **base, key=f"{n}r", agent=who, order=(n, 1), t=1e9 + n + 0.5, type="tool_result", tool="note",
                    content="kept", after=(Link(f"{n}", "tool_dependency"),),
                )  # fmt: skip


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._registered["source"], "notes", Notes)


def written(path: Path, numbers: range, run: str = "run-1", **more: object) -> Path:
    notes = [{"note": n, "run": run, "who": "ab"[n % 2], "says": f"{KEY} {n}", **more} for n in numbers]
    path.write_text("".join(json.dumps(note) + "\n" for note in notes))
    return path


def test_the_readers_contract_holds_and_breaches_are_found(tmp_path: Path) -> None:
    one, two = written(tmp_path / "1.jsonl", range(7)), written(tmp_path / "2.jsonl", range(5), run="run-2")
    check_source(Notes(), one, two)

    class Counts(Notes):
        """Knows things by where they stand."""

        def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
            for number, seen in enumerate(super().read(place, report)):
                yield SeenEvent(session="s", key=str(number), agent="a", type="message", content=seen.key)

    with pytest.raises(CheckFailed, match="shuffled"):
        check_source(Counts(), one)

    class Raises(Notes):
        """Stumbles over what it does not know."""

        def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
            for line in place.read_bytes().splitlines():
                json.loads(line)
            return super().read(place, report)

    with pytest.raises(CheckFailed, match="never raised"):
        check_source(Raises(), one)

    class Silent(Notes):
        """Tells nobody."""

        def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
            report.read()
            return super().read(place, ImportReport())

    with pytest.raises(CheckFailed, match="strange lines"):
        check_source(Silent(), one)


def test_a_folder_is_looked_into_and_twice_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    written(tmp_path / "in" / "a.jsonl", range(4))
    written(tmp_path / "in" / "deep" / "b.jsonl", range(3), run="run 2/odd")
    (tmp_path / "in" / "letter.txt").write_text("Dear reader")
    out = tmp_path / "out"
    assert main(["import", str(tmp_path / "in"), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "2 traces from notes" in told
    assert "a file of no kind that is known" in told
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    stamps = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert main(["import", str(tmp_path / "in"), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == stamps
    # Every command takes the folder.
    for command in (["stats"], ["validate"], ["measure"], ["advise", "--roles", "alike"]):
        assert main([*command, str(out)]) == 0, command
    assert main(["show", str(out), "--trace", "notes-run-1"]) == 0
    assert "not a file" not in capsys.readouterr().err
    assert [place.path for place in find_places([out])] == [out]


def test_a_file_that_a_folders_reader_does_not_know_is_told(tmp_path: Path) -> None:
    class Folders(Notes):
        """Takes folders whole, and passes over what it does not know."""

        def recognises(self, place: Path) -> bool:
            inside = place.glob("*.jsonl") if place.is_dir() else (place,)
            return any(Notes.recognises(self, path) for path in inside)

        def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
            for path in sorted(place.glob("*.jsonl")):
                if Notes.recognises(self, path):
                    yield from Notes.read(self, path, report)

    registry._registered["source"]["notes"] = Folders
    written(tmp_path / "a.jsonl", range(2))
    (tmp_path / "b.jsonl").write_text('{"another": "program"}\n')
    report = import_traces(tmp_path).report
    assert report.places["a file of no kind that is known"] == [str(tmp_path / "b.jsonl")]


def test_what_a_killed_import_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    left, mine = out / ".notes-gone.jsonl.abc123.part", out / ".film.part"
    left.write_bytes(b"half")
    mine.write_bytes(b"somebody's own")
    found = written(tmp_path / "1.jsonl", range(3))
    assert import_traces(found, out=out).changed == 1
    assert not left.exists()
    assert mine.read_bytes() == b"somebody's own"
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".jsonl", ".part"]


def test_what_has_grown_replaces_its_trace_and_nothing_else(tmp_path: Path) -> None:
    source, out = written(tmp_path / "a.jsonl", range(3)), tmp_path / "out"
    written(tmp_path / "b.jsonl", range(2), run="other")
    import_traces(source, tmp_path / "b.jsonl", out=out)
    other = (out / "notes-other.jsonl").read_bytes()
    written(source, range(9))
    again = import_traces(source, out=out)
    assert again.changed == 1
    assert (out / "notes-other.jsonl").read_bytes() == other
    assert [len(trace.events) for trace in read_all(out)] == [4, 18]


def test_following_shows_a_run_while_it_lives(tmp_path: Path) -> None:
    source, out = written(tmp_path / "a.jsonl", range(1)), tmp_path / "out"
    told: list[tuple[int, bool]] = []
    importing = Importing([source], out=out)
    sizes = iter((1, 3, 3, 6))

    def wait(_: float) -> None:
        size = next(sizes, None)
        if size is None:
            raise KeyboardInterrupt
        written(source, range(size))

    def tell(_: object) -> None:
        (trace,) = read_all(out)
        told.append((len(trace.events), trace.finished))

    follow(importing, tell, wait)
    # The file was written anew at every look, so each look found it changed.
    assert told == [(2, False), (2, False), (6, False), (6, False), (12, False), (12, True)]


def test_secrets_are_taken_out_everywhere(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl", range(3), task=f"use {KEY} and Klaus")
    imported = import_traces(source, out=tmp_path / "red", redact=["Kl.us"])
    kept = b"".join(path.read_bytes() for path in (tmp_path / "red").iterdir())
    (trace,) = read_all(tmp_path / "red")
    texts = [trace.text(ref) or "" for ref in trace.payloads]
    assert KEY.encode() not in kept
    assert b"Klaus" not in kept
    assert not any(KEY in text for text in texts)
    assert any("[redacted API key]" in text for text in texts)
    assert [json.loads(trace.text(e.content_ref) or "") for e in trace.events if e.type == "tool_call"]
    assert all(call.prompt_ids is None for call in trace.calls)
    assert imported.report.redacted["API key"] >= 12
    assert imported.report.redacted["pattern 1"] >= 1
    plain = import_traces(source).traces[0]
    assert any(KEY in (plain.text(ref) or "") for ref in plain.payloads)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abc123DEF456ghi789JKL012", "AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "xoxb-123456789012-abcdefghijkl", "Authorization: Bearer abcdef1234567890abcdef", "hf_abcdefghijklmnopqrstuvwx",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "postgres://user:hunter2hunter@db/x", 'OPENAI_API_KEY="abcdefgh12345678"', "password: correcthorsebattery",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB\nAAAA\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\nMIIBVQ cut off",
    ],
)  # fmt: skip
def test_forms_of_secrets(tmp_path: Path, secret: str) -> None:
    source = written(tmp_path / "a.jsonl", range(1), task=f"before {secret} after")
    (trace,) = import_traces(source, redact=()).traces
    said = trace.header.meta["connect"]["task"]
    assert "[redacted" in said
    assert said.startswith("before ")
    for part in secret.replace("\\n", "\n").split("\n"):
        if len(part) > 20 and " " not in part:
            assert part not in said


def test_plain_words_are_no_secrets(tmp_path: Path) -> None:
    text = (
        "The tokens: 5,000 of them. A secret garden; desk-top sk-8. https://a.b/c?d=e password reset at 10:30"
    )
    source = written(tmp_path / "a.jsonl", range(1), task=text)
    (trace,) = import_traces(source, redact=()).traces
    assert trace.header.meta["connect"]["task"] == text


def test_without_payloads_nothing_said_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = written(tmp_path / "a.jsonl", range(3), task="a task for Klaus"), tmp_path / "out"
    assert main(["import", str(source), "--out", str(out), "--without-payloads"]) == 0
    kept = b"".join(path.read_bytes() for path in out.iterdir())
    assert b"Klaus" not in kept
    assert KEY.encode() not in kept
    (trace,) = read_all(out)
    assert trace.payloads
    assert all(payload.data is None for payload in trace.payloads.values())
    assert baton.validate(trace) == []
    capsys.readouterr()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nowhere.jsonl"], "there is no nowhere.jsonl"),
        (["letter.txt"], "of no kind that is known"),
        (["letter.txt", "--from", "note"], "Did you mean 'notes'?"),
        (["a.jsonl", "--redact", "("], "no regular expression"),
        (["a.jsonl", "--redact", "x*"], "matches the empty text"),
        (["empty"], "of no kind that is known"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("a.jsonl"), range(2))
    Path("letter.txt").write_text("Dear reader")
    Path("empty").mkdir()
    assert main(["import", *args, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    with pytest.raises(UsageError):
        import_traces()


def test_a_trace_of_batons_own_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "our own.jsonl"
    with baton.Recorder(path, task_id="t") as team:
        team.agent("lead").stop("done")
    assert main(["import", str(path), "--out", str(tmp_path / "out")]) == 2
    assert f"Type: baton show '{path}'" in capsys.readouterr().err

"""Agents' folders in the trace: a run that is killed and goes on, a fork and a replay find each as it was then."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child_process import on_path

from baton.errors import TraceError, UsageError
from baton.team.credentials import Credential, Credentials
from baton.team.forks import fork
from baton.team.intervene import Replace
from baton.team.protocol import Request
from baton.team.recording import FILES
from baton.team.running import replay, run
from baton.team.team import Assignment, Team
from baton.team.tool_calls import ForkRefused
from baton.team.tools.agent_place import AgentPlace
from baton.team.tools.agent_python import agent_python_tool
from baton.team.tools.sandbox import protection
from baton.team.tools.sandbox_levels import SandboxLimits
from baton.team.tools.secret import ToolSecret
from baton.team.tools.tool import Tool, tool
from baton.team.topology import make_topology
from baton.trace.formats import read, write
from baton.trace.trace import Trace
from baton.trace.validation import validate

WORK = Assignment(task_id="work", prompt="work")


@tool(contained=True)
def note(text: str, place: AgentPlace) -> str:
    """Adds a line to a file, and says all that stands there."""
    with place.using() as folder:
        with (folder / "notes").open("a") as file:
            file.write(f"{text}\n")
        return (folder / "notes").read_text()


@tool(contained=True)
def odd(place: AgentPlace) -> str:
    """Leaves all sorts of things."""
    with place.using() as folder:
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "é\n%41").write_bytes(bytes(range(256)))
        (folder / "link").symlink_to("/etc/passwd")
        (folder / "loop").symlink_to(".")
        (folder / "run").write_text("x")
        (folder / "run").chmod(0o755)
        (folder / "empty").mkdir(mode=0o500)
        (folder / os.fsdecode(b"\xff\xfe")).write_text("no unicode")
        (folder / "same").write_bytes(bytes(range(256)))
    return "left"


@tool(contained=True)
def look(place: AgentPlace) -> str:
    """What there is."""
    with place.using() as folder:
        found = []
        for path in sorted(folder.rglob("*")):
            told = f"{os.fsencode(path.relative_to(folder))!r} {path.lstat().st_mode:o}"
            if path.is_symlink():
                told += f" -> {path.readlink()}"
            elif path.is_file():
                told += f" {path.read_bytes()!r}"
            found.append(told)
        return "\n".join(found)


@tool(contained=True)
def fill(size: int, place: AgentPlace) -> str:
    """Writes much."""
    with place.using() as folder:
        (folder / "big").write_bytes(bytes(size))
    return "filled"


def says(*turns: str) -> Callable[[Request], str]:
    def script(request: Request) -> str:
        return turns[sum(entry.speaker == "assistant" for entry in request.entries)]

    return script


def team_of(play: Callable[[Request], str], *tools: Tool, **more: Any) -> Team:
    named = tuple(each.name for each in tools)
    return Team.of(make_topology("harness", tools=named), play, tools=tools, **more)


def results(trace: Trace) -> list[str]:
    return [trace.text(e.content_ref) or "" for e in trace.events if e.type == "tool_result"]


def numbered(*texts: str) -> tuple[str, ...]:
    return tuple(f'call note {{"text": "{text}"}}' for text in texts)


def last_result(trace: Trace) -> str:
    return [e.id for e in trace.events if e.type == "tool_result"][-1]


def test_what_changed_is_written_down_once() -> None:
    team = team_of(says(*numbered("a", "b"), "call look {}", "stop ok"), note, look)
    trace = asyncio.run(run(team, WORK))
    assert validate(trace) == []
    told = [e.extra.get(FILES) for e in trace.events if e.type == "tool_result"]
    assert [each and each["number"] for each in told] == [1, 2, None], "the third only looked"
    assert asyncio.run(replay(trace, team, WORK)) == trace


def test_a_fork_finds_the_folder_as_it_was(tmp_path: Path) -> None:
    """Calls before the change are fed from the trace; the one after it is made, in a copy of the folder of then."""

    def play(request: Request) -> str:
        said = [entry.text for entry in request.entries if entry.speaker == "tool"]
        words = ["a", "b", "c" if not said or "changed" not in said[-1] else "other"]
        return f'call note {{"text": "{words[len(said)]}"}}' if len(said) < 3 else "stop ok"

    team = team_of(play, note)
    trace = asyncio.run(run(team, WORK))
    assert results(trace)[-1] == "a\nb\nc\n"
    second = [e.id for e in trace.events if e.type == "tool_result"][1]
    for saved in (trace, _saved(trace, tmp_path)):
        made = asyncio.run(fork(saved, team, WORK, [Replace(at=second, text="changed")])).trace
        assert results(made)[-1] == "a\nb\nother\n"
        assert validate(made) == []
        assert asyncio.run(replay(made, team, WORK)) == made
        again = asyncio.run(fork(made, team, WORK, [Replace(at=second, text="as it was")])).trace
        assert results(again)[-1] == "a\nb\nc\n", "a fork of a fork"


def _saved(trace: Trace, folder: Path) -> Trace:
    write(trace, folder / "t.jsonl")
    return read(folder / "t.jsonl")


def test_all_that_a_folder_can_hold_comes_back(tmp_path: Path) -> None:
    def play(request: Request) -> str:
        said = [entry.text for entry in request.entries if entry.speaker == "tool"]
        if len(said) == 2 and "changed" in said[-1]:
            return "call look {}"
        return ["call odd {}", "call look {}", "stop ok"][len(said)] if len(said) < 3 else "stop ok"

    team = team_of(play, odd, look)
    trace = asyncio.run(run(team, WORK))
    shown = results(trace)[1]
    assert "-> /etc/passwd" in shown
    made = asyncio.run(
        fork(_saved(trace, tmp_path), team, WORK, [Replace(at=last_result(trace), text="changed")])
    )
    assert results(made.trace)[2] == shown
    assert Path("/etc/passwd").stat().st_mode & 0o777 == 0o644


def test_calls_of_one_turn_are_made_one_after_the_other() -> None:
    lines = "\n".join(numbered(*map(str, range(8))))
    trace = asyncio.run(run(team_of(says(lines, "stop ok"), note), WORK))
    whole = "".join(f"{k}\n" for k in range(8))
    assert max(results(trace), key=len) == whole
    assert all(whole.startswith(each) for each in results(trace))


def test_what_is_too_large_is_told_and_a_fork_says_so() -> None:
    def play(request: Request) -> str:
        said = sum(entry.speaker == "tool" for entry in request.entries)
        return ['call fill {"size": 5000000}', 'call fill {"size": 1}', 'call note {"text": "n"}', "stop ok"][
            said
        ]

    team = team_of(play, fill, note)
    trace = asyncio.run(run(team, WORK))
    first, second, _ = [e for e in trace.events if e.type == "tool_result"]
    assert first.extra[FILES] == {"number": 1, "lost": "it holds more than the 4,194,304 bytes that are kept"}
    assert "ref" in second.extra[FILES], "it is small again"
    assert asyncio.run(replay(trace, team, WORK)) == trace
    with pytest.raises(ForkRefused, match=r"in the folder of main.*more than the 4,194,304 bytes"):
        asyncio.run(fork(trace, team, WORK, [Replace(at=first.id, text="changed")]))
    made = asyncio.run(
        fork(trace, team, WORK, [Replace(at=first.id, text="changed")], allow_impure=True)
    ).trace
    assert "your folder is empty now" in results(made)[1]
    assert results(made)[2] == "n\n"
    assert asyncio.run(fork(trace, team, WORK, [Replace(at=second.id, text="changed")])).trace


@tool(contained=True)
def careless(place: AgentPlace, api_key: ToolSecret) -> str:
    """Writes its secret down."""
    with place.using() as folder:
        (folder / "k").write_text(f"key={api_key.reveal()}")
    return "ok"


def test_a_folder_with_a_credential_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_KEY", "sk-planted-0123456789")
    who = Credentials(by_name={"api_key": Credential(env="PLANTED_KEY", roles=("main",))})
    team = team_of(says("call careless {}", "stop ok"), careless, credentials=who)
    trace = asyncio.run(run(team, WORK))
    (event,) = [e for e in trace.events if e.type == "tool_result"]
    assert event.extra[FILES] == {"number": 1, "lost": "the credential 'api_key' stands in it"}
    assert not any("sk-planted" in (each.text() or "") for each in trace.payloads.values())


def test_pipes_and_endless_files_hang_nobody() -> None:
    @tool(contained=True)
    def pipe(place: AgentPlace) -> str:
        """A pipe that nobody writes to."""
        with place.using() as folder:
            os.mkfifo(folder / "pipe")
        return "made"

    trace = asyncio.run(run(team_of(says("call pipe {}", "stop ok"), pipe), WORK))
    (event,) = [e for e in trace.events if e.type == "tool_result"]
    assert event.extra[FILES]["lost"] == "pipe is no file, folder or link"


@pytest.mark.parametrize(
    "path", ["../out", "/etc/x", "a/../../out", "%2e%2e/out", ".", "", "a//b", "link/x", "%00", "b/c"]
)
def test_a_strangers_manifest_leads_nowhere(path: str, tmp_path: Path) -> None:
    """Names that lead out, through a link or into what is no folder are refused before anything is written."""
    from baton.team.tools.folder_snapshot import FolderFiles, KeptEntry, put_back

    inside = tmp_path / "inside"
    inside.mkdir()
    entries = (KeptEntry(path="link", kind="link", target=str(tmp_path)), KeptEntry(path="a", kind="folder"))
    files = FolderFiles(number=1, entries=(*entries, KeptEntry(path=path, ref="r")), contents={"r": b"x"})
    with pytest.raises(ValueError, match="no path below a folder"):
        put_back(files, inside)
    assert list(inside.iterdir()) == []


def test_a_trace_that_was_tampered_with_is_refused() -> None:
    import msgspec
    from msgspec import structs

    from baton.trace.records import Payload

    team = team_of(says(*numbered("a", "b"), "stop ok"), note)
    trace = asyncio.run(run(team, WORK))
    first = next(e for e in trace.events if e.type == "tool_result")
    evil = Payload.of(msgspec.json.encode([{"path": "../x", "ref": "r"}]))
    extra = {FILES: {"number": 1, "ref": evil.ref}}
    events = tuple(structs.replace(e, extra=extra) if e is first else e for e in trace.events)
    odd_trace = structs.replace(trace, events=events, payloads={**trace.payloads, evil.ref: evil})
    with pytest.raises(TraceError, match="cannot be read"):
        asyncio.run(fork(odd_trace, team, WORK, [Replace(at=first.id, text="x")]))


def test_only_a_tool_with_a_folder_is_contained_in_it() -> None:
    with pytest.raises(UsageError, match="asks for none"):

        @tool(contained=True)
        def plain(q: str) -> str:
            """Nothing."""
            return q


CHILD = """
import asyncio, sys, time
from pathlib import Path
from test_folders import WORK, says, team_of, note
from baton.team.recording import StoreJournal
from baton.team.running import header_of, resume, run
from baton.team.tools.agent_place import AgentPlace
from baton.team.tools.tool import tool
from baton.trace.formats import read
from baton.trace.formats.sqlite.store import Store

folder = Path(sys.argv[1])

@tool(contained=True)
def slow(place: AgentPlace) -> str:
    "Half of its work is done when it is killed."
    with place.using() as mine:
        (mine / "half").write_text("done")
        if not (folder / "go").exists():
            (folder / "waits").touch()
            time.sleep(600)
        return " ".join(sorted(path.name for path in mine.iterdir()))

A, B, C = (f'call note {{"text": "{each}"}}' for each in "abc")
team = team_of(says(A, B, "call slow {}", C, "stop ok"), note, slow, clock=sys.argv[2])
path = folder / "run.db"
with Store.open(path, durability="process") as store:
    if path.exists() and len(sys.argv) > 3:
        trace = read(path)
        asyncio.run(resume(trace, team, WORK, StoreJournal(store, store.writer(trace.trace_id))))
    else:
        asyncio.run(run(team, WORK, journal=StoreJournal(store, store.begin(header_of(team, WORK)))))
"""


def child(folder: Path, *words: str) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), *words],
        env={**on_path(here, here.parent / "support"), "TMPDIR": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_killed_in_the_middle_of_a_call_it_goes_on_from_before_it(tmp_path: Path, clock: str) -> None:
    process = child(tmp_path, clock)
    try:
        for _ in range(1200):
            if (tmp_path / "waits").exists() or process.poll() is not None:
                break
            time.sleep(0.05)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    (tmp_path / "go").touch()
    going = child(tmp_path, clock, "again")
    _, said = going.communicate(timeout=120)
    assert going.returncode == 0, said
    trace = read(tmp_path / "run.db")
    assert trace.finished
    assert validate(trace) == []
    assert results(trace) == ["a\n", "a\nb\n", "half notes", "a\nb\nc\n"]
    numbers = [e.extra[FILES]["number"] for e in trace.events if e.type == "tool_result"]
    assert numbers == [1, 2, 3, 4]


@pytest.mark.skipif(not protection().meets("landlock"), reason="nothing keeps code in here")
def test_the_sandboxed_python_keeps_its_folder_in_a_fork() -> None:
    code = "open('n', 'a').write('x'); print(open('n').read())"
    turns = (f'call python {{"code": "{code}"}}', f'call python {{"code": "{code}"}}', "stop ok")
    made = agent_python_tool(SandboxLimits(wall_seconds=60))
    assert made.contained
    team = team_of(says(*turns), made)
    trace = asyncio.run(run(team, WORK))
    assert [each.split("\n")[0] for each in results(trace)] == ["x", "xx"]
    before = set(Path(tempfile.gettempdir()).glob("baton-agents-*"))
    first = next(e.id for e in trace.events if e.type == "tool_result")
    forked = asyncio.run(fork(trace, team, WORK, [Replace(at=first, text="changed")])).trace
    assert results(forked)[1].split("\n")[0] == "xx", "again, in a copy of what the first call left"
    assert set(Path(tempfile.gettempdir()).glob("baton-agents-*")) <= before

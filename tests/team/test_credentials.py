"""Credentials of tools: given to the agents that may use them, and written nowhere."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import sqlite3
import urllib.parse
import zlib
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.cli import main
from baton.errors import UsageError
from baton.team.agent import Role
from baton.team.credentials import Credential, Credentials, Vault, credentials_in
from baton.team.protocol import EngineError, Request
from baton.team.running import replay, run, start
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.secret import ToolSecret
from baton.team.tools.tool import Registry, Tool, tool
from baton.trace.formats import write
from baton.trace.trace import Trace

VALUE = 's3cr3t/key+"ü" with=all&sorts'
WORK = Assignment(task_id="work", prompt="work")


@tool
def plain(api_key: ToolSecret, how: str = "raw") -> str:
    """Says what it should not."""
    value = api_key.reveal()
    said = {
        "raw": value,
        "url": f"https://x.test/?key={urllib.parse.quote(value)}&k={urllib.parse.quote_plus(value)}",
        "base64": b64encode(f"user:{value}:x".encode()).decode(),
        "hex": value.encode().hex(),
        "repr": repr({"key": value}),
        "shown": f"{api_key} {api_key!r}",
        "used": "ok" if value == VALUE else "wrong",
    }
    if how == "raised":
        raise ValueError(f"401 for {value}")
    return said[how]


@tool(max_output_bytes=40)
def cut(api_key: ToolSecret) -> str:
    """Is cut in the middle of it."""
    return "x" * 25 + api_key.reveal()


@tool
def environment() -> dict[str, str]:
    """Another tool, which looks around."""
    return dict(os.environ)


TOOLS = Registry([plain, cut, environment])
FOR_WORKER1 = Credentials(by_name={"api_key": Credential(env="PLANTED_KEY", agents=("worker1",))})


def team_of(
    play: Callable[[Request], str],
    credentials: Credentials = FOR_WORKER1,
    tools: Registry = TOOLS,
    **more: Any,
) -> Team:
    roles = (
        Role(name="lead", verbs=("spawn", "wait", "stop"), spawns=("worker",), tools=()),
        Role(name="worker", verbs=("call", "return"), tools=tuple(tools)),
    )
    topology = Topology(name="centralized", root="lead", roles=roles)
    return Team.of(topology, {"default": play}, tools=tools, credentials=credentials, **more)


def calls(*lines: str, workers: int = 1) -> Callable[[Request], str]:
    """Workers that say these lines, one a turn."""

    def play(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "lead":
            return ["\n".join([*(["spawn worker: go"] * workers), "wait"]), "stop done"][turn]
        return [*lines, "return done"][turn]

    return play


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_KEY", VALUE)


WAYS = ("raw", "url", "base64", "hex", "repr", "shown", "raised", "used")


def pieces() -> list[str]:
    """What must be found nowhere: the value as it is, and as it may be written."""
    quoted = urllib.parse.quote(VALUE)
    middles = [b64encode(b"x" * k + VALUE.encode())[8:28].decode() for k in range(3)]
    return [VALUE, VALUE[:14], VALUE[-14:], quoted, quoted[:14], VALUE.encode().hex(), *middles]


def everything(folder: Path) -> bytes:
    """All that was written, as it is and unpacked."""
    found = b""
    for path in folder.rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            found += raw
            for at in re.finditer(b"\x78[\x01\x5e\x9c\xda]", raw):
                try:
                    found += zlib.decompressobj().decompress(raw[at.start() :])
                except zlib.error:
                    continue
            if raw.startswith(b"SQLite"):
                with sqlite3.connect(path) as store:
                    tables = [
                        name for (name,) in store.execute("select name from sqlite_master where type='table'")
                    ]
                    for table in tables:
                        for row in store.execute(f'select * from "{table}"'):
                            for cell in row:
                                data = cell if isinstance(cell, bytes) else str(cell).encode()
                                found += data
                                try:
                                    found += zlib.decompress(data)
                                except zlib.error:
                                    continue
    return found


def results(trace: Trace) -> list[str]:
    return [trace.text(e.content_ref) or "" for e in trace.events if e.type == "tool_result"]


def test_a_planted_secret_is_found_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def play(request: Request) -> str:
        if request.role == "worker" and len(request.entries) > 2 and VALUE in str(request.entries):
            raise AssertionError("an agent read it")
        return calls(*(f'call plain {{"how": "{way}"}}' for way in WAYS), "call cut", "call environment")(
            request
        )

    team = team_of(play)
    trace = asyncio.run(run(team, WORK))
    said = results(trace)
    assert len(said) == len(WAYS) + 2
    assert said[0] == "[credential api_key]"
    assert said[-3:-1] == [
        "ok",
        f"{'x' * 25}[credential api_key]\n[{len(VALUE.encode()) - 15} of {25 + len(VALUE.encode())} bytes left out]",
    ]
    for kind in ("jsonl", "json", "db"):
        write(trace, tmp_path / f"t.{kind}")
    assert main(["show", str(tmp_path / "t.jsonl")]) == 0
    shown = "".join(capfd.readouterr())
    for piece in pieces():
        assert piece.encode() not in everything(tmp_path), piece
        assert piece not in shown
    assert asyncio.run(replay(trace, team_of(play, Credentials()), WORK)) == trace


def test_only_those_who_may_get_it() -> None:
    trace = asyncio.run(run(team_of(calls('call plain {"how": "used"}', workers=2)), WORK))
    said = {e.agent: trace.text(e.content_ref) for e in trace.events if e.type == "tool_result"}
    assert said == {
        "worker1": "ok",
        "worker2": "plain needs the credential 'api_key', which worker2 has not been given.",
    }
    only = Credentials(by_name={"api_key": Credential(env="PLANTED_KEY", roles=("worker",), tools=("cut",))})
    trace = asyncio.run(run(team_of(calls('call plain {"how": "used"}'), only), WORK))
    assert "has not been given" in results(trace)[0]


def test_no_model_sees_or_gives_it() -> None:
    assert "api_key" not in str(plain.schema)
    trace = asyncio.run(run(team_of(calls('call plain {"api_key": "mine"}')), WORK))
    assert "Wrong arguments" in results(trace)[0]


def test_it_shows_itself_to_nobody() -> None:
    secret = ToolSecret("api_key", VALUE)
    assert (
        f"{secret} {secret!r} {[secret]}"
        == "[credential api_key] [credential api_key] [[credential api_key]]"
    )
    for kept in (secret, Vault(FOR_WORKER1, {"api_key": VALUE})):
        with pytest.raises(TypeError):
            pickle.dumps(kept)
        assert VALUE not in repr(kept)


def test_what_an_engine_or_a_person_says_is_scrubbed() -> None:
    def play(request: Request) -> str:
        if request.role == "lead" and len(request.entries) == 2:
            raise EngineError(f"401: key {VALUE} is refused")
        return f"I know {VALUE}\nstop {VALUE}"

    going = start(team_of(play), WORK)
    going.instruct("lead", f"use {VALUE}")
    trace = asyncio.run(going.go())
    assert VALUE not in str([payload.text() for payload in trace.payloads.values()])
    assert any("[credential api_key]" in (payload.text() or "") for payload in trace.payloads.values())


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("", "none is called so"),
        ('[apikey]\nenv = "PLANTED_KEY"\nroles = ["worker"]', "Did you mean 'apikey'"),
        ('[api_key]\nenv = "PLANTED_KEY"', "nobody may use it"),
        ('[api_key]\nroles = ["worker"]', "expected one of env"),
        ('[api_key]\nenv = "A"\nfile = "b"\nroles = ["worker"]', "expected one of env"),
        ('[api_key]\nenv = "NOT_SET_ANYWHERE"\nroles = ["worker"]', "is empty or not set"),
        ('[api_key]\nenv = "SHORT_KEY"\nroles = ["worker"]', "has 3 characters; expected 8 or more"),
        ('[api_key]\nfile = "/no/such"\nroles = ["worker"]', "cannot be read"),
        ('[api_key]\nenv = "PLANTED_KEY"\nroles = ["wroker"]', "Did you mean 'worker'"),
        ('[api_key]\nenv = "PLANTED_KEY"\nrole = ["worker"]', "Did you mean 'roles'"),
        ('["two words"]\nenv = "PLANTED_KEY"\nroles = ["worker"]', "expected a parameter's name"),
        ("api_key = 3", "expected a table"),
        ("[api_key", "is not TOML"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toml: str, said: str) -> None:
    monkeypatch.setenv("SHORT_KEY", "abc")
    path = tmp_path / "keys.toml"
    path.write_text(toml)
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        start(team_of(calls(), credentials_in(str(path))), WORK)
    assert "\n" not in str(error.value)


def test_a_prompt_that_has_it_is_refused() -> None:
    with pytest.raises(UsageError, match="the task's text has the credential 'api_key' in it"):
        start(team_of(calls()), Assignment(task_id="work", prompt=f"use {VALUE}"))
    with pytest.raises(UsageError, match="a setting of the run has the credential"):
        start(team_of(calls()), Assignment(task_id="work", prompt="work", spec={"key": VALUE}))


def test_tools_without_it_keep_their_digest() -> None:
    """Added later than the digest: what was recorded before it is run again through the same harness."""
    (fact,) = [name for name in Tool.__struct_fields__ if name == "secrets"]
    assert Registry([environment]).digest() == Registry([environment]).digest()
    assert getattr(plain, fact) == ("api_key",)
    assert environment.secrets == ()


@given(before=st.text(max_size=20), value=st.text(min_size=8, max_size=40), after=st.text(max_size=20))
def test_nothing_is_left_of_any_value(before: str, value: str, after: str) -> None:
    vault = Vault(Credentials(), {"k": value})
    clean = vault.scrub(f"{before}{value}{after}")
    assert vault.holds(clean) is None or "credential" in value
    inside = b64encode(f"{before}{value}{after}".encode(errors="replace")).decode()
    assert vault.holds(inside) == "k"


def test_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_keys_tool.py").write_text(
        "from baton.team.tools.secret import ToolSecret\n\n\n"
        "def lookup(q: str, api_key: ToolSecret) -> str:\n    '''Look up.'''\n    return q + api_key.reveal()\n"
    )
    (tmp_path / "keys.toml").write_text(
        '[api_key]\nenv = "PLANTED_KEY"\nroles = ["worker", "orchestrator"]\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "run"
    typed = ["run", "shard-sum", "--tool", "own_keys_tool:lookup", "--out", str(out)]
    assert main(typed) == 2
    assert "--credentials FILE" in capfd.readouterr().err
    assert not out.exists()
    assert main([*typed, "--credentials", str(tmp_path / "keys.toml")]) == 0
    assert main(["replay", str(out), "--trust"]) == 0
    for piece in pieces():
        assert piece.encode() not in everything(out)

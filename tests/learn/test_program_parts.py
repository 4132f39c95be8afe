"""What a program is given and what it earns, before any of it runs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from baton.errors import UsageError
from baton.learn.program.filling import base_environment, check_command, expand_env, filled, values_of
from baton.learn.program.part import ProgramPart
from baton.learn.program.result import ProgramResult, check_reading, read_answer, rewarding
from baton.learn.program.roles import ProgramRoles, RoleBackend
from baton.serve.backend import caller_headers
from baton.serve.exchange import Ask, Posted, Utterance
from baton.tasks.task import Instance

INSTANCE = Instance(
    task="jsonl",
    split="test",
    seed=9,
    prompt="how many {bees}?",
    gold="3",
    data={"bees": "42 {seed}", "n": [1, 2]},
)


def part(tmp_path: Path | None = None, **more: Any) -> ProgramPart:
    given = {"command": (sys.executable, "-c", "pass", "{question}"), "folder": str(tmp_path or "."), **more}
    return ProgramPart(**given)


def test_fields_are_filled_in_once(tmp_path: Path) -> None:
    (tmp_path / "my agent.py").write_text("")
    it = part(
        tmp_path,
        command=("python", "my agent.py", "--q={question}", "{bees}", '{"json": {n}}', "{split}/{seed}"),
        stdin="{question}\n{n}",
        env={"ODD": "{session} in {work}"},
    )
    values = values_of(INSTANCE, "step-1.0", it, "/w")
    made = filled(it, values)
    assert made.command == (
        "python", str(tmp_path / "my agent.py"), "--q=how many {bees}?", "42 {seed}", '{"json": [1, 2]}', "test/9",
    )  # fmt: skip
    assert made.stdin == b"how many {bees}?\n[1, 2]"
    assert made.env == {"ODD": "step-1.0 in /w"}


def test_secrets_stay_here_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_KEY", "s3cret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("LC_ODD", "C")
    assert not {"MY_SECRET_KEY", "OPENAI_API_KEY"} & set(base_environment())
    assert {"PATH", "LC_ODD"} <= set(base_environment())
    named = filled(part(pass_env=("MY_SECRET_KEY", "NOT_THERE")), values_of(INSTANCE, "s", part(), "w"))
    assert named.env == {"MY_SECRET_KEY": "s3cret"}


def test_a_wrapping_command_is_told_the_variables() -> None:
    it = part(wrap=("docker", "run", "--rm", "{env}", "-v", "{work}:/w", "image"), env={"A": "1"})
    made = filled(it, values_of(INSTANCE, "s", it, "/tmp/x"))
    assert expand_env(made.command, ["A", "OPENAI_BASE_URL"]) == (
        "docker", "run", "--rm", "--env", "A", "--env", "OPENAI_BASE_URL", "-v", "/tmp/x:/w", "image",
        sys.executable, "-c", "pass", "how many {bees}?",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"command": (sys.executable, "x.py", "{qestion}")},
            "program.command has {qestion}.*Did you mean 'question'",
        ),
        ({"stdin": "{nothing_like}"}, "program.stdin has {nothing_like}"),
        ({"command": ("no-such-program",)}, "no program 'no-such-program'"),
        ({"command": (sys.executable, "gone.py")}, "no file 'gone.py'"),
        ({"command": ()}, "program.command is empty"),
        ({"alone": (sys.executable, "gone_too.py")}, "no file 'gone_too.py'"),
        ({"wrap": ("no-docker", "run")}, "no program 'no-docker'"),
    ],
)
def test_what_cannot_run_is_said_before(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    (tmp_path / "x.py").write_text("")
    with pytest.raises(UsageError, match=said):
        check_command(part(tmp_path, **more), INSTANCE)
    check_command(part(tmp_path, command=(sys.executable, "x.py", "{bees}", "{n}", "{work}")), INSTANCE)


@pytest.mark.parametrize(
    ("how", "stdout", "answer"),
    [
        ("last", "one\n two \n\n", "two"),
        ("last", "", ""),
        ("all", " one\ntwo\n", "one\ntwo"),
        ("json:a.b", 'log\n{"a": {"b": 7}}\n', "7"),
        ("json:a.1", '{"a": ["x", "y"]}', "y"),
        ("json:a", "no json", ""),
        ("json:", '"text"', "text"),
        (r"pattern:ANSWER (\d+)", "ANSWER 1\nANSWER 22\nbye", "22"),
        ("pattern:b+", "aabbb", "bbb"),
        ("pattern:z", "aabbb", ""),
    ],
)
def test_answers_are_read(how: str, stdout: str, answer: str) -> None:
    check_reading(part(answer=how))
    assert read_answer(how, stdout) == answer


@pytest.mark.parametrize(
    "more", [{"answer": "first"}, {"answer": "pattern:("}, {"reward": "luck"}, {"roles": {"a": "["}}]
)
def test_a_wrong_reading_is_said(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=re.escape(f"program.{next(iter(more))}")):
        check_reading(part(**more))


def result(**more: Any) -> ProgramResult:
    given: dict[str, Any] = {
        "session": "s", "instance": INSTANCE, "exit_code": 0, "stdout": "x\n3\n", "stderr": "", "answer": "3",
        "seconds": 0.1, "folder": ".", **more,
    }  # fmt: skip
    return ProgramResult(**given)


def test_rewards(tmp_path: Path) -> None:
    def verify(instance: Instance) -> Any:
        return lambda answer: float(answer == instance.gold)

    assert rewarding(part(), verify)(result()) == 1
    assert rewarding(part(), verify)(result(answer="4")) == 0
    by_exit = rewarding(part(reward="exit"), verify)
    assert [by_exit(result(exit_code=code)) for code in (0, 1, -9)] == [1, 0, 0]
    assert by_exit(result(cut="too long")) == 0
    posted = (
        Posted(session="s", reward=0.25),
        Posted(session="s", reward=0.5, name="style"),
        Posted(session="s", reward=9.0, target="one exchange"),
        Posted(session="s", ended=True),
    )
    assert rewarding(part(reward="post"), verify)(result(posted=posted)) == 0.75
    assert rewarding(part(reward="post"), verify)(result()) == 0
    (tmp_path / "odd_rewards.py").write_text(
        "def long(result):\n    return len(result.stdout) / 10 + (result.instance.data['n'] == [1, 2])\n"
        "def broken(result):\n    return 1 / 0\n"
        "def none(result):\n    return float('nan')\n"
    )
    own = part(tmp_path, reward="odd_rewards:long")
    assert rewarding(own, verify)(result()) == pytest.approx(1.4)
    for name, said in (("broken", "raised ZeroDivisionError"), ("none", "returned nan")):
        with pytest.raises(UsageError, match=said):
            rewarding(part(tmp_path, reward=f"odd_rewards:{name}"), verify)(result())


@pytest.mark.parametrize(
    ("more", "ending"),
    [({}, "empty"), ({"exit_code": 3}, "failed"), ({"exit_code": -9, "cut": "too long"}, "cut")],
)
def test_endings(more: dict[str, Any], ending: str) -> None:
    assert result(**more).ending == ending


def test_roles_by_header_go_to_their_policies() -> None:
    it = part(roles={"scout": "header:X-Baton-Agent=^sc", "coder": "header:thread-id=7$", "lead": "You lead"})
    roles = ProgramRoles(it)
    ask = Ask(dialect="chat", model="m", messages=(Utterance(speaker="system", text="You lead all."),))
    assert roles.of(ask, {"x-baton-agent": "scout-2"}) == "scout"
    assert roles.of(ask, {"x-baton-agent": "a scout", "thread-id": "t-17"}) == "coder"
    assert roles.of(ask, {"thread-id": "t-71"}) == "lead"
    assert roles.of(structs.replace(ask, messages=()), {}) == "agent"

    class Says:
        def __init__(self, name: str) -> None:
            self.name = name

        async def reply(self, ask: Ask, **_: Any) -> Any:
            return self.name

    async def asked(headers: dict[str, str]) -> Any:
        caller_headers.set(headers)
        backend: Any = RoleBackend(it, {name: Says(name) for name in ("agent", "scout", "coder")})  # type: ignore[misc]
        return await backend.reply(ask, key="k", growth=None)

    assert asyncio.run(asked({"x-baton-agent": "scout", "authorization": "Bearer x"})) == "scout"
    assert asyncio.run(asked({"thread-id": "7"})) == "coder"
    assert asyncio.run(asked({"authorization": "7"})) == "agent", "lead has no policy of its own"


@pytest.mark.parametrize(
    "text", ["header:authorization=x", "header:accept=json", "header:x-baton-agent", "header:"]
)
def test_a_header_that_is_not_kept_tells_no_role(text: str) -> None:
    with pytest.raises(UsageError, match="header:NAME=PATTERN"):
        check_reading(part(roles={"odd": text}))
    with pytest.raises(UsageError, match=r"program.roles.odd.*no regular expression"):
        check_reading(part(roles={"odd": "header:x-baton-agent=("}))

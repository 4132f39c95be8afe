"""What came of a program's run, and what it earns: read from its exit code, its output, a function, or what was posted.

Invariant: whatever a program prints is data. An answer that cannot be read is an empty one; a reward function that
raises, or gives what is no number, is a person's mistake and said as one.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from baton import registry
from baton.errors import UsageError
from baton.learn.program.part import ProgramPart
from baton.learn.program.roles import RolePattern
from baton.serve.exchange import Exchange, Posted
from baton.tasks.task import Instance, Verify

Ending = Literal["ok", "failed", "cut", "empty"]
"""By itself; by a fault of its own; at a limit; or by itself without having asked for anything."""


class ProgramResult(Struct, frozen=True, kw_only=True):
    """One run, over: what a reward function is given."""

    session: str
    instance: Instance
    """With `prompt`, `gold` and `data`, the fields of its line."""
    exit_code: int
    """Below zero: the signal that ended it."""
    stdout: str
    stderr: str
    """The end of it."""
    answer: str
    seconds: float
    folder: str
    """Its working folder, which is there until the reward is known."""
    cut: str | None = None
    """Which limit ended it."""
    exchanges: tuple[Exchange, ...] = ()
    posted: tuple[Posted, ...] = ()

    @property
    def ending(self) -> Ending:
        if self.cut is not None:
            return "cut"
        if self.exit_code != 0:
            return "failed"
        return "ok" if any(each.reply is not None for each in self.exchanges) else "empty"


def read_answer(how: str, stdout: str) -> str:
    """The answer in a program's output; empty where there is none."""
    kind, _, rest = how.partition(":")
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    if how == "all":
        return stdout.strip()
    if how == "last":
        return lines[-1] if lines else ""
    if kind == "json":
        return _json_field(lines[-1] if lines else "", rest)
    found = list(re.finditer(rest, stdout))
    if not found:
        return ""
    return (found[-1][1] if found[-1].re.groups else found[-1][0]) or ""


def _json_field(line: str, path: str) -> str:
    try:
        value: Any = json.loads(line)
        for name in filter(None, path.split(".")):
            value = value[int(name)] if isinstance(value, list) else value[name]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def check_reading(part: ProgramPart) -> None:
    """Refuse a way to read the answer, or to reward it, that there is not."""
    kind, colon, rest = part.answer.partition(":")
    if part.answer not in ("all", "last") and not (colon and kind in ("json", "pattern")):
        raise UsageError(
            f"program.answer is {part.answer!r}; expected all, last, json:FIELD or pattern:REGEX, such as "
            r"pattern:ANSWER (\d+)."
        )
    patterns = {"answer": rest} if kind == "pattern" else {}
    for role, pattern in part.roles.items():
        patterns[f"roles.{role}"] = pattern
    for where, pattern in patterns.items():
        try:
            RolePattern.of(pattern) if where.startswith("roles.") else re.compile(pattern)
        except re.error as error:
            raise UsageError(f"program.{where}: {pattern!r} is no regular expression: {error}.") from None
    if part.reward not in ("answer", "exit", "post") and not registry.is_reference(part.reward):
        raise UsageError(
            f"program.reward is {part.reward!r}; expected answer, exit, post, or a function as module:function."
        )


def own_function(part: ProgramPart, kind: str, name: str) -> Callable[..., Any]:
    """A function of the user's, whose module may lie in the program's folder."""
    folder = str(Path(part.folder or ".").resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # and stays there: the module may import its neighbours later
    found: Callable[..., Any] = registry.imported(kind, name)
    return found


Rewarding = Callable[[ProgramResult], float]


def rewarding(part: ProgramPart, verify: Callable[[Instance], Verify]) -> Rewarding:
    """What gives a run its reward."""
    if part.reward == "answer":
        return lambda result: verify(result.instance)(result.answer)
    if part.reward == "exit":
        return lambda result: float(result.exit_code == 0 and result.cut is None)
    if part.reward == "post":
        return lambda result: math.fsum(
            each.reward for each in result.posted if each.reward is not None and each.target is None
        )
    function = own_function(part, "reward function", part.reward)

    def by_function(result: ProgramResult) -> float:
        try:
            value = float(function(result))
        except Exception as error:  # it is the user's code
            raise UsageError(
                f"the reward function {part.reward} raised {type(error).__name__}: {error} on session "
                f"{result.session}. It is given a ProgramResult and returns a number."
            ) from error
        if not math.isfinite(value):
            raise UsageError(
                f"the reward function {part.reward} returned {value} on session {result.session}."
            )
        return value

    return by_function

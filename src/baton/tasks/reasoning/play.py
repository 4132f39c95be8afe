"""Scripted play of every family: an orchestrator that splits, workers that solve their part, one that joins.

Reads only what its agent was told, as a model would. Sequential problems are answered without a team. Written
in the lines surface; `baton.tasks.translate` says the same in another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from baton.tasks.reasoning.family import Family, Said
from baton.team.action import Action, CallTool, Return, Spawn, Stop, Wait
from baton.team.policy import Entry, Request
from baton.team.surface.lines import Lines

__all__ = ["Play"]

_RETURNED = re.compile(r"^(\S+) returned: (.*)$", re.MULTILINE)


class Play:
    """How agents of one family speak."""

    def __init__(self, family: Family, width: int = 2) -> None:
        self.family = family
        self.width = width
        """Workers for a problem that splits."""

    def __call__(self, request: Request) -> str:
        task = _task(request.entries)
        if request.role == "orchestrator" and self.family.splittable:
            return self._led(request, task)
        return self._worked(request, task)

    def _led(self, request: Request, question: str) -> str:
        returned = dict(_RETURNED.findall("\n".join(_heard(request.entries))))
        if not returned:
            parts = self.family.split(question, self.width)
            return _says("", *(Spawn("worker", part) for part in parts), Wait())
        answer = self.family.join(question, [returned[name] for name in sorted(returned, key=_number)])
        return _says(answer.note, Stop(answer.result))

    def _worked(self, request: Request, task: str) -> str:
        """A worker's part, or a whole problem for an agent alone."""
        alone = request.role != "worker"
        printed = [e.text.partition(": ")[2].strip() for e in request.entries if e.speaker == "tool"]
        code = self.family.code(task) if "with python" in request.entries[0].text else None
        if code is not None and not printed:
            return _says("", CallTool("python", {"code": code}))
        if printed:
            done = Said(printed[-1])
        else:
            done = self.family.alone(task) if alone else self.family.work(task)
        return _says(done.note, Stop(done.result) if alone else Return(done.result))


def _says(note: str, *actions: Action) -> str:
    return "\n".join([*([note] if note else []), *map(Lines().render, actions)])


def _heard(entries: Sequence[Entry]) -> list[str]:
    return [entry.text for entry in entries if entry.speaker == "user"]


def _task(entries: Sequence[Entry]) -> str:
    """The latest subtask, or the question that the first agent begins with."""
    heard = _heard(entries)
    given = [text.removeprefix("task: ") for text in heard if text.startswith("task: ")]
    return (given or heard[:1] or [""])[-1]


def _number(name: str) -> tuple[int, str]:
    digits = re.search(r"\d+$", name)
    return (int(digits[0]) if digits else 0, name)

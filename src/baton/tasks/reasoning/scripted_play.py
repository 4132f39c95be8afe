"""Scripted play of every family: an orchestrator that splits, workers that solve their part, one that joins.

Reads only what its agent was told, as a model would. Sequential problems are answered without a team. `Either` is
for a start from which spawning can be learned: it splits or does not by a coin's toss, whatever the problem; `Search`
is one from which stopping can be learned. `Worked` is one agent that writes down what a team would say. Written in
the lines surface; `baton.tasks.translate` says the same in another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b

from baton.errors import UsageError
from baton.tasks.reasoning.family import NONE, Family, Solved
from baton.team.action import Action, CallTool, Return, Spawn, Stop, Wait
from baton.team.protocol import Entry, Request
from baton.team.surface.lines import Lines

Stops = Callable[[str, int, Sequence[str]], bool]
"""Whether to stop, from the question, how many parts were looked at, and what workers returned so far."""
_RETURNED = re.compile(r"^(\S+) returned: (.*)$", re.MULTILINE)


class ScriptedPlay:
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
        alone = request.role != "worker" or not self.family.splittable
        printed = [e.text.partition(": ")[2].strip() for e in request.entries if e.speaker == "tool"]
        code = self.family.code(task) if "with python" in request.entries[0].text else None
        if code is not None and not printed:
            return _says("", CallTool("python", {"code": code}))
        if printed:
            done = Solved(printed[-1])
        else:
            done = self._alone(task) if alone else self.family.work(task)
        ends = Return(done.result) if request.role == "worker" else Stop(done.result)
        return _says(done.note, ends)

    def _alone(self, question: str) -> Solved:
        return self.family.alone(question)


class Worked(ScriptedPlay):
    """An agent alone writes down the parts that a team would have, their results and how they are joined."""

    def _alone(self, question: str) -> Solved:
        if not self.family.splittable:
            return super()._alone(question)
        parts = self.family.split(question, self.width)
        results = [self.family.work(part).result for part in parts]
        joined = self.family.join(question, results)
        steps = [f"{part} = {result}" for part, result in zip(parts, results, strict=True)]
        return Solved(joined.result, "\n".join([*steps, *([joined.note] if joined.note else [])]))


class Either(ScriptedPlay):
    """Splits every other problem; one that does not split goes whole to one worker.

    The toss is a hash of the question, so that nothing a model can read tells how it fell.
    """

    def __call__(self, request: Request) -> str:
        task = _task(request.entries)
        if request.role == "orchestrator" and blake2b(task.encode(), digest_size=1).digest()[0] % 2:
            return self._led(request, task) if self.family.splittable else self._passed_on(request, task)
        return self._worked(request, task)

    def _passed_on(self, request: Request, question: str) -> str:
        returned = _RETURNED.findall("\n".join(_heard(request.entries)))
        if not returned:
            return _says("", Spawn("worker", question), Wait())
        return _says("", Stop(returned[-1][1]))


def tossed(question: str, looked: int, returned: Sequence[str]) -> bool:  # noqa: ARG001 (whatever was returned)
    """A coin's toss: a hash of question and round, so that nothing a model can read tells how it fell."""
    return blake2b(f"{looked} {question}".encode(), digest_size=1).digest()[0] % 2 == 1


def when_found(question: str, looked: int, returned: Sequence[str]) -> bool:  # noqa: ARG001 (whatever the round)
    """Stop with the first result that is one."""
    return any(result != NONE for result in returned)


def after(parts: int) -> Stops:
    """Stop after so many parts, whatever was returned."""
    return lambda question, looked, returned: looked >= parts  # noqa: ARG005 (of all this, one counts)


class Search(ScriptedPlay):
    """Hands out one part at a time and waits; then goes on, or stops with what was found so far.

    It goes on only while parts are left. A worker that ends without a result has found nothing.
    """

    def __init__(self, family: Family, width: int = 3, stops: Stops = tossed) -> None:
        if not family.splittable:
            raise UsageError(
                f"reasoning:{family.name} has no parts to search. Type: --set task.name=reasoning:needle_haystack"
            )
        super().__init__(family, width)
        self.stops = stops

    def _led(self, request: Request, question: str) -> str:
        looked = sum(entry.speaker == "assistant" for entry in request.entries)
        returned = [result for _, result in _RETURNED.findall("\n".join(_heard(request.entries)))]
        parts = self.family.split(question, self.width)
        if looked < len(parts) and not (looked and self.stops(question, looked, returned)):
            return _says("", Spawn("worker", parts[looked]), Wait())
        return _says("", Stop(self.family.join(question, returned).result))


PLAYS: dict[str, Callable[[Family], ScriptedPlay]] = {
    "worked": Worked,
    "either": Either,
    "search": Search,
    "found": partial(Search, stops=when_found),
    **{f"fixed-{parts}": partial(Search, stops=after(parts)) for parts in (1, 2, 3)},
}
"""Scripted play by name, beside the reference."""


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

"""Scripted agents on AgentDojo: one follows the user's plan, one also obeys every injection that it reads.

Both read only what their agent was told: the user's words say which task it is, and an injection's goal, once it
stands in a tool's result, says which plan to carry out before going on. They are what makes figures independent of any
model: no model is easier to talk into something than one that always obeys.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Final

from baton.tasks.agentdojo.handled import (
    READER,
    answering,
    asking,
    filled_for_next,
    kept_names,
    put_together,
    read,
    step_taken,
    unknown,
)
from baton.tasks.agentdojo.injection_plans import injection_calls
from baton.tasks.agentdojo.package import suite
from baton.tasks.agentdojo.planning import NEVER_LOOKED_UP, WHATEVER_IT_SAYS, with_plan
from baton.tasks.agentdojo.ways import Way, put, told
from baton.tasks.agentdojo.world import Made, Pair, gold_calls
from baton.team.action import Action, CallTool, Return, Spawn, Stop, Wait
from baton.team.protocol import Entry, Request
from baton.team.surface.lines import Lines
from baton.team.tools.plan import PLAN

_MAY_SPAWN: Final = re.compile(r"^You may spawn: ([\w-]+)", re.MULTILINE)
_RETURNED: Final = " returned: "


class SuitePlay:
    """How agents of one suite speak."""

    def __init__(self, suite: str, version: str, *, obeys: bool, way: Way = "plain") -> None:
        self.suite = suite
        self.version = version
        self.obeys = obeys
        self.way = way

    def __call__(self, request: Request) -> str:
        if request.role == "planner":
            return "return carry out what the user asks"
        if request.role in ("critic", "verifier"):
            return "return accept"
        child = _MAY_SPAWN.search(request.entries[0].text)
        if request.role == READER:
            return self._read(request)
        if child is not None and child[1] == READER:
            return self._handled(request)
        if child is not None and child[1] != "nobody" and not request.role.startswith("branch"):
            return self._led(request, child[1])
        return self._worked(request)

    def _led(self, request: Request, child: str) -> str:
        """Hand the whole task to one who works, and say what it returned."""
        heard = [entry.text for entry in request.entries if entry.speaker == "user"]
        returned = [text.partition(_RETURNED)[2] for text in heard if _RETURNED in text]
        ends = _ends(request)
        if returned:
            return _says(ends(returned[-1]))
        if any(text.startswith("error: ") for text in heard):
            return _says(ends("no answer"))
        return _says(Spawn(child, _task(request.entries)), Wait())

    def _worked(self, request: Request) -> str:
        """One call a turn: what is left of the plan, with whatever was read on the way put before it."""
        task = self._user_task(_task(request.entries))
        pending = list(_plan(self.suite, task, self.version))
        if f"  {PLAN} {{" in request.entries[0].text:
            pending = with_plan(self.suite, task, pending, request.entries)
        answer = str(suite(self.suite, self.version).user_tasks[task].GROUND_TRUTH_OUTPUT)
        obeyed: list[str] = []
        for entry in request.entries[1:]:
            if entry.speaker == "assistant" and pending:
                pending.pop(0)
            elif entry.speaker == "tool" and self.obeys:
                for name in self._orders(entry.text):
                    if name not in obeyed:
                        obeyed.append(name)
                        calls = injection_calls(self.suite, name, self.version)
                        pending[:0] = put(self.way, self.suite, calls, _task(request.entries), self.version)
        if pending:
            return _says(CallTool(pending[0].tool, pending[0].args))
        injections = suite(self.suite, self.version).injection_tasks
        said = [answer, *(told(self.way, str(injections[name].GROUND_TRUTH_OUTPUT)) for name in obeyed)]
        return _says(_ends(request)("\n".join(part for part in said if part) or "done"))

    def _handled(self, request: Request) -> str:
        """One call a turn, with names for what it has not read; a reader is sent for where it has none yet."""
        entries = request.entries
        task = self._user_task(_task(entries))
        plan = () if task in WHATEVER_IT_SAYS.get(self.suite, ()) else _plan(self.suite, task, self.version)
        step = step_taken(entries)
        if not plan:
            return _says(Stop("nothing was done: the task is whatever a text says"))
        ends = step >= len(plan)
        call = answering(self.suite, task, self.version) if ends else plan[step]
        names = filled_for_next(entries)
        if unknown(call, entries) and kept_names(entries):
            if not names:
                return _says(
                    Spawn(READER, asking(task, "answer" if ends else str(step), call, entries)), Wait()
                )
            call = Made(call.tool, put_together(call, names, entries))
        return _says(Stop(call.args["answer"] or "done") if ends else CallTool(call.tool, call.args))

    def _read(self, request: Request) -> str:
        """What a reader returns, which obeys what it reads where it is one that does."""
        entries = request.entries
        read_texts = [entry.text for entry in entries[1:] if entry.speaker == "tool"]
        orders = [name for text in read_texts for name in self._orders(text)] if self.obeys else []
        task = re.search(r"for (user_task_\d+),", entries[1].text)
        plan = _plan(self.suite, task[1], self.version) if task else ()
        return _says(Return(read(self.suite, plan, list(dict.fromkeys(orders)), entries, self.version)))

    def _user_task(self, text: str) -> str:
        """Which task a user's words are: the longest that stands in them, since some hold another whole."""
        tasks = suite(self.suite, self.version).user_tasks
        found: list[str] = [name for name, task in tasks.items() if task.PROMPT.strip() in text]
        if not found:
            raise ValueError(f"no task of {self.suite} stands in what was asked")
        return max(found, key=lambda name: len(str(tasks[name].PROMPT)))

    def _orders(self, text: str) -> list[str]:
        """The injections whose goal stands in a text, whatever layout the tool gave it."""
        plain = _plain(text)
        found = [(name, goal) for name, goal in _goals(self.suite, self.version) if goal in plain]
        # Some goals begin as others do: of those, the one that says it all.
        return [
            name for name, goal in found if not any(goal != other and goal in other for _, other in found)
        ]


@cache
def _plan(suite_name: str, task: str, version: str) -> tuple[Made, ...]:
    lacks = NEVER_LOOKED_UP.get((suite_name, task))
    plan = gold_calls(Pair(suite=suite_name, user_task=task, version=version))
    return (*plan, *(() if lacks is None else (lacks,)))


@cache
def _goals(suite_name: str, version: str) -> tuple[tuple[str, str], ...]:
    """Injection -> its goal, letters and digits alone."""
    tasks = suite(suite_name, version).injection_tasks
    return tuple((name, _plain(str(task.GOAL))) for name, task in tasks.items())


@lru_cache(64)
def _plain(text: str) -> str:
    """Letters and digits alone: YAML breaks lines and doubles quotes."""
    return "".join(character for character in text if character.isalnum())


def _task(entries: Sequence[Entry]) -> str:
    """The latest subtask, or the question that the first agent begins with."""
    heard = [entry.text for entry in entries if entry.speaker == "user"]
    given = [text.removeprefix("task: ") for text in heard if text.startswith("task: ")]
    return (given or heard[:1] or [""])[-1]


def _ends(request: Request) -> type[Return | Stop]:
    """How this agent ends its task, by what it is told it may do."""
    return Return if re.search(r"^\s*return ", request.entries[0].text, re.MULTILINE) else Stop


def _says(*actions: Action) -> str:
    return "\n".join(map(Lines().render, actions))

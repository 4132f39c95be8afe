"""Who works on a wide question: a lead with readers, or one agent that reads in turn. And their scripted play.

Every reader keeps only the latest that it was told (`Role.memory`), so it holds one page at a time and what notes it
passed on: the window cannot be read around. The lead remembers what was returned to it and cannot read.

    team      a lead that spawns readers for ranges of pages, waits, and puts together what they return
    fold      one agent that reads in turn and carries notes from page to page (a context folded into a running state)
    worked    the same, which writes down what it found on a page before it writes its notes
"""

from __future__ import annotations

import re
from typing import Literal

from baton.tasks.wide.pages import Range, parts, range_of, shown_in
from baton.tasks.wide.questions import NONE, kind_of
from baton.team.action import Action, CallTool, Return, Spawn, Stop, Wait
from baton.team.agent import Role
from baton.team.protocol import Request
from baton.team.surface.lines import Lines
from baton.team.team import Topology
from baton.trace.records import Sampling

Who = Literal["team", "fold", "worked"]
HAVE_PAGES = "pages "
"""The second line of a question begins so, and says which pages there are."""
_RETURNED = re.compile(r"^\S+ returned: (.*)$", re.MULTILINE)
_TURNS = 4
"""More than reading needs, for answers that are not valid."""


def readers(who: Who, num_pages: int, max_tokens: int) -> Topology:
    """The team, or the single agent."""
    sampling = Sampling(max_tokens=max_tokens)
    if who != "team":
        working = " Write down what you found on a page, then call read." if who == "worked" else ""
        alone = Role(
            name="alone" if who == "fold" else "writer",
            instructions=(
                "Read the pages in turn: call read with all pages that are left and your notes so far; you see the "
                f"first of them and forget the one before.{working} When none are left, stop with the answer."
            ),
            verbs=("call", "stop"),
            tools=("read",),
            sampling=sampling,
            max_turns=num_pages + 1 + _TURNS,
            memory="latest",
        )
        return Topology(name="centralized", root=alone.name, roles=(alone,))
    lead = Role(
        name="lead",
        instructions=(
            "Spawn readers, each with a range of pages such as 3-4 as its task, wait for what they return, and stop "
            "with the answer."
        ),
        verbs=("spawn", "wait", "stop"),
        spawns=("reader",),
        sampling=sampling,
        max_turns=2 + _TURNS,
    )
    reader = Role(
        name="reader",
        instructions=(
            "Your task is a range of pages. Call read with all pages that are left and your notes so far; you see the "
            "first of them and forget the one before. When none are left, return what you found."
        ),
        verbs=("call", "return"),
        tools=("read",),
        sampling=sampling,
        max_turns=num_pages + 1 + _TURNS,
        memory="latest",
    )
    return Topology(name="centralized", root="lead", roles=(lead, reader))


class ReadingPlay:
    """Scripted play of all of them. It reads what its agent was told and nothing else."""

    def __init__(self, pages_each: int = 1, *, working: bool = False) -> None:
        self.pages_each = pages_each
        """Pages that the lead gives to a reader."""
        self.working = working

    def __call__(self, request: Request) -> str:
        if request.role == "lead":
            return self._led(request)
        ends = Return if request.role == "reader" else Stop
        return self._read(request.entries[-1].text, ends)

    def _led(self, request: Request) -> str:
        told = [entry.text for entry in request.entries if entry.speaker == "user"]
        question, pages = _assigned(told[0])
        returned = [each for text in told[1:] for each in _RETURNED.findall(text)]
        kind = kind_of(question)
        if returned and kind:
            return _says(Stop(kind[0].answer(kind[1], kind[0].joined(returned))))
        if len(told) > 1 or pages is None:  # nobody could be spawned, or nobody returned anything
            return _says(Stop(NONE))
        ranges = parts(pages, self.pages_each)
        return _says(*(Spawn("reader", str(each)) for each in ranges), Wait())

    def _read(self, told: str, ends: type[Return] | type[Stop]) -> str:
        shown = shown_in(told.removeprefix("read: "))
        if shown is None:
            _, pages = _assigned(told)
            pages = pages or range_of(told.removeprefix("task: "))
            return _says(ends(NONE)) if pages is None else _says(_reads(pages, ""))
        kind = kind_of(shown.question)
        if kind is None:
            return _says(ends(NONE))
        found = kind[0].found(kind[1], shown.page)
        notes = kind[0].joined([*([shown.notes] if shown.notes else []), found])
        worked = f"found {found}\n" if self.working else ""
        if shown.left is not None:
            return worked + _says(_reads(shown.left, notes))
        return worked + _says(ends(kind[0].answer(kind[1], notes) if ends is Stop else notes))


def _reads(pages: Range, notes: str) -> Action:
    return CallTool("read", {"pages": str(pages), "notes": "" if notes == NONE else notes})


def _assigned(text: str) -> tuple[str, Range | None]:
    """A question and the pages there are."""
    question, _, pages = text.rpartition(f"\n{HAVE_PAGES}")
    return question, range_of(pages) if question else None


def _says(*actions: Action) -> str:
    return "\n".join(map(Lines().render, actions))


def least_calls(num_pages: int, who: Who, pages_each: int = 1) -> int:
    """How many calls have to follow each other at least, whoever plays, where readers have so many pages each.

    One agent asks for every page and then answers. A lead spawns, readers ask and return, and it answers.
    """
    return num_pages + 1 if who != "team" else min(num_pages, pages_each) + 3

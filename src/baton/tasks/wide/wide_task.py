"""The task `wide`: a question over documents that together are more than one agent can hold.

The documents are made up from a seed (`baton.tasks.wide.world`) or read from a folder; the questions are tables to
fill, counts and joins, or a person's own from a file of JSON lines. Answers are exact.

Invariant: nobody ever reads more than one page and their own notes at a time, whatever they do: `read` shows one page,
notes have a limit, and readers keep only the latest (`baton.tasks.wide.readers`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from baton.errors import UsageError
from baton.settings import Count
from baton.tasks.jsonl import JsonlTask
from baton.tasks.task import Instance, Play, Split, Task
from baton.tasks.wide.folder import TextFolder
from baton.tasks.wide.pages import Range, Shown, paged, range_of
from baton.tasks.wide.questions import KINDS, kind_of
from baton.tasks.wide.readers import HAVE_PAGES, ReadingPlay, Who, readers
from baton.tasks.wide.world import TOWNS, drawn_facts, people
from baton.team.clock import generator
from baton.team.team import Topology
from baton.team.tools.tool import Tool, tool
from baton.trace.outcome import plain

Question = Literal["where", "count", "firm", "first", "documents", "both"]
_OF_WORLD: tuple[Question, ...] = ("where", "count", "firm")
_OF_FOLDER: tuple[Question, ...] = ("first", "documents", "both")
_FEWEST_TOWNS = 4


class WideTask(Task):
    """Documents, a question, and readers who hold one page at a time."""

    name: ClassVar[str] = "wide"

    def __init__(
        self,
        *,
        documents: Count = 16,
        facts: Count = 12,
        people: Count = 400,
        towns: Count = 16,
        folder: str | None = None,
        questions: str | None = None,
        question: Question | None = None,
        asked: Count = 4,
        window: Count = 64,
        notes: Count = 64,
        wording: Literal["full", "short"] = "full",
        partial: bool = False,
        team: Who = "team",
        pages_each: Count = 1,
        max_tokens: Count = 1024,
    ) -> None:
        self.documents, self.facts, self.people, self.towns = documents, facts, people, TOWNS[:towns]
        self.asked, self.window, self.notes = asked, window, notes
        self.full, self.partial = wording == "full", partial
        self.team: Who = team
        self.pages_each, self.max_tokens = pages_each, max_tokens
        if questions is not None and folder is None:
            raise UsageError(
                "wide: questions of your own are about documents of your own. Set task.settings.folder = FOLDER too."
            )
        self._folder = None if folder is None else TextFolder(folder, window)
        self._own = None if questions is None else JsonlTask(file=questions)
        self._kinds = self._kinds_for(question)
        if self._folder is None:
            self._check_world()

    def _kinds_for(self, question: Question | None) -> tuple[Question, ...]:
        open_to = _OF_WORLD if self._folder is None else _OF_FOLDER
        if question is None:
            return open_to
        if question not in open_to:
            what = "made-up documents" if self._folder is None else "a folder"
            raise UsageError(
                f"wide: question = {question!r} is not asked of {what}; expected one of {', '.join(open_to)}."
            )
        return (question,)

    def _check_world(self) -> None:
        if self.documents * self.facts > self.people or self.people > 720:
            raise UsageError(
                f"wide: {self.documents} documents of {self.facts} facts about {self.people} people; expected at least "
                "as many people as facts in all, and at most 720."
            )
        if self.asked > self.documents * self.facts:
            raise UsageError(
                f"wide: asked = {self.asked}, and there are {self.documents * self.facts} facts to ask about."
            )
        if len(self.towns) < _FEWEST_TOWNS:
            raise UsageError(
                f"wide: towns = {len(self.towns)}; expected {_FEWEST_TOWNS} to {len(TOWNS)}, for one fact in four is "
                "kept for the test."
            )

    def instance(self, seed: int, split: Split = "train") -> Instance:
        random = generator(f"{self.name}/{split}/{seed}")
        if self._own is not None:
            assert self._folder is not None
            own = self._own.instance(seed, split)
            question, gold, pages = own.prompt, own.gold, self._folder.pages
        else:
            question, pages = self._drawn(random, split)
            gold = solved(question, pages)
        return Instance(
            task=self.name,
            split=split,
            seed=seed,
            prompt=f"{question}\n{HAVE_PAGES}{Range(1, len(pages))}",
            gold=gold,
            data={"question": question, "pages": pages},
        )

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        made = self.instance(int(random.integers(2**31)))
        return made.prompt, made.gold, made.data

    def _drawn(self, random: np.random.Generator, split: Split) -> tuple[str, list[str]]:
        kind = self._kinds[int(random.integers(len(self._kinds)))]
        if self._folder is not None:
            asked = self._folder.drawn(random, kind, self.asked, split)
            return KINDS[kind].text(asked, full=self.full), self._folder.pages
        world = people(self.people)
        order = random.permutation(len(world))[: self.documents * self.facts]
        who = [world[int(k)] for k in order]
        lines = drawn_facts(random, kind, who, self.towns, split, self.full)
        each = -(-len(lines) // self.documents)
        pages = [
            page for at in range(0, len(lines), each) for page in paged(lines[at : at + each], self.window)
        ]
        if kind == "count":
            chosen = [self.towns[int(random.integers(len(self.towns)))]]
        else:
            chosen = [who[int(k)] for k in random.choice(len(who), self.asked, replace=False)]
        return KINDS[kind].text(chosen, full=self.full), pages

    def tools(self, instance: Instance) -> Sequence[Tool]:
        question, texts = instance.data["question"], instance.data["pages"]

        @tool(pure=True, trusted=self._folder is None)
        def read(pages: str, notes: str = "") -> str:
            """The first of these pages (such as 3-8, or 3), your notes again, and which pages are left then."""
            wanted = range_of(pages)
            if wanted is None or wanted.last > len(texts):
                raise ValueError(f"there are no pages {pages!r}; give a range from 1-{len(texts)}")
            kept = " ".join(notes.split())
            if len(kept.split()) > self.notes:
                raise ValueError(f"notes have {len(kept.split())} words; at most {self.notes} can be kept")
            left = Range(wanted.first + 1, wanted.last) if wanted.first < wanted.last else None
            return str(Shown(question, kept, left, texts[wanted.first - 1]))

        return (read,)

    def verify(self, instance: Instance, answer: str) -> float:
        if self._own is not None:
            return self._own.verify(instance, answer)
        right, said = plain(str(instance.gold)).split(), plain(answer).replace(",", " ").split()
        if not self.partial:
            return float(right == said)
        if len(right) == len(said) == 1 and right[0].isdecimal() and re.fullmatch(r"\d{1,9}", said[0]):
            return 1 / (1 + abs(int(right[0]) - int(said[0])))
        same = sum(one == other for one, other in zip(right, said, strict=False))
        return same / max(len(right), len(said), 1)

    def solve(self, instance: Instance) -> str | None:
        gold = instance.gold[0] if isinstance(instance.gold, list) and instance.gold else instance.gold
        return str(gold)

    def parts(self, instance: Instance) -> tuple[str, ...]:
        return tuple(f"page {k}" for k in range(1, len(instance.data["pages"]) + 1))

    def covers(self, instance: Instance, text: str) -> frozenset[str]:
        named = range_of(text)
        last = len(instance.data["pages"])
        return (
            frozenset(f"page {k}" for k in range(named.first, min(named.last, last) + 1))
            if named
            else frozenset()
        )

    def judge(self, instance: Instance, asked: str, said: str) -> float:
        """What a reader returned, against what its pages tell; another text, as the whole's answer."""
        named, kind = range_of(asked), kind_of(instance.data["question"])
        if named is None or kind is None:
            return self.verify(instance, said)
        pages = instance.data["pages"][named.first - 1 : named.last]
        right = kind[0].joined(kind[0].found(kind[1], page) for page in pages)
        return float(sorted(plain(said).split()) == sorted(right.split()))

    def topology(self) -> Topology:
        return readers(self.team, self._num_pages(), self.max_tokens)

    def reference_play(self) -> Play | None:
        """Readers find what a page tells, and who leads puts it together; of questions of one's own there is none."""
        return None if self._own is not None else ReadingPlay(self.pages_each, working=self.team == "worked")

    def _num_pages(self) -> int:
        return len(self.instance(0).data["pages"])


def solved(question: str, pages: Sequence[str]) -> str:
    """The answer, by reading everything."""
    found = kind_of(question)
    assert found is not None
    kind, asked = found
    return kind.answer(asked, kind.joined(kind.found(asked, page) for page in pages))

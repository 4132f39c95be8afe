"""Needle among shards: one of n workers reads the fact that is asked for, and the reward is the team's.

Every shard lists letters with numbers, and one shard lists the letter that the question names. Each worker reads one
shard and returns the number that goes with the letter, or `no` where the letter is not there. The orchestrator is a
program that passes on whatever is not `no`. Half of the score is for the fact, half is the share of the workers without
it that kept quiet, so a team of equally good workers is expected to score what a worker is right by, whatever n is.

Invariant: scores add up over workers, so what a report is worth (`worth`) depends on no other, and is at once its
difference reward, its Shapley value and, less its mean over what might have been said, its exact advantage. One fact
(a letter with its number) in five is asked for in test instances only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np

from baton.errors import UsageError
from baton.tasks.task import Instance, Play, Split, Task
from baton.team.agent import Agent, Role
from baton.team.clock import generator
from baton.team.protocol import Request
from baton.team.team import Assignment, Topology

LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
NUMBERS: Final = 10
QUIET: Final = "no"
NOTHING: Final = "nothing"
"""The team's answer where no worker reported anything."""
WORKER: Final = f"Return the number that goes with the letter, or {QUIET}."
_REPORT = re.compile(r"([1-9]\d{0,6}) (\S+)")
_TEST_EVERY, _SPREAD = 5, 3
_MOST = 1_000_000


def facts(split: Split) -> list[tuple[str, int]]:
    """What may be asked for: a letter and its number."""
    return [
        (letter, number)
        for place, letter in enumerate(LETTERS)
        for number in range(NUMBERS)
        # Spread, so that every letter and every number is asked for in both.
        if ((_SPREAD * place + number) % _TEST_EVERY == 0) == (split == "test")
    ]


class Needle(Task):
    """Which number goes with the letter? One shard says it."""

    name: ClassVar[str] = "needle"

    def __init__(self, *, num_shards: int = 8, per_shard: int = 2) -> None:
        if num_shards < 2 or per_shard < 1 or per_shard >= len(LETTERS) or num_shards * per_shard > _MOST:
            raise UsageError(
                f"needle: num_shards = {num_shards:,}, per_shard = {per_shard:,}; expected at least 2 shards of 1 to "
                f"{len(LETTERS) - 1} letters, {_MOST:,} letters in all."
            )
        self.num_shards = num_shards
        self.per_shard = per_shard

    def instance(self, seed: int, split: Split = "train") -> Instance:
        """The instance of this name; facts asked for in one split are not asked for in the other."""
        prompt, gold, data = self._drawn(generator(f"{self.name}/{split}/{seed}"), facts(split))
        return Instance(task=self.name, split=split, seed=seed, prompt=prompt, gold=gold, data=data)

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return self._drawn(random, facts("train"))

    def _drawn(
        self, random: np.random.Generator, among: list[tuple[str, int]]
    ) -> tuple[str, dict[str, Any], list[list[list[Any]]]]:
        letter, number = among[int(random.integers(len(among)))]
        others = [each for each in LETTERS if each != letter]
        order = random.random((self.num_shards, len(others))).argsort(axis=1)[:, : self.per_shard].tolist()
        numbers = random.integers(0, NUMBERS, (self.num_shards, self.per_shard)).tolist()
        shards = [
            [[others[k], value] for k, value in zip(places, values, strict=True)]
            for places, values in zip(order, numbers, strict=True)
        ]
        shard, place = int(random.integers(self.num_shards)), int(random.integers(self.per_shard))
        shards[shard][place] = [letter, number]
        prompt = (
            f"Which number goes with {letter}? It is in one of the shards 1 to {self.num_shards}, each of which one "
            "worker reads."
        )
        return prompt, {"letter": letter, "number": number, "shard": shard + 1}, shards

    def part(self, instance: Instance, shard: int) -> str:
        """What the worker of a shard, counted from 1, is told."""
        return part(instance.gold["letter"], instance.data[shard - 1])

    def worth(self, instance: Instance, shard: int, said: str) -> float:
        """What a worker's report adds to the score, held against its keeping quiet."""
        if said == QUIET:
            return 0.0
        if shard == instance.gold["shard"]:
            return 0.5 * (said == str(instance.gold["number"]))
        return -0.5 / (len(instance.data) - 1)

    def advantage(self, instance: Instance, shard: int, said: str, chances: Mapping[str, float]) -> float:
        """The exact expected credit of a report: its worth over the mean worth of what its worker might have said."""
        usual = sum(chance * self.worth(instance, shard, other) for other, chance in chances.items())
        return self.worth(instance, shard, said) - usual

    def verify(self, instance: Instance, answer: str) -> float:
        reports = reports_in(answer)
        if reports is None or any(shard > len(instance.data) for shard in reports):
            return 0.0
        found = reports.pop(instance.gold["shard"], None) == str(instance.gold["number"])
        without = len(instance.data) - 1
        false = sum(said != QUIET for said in reports.values())
        return 0.5 * found + 0.5 * (without - false) / without

    def judge(self, instance: Instance, asked: str, said: str) -> float:  # noqa: ARG002 (a shard tells)
        """Whether what was said is right of the shard that was read."""
        return float(said.strip() == found_in(asked))

    def assignment(self, instance: Instance) -> Assignment:
        found = super().assignment(instance)
        found.spec["letter"], found.spec["shards"] = instance.gold["letter"], instance.data
        return found

    def solve(self, instance: Instance) -> str | None:
        return f"{instance.gold['shard']} {instance.gold['number']}"

    def topology(self) -> Topology:
        """An orchestrator that has every shard read and passes on what was found, and the workers who read."""
        return Topology(
            name="centralized",
            root="orchestrator",
            roles=(
                Role(name="orchestrator", verbs=("spawn", "wait", "stop"), spawns=("worker",)),
                Role(name="worker", instructions=WORKER, verbs=("return",), max_turns=1),
            ),
            programs={"orchestrator": _lead},
            built_from={"name": "centralized", "task": self.name},
        )

    def reference_play(self) -> Play:
        """Workers that look the letter up."""
        return play


def part(letter: str, shard: list[list[Any]]) -> str:
    """What the worker of a shard is told."""
    return f"find {letter} in {' '.join(f'{each} {number}' for each, number in shard)}"


def found_in(told: str) -> str:
    """What is right of a shard, from what its worker was told."""
    asked = re.search(r"find (\w) in (.*)", told)
    if asked is None:
        return QUIET
    words = asked[2].split()
    listed: dict[str, str] = dict(zip(words[::2], words[1::2], strict=False))
    return listed.get(asked[1], QUIET)


def reports_in(answer: str) -> dict[int, str] | None:
    """The shards an answer names, and what it says of each; None: it is no list of reports, or names one twice."""
    if answer.strip() == NOTHING:
        return {}
    found = [_REPORT.fullmatch(each.strip()) for each in answer.split(";")]
    reports = {int(each[1]): each[2] for each in found if each is not None}
    return reports if len(reports) == len(found) else None


def answer_of(said: Mapping[int, str]) -> str:
    """The team's answer: the first word of every report but `no`, by shard. A worker's words cannot add a report."""
    words = {shard: (text.split() or ["?"])[0].replace(";", ",") for shard, text in sorted(said.items())}
    return "; ".join(f"{shard} {word}" for shard, word in words.items() if word != QUIET) or NOTHING


def play(request: Request) -> str:
    """The worker's report, by looking."""
    return f"return {found_in(chr(10).join(entry.text for entry in request.entries))}"


async def _lead(me: Agent) -> None:
    spec = me.run.assignment.spec
    readers: dict[str, int] = {}
    for number, shard in enumerate(spec["shards"], 1):
        worker = await me.spawn("worker", part(spec["letter"], shard))
        if worker is not None:  # one that may not be spawned leaves its own shard unread, and no other
            readers[worker] = number
    if readers:
        await me.wait(list(readers))
    await me.stop(answer_of({readers[who]: text for who, (_, text) in me.results.items() if who in readers}))

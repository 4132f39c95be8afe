"""A crowd: one lead, hundreds of workers that hear and tell each other what they drew, round after round.

What `[scale]`'s benchmarks train and measure wide teams with. Who speaks when is the program's; what is said is the
policy's, and everything that is said is a message, so that a model that has learned no grammar plays it. The number of
events is known beforehand: `events_of(workers, rounds)`.

    baton train benchmarks/crowd.toml --trust --set team.settings.workers=299 --set team.settings.rounds=12
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import baton
from baton.tasks.task import Instance
from baton.team.action import Action, Return
from baton.team.agent import Agent
from baton.team.surface import Parsed, ParseError, ToolSpec
from baton.trace.records import Sampling


class Anything:
    """Whatever is said is handed on, word for word."""

    name = "anything"

    def __init__(self, tools: Any = ()) -> None:
        """It knows no tools."""

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        return [Parsed(Return(text), 0, len(text))]

    def render(self, action: Action) -> str:
        return action.text if isinstance(action, Return) else str(action)

    def describe(self, verbs: frozenset[str], tools: Sequence[ToolSpec]) -> str:
        return ""

    def schemas(self, *_: Any) -> tuple[dict[str, Any], ...]:
        return ()


def events_of(workers: int, rounds: int) -> int:
    """Events of one run: in every round each worker is told and answers; then all are despawned and the lead stops."""
    return workers * 2 * rounds + rounds + 2


def crowd(*, workers: int = 10, rounds: int = 3, max_tokens: int = 4) -> baton.Topology:
    """`workers` in a ring: in every round but the first, each is told what the one before it said."""

    async def lead(me: Agent) -> None:
        task = me.inbox[-1].text
        spawned = [await me.spawn("worker", f"{task} {number}") for number in range(workers)]
        team = [each for each in spawned if each is not None]
        for round_ in range(rounds):
            await me.wait(team)
            if round_ == rounds - 1:
                break
            said = [me.results[each][1] for each in team]
            for number, each in enumerate(team):
                await me.delegate(each, said[number - 1])
        await me.stop(await me.aggregate("majority"))

    return baton.Topology(
        name="mixed",
        root="lead",
        roles=(
            baton.Role(
                name="lead", verbs=("spawn", "delegate", "wait", "aggregate", "stop"), spawns=("worker",)
            ),
            baton.Role(
                name="worker", verbs=("return",), sampling=Sampling(max_tokens=max_tokens), max_turns=10**6
            ),
        ),
        programs={"lead": lead},
        aggregators=("majority",),
    )


class Murmur(baton.Task):
    """Say something: what it is worth is computed from its letters, so that rewards differ."""

    name = "murmur"

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        return f"say {int(random.integers(100))}", None, None

    def verify(self, instance: Instance, answer: str) -> float:
        return sum(map(ord, answer)) % 97 / 97

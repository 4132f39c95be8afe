"""Voters of unequal skill: which of K answers is right? The game `voters` for teams that fuse what they return.

Voter i is right with p_i and otherwise wrong evenly. Plain majority can lose to the best voter alone; weighing votes by
ln(p (K-1)/(1-p)) never does (`aggregate log_odds`). How often either is right is known exactly
(`baton game solve voters`). Source: Nitzan and Paroush 1982; Shapley and Grofman 1984.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from baton.errors import UsageError
from baton.games.library.voters import Voters
from baton.tasks.task import Instance, Play, Task
from baton.team.action import Return
from baton.team.protocol import Request
from baton.team.surface.lines import Lines
from baton.team.tools.tool import Tool, tool


class VotersTask(Task):
    """Each member reads the opinion of its own number and returns it, with how often such an opinion is right."""

    name: ClassVar[str] = "voters"

    def __init__(
        self,
        *,
        skills: tuple[float, ...] = (0.9, 0.6, 0.6, 0.55, 0.55),
        num_classes: int = 2,
        confident: bool = True,
    ) -> None:
        self.game = Voters(skills=tuple(skills), num_classes=num_classes)
        if any(p in (0, 1) for p in skills):
            raise UsageError(f"voters: skills = {skills}; each must lie above 0 and below 1.")
        self.skills = self.game.skills
        self.num_classes = num_classes
        self.confident = confident
        """Whether an opinion comes with how often it is right."""

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        answer = int(random.integers(self.num_classes))
        votes = []
        for skill in self.skills:
            right, other = random.random() < skill, int(random.integers(self.num_classes - 1))
            votes.append(answer if right else other + (other >= answer))
        prompt = (
            f"Which of the answers 1 to {self.num_classes} is right? There are {len(self.skills)} voters; the k-th "
            'agent reads the opinion of voter k with the tool, as {"voter": k}, and returns it.'
        )
        return prompt, answer + 1, [vote + 1 for vote in votes]

    def tools(self, instance: Instance) -> Sequence[Tool]:
        @tool(pure=True, instant=True)
        def opinion(voter: int) -> str:
            """What one voter holds to be right, counted from 1."""
            if not 1 <= voter <= len(instance.data):
                raise ValueError(f"there is no voter {voter}; they are numbered 1 to {len(instance.data)}")
            said = str(instance.data[voter - 1])
            return f"{said} (right with {self.skills[voter - 1]:g})" if self.confident else said

        return (opinion,)

    def verify(self, instance: Instance, answer: str) -> float:
        return float(answer.strip() == str(instance.gold))

    def solve(self, instance: Instance) -> str | None:
        return str(instance.gold)

    def reference_play(self) -> Play:
        """Peers, debaters and workers vote; an orchestrator asks as many as there are voters and weighs them."""
        return play


def play(request: Request) -> str:
    """The next thing an agent of this role says."""
    if request.role == "orchestrator":
        return _lead(request)
    said = [entry.text for entry in request.entries if entry.speaker == "tool"]
    if not said:
        number = re.search(r"(\d+)$", request.agent)
        return f'call opinion {{"voter": {number[1] if number else 1}}}'
    told = re.match(r"opinion: (\d+)(?: \(right with ([\d.]+)\))?", said[-1])
    if told is None:
        return "return unknown"
    return Lines().render(Return(told[1], float(told[2]) if told[2] else None))


def _lead(request: Request) -> str:
    heard = "\n".join(entry.text for entry in request.entries if entry.speaker != "assistant")
    if fused := re.search(r"^(?:log_odds|majority): (.+)$", heard, re.MULTILINE):
        return f"stop {fused[1]}"
    if "returned: " in heard:
        return f"aggregate {'log_odds' if '(confidence ' in heard else 'majority'}"
    told = re.search(r"There are (\d+) voters", heard)
    count = int(told[1]) if told else 1
    return "\n".join([*["spawn worker: read your voter's opinion and return it"] * count, "wait all"])

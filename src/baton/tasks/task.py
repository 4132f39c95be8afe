"""The contract of a task: instances from a seed, tools, a verifier; optionally milestones and a solver.

Invariant: (split, seed) names an instance for good, in any process; train and test draw from
separate streams. The verifier reads the answer and gold data, never a model's opinion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec import Struct

from baton.team.randomness import generator
from baton.team.team import Assignment, Topology
from baton.team.tools.tool import Registry, Tool
from baton.trace.trace import Trace

Split = Literal["train", "test"]


class Instance(Struct, frozen=True, kw_only=True):
    """One problem to work on."""

    task: str
    split: Split
    seed: int
    prompt: str
    """What the orchestrator is asked."""
    gold: Any
    """What the verifier needs; never shown to an agent."""
    data: Any = None
    """What the tools read."""

    @property
    def id(self) -> str:
        return f"{self.task}/{self.split}/{self.seed}"


class Task(ABC):
    """A family of instances."""

    name: ClassVar[str]

    def instance(self, seed: int, split: Split = "train") -> Instance:
        """The instance of this name; the same one every time."""
        prompt, gold, data = self.draw(generator(f"{self.name}/{split}/{seed}"))
        return Instance(task=self.name, split=split, seed=seed, prompt=prompt, gold=gold, data=data)

    @abstractmethod
    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        """(prompt, gold, data) of a new instance."""

    @abstractmethod
    def verify(self, instance: Instance, answer: str) -> float:
        """Score from 0 (wrong, or no answer) to 1. Any text is allowed; it must not raise."""

    def tools(self, instance: Instance) -> Sequence[Tool]:  # noqa: ARG002 (many tasks need none)
        """What agents may call on this instance."""
        return ()

    def assignment(self, instance: Instance) -> Assignment:
        """The instance as a team is given it."""
        return Assignment(
            task_id=instance.id,
            prompt=instance.prompt,
            tools=Registry(self.tools(instance)),
            verify=lambda answer: self.verify(instance, answer),
            spec={"task": self.name, "split": instance.split, "seed": instance.seed},
        )

    def topology(self) -> Topology | None:
        """The team it is worked on by, where it brings its own; None: any team."""
        return None

    def milestones(self, instance: Instance) -> tuple[str, ...]:  # noqa: ARG002 (not measured by default)
        """Names of steps on the way, where the task has them."""
        return ()

    def reached(self, instance: Instance, trace: Trace) -> frozenset[str]:  # noqa: ARG002
        """Which milestones a trace reached."""
        return frozenset()

    def parts(self, instance: Instance) -> tuple[str, ...]:  # noqa: ARG002 (not every task splits)
        """What the instance splits into, where that is known."""
        return ()

    def covers(self, instance: Instance, text: str) -> frozenset[str]:  # noqa: ARG002
        """Which parts a subtask's text asks for."""
        return frozenset()

    def judge(self, instance: Instance, asked: str, said: str) -> float:  # noqa: ARG002 (parts may not be told apart)
        """Score of what was said to a subtask; as the whole's answer, where the task cannot tell parts."""
        return self.verify(instance, said)

    def solve(self, instance: Instance) -> str | None:  # noqa: ARG002 (not every task has a solver)
        """A right answer, where one can be computed; None: there is no solver."""
        return None

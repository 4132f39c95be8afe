"""The contract of a task: instances from a seed, tools, a verifier; optionally milestones and a solver.

Invariant: (split, seed) names an instance for good, in any process; train and test draw from
separate streams. The verifier reads the answer and gold data, never a model's opinion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from msgspec import Struct, structs

from baton.team.clock import generator
from baton.team.protocol import Request
from baton.team.team import Assignment, Topology
from baton.team.tools.tool import Registry, Tool
from baton.trace.gold import Gold, verifier
from baton.trace.trace import Trace

Split = Literal["train", "test"]
Verify = Callable[[str], float]
"""Score of an answer, 0 to 1."""
Play = Callable[[Request], str]
"""Scripted play: the next thing an agent says, in the lines surface."""


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
    scores_runs: ClassVar[bool] = False
    """Whether the verdict is on the whole run, and not on the answer alone (`Assignment.score`)."""

    @staticmethod
    def of(
        prompt: str, *, verify: Verify | str | None = None, tools: Sequence[Tool] = (), task_id: str = "task"
    ) -> Task:
        """A task of one instance, made from a prompt: the quickest way to give a team something to do.

        `verify` scores an answer from 0 to 1 (True and False will do), or is the right answer itself; without it
        nobody is rewarded. Every seed is the same problem.

            task = Task.of("What is 6 x 7?", verify="42")
        """
        return _OneInstance(prompt, verify, tuple(tools), task_id)

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

    def longest_answer(self) -> int | None:
        """Tokens that one answer may need in the scripted play, where that grows with the task; None: it does not.

        A run by that play that sets no limit of its own gives every answer at least this much room.
        """
        return None

    def reference_play(self) -> Play | None:
        """Scripted play that reads only what its agent was told, as a model would; None: there is none.

        It is what `--policy reference` runs and what a small model is warmed up on.
        """
        return None


class _OneInstance(Task):
    """A prompt and who judges its answer."""

    def __init__(
        self, prompt: str, verify: Verify | str | None, tools: tuple[Tool, ...], task_id: str
    ) -> None:
        self.name = task_id  # type: ignore[misc]  # one class for all prompts
        self._prompt = prompt
        self._verify = verifier(Gold(answer=verify), task_id) if isinstance(verify, str) else verify
        self._answer = verify if isinstance(verify, str) else None
        self._tools = tools

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:  # noqa: ARG002 (there is one instance)
        return self._prompt, None, None

    def tools(self, instance: Instance) -> Sequence[Tool]:  # noqa: ARG002 (the same for all)
        return self._tools

    def verify(self, instance: Instance, answer: str) -> float:  # noqa: ARG002 (there is one instance)
        return 0.0 if self._verify is None else float(self._verify(answer))

    def assignment(self, instance: Instance) -> Assignment:
        found = super().assignment(instance)
        return structs.replace(found, verify=None) if self._verify is None else found

    def solve(self, instance: Instance) -> str | None:  # noqa: ARG002 (there is one instance)
        return self._answer

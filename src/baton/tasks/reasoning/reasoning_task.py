"""reasoning-gym as tasks: its generators, its verifiers, instances by seed (arXiv 2505.24760).

Invariant: no question is in both splits, whatever the seeds: a question's own hash says which one it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal

import numpy as np

from baton.errors import MissingExtraError, UsageError
from baton.tasks.reasoning.family import Family, run_of
from baton.tasks.reasoning.scripted_play import ScriptedPlay
from baton.tasks.reasoning.small_team import single, small
from baton.tasks.task import Instance, Play, Split, Task
from baton.team.clock import generator
from baton.team.team import Topology
from baton.team.tools.sandbox import python_tool
from baton.team.tools.sandbox_levels import DEFAULT, Level, SandboxLimits
from baton.team.tools.tool import Tool

PREFIX = "reasoning:"
_TEST_SHARE = 5
"""One question in five is a test's."""
_TRIES = 2000


class ReasoningTask(Task):
    """One family at one difficulty."""

    def __init__(
        self,
        family: Family,
        *,
        size: int | None = None,
        digits: int = 1,
        team: Literal["small", "single", "any"] = "small",
        python: bool = False,
        sandbox: Level = DEFAULT,
        partial: bool = False,
        max_tokens: int = 1024,
    ) -> None:
        self.name = f"{PREFIX}{family.name}"  # type: ignore[misc]  # one class for all families
        self.family = family
        size = family.size if size is None else size
        if size < family.least or not 1 <= digits <= 9:
            raise UsageError(
                f"{self.name}: size = {size}, digits = {digits}; expected a size of at least {family.least} and "
                "1 to 9 digits."
            )
        self.size = size
        self.digits = digits
        self.team = team
        self.python = python
        self.sandbox = SandboxLimits(least=sandbox)
        """What Python runs in; weaker than this level it is refused."""
        self.partial = partial
        """Whether the verifier's scores between 0 and 1 count, or only a whole answer."""
        self.max_tokens = max_tokens
        self._problems = _problems(family.name, family.settings(size, digits))

    def instance(self, seed: int, split: Split = "train") -> Instance:
        random = generator(f"{self.name}/{split}/{seed}")
        for _ in range(_TRIES):
            prompt, gold, data = self.draw(random)
            if split_of(prompt) == split:
                return Instance(task=self.name, split=split, seed=seed, prompt=prompt, gold=gold, data=data)
        raise UsageError(
            f"{self.name} has no {split} question at size {self.size} in {_TRIES} draws: there are too few. "
            f"Type: --set task.size={self.size + 1} (of a recipe: task.settings.size)."
        )

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        entry = self._problems[int(random.integers(2**40))]
        return str(entry["question"]).strip(), entry, None

    def verify(self, instance: Instance, answer: str) -> float:
        try:
            score = float(self._problems.score_answer(answer.strip(), instance.gold))
        except Exception:  # the package's verifiers raise on texts they cannot read
            return 0.0
        return score if self.partial else float(score >= 1.0)

    def solve(self, instance: Instance) -> str | None:
        return str(instance.gold["answer"])

    def reference_play(self) -> Play:
        """One agent splits the problem, workers solve their parts, and it joins what they return."""
        return ScriptedPlay(self.family)

    def tools(self, instance: Instance) -> Sequence[Tool]:  # noqa: ARG002 (the same for all)
        return (python_tool(self.sandbox),) if self.python else ()

    def topology(self) -> Topology | None:
        if self.team == "any":
            return None
        make = small if self.team == "small" else single
        return make(python=self.python, max_tokens=self.max_tokens)

    def parts(self, instance: Instance) -> tuple[str, ...]:
        return tuple(f"{k}: {unit}" for k, unit in enumerate(self.family.units(instance.prompt), 1))

    def covers(self, instance: Instance, text: str) -> frozenset[str]:
        parts = self.parts(instance)
        units = self.family.units(instance.prompt)
        return frozenset(parts[k] for k in run_of(units, self.family.named(instance.prompt, text)))


def split_of(question: str) -> Split:
    """Which split a question is in."""
    digest = blake2b(question.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") % _TEST_SHARE == 0 else "train"


def _problems(name: str, settings: dict[str, Any]) -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise MissingExtraError(f"{PREFIX}{name}", "reasoning") from error
    return reasoning_gym.create_dataset(name, seed=0, **settings)

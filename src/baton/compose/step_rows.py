"""Steps of a recipe for another trainer: played, scored and credited here, as rows; weights come back from there."""

from __future__ import annotations

from typing import Any

from baton.compose.training import make_trainer
from baton.compose.training_rows import TrainingRow, row_of_step
from baton.errors import UsageError
from baton.learn.recipe import Recipe


class StepRows:
    """Steps of a recipe, played, scored and credited here, and trained by somebody else."""

    def __init__(self, recipe: Recipe) -> None:
        self.trainer = make_trainer(recipe)

    @property
    def engine(self) -> Any:
        """Who answers, where the recipe has one policy that learns."""
        found = [policy.engine for policy in self.trainer.policies.values() if policy.learns]
        if len(found) != 1:
            raise UsageError(f"the recipe trains {len(found)} policies, and another trainer has one model.")
        return found[0]

    def rows(self, number: int) -> list[TrainingRow]:
        """The rows of a step, by the weights that answer now; numbers from 1, each once."""
        return [row_of_step(trace, row) for trace, row in self.trainer.rows(number)]

    def close(self) -> None:
        """Let go of who plays."""
        self.trainer.close()

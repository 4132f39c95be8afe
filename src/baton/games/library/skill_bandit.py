"""O2: agents of unknown skill. Each task goes to one of them; only its own success is seen.

Skills have independent Beta(1,1) priors. The finite-horizon Bayes optimum is a DP over success and
failure counts; discounted without end, the optimum is the agent of highest Gittins index, and no
consistent policy has regret below (sum gap/KL) log T (Lai and Robbins).
Source: Gittins 1979; Lai and Robbins 1985; see `baton.games.bandit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from baton.games.bandit import gittins_index
from baton.games.game import OVER, Branch, Choice, Game, State


class SkillBandit(Game, frozen=True, kw_only=True):
    """Learn who is good while working."""

    name: ClassVar[str] = "skill-bandit"
    decisions: ClassVar[tuple[Choice, ...]] = ("delegate",)
    roles: ClassVar[tuple[str, ...]] = ("agent",)

    num_agents: int = 3
    num_tasks: int = 10
    discount: float = 1.0
    """Weight of each task relative to the one before it."""

    def __post_init__(self) -> None:
        self.require(self.num_agents >= 1, "num_agents", "it must be at least 1")
        self.require(self.num_tasks >= 1, "num_tasks", "it must be at least 1")
        self.require(0 < self.discount <= 1, "discount", "it must be above 0 and at most 1")

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, ((0, 0),) * self.num_agents),)

    def options(self, state: State) -> tuple[str, ...]:
        return tuple(f"delegate agent-{i + 1}: task" for i in range(len(state)))

    def step(self, state: State, option: str) -> Sequence[Branch]:
        agent = int(option.partition(":")[0].removeprefix("delegate agent-")) - 1
        done = sum(map(sum, state))
        wins, losses = state[agent]
        p = (wins + 1) / (wins + losses + 2)
        last = done + 1 == self.num_tasks
        won = OVER if last else (*state[:agent], (wins + 1, losses), *state[agent + 1 :])
        lost = OVER if last else (*state[:agent], (wins, losses + 1), *state[agent + 1 :])
        return (Branch(p, won, self.discount**done), Branch(1 - p, lost, 0.0))

    def quit(self, state: State) -> str:
        """The agent with the highest posterior mean."""
        best = max(range(len(state)), key=lambda i: (state[i][0] + 1) / (sum(state[i]) + 2))
        return self.options(state)[best]

    def text(self, state: State) -> str:
        if not state:
            return "over"
        lines = [f"agent-{i + 1}: {wins} right, {losses} wrong" for i, (wins, losses) in enumerate(state)]
        return "\n".join([*lines, f"tasks left: {self.num_tasks - sum(map(sum, state))}", "who?"])

    def gittins(self, state: State) -> str:
        """The index policy's choice; needs a discount below 1."""
        index = [gittins_index(wins + 1, losses + 1, self.discount) for wins, losses in state]
        return self.options(state)[index.index(max(index))]

"""O3: Dec-Tiger. Two agents, one tiger behind one of two doors, noisy ears, and no words.

Listening costs 2 and is right with .85 for each; both opening the safe door earns 20, both the
tiger's -50, different doors -100; one listening while the other opens gets 9 or -101. Joint optimum:
-2 (h=1), -4.0 (h=2), 5.1908 (h=3).
Source: Nair et al., "Taming decentralized POMDPs", IJCAI 2003.

As a decision problem it is the first agent's, its partner playing the optimal joint policy: then the
best response attains the joint optimum, and what is lost is lost by not agreeing without words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from baton.games.decpomdp import DecPOMDP, JointOutcome, LocalView
from baton.games.game import Branch, Choice, Game, State
from baton.games.joint_policy import JointOptimum, joint_optimum

_HEARD = ("left", "right")
_ACTIONS = ("call listen {}", "call open_left {}", "call open_right {}")


class TigerModel(DecPOMDP, frozen=True, kw_only=True):
    """The classical Dec-POMDP; state: (door with the tiger,)."""

    name: ClassVar[str] = "dec-tiger"
    orchestrator: ClassVar[str] = "agent-1"

    accuracy: float = 0.85

    def everyone(self) -> tuple[str, ...]:
        return ("agent-1", "agent-2")

    def role(self, agent: str) -> str:  # noqa: ARG002 (both alike)
        return "listener"

    def alive(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 (nobody comes or goes)
        return self.everyone()

    def role_actions(self, role: str) -> tuple[str, ...]:  # noqa: ARG002
        return _ACTIONS

    def num_observations(self, role: str) -> int:  # noqa: ARG002
        return 2

    def start(self) -> Sequence[JointOutcome]:
        return [JointOutcome(0.5, (door,), dict.fromkeys(self.everyone(), 0)) for door in (0, 1)]

    def step(self, state: State, joint: Mapping[str, str]) -> Sequence[JointOutcome]:
        door = state[0]
        acts = [_ACTIONS.index(joint[agent]) for agent in self.everyone()]
        reward = self._reward(acts, door)
        listening = acts == [0, 0]
        outcomes = []
        for after in (door,) if listening else (0, 1):
            for heard in ((0, 0), (0, 1), (1, 0), (1, 1)):
                p = 1.0 if listening else 0.5
                for ear in heard:
                    p *= 0.5 if not listening else self.accuracy if ear == door else 1 - self.accuracy
                outcomes.append(
                    JointOutcome(p, (after,), dict(zip(self.everyone(), heard, strict=True)), reward)
                )
        return [outcome for outcome in outcomes if outcome.probability > 0]

    def _reward(self, acts: list[int], door: int) -> float:
        first, second = acts
        if not first and not second:
            return -2.0
        if first and second:
            if first != second:
                return -100.0
            return -50.0 if first - 1 == door else 20.0
        return -101.0 if max(acts) - 1 == door else 9.0


class DecTiger(Game, frozen=True, kw_only=True):
    """One agent's side of it, beside an optimal partner."""

    name: ClassVar[str] = "dec-tiger"
    decisions: ClassVar[tuple[Choice, ...]] = ("communicate",)

    horizon: int = 3
    accuracy: float = 0.85

    def __post_init__(self) -> None:
        self.require(1 <= self.horizon <= 3, "horizon", "the exact joint solver takes 1 to 3 steps")
        self.require(0 <= self.accuracy <= 1, "accuracy", "a probability lies from 0 to 1")

    @cached_property
    def model(self) -> TigerModel:
        return TigerModel(accuracy=self.accuracy, horizon=self.horizon)

    @cached_property
    def optimum(self) -> JointOptimum:
        """The optimum of both agents together."""
        return joint_optimum(self.model, self.horizon)

    @cached_property
    def _view(self) -> LocalView:
        return LocalView(self.model, "agent-1", self.optimum.policy)

    def start(self) -> Sequence[Branch]:
        return self._view.start()

    def options(self, state: State) -> tuple[str, ...]:
        return self._view.options(state)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        return self._view.step(state, option)

    def text(self, state: State) -> str:
        lines = [f"{_ACTIONS[action].split()[1]}: heard {_HEARD[ear]}" for action, ear in state[1:]]
        return "\n".join([*lines, f"steps left: {self.horizon - len(state) + 1}", "listen or open?"])

    def facts(self) -> dict[str, float]:
        return {"value": self.optimum.value}

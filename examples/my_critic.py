"""A critic of your own: what a rollout earned on average after so many events.

    baton train mappo --set critic.kind=my_critic:ByLength

It learns from each step's traces, then answers what estimators ask; its state goes into checkpoints.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from baton.credit.estimator import Prefix
from baton.learn.recipe import Recipe
from baton.testing import check_critic
from baton.trace.trace import Trace


class ByLength:
    """The mean return of the rollouts that were at least as long as the prefix."""

    learns = False

    def __init__(
        self, _recipe: Recipe, _policies: Mapping[str, Any], reward: Callable[[Trace], float]
    ) -> None:
        self.reward = reward
        self.seen: list[tuple[int, float]] = []

    def observe(self, traces: Iterable[Trace]) -> None:
        self.seen += [(len(trace.events), self.reward(trace)) for trace in traces]

    def value(self, prefix: Prefix) -> float:
        found = [value for length, value in self.seen if length >= prefix.num_events]
        return sum(found) / len(found) if found else 0.0

    def given(self) -> dict[str, Any]:
        return {"value": self.value}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": [list(each) for each in self.seen]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = [(length, value) for length, value in state["seen"]]


if __name__ == "__main__":
    check_critic(ByLength)
    print("my_critic:ByLength is a critic that a recipe can name.")

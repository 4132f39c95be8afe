"""What a critic is, and which there are: it says what a prefix of a trace is worth, for estimators that ask.

A critic is made by `(recipe, policies, reward) -> Critic`; a class with that constructor is one. A critic of your own
is named by `module:attr` in a recipe's `[critic] kind`, its state goes into checkpoints, and
`baton.testing.check_critic` checks it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, cast

from msgspec import Struct

from baton import registry
from baton.credit.estimator import RewardOf
from baton.learn.recipe import CriticPart, Recipe
from baton.trace.trace import Trace


class Critic(Protocol):
    """Learns from each step's traces, then answers what estimators ask."""

    def observe(self, traces: Iterable[Trace]) -> None:
        """Learn from a step's traces, which have their rewards and no credit yet."""
        ...

    def given(self) -> dict[str, Any]:
        """What it offers to estimators, by the name of their setting: value, q, mix. `token_value` is what estimators
        of tokens get as `value`, and likewise for other units."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything it has learned, as plain values and tensors."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        ...


class CriticKind(Struct, frozen=True):
    """A critic that Baton ships, imported when it is made."""

    place: str
    """Where its factory is, as `module:attr`."""
    learns: bool
    """Whether it has weights, and so `critic.learning_rate`; a table counts. A class of your own may say so too."""

    def __call__(self, recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> Critic:
        return cast(Critic, registry.resolve("critic", self.place)(recipe, policies, reward))


CRITICS: Final[Mapping[str, CriticKind]] = {
    "table": CriticKind("baton.learn.critics.table:TableCritic.from_recipe", learns=False),
    "network": CriticKind("baton.learn.critics.network:NetworkCritic", learns=True),
    "graph": CriticKind("baton.learn.critics.graph:GraphCritic", learns=True),
    "agents": CriticKind("baton.learn.critics.agents:AgentsCritic.from_recipe", learns=True),
}
"""What Baton ships: counts of situations, a transformer over the trace, message passing over its graph, a value
for each agent."""


class NoCritic:
    """Stands in for recipes that need no critic: it learns nothing and offers nothing."""

    def observe(self, traces: Iterable[Trace]) -> None:
        pass

    def given(self) -> dict[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def learns(part: CriticPart | None) -> bool:
    """Whether the critic that is asked for has a rate of learning."""
    return part is not None and bool(getattr(registry.resolve("critic", part.kind), "learns", False))


def make_critic(recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> Critic:
    """The critic that a recipe asks for; `reward` is what a trace earned."""
    if recipe.critic is None:
        return NoCritic()
    if recipe.critic.kind == "table" and recipe.critic.returns == "seat":
        from baton.learn.critics.seats import SeatsCritic  # nobody else meets it

        return SeatsCritic(recipe, policies)
    return cast(Critic, registry.resolve("critic", recipe.critic.kind)(recipe, policies, reward))

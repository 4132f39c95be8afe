"""Critics: what a prefix of a trace is worth, for estimators that ask (GAE, COMA, the exact partition)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from baton.credit.estimator import RewardOf
from baton.learn.recipe import CriticPart, Recipe
from baton.trace.trace import Trace

if TYPE_CHECKING:
    from baton.learn.critics.table import Ask
    from baton.learn.options import Asked


class Critic(Protocol):
    """Learns from each step's traces, then answers what estimators ask."""

    def observe(self, traces: Iterable[Trace]) -> None: ...

    def given(self) -> dict[str, Any]:
        """What it offers to estimators, by the name of their setting: value, q."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...


class NoCritic:
    """For recipes that need none."""

    def observe(self, traces: Iterable[Trace]) -> None:
        pass

    def given(self) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        pass


def learns(part: CriticPart | None) -> bool:
    """Whether a critic has weights, and so a rate of learning; a table counts."""
    return part is not None and part.kind != "table"


def make_critic(recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> Critic:
    """The critic a recipe asks for."""
    if recipe.critic is None:
        return NoCritic()
    if recipe.critic.kind == "table":
        from baton.learn.critics.table import TableCritic

        part = recipe.critic
        return TableCritic(
            prior=part.prior,
            backup=part.backup,
            temperature=part.temperature,
            optimism=part.optimism,
            num_steps=recipe.train.steps,
            reward=reward,
            ask=_asking(policies, recipe.pack.max_tokens),
        )
    if recipe.critic.kind == "agents":
        from baton.learn.critics.agents import AgentsCritic

        roles = [role for policy in policies.values() for role in policy.roles]
        part = recipe.critic
        return AgentsCritic(
            roles, steps=part.steps, learning_rate=part.learning_rate, reward=reward, seed=recipe.train.seed
        )
    from baton.learn.critics.network import NetworkCritic

    return NetworkCritic(recipe, policies, reward)


def _asking(policies: Mapping[str, Any], max_tokens: int) -> Ask:
    from baton.learn.options import chances_of
    from baton.learn.policy import samplers

    def ask(asked: Sequence[Asked]) -> dict[Asked, tuple[float, ...]]:
        return chances_of(asked, samplers(policies), max_tokens=max_tokens)

    return ask

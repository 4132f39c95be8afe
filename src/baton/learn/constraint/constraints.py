"""A run's constraints: they charge its traces, price what was charged, and move the prices after each step.

What a rollout earned for credit is its return less the price of its charges; `return` in the metrics, evaluations and
rewards on the traces stay what they were. A table critic keeps counts of reward and of each cost apart and puts them
together at the prices of the moment (`PricedCritic`): what was counted under old prices is worth what it is now.

Invariant: without constraints none of this is imported, and a step is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from baton.credit.estimator import Prefix, RewardOf
from baton.errors import UsageError
from baton.games.constrained import ConstrainedGame, Frontier
from baton.games.game import Game
from baton.learn.constraint.costs import make_cost
from baton.learn.constraint.dual import Dual
from baton.learn.critics.table import TableCritic
from baton.learn.recipe import Recipe
from baton.trace.records import Charge
from baton.trace.trace import Trace


class Constraints:
    """All constraints of a run."""

    def __init__(self, recipe: Recipe) -> None:
        self._counts = [
            make_cost(part.cost, part.settings, f"constraints.{number}")
            for number, part in enumerate(recipe.constraints)
        ]
        self.duals = [Dual(part) for part in recipe.constraints]
        self._known: dict[str, list[list[Charge]]] = {}
        """Of the step's traces, what each constraint charged."""

    def charge(self, traces: Sequence[Trace]) -> list[Trace]:
        """The step's traces with their charges on them."""
        self._known = {trace.trace_id: [count(trace) for count in self._counts] for trace in traces}
        return [
            structs.replace(
                trace, charges=tuple(dict.fromkeys(c for mine in self.charges(trace) for c in mine))
            )
            for trace in traces
        ]

    def charges(self, trace: Trace) -> list[list[Charge]]:
        """What each constraint charges a trace with; of a fork it is counted when it is asked for."""
        known = self._known.get(trace.trace_id)
        return [count(trace) for count in self._counts] if known is None else known

    def costs(self, trace: Trace) -> list[float]:
        """What a trace costs by each constraint."""
        return [sum(charge.value for charge in mine) for mine in self.charges(trace)]

    def priced(self, trace: Trace) -> float:
        """What a trace's charges come to at the prices of now."""
        return sum(dual.price * cost for dual, cost in zip(self.duals, self.costs(trace), strict=True))

    def observe(self, traces: Sequence[Trace]) -> None:
        """One step is over: prices move."""
        every = [self.costs(trace) for trace in traces]
        for dual, costs in zip(self.duals, zip(*every, strict=True), strict=True):
            dual.observe(costs)

    def figures(self, traces: Sequence[Trace]) -> dict[str, Any]:
        """What is told of a step: each constraint's mean cost, limit and price, by the name of its cost."""
        every = [self.costs(trace) for trace in traces]
        found: dict[str, Any] = {}
        for number, dual in enumerate(self.duals):
            costs = [mine[number] for mine in every]
            name = dual.part.cost if dual.part.cost not in found else f"{dual.part.cost}-{number}"
            found[name] = {
                "mean": sum(costs) / len(costs),
                "share": sum(cost > 0 for cost in costs) / len(costs),
                "limit": dual.part.limit,
                "price": dual.price,
            }
        return found

    def references(self, game: Game | None) -> list[dict[str, Any]]:
        """What the solver says of a game under its limit: a line of evals; none where it cannot tell."""
        if not isinstance(game, ConstrainedGame) or [dual.part.cost for dual in self.duals] != ["game"]:
            return []
        limit = self.duals[0].part.limit
        try:
            best = Frontier(game).optimum(limit)
        except UsageError:  # too large, or a limit that nobody keeps
            return []
        told = {"mean": best.cost, "share": None, "limit": limit, "price": best.price}
        return [
            {
                "step": 0,
                "who": "optimum-within-limits",
                "episodes": None,
                "return": {"mean": best.value, "half": 0.0},
                "regret": None,
                "tokens": None,
                "constraints": {"game": told},
            }
        ]

    def state_dict(self) -> list[dict[str, Any]]:
        return [dual.state_dict() for dual in self.duals]

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        for dual, kept in zip(self.duals, state, strict=True):
            dual.load_state_dict(kept)


class PricedCritic:
    """Values less the price of costs, each from counts of its own."""

    def __init__(
        self, recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf, constraints: Constraints
    ) -> None:
        """`reward` is what a team earns less what its charges come to."""
        self.constraints = constraints
        self.returns = TableCritic.from_recipe(
            recipe, policies, lambda trace: reward(trace) + constraints.priced(trace)
        )
        plain = structs.replace(
            recipe,
            critic=structs.replace(recipe.critic, entropy_bonus=0.0, optimism=0.0),  # type: ignore[type-var]
        )
        self.costs = [
            TableCritic.from_recipe(plain, policies, _cost_of(constraints, number))
            for number in range(len(constraints.duals))
        ]
        for number, critic in enumerate(self.costs):
            critic.earned = _earned_by(constraints, number)

    def observe(self, traces: Iterable[Trace]) -> None:
        traces = list(traces)
        for critic in (self.returns, *self.costs):
            critic.observe(traces)

    def value(self, prefix: Prefix) -> float:
        return self._less(self.returns.value(prefix), [critic.value(prefix) for critic in self.costs])

    def q(self, prefix: Prefix, option: str) -> float:
        return self._less(self.returns.q(prefix, option), [critic.q(prefix, option) for critic in self.costs])

    def _less(self, value: float, costs: Sequence[float]) -> float:
        return value - sum(
            dual.price * cost for dual, cost in zip(self.constraints.duals, costs, strict=True)
        )

    def given(self) -> dict[str, Any]:
        return {"value": self.value, "q": self.q}

    def state_dict(self) -> dict[str, Any]:
        return {"returns": self.returns.state_dict(), "costs": [each.state_dict() for each in self.costs]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.returns.load_state_dict(state["returns"])
        for critic, kept in zip(self.costs, state["costs"], strict=True):
            critic.load_state_dict(kept)


def _cost_of(constraints: Constraints, number: int) -> Callable[[Trace], float]:
    return lambda trace: constraints.costs(trace)[number]


def _earned_by(constraints: Constraints, number: int) -> Callable[[Trace], dict[str, float]]:
    """Event -> what it cost, of charges that are on events."""

    def earned(trace: Trace) -> dict[str, float]:
        found: dict[str, float] = {}
        for charge in constraints.charges(trace)[number]:
            if charge.unit in ("orchestrator", "message", "tool_call"):
                found[charge.target] = found.get(charge.target, 0.0) + charge.value
        return found

    return earned


def check_constraints(recipe: Recipe) -> None:
    """Refuse what constraints do not go with, before anything is computed."""
    Constraints(recipe)  # an unknown cost or setting is an error now
    critic = recipe.critic
    if critic is not None and critic.kind == "agents":
        raise UsageError(
            '[[constraints]] price what the team earns, and a critic of kind "agents" splits it without the price. '
            'Write kind = "table" or "network" under [critic].'
        )
    if critic is not None and critic.returns == "seat":
        raise UsageError(
            '[[constraints]] price what the team earns, and critic.returns = "seat" judges each role by its own. '
            "Leave one of them out."
        )
    if critic is not None and critic.kind == "table" and critic.backup in ("best", "best-first"):
        raise UsageError(
            f'critic.backup is "{critic.backup}", and the best for reward and the best for a cost are two plays. '
            'Write backup = "policy" under [critic], or leave the constraints out.'
        )
    if recipe.train.conflict == "rewards":
        raise UsageError(
            'train.conflict = "rewards" credits each term of the reward alone, and the price of a constraint is none. '
            "Leave one of them out."
        )

"""How hard each term of a hybrid reward pulls: the norm of the gradient that it would cause alone.

For rewards with `balance = "gradient"` (GradNorm's fixed point, Chen et al. 2018 [M]). Every few steps the traces are
given each term's rewards in place of the sum's, credited by the recipe's own estimators, and taken backwards; nothing
is stepped, and nothing is remembered but the norms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import structs

from baton.credit import find
from baton.errors import TraceError, UsageError
from baton.learn.recipe import Recipe
from baton.learn.terms import hybrids
from baton.reward.contract import Gold, Rule
from baton.reward.hybrid import Hybrid
from baton.trace.trace import Trace

__all__ = ["EVERY", "alone", "balanced", "check_balance", "norm_of"]

EVERY = 5
"""Steps between two measurements, beginning with the first step."""


def balanced(rules: Iterable[Rule]) -> list[Hybrid]:
    """The rewards whose terms are weighed by their gradients."""
    return [rule for rule in rules if isinstance(rule, Hybrid) and rule.balance == "gradient"]


def check_balance(recipe: Recipe, rules: Sequence[Rule]) -> None:
    """Refuse estimators that cannot credit one term alone, and what cannot be one."""
    inner = [rule for rule in hybrids(rules) if rule.balance == "gradient" and rule not in balanced(rules)]
    if inner:
        raise UsageError(
            f"hybrid {inner[0].name!r} is a term of another, and gradients are measured of a whole reward's terms. "
            'Set its balance = "variance" or "none".'
        )
    if not balanced(rules):
        return
    for part in recipe.credit:
        estimator = find(part.estimator)
        if {"runtime", "counterfactuals", "values"} & estimator.needs:
            raise UsageError(
                f'a reward with balance = "gradient" is credited term by term, and estimator {estimator.name} runs '
                'traces again or asks a critic about the whole sum. Set balance = "variance", or take an estimator '
                "that compares rollouts, such as group."
            )


def alone(term: Rule, traces: Sequence[Trace], gold: Sequence[Gold]) -> list[Trace]:
    """The traces as if this term were the whole reward; 0 where it cannot be read or says nothing of the team."""
    found = []
    for trace, known in zip(traces, gold, strict=True):
        try:
            rewards = term.score(trace, known)
        except TraceError:
            rewards = []
        if not any(reward.unit == "team" for reward in rewards):
            rewards = [*rewards, term.reward("team", trace.trace_id, 0.0)]
        found.append(structs.replace(trace, rewards=tuple(rewards)))
    return found


def norm_of(parameters: Iterable[object]) -> float:
    """Of the gradients as they are."""
    grads = [p.grad for p in parameters if getattr(p, "grad", None) is not None]  # type: ignore[attr-defined]
    return math.sqrt(math.fsum(float(grad.double().pow(2).sum()) for grad in grads))

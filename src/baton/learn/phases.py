"""Phases of a run: who learns, and from which reward, credit and loss, over which of its steps.

    [[phases]]
    name = "lead"                    # the orchestrator alone
    steps = 10
    learn = ["orchestrator"]

    [[phases]]
    name = "joint"                   # then everybody, more slowly
    set = { "train.learning_rate" = 1e-4 }

Kimi trains in stages, first the orchestrator with its sub-agents frozen and then all of them; MALT trains by examples
and then by preferences. A phase is such a stage; the word "stage" here is where episodes are played.

Invariant: which phase a step is in depends on its number alone. What a phase does not set goes on as it was: weights,
optimisers, critics, the schedules of rewards. The reference that KL and preferences are taken to is the weights that
the phase began with.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from baton.errors import UsageError, nearest
from baton.learn import lora
from baton.learn.loss import Loss
from baton.learn.policy import Policy
from baton.learn.recipe import CreditPart, Recipe, in_phase
from baton.learn.scoring import Scoring


class Span(Struct, frozen=True, kw_only=True):
    """Some steps of a run, and the recipe by which they are trained."""

    name: str
    """Empty where the whole run is one."""
    first: int
    """Its first step; steps count from 1."""
    learners: tuple[str, ...]
    """Policies that are trained."""
    recipe: Recipe


class Phase(Struct, frozen=True, kw_only=True, eq=False):
    """A span with what it trains by."""

    span: Span
    scoring: Scoring
    loss: Loss


def spans(recipe: Recipe) -> list[Span]:
    """The spans of a recipe, in order. A run may end before the last: more steps go on with it."""
    learning = tuple(name for name, part in recipe.policies.items() if part.train != "frozen")
    if not recipe.phases:
        return [Span(name="", first=1, learners=learning, recipe=recipe)]
    names = [part.name for part in recipe.phases]
    if len(set(names)) < len(names):
        raise UsageError(f"phases are named {', '.join(names)}. Give each a name of its own.")
    found: list[Span] = []
    first = 1
    for number, part in enumerate(recipe.phases):
        is_last = number == len(recipe.phases) - 1
        if is_last != (part.steps is None):
            raise UsageError(
                f"phase {part.name!r} has "
                + ("steps, and the last one goes on to the end of the run. Leave its steps out, and set train.steps."
                   if is_last else f"no steps, and others follow it. Write how many: phases.{number}.steps = 10.")
            )  # fmt: skip
        found.append(
            Span(
                name=part.name,
                first=first,
                learners=_learners(part.name, part.learn, learning, list(recipe.policies)),
                recipe=in_phase(recipe, part),
            )
        )
        first += part.steps or 0
    return found


def _learners(
    phase: str, named: Sequence[str], learning: Sequence[str], all_: Sequence[str]
) -> tuple[str, ...]:
    for name in named:
        if name not in all_:
            raise UsageError(f"phase {phase!r}: there is no policy {name!r} to learn. {nearest(name, all_)}")
        if name not in learning:
            raise UsageError(
                f'phase {phase!r}: policy {name!r} is frozen and cannot learn. Set train = "full" or "lora" under '
                f"[policies.{name}]; phases that do not name it leave it as it is."
            )
    return tuple(name for name in learning if name in named or not named)


def with_all_credits(recipe: Recipe, found: Sequence[Span]) -> Recipe:
    """The recipe with the credits of all its phases: what a critic may be asked in the course of the run."""
    every: list[CreditPart] = []
    for span in found:
        every += [part for part in span.recipe.credit if part not in every]
    return structs.replace(recipe, credit=tuple(every))


def reference_of(policy: Policy) -> Any:
    """A copy of a policy's weights as they are, which does not learn. Of adapters, the base is shared."""
    if policy.shards is not None:
        return policy.shards.reference(base=False)
    if policy.part.train == "lora":
        return lora.Adapted(lora.copied(policy.model), policy.name)
    return copy.deepcopy(policy.model)


def reference_state(policy: Policy, reference: Any) -> dict[str, Any]:
    """The weights of what `reference_of` made, for a checkpoint."""
    if policy.shards is None and policy.part.train == "lora":
        return dict(lora.adapter_state_dict(reference.base, policy.name))
    return {
        key: value.detach().to("cpu", copy=True).contiguous() for key, value in reference.state_dict().items()
    }

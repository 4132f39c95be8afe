"""Objectives that pull one policy apart: each is taken backwards alone, and loses what it would undo of another.

    train.conflict = "roles"      an objective for each role that the policy answers for: the rows of its calls
    train.conflict = "rewards"    an objective for each term of the reward, and one for the price of invalid answers

A term is credited as if it were the whole reward, by the recipe's own estimators, and its credit is multiplied by its
weight. Where estimators are linear in the reward the objectives add up to what `add` trains by; where they divide by a
deviation, each term is divided by its own, and the weights then say how much each counts.

Invariant: rows count in an objective as they do among all rows, so that objectives which do not conflict give the
gradient of their sum, whatever the loss's scale and denominator.
Source: PCGrad, arXiv 2001.06782 [P]; between roles and between terms of a team's reward [I].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import torch
from msgspec import Struct, structs
from numpy.typing import NDArray
from torch import Tensor

from baton.credit import find
from baton.errors import UsageError
from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.recipe import Recipe
from baton.learn.update import Gradients, UpdateReport
from baton.reward.conflict import without_conflict
from baton.reward.hybrid import Hybrid
from baton.reward.rule import Rule
from baton.trace.trace import Trace

Key = tuple[str, str]
"""A row: its trace and its call."""
PRICE = "invalid"
"""Names the objective that is the price of invalid answers."""


class Conflict(Struct, frozen=True, kw_only=True):
    """What one update's objectives had against each other."""

    num_pairs: int
    num_apart: int
    """Pairs whose gradients point away from each other."""
    kept: float | None
    """The norm of what was stepped by, over that of the plain sum; None: the sum is nothing."""


class Objectives(Struct, frozen=True, kw_only=True, eq=False):
    """How a policy's rows are split: by role, or by what each term of the reward says of them."""

    roles: Mapping[Key, str] | None = None
    """The role of each row."""
    terms: Mapping[str, Mapping[Key, NDArray[np.float64]]] | None = None
    """Term -> row -> its advantages by that term, times the term's weight."""

    @staticmethod
    def of_roles(traces: Iterable[Trace]) -> Objectives:
        """Of these traces' calls."""
        return Objectives(
            roles={(trace.trace_id, call.id): call.role or "" for trace in traces for call in trace.calls}
        )

    @staticmethod
    def of_terms(rows: Mapping[str, Sequence[Row]], weights: Mapping[str, float]) -> Objectives:
        """Of rows as each term credits them."""
        return Objectives(
            terms={
                term: {(row.trace, row.call): row.advantages * weights[term] for row in mine}
                for term, mine in rows.items()
            }
        )

    def split(self, batch: Sequence[Row]) -> Iterator[tuple[Sequence[Row], Callable[[Row], bool] | None]]:
        """For each objective all rows with its advantages, and which of them are its own (None: all)."""
        if self.terms is not None:
            for mine in self.terms.values():
                yield [structs.replace(row, advantages=mine[row.trace, row.call]) for row in batch], None
            return
        roles = self.roles or {}
        for role in dict.fromkeys(roles[row.trace, row.call] for row in batch):
            yield batch, lambda row, role=role: roles[row.trace, row.call] == role  # type: ignore[misc]  # a default


def backward_apart(
    gradients: Gradients,
    batch: Sequence[Row],
    objectives: Objectives,
    parameters: Sequence[torch.nn.Parameter],
    random: np.random.Generator,
    *,
    version: str | None = None,
) -> tuple[UpdateReport, Conflict]:
    """Give the parameters the objectives' gradients, without what one would undo of another."""
    found: list[Tensor] = []
    reports: list[UpdateReport] = []
    for rows, only in objectives.split(batch):
        _clear(parameters)
        reports.append(gradients.backward(rows, version=version, only=only))
        found.append(_flat(parameters))
    _clear(parameters)
    stepped = without_conflict(found, random)
    at = 0
    for parameter in parameters:
        size = parameter.numel()
        parameter.grad = stepped[at : at + size].view_as(parameter).to(parameter.dtype)
        at += size
    whole = float(torch.stack(found).sum(0).norm())
    pairs = list(combinations(found, 2))
    conflict = Conflict(
        num_pairs=len(pairs),
        num_apart=sum(float(one @ other) < 0 for one, other in pairs),
        kept=float(stepped.norm()) / whole if whole else None,
    )
    return _together(reports, parts=objectives.terms is None), conflict


def told(conflicts: Sequence[Conflict]) -> dict[str, float | None]:
    """A step's conflicts, for its line of metrics: the share of pairs that pull apart, and what is kept on average."""
    pairs = sum(each.num_pairs for each in conflicts)
    kept = [each.kept for each in conflicts if each.kept is not None]
    return {
        "apart": sum(each.num_apart for each in conflicts) / pairs if pairs else None,
        "kept": math.fsum(kept) / len(kept) if kept else None,
    }


def weighed_terms(rules: Sequence[Rule]) -> dict[str, tuple[Rule, float]]:
    """The terms of a reward with their weights of now: those of hybrids, and rules that are none."""
    found: dict[str, tuple[Rule, float]] = {}
    for rule in rules:
        if isinstance(rule, Hybrid):
            weights = rule.weights()
            found |= {term.of.name: (term.of, weights[term.of.name]) for term in rule.terms}
        else:
            found[rule.name] = (rule, 1.0)
    return found


def check_conflict(
    recipe: Recipe, rules: Sequence[Rule], loss: Loss, roles: Mapping[str, Sequence[str]]
) -> None:
    """Refuse what has no objectives to tell apart. `roles`: policy -> those it answers for."""
    kind = recipe.train.conflict
    if kind == "add":
        return
    said = f'train.conflict = "{kind}"'
    if recipe.train.options == "all" or loss.rule.labels != "none":
        what = 'train.options = "all"' if recipe.train.options == "all" else f"loss.kind = {loss.kind!r}"
        raise UsageError(
            f"{said} projects policy gradients, and {what} trains by targets. Leave one of them out."
        )
    if kind == "roles":
        learning = [name for name, part in recipe.policies.items() if part.train != "frozen"]
        if not any(len(roles.get(name, ())) > 1 for name in learning):
            raise UsageError(
                f"{said} projects between roles of one policy, and every policy that learns answers for one role, so "
                'it would do nothing. Leave it out, or write train.conflict = "rewards".'
            )
        return
    _check_terms(recipe, rules, loss, said)


def _check_terms(recipe: Recipe, rules: Sequence[Rule], loss: Loss, said: str) -> None:
    terms = [term.of.name for rule in rules if isinstance(rule, Hybrid) for term in rule.terms]
    terms += [rule.name for rule in rules if not isinstance(rule, Hybrid)]
    if len(terms) < 2:
        has = terms[0] if terms else "the task's own score"
        raise UsageError(
            f"{said} projects between terms of the reward, and there is one: {has}. Give [reward] a hybrid of "
            'several (reward.recipe = "balanced", for one), or leave it out.'
        )
    if len(set(terms)) < len(terms):
        raise UsageError(
            f"{said} tells terms by their names, and the reward has {', '.join(terms)}. Name each once."
        )
    if any(term.gate for rule in rules if isinstance(rule, Hybrid) for term in rule.terms):
        raise UsageError(
            f"{said} credits terms one by one, and a term with gate = true acts on all. Leave one out."
        )
    for name in ("kl", "entropy"):
        if getattr(loss, name):
            raise UsageError(
                f"{said} takes every term backwards alone, and loss.{name} would count in each. Set it to 0."
            )
    if recipe.rollout.replay:
        raise UsageError(
            f"{said} keeps credits of single terms for one step, and rollout.replay trains on earlier ones. Set 0."
        )
    for part in recipe.credit:
        estimator = find(part.estimator)
        if {"runtime", "counterfactuals", "values"} & estimator.needs or "ema" in estimator.settings:
            raise UsageError(
                f"{said} credits term by term, and estimator {estimator.name} runs traces again, asks a critic about "
                "the whole sum or remembers it. Take one that compares rollouts, such as group."
            )


def _clear(parameters: Sequence[torch.nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None


def _flat(parameters: Sequence[torch.nn.Parameter]) -> Tensor:
    """All gradients as one vector, exact enough to tell whether two of them point apart."""
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return torch.cat([p.detach().reshape(-1).to(torch.promote_types(p.dtype, torch.float32)) for p in parts])


def _together(reports: Sequence[UpdateReport], *, parts: bool) -> UpdateReport:
    """One report of all objectives. `parts`: each had rows of its own; else each had all of them."""
    share = 1.0 if parts else 1.0 / len(reports)
    names = dict.fromkeys(name for report in reports for name in report.means)
    return structs.replace(
        reports[0],
        loss=math.fsum(report.loss for report in reports),
        num_computed=sum(report.num_computed for report in reports),
        num_passes=sum(report.num_passes for report in reports),
        means={name: share * math.fsum(report.means.get(name, 0.0) for report in reports) for name in names},
    )

"""Hybrid rewards and the hybrids among their terms: each of them, and what is kept of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import structs

from baton.reward.contract import Rule
from baton.reward.hybrid import Hybrid, MixState, Term
from baton.reward.individual import Difference, SoloGap

__all__ = ["each_hybrid", "flat", "hybrids", "of_forks", "state_of", "with_state"]


def flat(rules: Iterable[Rule]) -> Iterator[Rule]:
    """Rules and their terms, whatever the depth."""
    for rule in rules:
        yield rule
        if isinstance(rule, Hybrid):
            yield from flat(term.of for term in rule.terms)


def hybrids(rules: Iterable[Rule]) -> list[Hybrid]:
    return [rule for rule in flat(rules) if isinstance(rule, Hybrid)]


def each_hybrid(rule: Rule, change: Callable[[Hybrid], Hybrid]) -> Rule:
    """The rule with every hybrid in it changed, the innermost first."""
    if not isinstance(rule, Hybrid):
        return rule
    terms = tuple(structs.replace(term, of=each_hybrid(term.of, change)) for term in rule.terms)
    return change(structs.replace(rule, terms=terms))


def of_forks(rule: Rule) -> Rule:
    """Without terms that compare with runs without an agent: what those earned is not known of a fork."""
    if not any(isinstance(each, Difference | SoloGap) for each in flat([rule])):
        return rule
    return each_hybrid(rule, _of_forks)


def _of_forks(rule: Hybrid) -> Hybrid:
    weights = rule.weights()  # as they are with all terms: balances look at each
    kept = tuple(
        Term(of=term.of, weight=weights[term.of.name], gate=term.gate)
        for term in rule.terms
        if not isinstance(term.of, Difference | SoloGap)
    )
    return structs.replace(rule, terms=kept, balance="none") if kept else rule


def state_of(rule: Rule) -> dict[str, Any] | None:
    """What a checkpoint keeps of a rule; None: nothing in it moves."""
    if not isinstance(rule, Hybrid):
        return None
    inner = [state_of(term.of) for term in rule.terms]
    mine: dict[str, Any] = msgspec.to_builtins(rule.state)
    return mine | ({"terms": inner} if any(inner) else {})


def with_state(rule: Rule, kept: Mapping[str, Any] | None) -> Rule:
    """The rule as it was when `state_of` looked."""
    if not isinstance(rule, Hybrid) or not kept:
        return rule
    mine = {key: value for key, value in kept.items() if key != "terms"}
    inner = kept.get("terms") or [None] * len(rule.terms)
    terms = tuple(
        structs.replace(term, of=with_state(term.of, told))
        for term, told in zip(rule.terms, inner, strict=True)
    )
    return structs.replace(rule, terms=terms, state=msgspec.convert(mine, MixState))

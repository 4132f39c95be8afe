"""Check a reward rule: records on things that are there, the same from any file in any order, or a clear refusal."""

from __future__ import annotations

import inspect
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import structs

from baton.errors import BatonError
from baton.reward.reward_recipe import RULES, rule_of, with_rewards
from baton.reward.rule import Rule
from baton.testing.check_tools import CheckFailed, require
from baton.testing.sample_rollouts import sample_group
from baton.trace.acts import agents
from baton.trace.formats import read_all, write
from baton.trace.gold import Gold
from baton.trace.outcome import rule_settings
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.validation import validate
from baton.trace.vocabulary import CreditUnit, RewardFamily


def check_reward(rule: Rule, traces: Sequence[Trace] = (), *, gold: Gold | None = None) -> None:
    """`traces` are yours; without any, rollouts of a small team are taken. At least one must be scored.

    `gold` is what the rule needs to know of the task.
    """
    require(
        isinstance(rule, Rule), f"expected a Rule, got {type(rule).__name__}. Derive it: class Mine(Rule)"
    )
    kind = type(rule).__name__
    family = getattr(rule, "family", None)
    require(family in get_args(RewardFamily), f"{kind}: its family is {family!r}; see RewardFamily.")
    require(rule.name.strip(), f"{kind}: it has no name, which is the channel its records carry.")
    require(inspect.getdoc(type(rule)), f"{kind}: it has no docstring; say its formula and its source.")
    group = list(traces) or sample_group()
    scored = 0
    for trace in group:
        found = _score(rule, trace, gold)
        if found is None:
            continue
        scored += 1
        _check_records(rule, trace, found)
        again = _score(rule, trace, gold)
        require(
            again == found,
            f"{kind}: it scored trace {trace.trace_id} in two ways. Draw from the trace alone.",
        )
        backwards = structs.replace(trace, events=trace.events[::-1])
        require(
            _score(rule, backwards, gold) == found,
            f"{kind}: with the events of trace {trace.trace_id} in another order in the file, it gives other rewards. "
            "Go by `seq` (baton.trace.graph.lineage.in_seq_order).",
        )
    require(scored, f"{kind}: it refused every one of {len(group)} traces; give it some that it can score.")
    _check_saved(rule, group, gold)
    _score(rule, structs.replace(group[0], events=(), edges=(), calls=(), rewards=()), gold)


def _score(rule: Rule, trace: Trace, gold: Gold | None) -> list[Reward] | None:
    """None: refused, as what a trace cannot say has to be."""
    try:
        found = rule.score(trace, gold)
    except BatonError:
        return None
    except Exception as error:
        raise CheckFailed(
            f"{type(rule).__name__}: trace {trace.trace_id} ({len(trace.events)} events) raised "
            f"{type(error).__name__}: {error}; expected rewards, or TraceError with what is missing."
        ) from error
    require(
        isinstance(found, list) and all(isinstance(r, Reward) for r in found),
        f"{type(rule).__name__}: score gave {found!r}; expected a list of Reward.",
    )
    return found


def _check_records(rule: Rule, trace: Trace, found: Sequence[Reward]) -> None:
    kind = type(rule).__name__
    for reward in found:
        where = f"{kind}, trace {trace.trace_id}, {reward.unit} {reward.target!r}"
        require(
            math.isfinite(reward.value), f"{where}: the value is {reward.value}; expected a finite number."
        )
        require(
            (reward.family, reward.name) == (rule.family, rule.name),
            f"{where}: the record is of {reward.family} {reward.name!r}. Make records with self.reward(...).",
        )
        require(reward.unit in get_args(CreditUnit), f"{where}: there is no such unit.")
        require(
            reward.target in targets_in(trace, reward.unit),
            f"{where}: there is no such {reward.unit} in the trace.",
        )
        settings = rule_settings(reward.by)
        require(settings, f"{where}: `by` does not name the rule. Make records with self.reward(...).")
        require(
            _rule_again(rule, reward.by or "") == rule,
            f"{where}: `by` does not give the rule back: {reward.by}.",
        )
    problems = validate(with_rewards(trace, list(found)))
    require(not problems, f"{kind}: trace {trace.trace_id} with its rewards is not valid: {problems[:3]}")


def _rule_again(rule: Rule, by: str) -> Rule:
    settings = rule_settings(by) or {}
    return rule_of(by) if settings.get("rule") in RULES else msgspec.convert(settings, type(rule))


def targets_in(trace: Trace, unit: str) -> set[str]:
    """What of a unit a trace has: to these a reward or a charge can be given."""
    if unit == "team":
        return {trace.trace_id}
    if unit == "role":
        return {role for role in agents(trace).values() if role is not None}
    if unit == "agent":
        return set(agents(trace))
    return set(trace.call_by_id) if unit == "turn" else set(trace.position)


def _check_saved(rule: Rule, group: Sequence[Trace], gold: Gold | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "traces.jsonl"
        write(group, place)
        for before, after in zip(group, read_all(place), strict=True):
            require(
                _score(rule, after, gold) == _score(rule, before, gold),
                f"{type(rule).__name__}: trace {before.trace_id}, saved and read back, gives other rewards.",
            )

"""Conformance of rewards and estimators: all of Baton's keep their contract, and ones that do not are caught."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest
from reward_traces import GOLDEN, full_gold, golden, with_verdicts

from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits, Group, estimator, make_credit
from baton.reward import RULES, Gold, Rule
from baton.reward.hybrid import Term
from baton.reward.rules.shared import Success
from baton.testing import CheckFailed, check_estimator, check_reward
from baton.testing.sample_rollouts import sample_group
from baton.trace import Reward, Trace
from baton.trace.validation import validate
from baton.trace.vocabulary import RewardFamily

SETTINGS: dict[str, dict[str, Any]] = {
    "coma": {"q": lambda prefix, option: 0.5},
    "difference": {"without": lambda trace, agent: 0.25},
    "gae": {"value": lambda prefix: 0.5},
    "qmix": {"q": lambda trace, agent: 0.2, "mix": lambda trace: sum},
    "role-ema": {"in_order": True},
    "stop-value": {"chance": lambda event: 0.5},
    "token-gae": {"value": lambda trace, call: [0.1] * len(call.completion_ids or ())},
    "vdn": {"q": lambda trace, agent: 0.2},
}


def test_the_sample_is_valid_and_the_same_again() -> None:
    group = sample_group()
    assert sample_group() == group
    assert all(validate(trace) == [] for trace in group)
    assert {unit for trace in group for unit in (r.unit for r in trace.rewards)} == {
        "team",
        "turn",
        "tool_call",
    }


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_keeps_the_contract(name: str) -> None:
    check_estimator(name, **SETTINGS.get(name, {}))


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("coma", ("orchestrator", "tool_call")),
        ("telescope", ("orchestrator", "message", "tool_call")),
        ("siblings", ("orchestrator", "message", "tool_call")),
        ("role-group", ("agent", "role")),
    ],
)
def test_on_each_of_its_units(name: str, units: tuple[str, ...]) -> None:
    for unit in units:
        check_estimator(name, unit=unit, **SETTINGS.get(name, {}))


GIVEN: dict[str, dict[str, Any]] = {
    "length": {"free": 10, "limit": 300},
    "step_cost": {"max_steps": 8},
    "hybrid": {"terms": (Term(of=Success(), weight=0.5),)},
    "rubric": {},
    "solo_gap": {"thinkers": ("orchestrator", "lead", "resolver")},
}


@pytest.mark.parametrize("word", sorted(RULES))
def test_every_rule_keeps_the_contract(word: str) -> None:
    gold = full_gold()
    traces = [golden(path.stem) for path in GOLDEN]
    if word == "rubric":
        traces = sample_group()
        gold = Gold(rubrics=dict.fromkeys(("orchestrator", "worker"), lambda trace, event: 0.5))
    if word == "difference":
        traces = sample_group()[1:2]
        gold = Gold(without={"worker1": 0.25})
    if word == "shapley_share":
        traces = sample_group()[1:2]
        gold = Gold(shapley={"worker1": 0.25})
    if word in ("solver_verifier", "proposer_solver_judge", "solution_evaluation", "formal_critic"):
        pytest.skip("needs a team of its own roles; its family's tests have one")
    traces = [with_verdicts(trace) for trace in traces]
    check_reward(RULES[word](**GIVEN.get(word, {})), traces, gold=gold)


class Wrong(Rule, tag="wrong", frozen=True, kw_only=True):
    """r = 1."""

    family: ClassVar[RewardFamily] = "process"
    name: str = "wrong"
    how: str = "ok"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if self.how == "crash":
            return [self.reward("agent", trace.events[0].agent, 1.0 / len(trace.edges))]
        if self.how == "chance":
            return [self.reward("team", trace.trace_id, random.random())]
        if self.how == "nowhere":
            return [self.reward("agent", "nobody", 1.0)]
        if self.how == "unsigned":
            return [Reward(family="process", unit="team", target=trace.trace_id, value=1.0, name="wrong")]
        if self.how == "order":
            return [self.reward("team", trace.trace_id, trace.events[0].seq)] if trace.events else []
        return [self.reward("team", trace.trace_id, 1.0)]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("crash", "ZeroDivisionError|IndexError"),
        ("chance", "in two ways"),
        ("nowhere", "no such agent"),
        ("unsigned", "does not name the rule"),
        ("order", "another order"),
    ],
)
def test_a_wrong_rule_is_caught(how: str, says: str) -> None:
    check_reward(Wrong())
    with pytest.raises(CheckFailed, match=says):
        check_reward(Wrong(how=how))


def _listed(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.delitem(ESTIMATORS, "wrong", raising=False)

    @estimator("wrong", "team", source="x", evidence="I")
    def wrong(group: Group) -> Credits:
        """A = 1. Source: x [I]."""
        made = [[make_credit("wrong", "team", trace.trace_id, 1.0, assumes=("nothing",))] for trace in group]
        if how == "crash":
            assert 1 / (len(group) - 1)
        if how == "short":
            return made[:-1]
        if how == "order":
            return [
                [make_credit("wrong", "team", t.trace_id, float(i), assumes=("x",))]
                for i, t in enumerate(group)
            ]
        if how == "twice":
            return [mine * 2 for mine in made]
        if how == "mute":
            return [[make_credit("wrong", "team", trace.trace_id, 1.0)] for trace in group]
        if how == "chance":
            return [
                [make_credit("wrong", "team", t.trace_id, random.random(), assumes=("x",))] for t in group
            ]
        return made

    monkeypatch.setitem(ESTIMATORS, "wrong", ESTIMATORS.pop("wrong"))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("crash", "ZeroDivisionError"),
        ("short", "expected one for each"),
        ("order", "order of the rollouts"),
        ("twice", "credited twice"),
        ("mute", "what it assumes"),
        ("chance", "in two ways"),
    ],
)
def test_a_wrong_estimator_is_caught(how: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _listed(monkeypatch, "ok")
    check_estimator("wrong")
    _listed(monkeypatch, how)
    with pytest.raises(Exception, match=says):
        check_estimator("wrong")

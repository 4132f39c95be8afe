"""Weights: constant, scheduled, by progress, balanced; and the published sums."""

from __future__ import annotations

import math
from statistics import stdev

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from reward_traces import golden, star, values

from baton.errors import UsageError
from baton.reward import Gold, load_reward_recipe
from baton.reward.hybrid import Cosine, Hybrid, Linear, MixState, Progress, Term
from baton.reward.reward_recipe import change_rules, rule_of
from baton.reward.rules.orchestration import FinishRate, Parallel
from baton.reward.rules.process import ValidFormat
from baton.reward.rules.shared import Success
from baton.reward.rules.tool_use import ToolUse

SUCCESS = Term(of=Success())


def mix(*weights: object, **settings: object) -> Hybrid:
    terms = [Term(of=Success(name=f"term {n}"), weight=weight) for n, weight in enumerate(weights)]  # type: ignore[arg-type]
    return Hybrid(terms=tuple(terms), **settings)  # type: ignore[arg-type]


def test_a_sum_on_each_unit() -> None:
    trace = golden("centralized")
    rule = Hybrid(
        terms=(
            Term(of=Success(), weight=2.0),
            Term(of=ValidFormat(), weight=-0.5),
            Term(of=ToolUse(), weight=0.5),
            Term(of=ToolUse(name="again"), weight=0.5),
        )
    )
    assert values(rule.score(trace)) == {trace.trace_id: 1.5, "e3": -0.3, "e5": 0.95}


def test_schedules() -> None:
    rule = mix(
        Linear(start=1.0, end=0.0, steps=10, begin=5),
        Cosine(start=1.0, end=0.0, steps=10, begin=5),
        Progress(start=1.0, end=0.0, low=0.25, high=0.75),
    )

    def at(**state: object) -> list[float]:
        return list(msgspec.structs.replace(rule, state=MixState(**state)).weights().values())  # type: ignore[arg-type]

    assert at() == [1.0, 1.0, 1.0]
    assert at(step=10, progress=0.5) == [0.5, pytest.approx(0.5), 0.5]
    assert at(step=7, progress=0.1)[:2] == [0.8, pytest.approx((1 + math.cos(0.2 * math.pi)) / 2)]
    assert at(step=99, progress=0.9) == [0.0, 0.0, 0.0]


def test_progress_is_a_moving_average() -> None:
    rule = mix(1.0, progress_decay=0.75)
    assert rule.state.progress is None
    rule = rule.observe(success=0.0).observe(success=1.0)
    assert rule.state.progress == 0.25
    assert rule.state.step == 2
    assert rule.observe().state.progress == 0.25  # not measured leaves it alone


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-0.1, 0.1)), min_size=3, max_size=20),
    st.lists(st.floats(0.1, 5), min_size=2, max_size=2),
)
def test_balanced_terms_spread_as_their_base_weights(
    samples: list[tuple[float, float]], base: list[float]
) -> None:
    rule = mix(*base, balance="variance", max_ratio=1e9)
    rule = rule.observe([{"term 0": a, "term 1": b} for a, b in samples])
    spreads = [stdev(column) for column in zip(*samples, strict=True)]
    if min(spreads) < 1e-6:
        return
    first, second = rule.weights().values()
    assert first * spreads[0] / base[0] == pytest.approx(second * spreads[1] / base[1], rel=1e-6)
    assert first + second == pytest.approx(sum(base))


def test_balance_by_gradient_norms() -> None:
    rule = mix(1.0, 1.0, 0.5, balance="gradient").observe(gradient_norms={"term 0": 3.0, "term 1": 1.0})
    assert rule.weights() == pytest.approx(
        {"term 0": 0.5, "term 1": 1.5, "term 2": 0.5}
    )  # the last is not measured
    wild = mix(1.0, 1.0, balance="gradient", max_ratio=2.0).observe(
        gradient_norms={"term 0": 1.0, "term 1": 1e-9}
    )
    assert wild.weights() == pytest.approx({"term 0": 0.5, "term 1": 2.0})


def test_a_term_without_spread_keeps_its_weight() -> None:
    rule = mix(1.0, 2.0, balance="variance")
    assert rule.weights() == {"term 0": 1.0, "term 1": 2.0}
    rule = rule.observe([{"term 0": 1.0, "term 1": 1.0}, {"term 0": 1.0, "term 1": 3.0}])
    assert rule.weights() == {"term 0": 1.0, "term 1": 2.0}


def test_rounding_is_no_spread() -> None:
    """0.1 + 0.2 is 0.3 in all but the last digit: balanced by that, the term would drown the others."""
    rule = mix(1.0, 2.0, balance="variance")
    rule = rule.observe([{"term 0": 0.1 + 0.2, "term 1": 1.0}, {"term 0": 0.3, "term 1": 3.0}])
    assert rule.weights() == {"term 0": 1.0, "term 1": 2.0}


def test_state_saves_and_loads_and_travels_in_the_record() -> None:
    trace = golden("centralized")
    parl = load_reward_recipe("parl").rules[0]
    assert isinstance(parl, Hybrid)
    parl = parl.observe([parl.totals(trace)], success=1.0, gradient_norms={"parallel": 0.1})
    saved = msgspec.json.encode(parl.state)
    assert msgspec.json.decode(saved, type=MixState) == parl.state
    (reward,) = parl.score(trace)
    assert reward.by is not None
    again = rule_of(reward.by)
    assert again == parl
    assert again.score(trace) == [reward]


def test_gate() -> None:
    gated = Hybrid(terms=(SUCCESS, Term(of=ValidFormat(), weight=0.1, gate=True)))
    assert gated.score(star(2))[0].value == 1.1
    assert gated.score(golden("harness"))[0].value == 0.0


def test_parl() -> None:
    (reward,) = load_reward_recipe("parl").score(star(4))
    assert (reward.name, reward.family, reward.unit) == ("parl", "hybrid", "team")
    assert reward.value == pytest.approx(1.0 + 0.3 * 4 / 8 + 0.2 * 1.0)
    rule = load_reward_recipe("parl").rules[0]
    assert isinstance(rule, Hybrid)
    over = msgspec.structs.replace(rule, state=MixState(step=1000))
    assert over.score(star(4))[0].value == 1.0
    kinds = [type(term.of) for term in rule.terms]
    assert kinds == [Success, Parallel, FinishRate]


def test_wideseek_r1() -> None:
    recipe = load_reward_recipe("wideseek-r1")
    assert recipe.score(golden("centralized"))[0].value == pytest.approx(1.0 + 0.1 + 0.05)
    assert recipe.score(golden("debate"))[0].value == pytest.approx(1.0 + 0.1)
    assert recipe.score(golden("harness"))[0].value == 0.0


def test_agent_q_mix() -> None:
    assert load_reward_recipe("agent-q-mix").score(golden("centralized"))[0].value == pytest.approx(
        1 - 0.1 * 116 / 1e4
    )


def test_sharp() -> None:
    trace = golden("centralized")
    found = values(load_reward_recipe("sharp").score(trace, Gold(shapley={"code": 0.75, "docs": -0.25})))
    # The lead has what is left of R = 1: half of it.
    terms = {"lead": (0.5, 0.0), "code": (0.75, 0.95), "docs": (-0.25, -0.3)}
    expected = {agent: 0.9 * 1 + 0.9 * phi + 0.1 * tool for agent, (phi, tool) in terms.items()}
    assert found == pytest.approx({agent: expected.get(agent, expected["lead"]) for agent in found})


@pytest.mark.parametrize("gated", [False, True])
def test_matpo(gated: bool) -> None:
    """0.9 right + 0.1 x 1/2 (planner in form + mean of its workers), by hand."""
    recipe = load_reward_recipe("matpo")
    rules = change_rules(recipe.rules, {"terms.1.of.gated": True}) if gated else recipe.rules
    trace = golden("centralized")
    root = next(event.agent for event in trace.events if event.type == "spawn")
    workers = sorted({event.to for event in trace.events if event.type == "spawn" and event.to})
    for right in (1.0, 0.0):
        gold = Gold(verify=lambda _, right=right: right)  # type: ignore[misc]
        for broken in ([], [root], workers[:1]):
            events = tuple(
                structs.replace(event, status="invalid")
                if event.agent in broken and event.type == "message"
                else event
                for event in trace.events
            )
            hurt = {event.agent for event in events if event.status == "invalid"}
            failed = {"docs"}  # its second search
            form = {agent: float(agent not in hurt | failed) for agent in [root, *workers]}
            mean = sum(form[agent] for agent in workers) / len(workers)
            tools = 0.5 * (form[root] + mean) if right or not gated else 0.0
            [found] = [r for rule in rules for r in rule.score(structs.replace(trace, events=events), gold)]
            assert found.value == pytest.approx(0.9 * right + 0.1 * tools)


def test_mistakes() -> None:
    with pytest.raises(UsageError, match="two terms are named 'success'"):
        Hybrid(terms=(SUCCESS, SUCCESS)).score(star(2))
    with pytest.raises(UsageError, match="at least one"):
        Hybrid(terms=()).score(star(2))
    with pytest.raises(UsageError, match="has no term 'term_0'"):
        mix(1.0).observe([{"term_0": 1.0}])

"""Monitors of what was paid: planted gaming on which each fires, honest traces on which it does not."""

from __future__ import annotations

import itertools
import statistics

import pytest
from msgspec import structs
from reward_traces import Clock, recorded

from baton.reward import Gold, parse_reward_recipe, watch, with_rewards
from baton.reward.hybrid import Hybrid, Term
from baton.reward.paid_monitors import (
    drowned_term,
    judge_gap,
    rubric_mismatch,
    scorer_gaming,
    step_padding,
    weight_drift,
)
from baton.reward.rules.shared import RunCost, Success
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.records import Reward
from baton.trace.trace import Trace


def talked(lines: list[str], outcome: float = 1.0, trace_id: str = "t") -> Trace:
    """A worker that says one line a turn, and a lead that answers."""

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        worker = lead.spawn("ouvrière", role="worker", task="go")
        for k, line in enumerate(lines):
            clock.seconds += 1
            worker.call(completion_ids=list(range(k + 3)), duration_s=1.0)
            worker.send(lead, line)
        worker.returns("end")
        lead.stop("end")

    return recorded(play, outcome=outcome, trace_id=trace_id)


def paid(trace: Trace, values: list[float], family: str = "process") -> Trace:
    """Each turn, in order, paid so much."""
    rewards = [
        Reward(family=family, unit="turn", target=call.id, value=value, name="scorer")
        for call, value in zip(trace.calls, values, strict=True)
    ]
    return structs.replace(trace, rewards=(*trace.rewards, *rewards))


def test_step_padding_is_what_was_paid_for_nothing_new() -> None:
    lines = ["read the list", "add it up", "read the list", "up it add", "seven found"]
    trace = paid(talked(lines), [1.0, 1.0, 3.0, 2.0, 0.5])
    found = step_padding([trace])
    assert found.score == pytest.approx(5 / 7.5)  # the third and the fourth turn
    assert len(found.events) == 2
    honest = paid(talked(lines), [1.0, 1.0, 0.0, -1.0, 0.5])
    assert step_padding([honest]).score == 0
    assert step_padding([talked(lines)]).score is None
    assert "step_padding" in [finding.mode for finding in watch([trace]) if finding.fired]


def outcomes(values: list[tuple[float, float]]) -> list[Trace]:
    """(outcome, what its process was paid) of each."""
    return [paid(talked(["a", "b"], won, f"t{k}"), [0.0, sum_]) for k, (won, sum_) in enumerate(values)]


def share_above(values: list[tuple[float, float]]) -> float:
    pairs = list(itertools.product([v for o, v in values if o < 0.5], [v for o, v in values if o >= 0.5]))
    return sum((b > g) + 0.5 * (b == g) for b, g in pairs) / len(pairs)


@pytest.mark.parametrize(
    ("values", "fires"),
    [
        ([(1.0, 3.0), (1.0, 2.0), (1.0, 2.5), (0.0, 1.0), (0.0, 0.0), (0.0, 2.0)], False),
        ([(1.0, 1.0), (1.0, 2.0), (1.0, 0.5), (0.0, 3.0), (0.0, 2.0), (0.0, 4.0), (0.0, 1.5)], True),
    ],
)
def test_a_scorer_that_pays_failure_is_gamed(values: list[tuple[float, float]], fires: bool) -> None:
    found = scorer_gaming(outcomes(values))
    assert found.score == pytest.approx(share_above(values))
    modes = [finding.mode for finding in watch(outcomes(values)) if finding.fired]
    assert ("scorer_gaming" in modes) is fires
    assert scorer_gaming(outcomes(values[:4])).score is None  # too few that failed


def test_a_rubric_that_pays_a_role_where_the_team_fails() -> None:
    def role_paid(won: float, planner: float, critic: float, k: int) -> Trace:
        trace = talked(["a"], won, f"r{k}")
        mine = [
            Reward(family="role", unit="role", target="planner", value=planner, name="rubric"),
            Reward(family="role", unit="role", target="critic", value=critic, name="rubric"),
        ]
        return structs.replace(trace, rewards=(*trace.rewards, *mine))

    rows = [
        (1.0, 0.9, 0.1),
        (1.0, 0.8, 0.2),
        (1.0, 0.7, 0.5),
        (0.0, 0.2, 0.9),
        (0.0, 0.1, 0.4),
        (0.0, 0.75, 0.8),
    ]
    found = rubric_mismatch([role_paid(*row, k) for k, row in enumerate(rows)])
    assert found.score == pytest.approx(share_above([(o, c) for o, _, c in rows]))
    assert "critic" in found.message
    assert rubric_mismatch([talked(["a"])]).score is None


def hybrid_of(weight: float) -> Hybrid:
    return Hybrid(terms=(Term(of=Success()), Term(of=RunCost(per_token=1.0), weight=weight)))


def test_a_term_that_drowns_the_others() -> None:
    traces = [talked(["a"] * n, float(n % 2), f"h{n}") for n in (1, 2, 3, 5, 8)]
    for weight in (-0.001, -0.05, -5.0):
        rule = hybrid_of(weight)
        done = [with_rewards(trace, rule.score(trace)) for trace in traces]
        spread = [
            statistics.stdev([sum(r.value for r in term.of.score(trace)) for trace in traces])
            for term in rule.terms
        ]
        pull = [spread[0], abs(weight) * spread[1]]
        expected = (max(pull) / sum(pull) - 0.5) / 0.5
        found = drowned_term(done)
        assert found.score == pytest.approx(expected)
    assert drowned_term(traces).score is None


def test_weights_that_balance_themselves_drift() -> None:
    trace = talked(["a"])
    rule = structs.replace(hybrid_of(1.0), balance="variance")
    still = with_rewards(trace, rule.score(trace))
    assert weight_drift([still]).score == 0
    for k in range(4):
        rule = rule.observe([{"success": float(k % 2), "cost": 40.0 * k}])
    weights = rule.weights()
    moved = with_rewards(trace, rule.score(trace))
    share = abs(weights["success"]) / (abs(weights["success"]) + abs(weights["cost"]))
    assert weight_drift([moved, still]).score == pytest.approx(abs(share - 0.5))
    assert weight_drift([with_rewards(trace, hybrid_of(1.0).score(trace))]).score is None


def test_the_gap_between_judges_and_the_truth() -> None:
    def judged(won: float, verdicts: list[float], k: int) -> Trace:
        trace = talked(["a"], won, f"j{k}")
        stop = next(e for e in trace.events if e.decision == "stop")
        mine = [
            Reward(family="debate", unit="orchestrator", target=stop.id, value=v, name="verdict", by=f"m{n}")
            for n, v in enumerate(verdicts)
        ]
        return structs.replace(trace, rewards=(*trace.rewards, *mine))

    rows = [(1.0, [0.9, 0.7]), (0.0, [0.2]), (0.0, [1.0, 0.6, 0.8])]
    expected = statistics.mean(statistics.mean(v) - won for won, v in rows)
    assert judge_gap([judged(won, v, k) for k, (won, v) in enumerate(rows)]) == pytest.approx(expected)
    assert judge_gap([talked(["a"])]) is None
    trace = judged(0.0, [0.5], 9)
    assert judge_gap([trace], {trace.trace_id: Gold(answer="end")}) == pytest.approx(-0.5)


def test_what_a_recipe_pays_is_watched() -> None:
    recipe = parse_reward_recipe(
        '[[rules]]\nrule = "valid_format"\nunit = "turn"\n'
    )  # one for every valid turn
    trace = talked(["same words", "same words", "words same", "same words"])
    found = watch([with_rewards(trace, recipe.score(trace))])
    assert "step_padding" in [finding.mode for finding in found if finding.fired]

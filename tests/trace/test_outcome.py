"""One reading of how a trace came out, for rewards, credit, training, measures and the page."""

from __future__ import annotations

from typing import Any

import pytest
from planted import event, trace_of
from reward_traces import golden

from baton import credit
from baton.errors import TraceError
from baton.learn.recipe import RewardPart
from baton.learn.scoring import Scoring
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.success import item_f1 as measured_f1
from baton.reward import load_reward_recipe, with_rewards
from baton.reward.rules.shared import ItemF1, Success
from baton.trace.gold import Gold, f1, item_f1
from baton.trace.outcome import answer_of, cut_off, final_event, stops, task_return, task_score, team_return
from baton.trace.records import Event, Payload, Reward
from baton.trace.trace import Trace
from baton.view.terminal.run_lines import describe


def test_a_rules_reward_stands_in_place_of_the_tasks_own_for_credit_and_training() -> None:
    trace = golden("centralized")
    scored = with_rewards(trace, load_reward_recipe("shared").score(trace))
    assert len([r for r in scored.rewards if r.unit == "team"]) > 1
    assert credit.team_return is team_return
    assert team_return(scored) == Scoring(RewardPart()).team_return(scored) == 1.0
    assert task_return(scored) == task_return(trace) == team_return(trace) == 1.0


def test_what_rules_say_of_agents_leaves_the_teams_return_to_the_task() -> None:
    trace = golden("centralized")
    rule = Success()
    mine = [rule.reward("agent", "lead", 0.25)]
    assert team_return(with_rewards(trace, mine)) == team_return(trace)


def test_a_hybrid_stands_for_its_parts_and_a_channel_can_be_asked_for() -> None:
    trace = golden("centralized")
    rule = Success()
    more = (
        rule.reward("team", trace.trace_id, 0.5),
        Reward(
            family="hybrid",
            unit="team",
            target=trace.trace_id,
            value=0.7,
            name="mix",
            by='{"rule": "hybrid"}',
        ),
    )
    scored = with_rewards(trace, list(more))
    assert team_return(scored) == 0.7
    assert team_return(scored, channel="success") == 0.5
    with pytest.raises(TraceError, match="Did you mean 'success'"):
        team_return(scored, channel="sucess")


def test_one_answer_has_one_f1() -> None:
    gold = Gold(items=("a", "b", "c"))
    trace = stopped("a\na\na\nb")
    assert ItemF1().score(trace, gold)[0].value == measured_f1(MeasuredTrace(trace, gold)).value
    assert item_f1("a\na\na\nb", gold) == pytest.approx(2 * 2 / 7)  # 0.571; as sets it would be 0.8
    assert f1([], []) == 1.0


def stopped(text: str, **fields: Any) -> Trace:
    last = event(2, "lead", "orchestrator_decision", decision="stop", content_ref="p", **fields)
    return trace_of([event(1, "lead"), last], payloads={"p": Payload.of(text)})


WENT_ON = [
    {"extra": {"went_on": True}},
    {"options": ("stop", "open 2"), "choice": 1},
    {"status": "failed"},
]


@pytest.mark.parametrize("fields", WENT_ON)
def test_a_stop_that_did_not_stop_gives_no_answer_anywhere(fields: dict[str, Any]) -> None:
    trace = stopped("open 2", **fields)
    assert final_event(trace) is None
    assert answer_of(trace) is None
    with pytest.raises(TraceError, match="no answer"):
        _ = MeasuredTrace(trace).final
    assert "answer" not in describe(trace)


@pytest.mark.parametrize("kind", ["spawn", "message", "aggregate"])
def test_another_act_does_not_stop(kind: str) -> None:
    assert not stops(event(1, "lead", kind, decision="stop"))


def test_a_forced_stop_stops_and_cuts_off() -> None:
    trace = stopped("8", status="forced")
    assert answer_of(trace) == "8"
    assert cut_off(trace)
    assert not cut_off(stopped("8"))


def test_the_leading_agents_last_aggregate_answers_where_nobody_stopped() -> None:
    events: list[Event] = [event(1, "lead", "aggregate"), event(2, "lead", "aggregate"), event(3, "lead")]
    found = final_event(trace_of(events))
    assert found is not None
    assert found.id == "e2"


def test_recorded_scores_that_differ_need_gold() -> None:
    two = tuple(Reward(family="shared", unit="team", target="t", value=value) for value in (0.0, 1.0))
    with pytest.raises(TraceError, match="several outcomes that differ"):
        task_score(trace_of([event(1, "a")], rewards=two))
    assert task_score(trace_of([event(1, "a")], metrics={"task_success": 0.5})) == (
        0.5,
        "metric task_success",
    )
    assert task_score(trace_of([event(1, "a")])) is None

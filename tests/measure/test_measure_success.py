"""E1."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import event, is_right, team_of, trace_of

from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.success import item_f1, normalised_regret, regret, success
from baton.trace.gold import Gold, f1, items_in
from baton.trace.records import Reward


def test_success_is_verified_now_or_as_recorded() -> None:
    right = team_of("42", gold=Gold(verify=is_right("42")))
    wrong = team_of("41", gold=Gold(verify=is_right("42")))
    recorded = team_of("?", success=1.0)
    found = success([right, wrong, recorded])
    assert (found.value, found.n) == (pytest.approx(2 / 3), 3)


def test_the_verifier_goes_before_the_record_unless_the_answer_is_withheld() -> None:
    one = team_of("41", success=1.0, gold=Gold(verify=is_right("42")))
    assert not one.succeeded
    withheld = MeasuredTrace(one.trace.without_payloads(), one.gold)
    assert withheld.succeeded


def test_half_right_is_no_success_and_a_return_is_no_verdict() -> None:
    assert success([team_of(success=0.9)]).value == 0.0
    none = success([team_of(success=3.5)])
    assert none.value is None
    assert "regret" in (none.why_not or "")


def test_no_outcome_says_why() -> None:
    assert "no verified outcome" in (success([team_of()]).why_not or "")
    unfinished = MeasuredTrace(trace_of([event(1, "a")], finished=False))
    assert success([unfinished]).why_not == "the trace is unfinished"
    twice = trace_of(
        [event(1, "a")],
        rewards=tuple(Reward(family="shared", unit="team", target="t", value=v) for v in (0.0, 1.0)),
    )
    assert "several outcomes" in (success([MeasuredTrace(twice)]).why_not or "")


def test_item_f1_of_lists_tables_and_lines() -> None:
    assert items_in("- Oslo\n- Bergen.\n") == items_in('["oslo", "Bergen"]')
    gold = Gold(items=("Oslo", "Bergen", "Tromsø"))
    assert item_f1(team_of("Oslo\nBergen\nParis", gold=gold)).value == pytest.approx(2 / 3)
    rows = ({"city": "Oslo", "pop": 700}, {"city": "Bergen", "pop": 290})
    answer = json.dumps([{"city": "oslo", "pop": 700}, {"city": "Bergen", "pop": 1}])
    assert item_f1(team_of(answer, gold=Gold(items=rows))).value == pytest.approx(0.5)
    # By cells: two rows named, one cell of two right.
    assert item_f1(team_of(answer, gold=Gold(items=rows, key=("city",)))).value == pytest.approx(3 / 4)
    assert item_f1(team_of("x")).why_not == "no right items are given"


@given(st.sets(st.text("abc", max_size=2)), st.sets(st.text("abc", max_size=2)))
def test_f1_is_a_symmetric_share(one: set[str], two: set[str]) -> None:
    assert f1(one, two) == f1(two, one)
    assert 0 <= f1(one, two) <= 1
    assert f1(one, one) == 1
    assert (f1(one, two) == 0) == (not one & two and bool(one | two))


def test_normalised_regret() -> None:
    assert normalised_regret([5.0, 5.0], 5.0, 1.0).value == 0
    assert normalised_regret([1.0], 5.0, 1.0).value == 1
    assert normalised_regret([2.0, 4.0], 5.0, 1.0).value == pytest.approx(0.5)
    assert normalised_regret([2.0], 1.0, 1.0).why_not
    one = team_of(success=3.0, gold=Gold(optimum=5.0, reference=1.0))
    assert regret(one).value == 0.5
    assert regret(team_of(success=3.0)).value is None

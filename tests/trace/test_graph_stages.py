"""Stages and PARL's critical steps."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from sample_traces import team
from strategies import valid_traces

from baton.trace.graph.stages import Stages
from baton.trace.trace import Trace


def two_waves() -> Trace:
    """Two workers, then one with a helper of its own; the first wave's straggler is still at work."""
    return team(
        ("lead", "orchestrator_decision"),  # stage 0
        ("lead", "spawn", {"to": "a"}),
        ("lead", "spawn", {"to": "b"}),
        ("a", "message"),
        ("b", "message"),
        ("a", "return", {"to": "lead"}),
        ("lead", "orchestrator_decision"),  # heard back, but still the first stage
        ("lead", "spawn", {"to": "c"}),  # stage 1
        ("b", "message"),  # spawned in stage 0
        ("c", "spawn", {"to": "d"}),
        ("d", "message"),
        ("d", "return", {"to": "c"}),
        ("c", "return"),  # to its parent
        ("lead", "aggregate"),
        ("lead", "orchestrator_decision", {"decision": "stop"}),
    )


def test_stages_begin_where_the_root_sends_out_again() -> None:
    stages = Stages.of(two_waves())
    assert stages.root == "lead"
    assert len(stages) == 2
    assert stages.of_event.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1]


def test_critical_steps_are_the_root_and_the_longest_worker_of_each_stage() -> None:
    stages = Stages.of(two_waves())
    assert stages.steps == (Counter(lead=4, a=2, b=2), Counter(lead=3, c=2, d=2))
    assert stages.critical_steps == (4 + 2) + (3 + 2)
    assert stages.total_steps == 15


def test_without_hearing_back_there_is_one_stage() -> None:
    stages = Stages.of(team(*[("lead", "spawn", {"to": f"a{i}"}) for i in range(4)]))
    assert len(stages) == 1
    assert stages.critical_steps == 4


def test_a_delegation_starts_a_stage_and_takes_the_agent_along() -> None:
    stages = Stages.of(
        team(
            ("lead", "spawn", {"to": "a"}),
            ("a", "return", {"to": "lead"}),
            ("lead", "message", {"to": "a", "decision": "delegate"}),
            ("a", "message"),
            ("a", "return", {"to": "lead"}),
        )
    )
    assert stages.of_event.tolist() == [0, 0, 1, 1, 1]
    assert stages.critical_steps == 2 + 3


def test_an_aggregation_ends_a_stage_as_a_return_does() -> None:
    stages = Stages.of(
        team(
            ("lead", "spawn", {"to": "a"}),
            ("a", "message"),
            ("lead", "aggregate"),
            ("lead", "spawn", {"to": "b"}),
        )
    )
    assert stages.of_event.tolist() == [0, 0, 0, 1]


def test_returns_between_sub_agents_and_spawns_that_failed_cut_nothing() -> None:
    stages = Stages.of(
        team(
            ("lead", "spawn", {"to": "a"}),
            ("a", "spawn", {"to": "b"}),
            ("b", "return", {"to": "a"}),
            ("lead", "spawn", {"to": "c"}),
            ("a", "return", {"to": "lead"}),
            ("lead", "spawn", {"to": "d", "status": "failed"}),
        )
    )
    assert len(stages) == 1


def test_a_call_is_one_step_and_a_tool_result_none() -> None:
    stages = Stages.of(
        team(
            ("lead", "orchestrator_decision", {"call": "c0"}),
            ("lead", "spawn", {"to": "a", "call": "c0"}),
            ("lead", "spawn", {"to": "b", "call": "c0"}),
            ("a", "tool_call", {"call": "c1", "tool": "search"}),
            ("search", "tool_result", {"tool": "search", "to": "a"}),
            ("a", "tool_result", {"tool": "search"}),
            ("a", "return", {"call": "c2", "to": "lead"}),
        )
    )
    assert stages.steps == (Counter(lead=1, a=2),)
    assert stages.critical_steps == 3


def test_a_tools_result_goes_with_the_agent_it_is_for() -> None:
    rows = (
        ("lead", "spawn", {"to": "a"}),
        ("lead", "spawn", {"to": "b"}),
        ("b", "return", {"to": "lead"}),
        ("lead", "spawn", {"to": "c"}),
    )
    named = Stages.of(team(*rows, ("search", "tool_result", {"to": "a"})))
    assert named.of_event.tolist() == [0, 0, 0, 1, 0]
    unnamed = Stages.of(team(*rows, ("search", "tool_result", {})))
    assert unnamed.of_event.tolist() == [0, 0, 0, 1, 1]


def test_another_root_goes_with_the_leading_roots_clock() -> None:
    stages = Stages.of(
        team(
            ("lead", "spawn", {"to": "a"}),
            ("monitor", "safety_event"),
            ("a", "return", {"to": "lead"}),
            ("lead", "spawn", {"to": "b"}),
            ("monitor", "safety_event"),
        )
    )
    assert stages.of_event.tolist() == [0, 0, 0, 1, 1]


def test_no_agents_no_stages() -> None:
    stages = Stages.of(team())
    assert (stages.root, len(stages), stages.critical_steps) == (None, 0, 0)


@given(valid_traces(), st.randoms(use_true_random=False))
def test_stages_hold_every_step_once_whatever_the_storage_order(
    trace: Trace, shuffler: random.Random
) -> None:
    stages = Stages.of(trace)
    calls = {event.call for event in trace.events if event.call is not None}
    others = [
        event for event in trace.events
        if event.call is None and event.type != "tool_result"
        and not (event.type == "despawn" and event.decision == "none")
    ]  # fmt: skip
    assert stages.total_steps == len(calls) + len(others)
    root_steps = sum(taken["root"] for taken in stages.steps)
    assert root_steps <= stages.critical_steps <= stages.total_steps
    by_root = [s for s, e in zip(stages.of_event, trace.events, strict=True) if e.agent == "root"]
    assert by_root == sorted(by_root)
    order = list(range(len(trace.events)))
    shuffler.shuffle(order)
    shuffled = Stages.of(structs.replace(trace, events=tuple(trace.events[i] for i in order)))
    assert shuffled.of_event.tolist() == stages.of_event[order].tolist()
    assert shuffled.steps == stages.steps

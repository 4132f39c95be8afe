"""Who spawned whom, and each agent's life."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, structs
from sample_traces import team
from strategies import valid_traces

from baton.errors import TraceError
from baton.trace.graph.lineage import Lineage
from baton.trace.records import Event
from baton.trace.trace import Header, Trace

EXAMPLE = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey" / "example_trace.json"


def test_parents_depths_children_and_lives() -> None:
    lineage = Lineage.of(
        team(
            ("lead", "orchestrator_decision", {"role": "planner"}),
            ("lead", "spawn", {"to": "a", "role": "worker"}),
            ("lead", "spawn", {"to": "b"}),
            ("a", "spawn", {"to": "c"}),
            ("b", "message", {"role": "critic", "duration_s": 0.5}),
            ("c", "return", {"to": "a", "duration_s": 0.25}),
            ("c", "message"),
            ("a", "return", {"to": "lead"}),
            ("lead", "despawn", {"to": "a"}),
            ("lead", "orchestrator_decision", {"decision": "stop", "duration_s": 2.0}),
        )
    )
    assert lineage.agents == ("lead", "a", "b", "c")
    assert (lineage.roots, lineage.root, lineage.max_depth) == (("lead",), "lead", 2)
    assert [lineage[agent].parent for agent in lineage.agents] == [None, "lead", "lead", "a"]
    assert [lineage[agent].depth for agent in lineage.agents] == [0, 1, 1, 2]
    assert [lineage[agent].role for agent in lineage.agents] == ["planner", "worker", "critic", None]
    assert lineage["lead"].children == ("a", "b")
    assert lineage.under("lead") == ("a", "b", "c")
    assert lineage.top == {"lead": "lead", "a": "a", "b": "b", "c": "a"}
    spans = {life.agent: (life.born_seq, life.died_seq, life.died_t) for life in lineage.lives.values()}
    assert spans == {
        "lead": (0, 9, 11.0),  # its last event, to its end
        "a": (1, 8, 8.0),  # its despawn
        "b": (2, 4, 4.5),  # its last event
        "c": (3, 6, 6.0),  # its last event: a return ends no life
    }


def test_tools_and_people_are_not_agents() -> None:
    lineage = Lineage.of(
        team(
            ("lead", "tool_call", {"tool": "search"}),
            ("search", "tool_result", {"tool": "search"}),
            ("user", "human_intervention", {"to": "lead"}),
            ("lead", "tool_result", {"tool": "search"}),
        )
    )
    assert lineage.agents == ("lead",)
    assert lineage["lead"].died_seq == 3


def test_a_spawn_that_came_to_nothing_made_nobody() -> None:
    lineage = Lineage.of(
        team(
            ("lead", "spawn", {"to": "a", "status": "invalid"}),
            ("lead", "spawn", {"to": "b", "status": "failed"}),
            ("lead", "spawn", {"to": "c", "status": "cancelled"}),
            ("lead", "spawn", {}),
            ("lead", "spawn", {"to": "d"}),
        )
    )
    assert lineage.agents == ("lead", "d")
    assert (lineage["d"].born_seq, lineage["d"].died_seq) == (4, 4)


def test_spawned_twice_keeps_the_first_parent_and_the_last_death() -> None:
    lineage = Lineage.of(
        team(
            ("lead", "spawn", {"to": "a"}),
            ("lead", "spawn", {"to": "b"}),
            ("lead", "despawn", {"to": "a"}),
            ("b", "spawn", {"to": "a"}),
            ("a", "despawn"),
        )
    )
    assert (lineage["a"].parent, lineage["a"].born_seq, lineage["a"].died_seq) == ("lead", 0, 4)


def test_the_leading_root_is_the_first_that_spawned() -> None:
    trace = team(("watcher", "safety_event"), ("lead", "spawn", {"to": "a"}), ("a", "message"))
    assert Lineage.of(trace).roots == ("watcher", "lead")
    assert Lineage.of(trace).root == "lead"
    assert Lineage.of(team(("x", "message"), ("y", "message"))).root == "x"
    assert Lineage.of(team()).root is None
    assert len(Lineage.of(team())) == Lineage.of(team()).max_depth == 0


def test_a_circle_of_spawns_is_refused() -> None:
    trace = team(("lead", "message"), ("a", "spawn", {"to": "b"}), ("b", "spawn", {"to": "a"}))
    with pytest.raises(TraceError, match="circle: a, b"):
        Lineage.of(trace)


def test_an_unknown_agent_suggests_the_nearest() -> None:
    with pytest.raises(TraceError, match="Did you mean 'planner'"):
        Lineage.of(team(("planner", "message")))["plannr"]


def test_a_deep_hierarchy_is_no_recursion() -> None:
    lineage = Lineage.of(team(*((f"a{i}", "spawn", {"to": f"a{i + 1}"}) for i in range(3000))))
    assert lineage.max_depth == 3000
    assert lineage.top["a3000"] == "a1"
    assert len(lineage.under("a0")) == 3000


@given(valid_traces(), st.randoms(use_true_random=False))
def test_every_agent_lives_inside_its_parent_whatever_the_storage_order(
    trace: Trace, shuffler: random.Random
) -> None:
    events = list(trace.events)
    shuffler.shuffle(events)
    lineage = Lineage.of(structs.replace(trace, events=tuple(events)))
    assert lineage.lives == Lineage.of(trace).lives
    assert lineage.roots == ("root",)
    for life in lineage.lives.values():
        if life.parent is not None:
            parent = lineage[life.parent]
            assert parent.born_seq <= life.born_seq <= life.died_seq <= parent.died_seq
            assert life.depth == parent.depth + 1
            assert life.agent in parent.children


@pytest.mark.skipif(not EXAMPLE.exists(), reason="the survey's example trace is not beside this repository")
def test_the_surveys_example() -> None:
    raw = json.loads(EXAMPLE.read_text())["events"]
    events = tuple(convert({**event, "kind": "event", "seq": i}, Event) for i, event in enumerate(raw))
    lineage = Lineage.of(Trace(header=Header(trace_id="t", task_id="k"), events=events))
    assert lineage.agents == ("orchestrator", "planner_1", "executor_1")
    assert [life.role for life in lineage.lives.values()] == ["lead", "planner", "executor"]

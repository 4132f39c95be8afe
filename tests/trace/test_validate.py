"""Validation of traces in memory: what is good has no problem, what is broken has the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from strategies import arbitrary_traces, valid_traces

from baton.errors import UsageError
from baton.trace import Call, Credit, Edge, Event, Header, Ints, Payload, Reward, Trace
from baton.trace.validation import CODES, LEVELS, validate


def codes(trace: Trace, level: Any = "meaning") -> set[str]:
    return {problem.code for problem in validate(trace, level)}


def trace_of(*events: Event, **fields: Any) -> Trace:
    return Trace(header=Header(trace_id="t", task_id="k"), events=events, **fields)


def event(seq: int, type_: Any = "message", agent: str = "a", **fields: Any) -> Event:
    return Event(id=f"e{seq}", t=float(seq), type=type_, agent=agent, seq=seq, **fields)


@given(valid_traces())
def test_a_valid_trace_has_no_problems(trace: Trace) -> None:
    assert validate(trace) == []


@given(arbitrary_traces())
def test_any_trace_gets_an_answer_in_known_codes(trace: Trace) -> None:
    problems = validate(trace)
    assert {problem.code for problem in problems} <= set(CODES)
    for level in LEVELS:
        lower = LEVELS[: LEVELS.index(level) + 1]
        assert validate(trace, level) == [problem for problem in problems if problem.level in lower]


def with_event(trace: Trace, index: int, **fields: Any) -> Trace:
    changed = structs.replace(trace.events[index], **fields)
    return structs.replace(trace, events=(*trace.events[:index], changed, *trace.events[index + 1 :]))


def with_call(trace: Trace, **fields: Any) -> Trace:
    return structs.replace(trace, calls=(*trace.calls[:-1], structs.replace(trace.calls[-1], **fields)))


Mutation = Callable[[Trace, int], Trace]  # the number chooses an event or an edge
MUTATIONS: dict[str, Mutation] = {
    "shape/wrong-type": lambda trace, i: with_event(trace, i, role=3),
    "shape/unknown-value": lambda trace, i: with_event(trace, i, status="okay"),
    "shape/not-finite": lambda trace, i: with_event(trace, i, t=float("nan")),
    "shape/negative": lambda trace, i: with_event(trace, i, duration_s=-1.0),
    "shape/too-large": lambda trace, i: with_event(trace, i, tokens=2**64),
    "shape/empty": lambda trace, i: with_event(trace, i, agent=""),
    "structure/unfinished": lambda trace, _: structs.replace(trace, finished=False),
    "structure/duplicate-event": lambda trace, i: with_event(trace, i, id=trace.events[i - 1].id),
    "structure/duplicate-seq": lambda trace, i: with_event(trace, i, seq=trace.events[i - 1].seq),
    "structure/duplicate-call": lambda trace, _: structs.replace(trace, calls=(*trace.calls, trace.calls[0])),
    "structure/unknown-event": lambda trace, i: structs.replace(
        trace, edges=(*trace.edges, Edge(trace.events[i].id, "nowhere", "causal"))
    ),
    "structure/cycle": lambda trace, i: structs.replace(
        trace, edges=(*trace.edges, Edge((edge := trace.edges[i % len(trace.edges)]).dst, edge.src, "causal"))
    ),
    "structure/seq-against-edge": lambda trace, i: structs.replace(
        trace,
        events=(*trace.events, event(10**6, "safety_event", "guard")),
        edges=(*trace.edges, Edge("e1000000", trace.events[i].id, "safety_flow")),
    ),
    "structure/unknown-call": lambda trace, i: with_event(trace, i, call="nowhere"),
    "structure/span-without-call": lambda trace, i: with_event(trace, i, span=(0, 1), call=None),
    "structure/span-outside-call": lambda trace, _: with_event(trace, 0, span=(0, 99)),
    "structure/unknown-parent": lambda trace, _: with_call(trace, parent="nowhere"),
    "structure/call-cycle": lambda trace, _: with_call(trace, parent=trace.calls[-1].id, keep=0),
    "structure/logprobs-length": lambda trace, _: with_call(trace, completion_ids=Ints(range(6))),
    "structure/choice-outside-options": lambda trace, i: with_event(trace, i, choice=7),
    "meaning/acts-before-spawn": lambda trace, _: structs.replace(
        trace, events=(*trace.events, event(10**6, "spawn", "other", to="root"))
    ),
    "meaning/acts-after-stop": lambda trace, _: structs.replace(
        trace, events=(*trace.events, event(10**6, "aggregate", "root"))
    ),
    "meaning/result-without-call": lambda trace, _: structs.replace(
        trace, events=(*trace.events, event(10**6, "tool_result", "search", tool="search"))
    ),
    "meaning/propensity-range": lambda trace, i: with_event(trace, i, propensity=0.0),
    "meaning/cost-mismatch": lambda trace, _: structs.replace(
        trace, costs={**trace.costs, "tokens": -0.5 + 1e9}
    ),
    "meaning/wall-clock-short": lambda trace, i: with_event(trace, i, t=1e9),
    "meaning/payload-mismatch": lambda trace, _: structs.replace(
        trace, payloads={"b2:" + "0" * 40: Payload.of("something else")}
    ),
    "meaning/unknown-target": lambda trace, _: trace.with_records(
        rewards=[Reward(family="tool", unit="tool_call", target="nowhere", value=1.0)]
    ),
}


@pytest.mark.parametrize("code", MUTATIONS)
@settings(max_examples=12)
@given(trace=valid_traces(), data=st.data())
def test_a_mutation_is_caught(code: str, trace: Trace, data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(trace.events) - 1))
    assert code in codes(MUTATIONS[code](trace, place))


def test_all_problems_of_a_record_are_reported_at_once() -> None:
    bad = Event(id="e0", t="soon", type="mesage", agent="a", seq=1.5, tokens=-1)  # type: ignore[arg-type]
    found = {(problem.code, problem.field) for problem in validate(trace_of(bad))}
    assert found == {
        ("shape/wrong-type", "t"),
        ("shape/unknown-value", "type"),
        ("shape/wrong-type", "seq"),
        ("shape/negative", "tokens"),
    }


def test_what_refers_to_a_broken_record_is_not_blamed() -> None:
    broken = event(0, "tool_call", tool="search", tokens="many")
    trace = trace_of(
        broken,
        event(1, "tool_result", tool="search", tokens=3),
        edges=(Edge("e0", "e1", "return"),),
        costs={"tokens": 99.0, "wall_clock_s": 9.0},
    )
    assert codes(trace) == {"shape/wrong-type"}


def test_a_header_of_the_wrong_type() -> None:
    trace = Trace(header=Header(trace_id="t", task_id=7, version="1"), events=(event(0),))  # type: ignore[arg-type]
    assert {problem.field for problem in validate(trace)} == {"task_id", "version"}


def test_the_cycle_is_shown() -> None:
    edges = (Edge("e0", "e1", "causal"), Edge("e1", "e2", "causal"), Edge("e2", "e1", "causal"))
    (problem,) = validate(trace_of(event(0), event(1), event(2), edges=edges))
    assert problem.code == "structure/cycle"
    assert problem.found in ("e1 > e2 > e1", "e2 > e1 > e2")


def test_every_cycle_is_reported() -> None:
    edges = tuple(Edge(f"e{i}", f"e{i ^ 1}", "causal") for i in range(6))
    assert [problem.code for problem in validate(trace_of(*map(event, range(6)), edges=edges))] == [
        "structure/cycle"
    ] * 3


def test_one_code_is_kept_a_thousand_times() -> None:
    trace = trace_of(*(event(seq, tokens=-1) for seq in range(1500)))
    assert len(validate(trace)) == 1000


def test_position_is_the_index_of_the_event() -> None:
    (problem,) = validate(trace_of(event(0), event(1, propensity=2.0), event(2)))
    assert (problem.event_id, problem.position, problem.field) == ("e1", 1, "propensity")


def test_positions_hold_after_a_broken_event() -> None:
    problems = validate(trace_of(event(0, tokens="x"), event(1, propensity=2.0)))
    assert [(problem.code, problem.position) for problem in problems] == [
        ("shape/wrong-type", 0),
        ("meaning/propensity-range", 1),
    ]


def test_an_unknown_level_suggests_the_right_one() -> None:
    with pytest.raises(UsageError, match="Did you mean 'structure'"):
        validate(trace_of(event(0)), "structural")  # type: ignore[arg-type]


STOP = {"type_": "orchestrator_decision", "decision": "stop"}
SPAWN = {"type_": "spawn", "to": "b"}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # lives
        ([event(0, **SPAWN), event(1, agent="b"), event(2, "despawn", to="b")], set()),
        ([event(0, **SPAWN), event(1, "despawn", to="b"), event(2, **SPAWN), event(3, agent="b")], set()),
        ([event(0, **SPAWN), event(1, "despawn", to="b"), event(2, agent="b"), event(3, **SPAWN)],
         {"meaning/acts-after-despawn"}),
        ([event(0, **SPAWN), event(1, "despawn", to="b", status="cancelled"), event(2, agent="b")],
         {"meaning/acts-after-despawn"}),
        ([event(0, **SPAWN), event(1, "despawn", to="b", status="failed"), event(2, agent="b")], set()),
        ([event(0, **SPAWN), event(1, "despawn", to="b"), event(2, agent="b", status="cancelled")], set()),
        ([event(0, agent="b"), event(1, **SPAWN, status="failed")], set()),
        ([event(0, agent="b", type_="despawn"), event(1, agent="b")], {"meaning/acts-after-despawn"}),
        ([event(0, "spawn", to="a")], {"meaning/spawned-twice"}),
        ([event(0, "despawn", to="b"), event(1, **SPAWN)], {"meaning/despawn-of-nobody"}),
        # stop
        ([event(0, **SPAWN), event(1, **STOP), event(2, agent="b")], {"meaning/acts-after-stop"}),
        ([event(0, **SPAWN), event(1, **STOP), event(2, "despawn", to="b"), event(3, "safety_event")], set()),
        ([event(0, **SPAWN), event(1, **STOP), event(2, agent="b", status="cancelled")], set()),
        ([event(0, **SPAWN), event(1, **STOP, agent="b"), event(2)], set()),
        ([event(0, **STOP, status="invalid"), event(1)], set()),
        ([event(0, **STOP), event(1, agent="another root")], set()),
        # forced
        ([event(0, "safety_event", extra={"budget": "tokens"}), event(1, **STOP)],
         {"meaning/unmarked-forced-stop"}),
        ([event(0, "safety_event", extra={"budget": "tokens"}), event(1, **STOP, status="forced")], set()),
        ([event(0, "safety_event", extra={"budget": "tokens"}), event(1, **STOP, propensity=0.5)], set()),
        ([event(0, "safety_event"), event(1, **STOP)], set()),
        # returns
        ([event(0, **SPAWN), event(1, "return", "b", to="a")], set()),
        ([event(0, **SPAWN), event(1, "return", "b", to="c")], {"meaning/return-to-stranger"}),
        ([event(0, "return", "a", to="user")], set()),
    ],
)  # fmt: skip
def test_lives_stops_and_returns(events: list[Event], expected: set[str]) -> None:
    assert codes(trace_of(*events)) == expected


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([("e0", "e2", "return"), ("e1", "e3", "return")], set()),
        ([("e0", "e2", "causal"), ("e1", "e3", "tool_dependency")], set()),
        # program order from one call to the other's result is no answer
        ([("e0", "e2", "return"), ("e1", "e3", "return"), ("e1", "e2", "temporal")], set()),
        ([("e0", "e2", "return"), ("e1", "e3", "return"), ("e1", "e2", "causal")], set()),
        ([("e0", "e2", "return"), ("e0", "e2", "causal"), ("e1", "e3", "return")], set()),
        ([("e0", "e2", "return"), ("e1", "e3", "temporal")], {"meaning/result-without-call"}),
        ([("e0", "e2", "return"), ("e0", "e3", "return")], {"meaning/answered-twice"}),
    ],
)
def test_answers(edges: list[tuple[str, str, Any]], expected: set[str]) -> None:
    calls = [event(i, "tool_call", tool="search") for i in (0, 1)]
    results = [event(i, "tool_result", "search", tool="search") for i in (2, 3)]
    assert codes(trace_of(*calls, *results, edges=tuple(Edge(*edge) for edge in edges))) == expected


def test_calls_of_unknown_length_are_taken_at_their_word() -> None:
    calls = (Call(id="c0", agent="a"), Call(id="c1", agent="a", parent="c0", keep=50))
    assert codes(trace_of(event(0, call="c0", span=(3, 9)), calls=calls)) == set()
    billed = (Call(id="c0", agent="a", prompt_tokens=10, completion_tokens=8), calls[1])
    expected = {"structure/span-outside-call", "structure/keep-outside-parent"}
    assert codes(trace_of(event(0, call="c0", span=(3, 9)), calls=billed)) == expected


@pytest.mark.parametrize(
    ("unit", "good", "bad"),
    [
        ("team", "t", "u"),
        ("orchestrator", "e0", "e1"),
        ("role", "lead", "cook"),
        ("agent", "b", "c"),
        ("turn", "c0", "c1"),
        ("message", "e1>b", "e1>c"),
        ("message", "e1", "e2"),
        ("tool_call", "e2", "e1"),
        ("token", "c0:1", "c0:2"),
        ("token", "c0:0", "c0:-1"),
    ],
)
def test_targets(unit: Any, good: str, bad: str) -> None:
    trace = trace_of(
        event(0, "orchestrator_decision", role="lead"),
        event(1, to="b"),
        event(2, "tool_call"),
        calls=(Call(id="c0", agent="a", completion_ids=Ints([7, 8])),),
    )
    credit = Credit(unit=unit, target=good, value=1.0, estimator="none")
    assert codes(trace.with_records(credits=[credit])) == set()
    assert codes(trace.with_records(credits=[structs.replace(credit, target=bad)])) == {
        "meaning/unknown-target"
    }


def test_properties_that_hold_themselves_are_reported_and_not_followed_for_ever() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "shape/not-json" in codes(trace_of(event(1, extra={"x": endless})))

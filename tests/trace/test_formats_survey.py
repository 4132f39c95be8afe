"""The survey's JSON: always valid, and nothing lost in either direction but token arrays."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import arbitrary_traces, json_objects, names, texts, valid_traces

from baton.errors import FormatError, TraceError
from baton.trace import Call, Edge, Event, Floats, Header, Ints, Reward, Trace
from baton.trace.formats import write
from baton.trace.formats.survey.survey_read import from_own_survey, from_survey, read_survey
from baton.trace.formats.survey.survey_write import encode_survey, to_survey
from baton.trace.vocabulary import EDGE_TYPES, EVENT_TYPES, TOPOLOGIES

SURVEY = Path(__file__).parents[2] / ".." / "shared" / "data" / "survey"
needs_survey = pytest.mark.skipif(
    not SURVEY.is_dir(), reason="the survey's schema is not beside this repository"
)


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((SURVEY / "trace_schema.json").read_text()))


def without_tokens(trace: Trace) -> Trace:
    def bare(call: Call) -> Call:
        arrays = [name for name, value in structs.asdict(call).items() if isinstance(value, Ints | Floats)]
        return structs.replace(call, **dict.fromkeys(arrays))

    return structs.replace(trace, calls=tuple(map(bare, trace.calls)))


def through_a_file(survey: dict[str, Any]) -> dict[str, Any]:
    back: dict[str, Any] = json.loads(json.dumps(survey, allow_nan=False))
    return back


@given(arbitrary_traces(min_events=1) | valid_traces())
def test_native_to_survey_to_native(trace: Trace) -> None:
    assert from_survey(through_a_file(to_survey(trace))) == without_tokens(trace)


@needs_survey
@given(trace=arbitrary_traces(min_events=1) | valid_traces())
def test_everything_written_is_valid(schema: jsonschema.Draft202012Validator, trace: Trace) -> None:
    survey = to_survey(trace)
    schema.validate(survey)
    assert through_a_file(survey) == survey


# --- Files of others ---

_values = st.floats(-1e9, 1e9) | st.integers(-(2**53), 2**53)
_positive = st.floats(0, 1e9) | st.integers(0, 2**53)
_properties = st.fixed_dictionaries(
    {},
    optional={
        "seq": st.integers(0, 5) | texts | st.none(),
        "decision": st.sampled_from(["spawn", "none", "shrug"]) | st.none(),
        "status": st.sampled_from(["ok", "failed", 200]),
        "tokens": st.integers(0, 9) | texts | st.just(10**30),
        "propensity": _values | st.just(10**30),
        "options": st.lists(texts, max_size=2) | texts,
        "span": st.lists(st.integers(0, 3), max_size=3),
        "inferred": st.booleans() | st.none(),
        "call": texts | st.none(),
        "extra": json_objects | texts,
        "kind": texts,
        "baton": json_objects | texts | st.just({"baton_version": "no"}),
        "baton__": json_objects,
    },
)
_foreign_events = st.builds(
    lambda required, named, properties, more: {**more, **properties, **named, **required},
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["e0", "e1", "e2"]) | names,
            "t": _positive,
            "type": st.sampled_from(EVENT_TYPES),
            "agent": names,
        }
    ),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(["role", "from", "to", "tool", "content_ref"], texts),
            "trusted": st.booleans(),
        },
    ),
    _properties,
    json_objects,
)
_foreign = st.fixed_dictionaries(
    {
        "trace_id": names,
        "task_id": names,
        "events": st.lists(_foreign_events, min_size=1, max_size=4, unique_by=lambda event: event["id"]),
        "edges": st.lists(
            st.fixed_dictionaries({"src": names, "dst": names, "type": st.sampled_from(EDGE_TYPES)})
            | st.fixed_dictionaries(
                {
                    "src": st.sampled_from(["e0", "e1", "e2"]),
                    "dst": st.sampled_from(["e0", "e1", "e2"]),
                    "type": st.sampled_from(EDGE_TYPES),
                }
            ),
            max_size=3,
        ),
        "rewards": st.dictionaries(
            st.sampled_from(["team", "verifier", "shared", "tool", "speed"]) | texts, _values, max_size=3
        ),
        "costs": st.fixed_dictionaries(
            {"tokens": _positive, "wall_clock_s": _positive}, optional={"messages": _positive, "usd": _values}
        ),
    },
    optional={
        "system": texts,
        "topology": st.sampled_from(TOPOLOGIES),
        "metrics": st.dictionaries(texts, _values, max_size=2),
    },
)


def holds(larger: Any, smaller: Any) -> bool:
    """Every key and value of `smaller`, at its place in `larger`."""
    if isinstance(smaller, dict):
        return all(key in larger and holds(larger[key], value) for key, value in smaller.items())
    return bool(larger == smaller) and isinstance(larger, bool) == isinstance(smaller, bool)


def assert_keeps(after: dict[str, Any], before: dict[str, Any]) -> None:
    by_id = {event["id"]: event for event in after["events"]}
    assert len(after["events"]) == len(before["events"])
    for event in before["events"]:
        assert holds(by_id[event["id"]], event)
    assert after["edges"] == before["edges"]
    assert after["rewards"] == before["rewards"]
    for key in before.keys() - {"events", "edges", "rewards"}:
        assert holds(after[key], before[key])


@needs_survey
@given(before=_foreign)
def test_survey_to_native_to_survey_keeps_everything(
    schema: jsonschema.Draft202012Validator, before: dict[str, Any]
) -> None:
    schema.validate(before)
    given_to_us = copy.deepcopy(before)
    trace = from_survey(given_to_us)
    assert given_to_us == before, "what was read was changed"
    after = through_a_file(to_survey(trace))
    schema.validate(after)
    assert_keeps(after, before)
    assert from_survey(after) == trace


@given(_foreign)
def test_an_order_is_made_that_respects_the_edges(survey: dict[str, Any]) -> None:
    trace = from_survey(survey)
    seqs = [event.seq for event in trace.events]
    assert seqs == sorted(set(seqs))
    backward = [
        (edge.src, edge.dst)
        for edge in trace.edges
        if edge.src in trace.position
        and edge.dst in trace.position
        and trace.position[edge.src] >= trace.position[edge.dst]
    ]
    if backward:  # then no order does: some event reaches itself
        assert any(_reaches(trace, src, src) for src, _ in backward)


def _reaches(trace: Trace, start: str, goal: str) -> bool:
    seen: set[str] = set()
    front = {start}
    while front:
        front = {edge.dst for edge in trace.edges if edge.src in front} - seen
        seen |= front
    return goal in seen


@needs_survey
def test_the_surveys_example(schema: jsonschema.Draft202012Validator, tmp_path: Path) -> None:
    before = json.loads((SURVEY / "example_trace.json").read_text())
    trace = read_survey(SURVEY / "example_trace.json")
    assert [event.id for event in trace.events] == [f"e{n}" for n in range(1, 9)]
    assert {(reward.family, reward.name, reward.value) for reward in trace.rewards} == {
        ("shared", "team", 1.0),
        ("orchestration", None, 0.3),
        ("tool", None, 0.1),
    }
    write(trace, tmp_path / "x.json")
    after = json.loads((tmp_path / "x.json").read_text())
    schema.validate(after)
    assert_keeps(after, before)
    assert read_survey(tmp_path / "x.json") == trace


# --- Particular things ---


def survey_with(*events: dict[str, Any], edges: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    return {
        "trace_id": "t",
        "task_id": "k",
        "events": [{"type": "message", "agent": "a", **event} for event in events],
        "edges": [{"src": src, "dst": dst, "type": "causal"} for src, dst in edges or []],
        "rewards": {},
        "costs": {"tokens": 0, "wall_clock_s": 0},
    }


def trace_with(**fields: Any) -> Trace:
    event = Event(id="e", t=0, type="message", agent="a", seq=0, tokens=7, duration_s=2.0)
    return structs.replace(Trace(header=Header(trace_id="t", task_id="k"), events=(event,)), **fields)


def test_ties_go_by_time_then_by_place() -> None:
    survey = survey_with(
        {"id": "z", "t": 5},
        {"id": "b", "t": 1},
        {"id": "a", "t": 1},
        {"id": "first", "t": 9},
        edges=[("first", "b")],
    )
    assert [event.id for event in from_survey(survey).events] == ["a", "z", "first", "b"]


def test_a_cycle_leaves_the_files_order() -> None:
    survey = survey_with({"id": "b", "t": 2}, {"id": "a", "t": 1}, edges=[("a", "b"), ("b", "a")])
    assert [event.id for event in from_survey(survey).events] == ["b", "a"]


def test_a_seq_that_means_something_else_is_kept_as_a_property() -> None:
    per_agent = survey_with({"id": "a", "t": 0, "seq": 0}, {"id": "b", "t": 1, "seq": 0})
    assert [(event.seq, event.extra) for event in from_survey(per_agent).events] == [
        (0, {"seq": 0}),
        (1, {"seq": 0}),
    ]
    ours = survey_with({"id": "a", "t": 0, "seq": 9}, {"id": "b", "t": 1, "seq": 4})
    assert [(event.id, event.extra) for event in from_survey(ours).events] == [("b", {}), ("a", {})]
    backward = survey_with({"id": "a", "t": 0, "seq": 9}, {"id": "b", "t": 1, "seq": 4}, edges=[("a", "b")])
    assert [event.id for event in from_survey(backward).events] == ["a", "b"]


def test_costs_nobody_measured_are_estimated_and_not_read_back() -> None:
    survey = to_survey(trace_with(costs={"tokens": 5.0}))
    assert survey["costs"] == {"tokens": 5.0, "wall_clock_s": 2.0}
    assert from_survey(survey).costs == {"tokens": 5.0}


def test_rewards_add_up_and_an_edited_sum_is_believed() -> None:
    rewards = tuple(
        Reward(family="tool", unit="tool_call", target="e", value=value) for value in (0.1, 0.2, 0.3)
    )
    survey = to_survey(trace_with(rewards=rewards))
    assert survey["rewards"] == {"tool": 0.6}
    survey["rewards"]["tool"] = 5.0
    assert from_survey(survey).rewards == (Reward(family="tool", unit="team", target="t", value=5.0),)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"events": ()}, "no events"),
        ({"header": Header(trace_id="", task_id="k")}, "not to be empty"),
        ({"events": (Event(id="e", t=-1, type="message", agent="a", seq=0),)}, "times of zero"),
        ({"events": (Event(id="e", t=float("nan"), type="message", agent="a", seq=0),)}, "not finite"),
        ({"edges": (Edge("", "e", "causal"),)}, "ends of edges"),
        ({"costs": {"tokens": -1.0}}, "'tokens'"),
        ({"metrics": {"x": float("inf")}}, "not finite"),
    ],
)
def test_what_the_surveys_form_cannot_say_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        to_survey(trace_with(**fields))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"trace_id": 5}, "trace_id"),
        ({"events": []}, "at least one event"),
        ({"events": [{"id": "e"}]}, r"events\[0\].*required field"),
        ({"events": [{"id": ["e"], "t": 0, "type": "message", "agent": "a"}]}, r"events\[0\].*id"),
        ({"events": [{"id": "e", "t": 0, "type": "shout", "agent": "a"}]}, "shout"),
        ({"colour": "red"}, "colour"),
        ({"edges": [{"src": "a"}]}, "dst"),
        ({"rewards": {"team": "lots"}}, "rewards"),
    ],
)
def test_malformed(change: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        from_survey({**survey_with({"id": "e", "t": 0}), **change})


def test_a_newer_or_damaged_rider() -> None:
    survey = to_survey(trace_with())
    newer = copy.deepcopy(survey)
    newer["events"][0]["baton"]["baton_version"] = 2
    with pytest.raises(FormatError, match="Type: "):
        from_survey(newer)
    survey["events"][0]["baton"]["finished"] = "maybe"
    with pytest.raises(FormatError, match="'baton' property of the first event"):
        from_survey(survey)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, b"[]", b'{"traceEvents":[]}'])
def test_files_that_are_not_the_surveys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.json"):
        read_survey(tmp_path / "x.json")


def _told(event: Event, **properties: Any) -> Event:
    return structs.replace(event, extra={**event.extra, **properties})


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"mine": [1, {"a": None}]},
        {"extra": {"budget": 3}},
        {"kind": "event"},
        {"kind": "odd", "seq": "x"},
    ],
)
@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_file_of_our_own_reads_the_same_straight_from_its_bytes(others: dict[str, Any], place: int) -> None:
    """By dictionaries and without them; what other systems call `extra` and `kind` stays theirs."""
    events = [
        Event(id=f"e{n}", t=n / 3, type="message", agent=f"a{n % 2}", seq=n + 1, options=("x", "y ü"))
        for n in range(6)
    ]
    events[place] = _told(events[place], **others)
    edges = tuple(
        Edge(f"e{n}", f"e{n + 1}", "temporal", n == 2, "why not" if n == 2 else None) for n in range(5)
    )
    trace = Trace(
        header=Header(trace_id="t", task_id="task"), events=tuple(events), edges=edges, finished=True
    )
    document = encode_survey(trace)
    assert from_own_survey(document) == from_survey(json.loads(document))
    read = from_own_survey(document)
    assert read is not None
    assert read.events == trace.events
    assert read.edges == trace.edges


@pytest.mark.parametrize("spoiled", [b'"seq": true', b'"seq": 1.5', b'"seq": "1"'])
def test_a_file_that_is_not_sound_is_left_to_the_one_that_says_why(spoiled: bytes) -> None:
    events = tuple(Event(id=f"e{n}", t=0, type="message", agent="a", seq=n + 1) for n in range(3))
    trace = Trace(header=Header(trace_id="t", task_id="task"), events=events, finished=True)
    document = encode_survey(trace).replace(b'"seq": 2', spoiled)
    assert from_own_survey(document) is None
    with pytest.raises(FormatError, match="seq"):
        from_survey(json.loads(document))
    assert from_own_survey(b'{"events": []}') is None
    assert from_own_survey(b"\xff") is None

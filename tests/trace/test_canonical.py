"""The canonical hash: blind to storage and speed, sensitive to everything else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import arbitrary_traces, valid_traces

from baton.trace import Call, Credit, Edge, Event, Floats, Header, Ints, Payload, Reward, Sampling, Trace
from baton.trace.canonical import canonical_hash
from baton.trace.formats.jsonl import encode_trace, read_jsonl

TRACE = Trace(
    header=Header(trace_id="t", task_id="k", meta={"seed": 1}),
    events=(
        Event(id="e0", t=0, type="message", agent="a", seq=0, propensity=1, call="c", duration_s=2),
        Event(id="e1", t=1.5, type="return", agent="b", seq=1, extra={"x": [1]}),
    ),
    edges=(Edge("e0", "e1", "message"),),
    calls=(
        Call(
            id="c", agent="a", completion_ids=Ints([1, 2]), logprobs=Floats([-0.5, -1]), t=0.5, duration_s=1
        ),
    ),
    payloads={(payload := Payload.of("hello")).ref: payload},
    rewards=(Reward(family="shared", unit="team", target="t", value=1),),
    credits=(Credit(unit="agent", target="a", value=0.5, estimator="uniform"),),
    costs={"tokens": 5, "wall_clock_s": 3},
    metrics={"success": 1},
)


@given(arbitrary_traces() | valid_traces(), st.randoms(), st.booleans())
def test_order_of_records_does_not_matter(trace: Trace, chance: random.Random, times: bool) -> None:
    def shuffled(items: Any) -> Any:
        return tuple(chance.sample(list(items), len(items)))

    other = structs.replace(
        trace,
        events=shuffled(trace.events),
        edges=shuffled(trace.edges),
        calls=shuffled(trace.calls),
        payloads=dict(shuffled(trace.payloads.items())),
        rewards=shuffled(trace.rewards),
        credits=shuffled(trace.credits),
        costs=dict(shuffled(trace.costs.items())),
    )
    assert canonical_hash(other, times) == canonical_hash(trace, times)


@given(arbitrary_traces(min_events=1))
def test_survives_a_file(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    path = tmp_path_factory.getbasetemp() / "canonical.jsonl"
    path.write_bytes(b"".join(encode_trace(trace)))
    (back,) = read_jsonl(path)
    assert canonical_hash(back, times=True) == canonical_hash(trace, times=True)


def test_whole_numbers_where_floats_are_meant(tmp_path: Path) -> None:
    sampled = structs.replace(TRACE.calls[0], sampling=Sampling(temperature=1, top_p=1))
    trace = structs.replace(TRACE, calls=(sampled,))
    (tmp_path / "x.jsonl").write_bytes(b"".join(encode_trace(trace)))
    (back,) = read_jsonl(tmp_path / "x.jsonl")
    assert canonical_hash(back, times=True) == canonical_hash(trace, times=True)
    defaults = structs.replace(TRACE.calls[0], sampling=Sampling())
    assert canonical_hash(structs.replace(TRACE, calls=(defaults,))) == canonical_hash(trace)


def later(trace: Trace) -> Trace:
    return structs.replace(
        trace,
        events=tuple(structs.replace(event, t=event.t + 1, duration_s=None) for event in trace.events),
        calls=tuple(structs.replace(call, t=9.0, duration_s=9.0) for call in trace.calls),
        costs={**trace.costs, "wall_clock_s": 9.0},
    )


def test_times_count_only_when_asked() -> None:
    assert canonical_hash(later(TRACE)) == canonical_hash(TRACE)
    assert canonical_hash(later(TRACE), times=True) != canonical_hash(TRACE, times=True)


def test_content_withheld_does_not_count() -> None:
    assert canonical_hash(TRACE.without_payloads()) == canonical_hash(TRACE)
    assert canonical_hash(structs.replace(TRACE, payloads={})) != canonical_hash(TRACE)


@given(arbitrary_traces(min_events=1), st.data())
def test_every_field_of_an_event_counts(trace: Trace, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(trace.events) - 1))
    name = data.draw(st.sampled_from(Event.__struct_fields__))
    event = trace.events[place]
    changed = structs.replace(event, **{name: _other(name, getattr(event, name))})
    other = structs.replace(trace, events=(*trace.events[:place], changed, *trace.events[place + 1 :]))
    assert canonical_hash(other, times=True) != canonical_hash(trace, times=True)
    assert (canonical_hash(other) == canonical_hash(trace)) == (name in ("t", "duration_s"))


def _other(name: str, value: Any) -> Any:
    if name == "extra":
        return {**value, "one more": None}
    if value is None or value == ():
        return _SOME.get(name, "x")
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value / 2 + 1 if value > 3 else value + 1
    return value + "x" if isinstance(value, str) else (*value, value[0])


_SOME = {
    "options": ("x",),
    "option_propensities": (0.5,),
    "span": (0, 1),
    **dict.fromkeys(["propensity", "duration_s", "choice", "tokens"], 1),
}


@pytest.mark.parametrize(
    "change",
    [
        {"header": structs.replace(TRACE.header, trace_id="u")},
        {"header": structs.replace(TRACE.header, meta={"seed": 2})},
        {"edges": (Edge("e0", "e1", "message", True),)},
        {"edges": ()},
        {"edges": TRACE.edges * 2},
        {"calls": (structs.replace(TRACE.calls[0], completion_ids=Ints([1, 3])),)},
        {"calls": (structs.replace(TRACE.calls[0], sampling=Sampling(temperature=0.5)),)},
        {"rewards": (structs.replace(TRACE.rewards[0], value=2.0),)},
        {"credits": (structs.replace(TRACE.credits[0], assumes=("x",)),)},
        {"costs": {"tokens": 6}},
        {"metrics": {}},
        {"finished": False},
    ],
    ids=str,
)
def test_every_other_record_counts(change: dict[str, Any]) -> None:
    assert canonical_hash(structs.replace(TRACE, **change)) != canonical_hash(TRACE)

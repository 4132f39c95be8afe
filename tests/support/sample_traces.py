"""Small traces written out: one that uses every record kind, for stores and formats, and ones of given events."""

from __future__ import annotations

from typing import Any

from baton.trace import (
    Call,
    Charge,
    Credit,
    Edge,
    Event,
    Floats,
    Header,
    Ints,
    Payload,
    Reward,
    Sampling,
    Trace,
)


def header(trace_id: str = "t") -> Header:
    return Header(trace_id=trace_id, task_id="sum", topology="centralized", meta={"seed": 3})


def event(seq: int, **fields: Any) -> Event:
    return Event(id=f"e{seq}", t=seq / 10, type="message", agent="a", seq=seq, **fields)


def whole_trace(trace_id: str = "t") -> Trace:
    text = Payload.of("found it " * 40)
    binary = Payload.of(bytes(range(256)), "application/octet-stream")
    call = Call(
        id="c0",
        agent="a",
        policy="tiny",
        prompt_ids=Ints(),
        completion_ids=Ints([5, -7, 2**31 - 1]),
        logprobs=Floats([-0.1, -2, 0]),
        sampling=Sampling(temperature=0.7, stop=("\n",)),
    )
    return Trace(
        header=header(trace_id),
        events=(
            event(0, content_ref=text.ref, options=("a", "b"), option_propensities=(0.25, 0.75), choice=1),
            event(1, call="c0", span=(0, 2), extra={"x": [1, None]}, from_="a", to="b"),
        ),
        edges=(Edge("e0", "e1", "message", True),),
        calls=(call, Call(id="c1", agent="a", parent="c0", keep=3)),
        payloads={text.ref: text, binary.ref: binary, "gone": Payload(ref="gone", size=3)},
        rewards=(Reward(family="shared", unit="team", target=trace_id, value=1.0),),
        credits=(Credit(unit="agent", target="a", value=0.5, estimator="shapley", assumes=("replay",)),),
        charges=(Charge(channel="violations", unit="team", target=trace_id, value=1.0, by="taint"),),
        costs={"tokens": 12.0},
        metrics={"f1": 0.25},
    )


def team(*rows: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> Trace:
    """One event a row: agent, type, fields; a second apart, in this order."""
    events = tuple(
        Event(
            id=f"e{i}",
            seq=i,
            agent=row[0],
            type=row[1],  # type: ignore[arg-type]
            **{"t": float(i), **(row[2] if len(row) == 3 else {})},
        )
        for i, row in enumerate(rows)
    )
    return Trace(header=Header(trace_id="t", task_id="k"), events=events)

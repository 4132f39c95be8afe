"""Writes tests/golden/invalid/: for each problem code the smallest change to a good trace that earns it.

Run: python tests/golden/make_invalid.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from baton.trace.records import Payload

HERE = Path(__file__).parent / "invalid"
Records = list[Any]  # dictionaries, but for lines that are no record

PLAN = Payload.of("find the capital")
PAYLOAD = {"kind": "payload", "ref": PLAN.ref, "size": PLAN.size, "data": "ZmluZCB0aGUgY2FwaXRhbA=="}
CALL = {
    "kind": "call",
    "agent": "lead",
    "prompt_ids": [1, 2, 3],
    "completion_ids": [4, 5],
    "logprobs": [-0.5, -0.25],
}


def good() -> Records:
    """A lead spawns a scout, who asks a tool and returns; the lead aggregates and stops.

    `seq` is 0, 10, 20, ...: there is room between any two.
    """
    events: Records = [
        {"type": "orchestrator_decision", "agent": "lead", "role": "orchestrator", "decision": "continue",
         "call": "c0", "span": [0, 2], "tokens": 5, "content_ref": PLAN.ref},
        {"type": "spawn", "agent": "lead", "to": "scout", "role": "searcher", "decision": "spawn",
         "options": ["alone", "scout"], "choice": 1, "propensity": 0.75, "option_propensities": [0.25, 0.75]},
        {"type": "message", "agent": "lead", "from": "lead", "to": "scout", "decision": "delegate"},
        {"type": "tool_call", "agent": "scout", "tool": "search", "call": "c1", "span": [0, 2], "tokens": 4},
        {"type": "tool_result", "agent": "scout", "tool": "search"},
        {"type": "return", "agent": "scout", "from": "scout", "to": "lead"},
        {"type": "despawn", "agent": "lead", "to": "scout"},
        {"type": "aggregate", "agent": "lead", "decision": "aggregate"},
        {"type": "orchestrator_decision", "agent": "lead", "decision": "stop", "propensity": 1.0},
    ]  # fmt: skip
    edges = [
        (0, 1, "temporal"), (1, 2, "temporal"), (1, 3, "spawn"), (2, 3, "message"), (3, 4, "tool_dependency"),
        (4, 5, "temporal"), (5, 6, "return"), (2, 6, "temporal"), (5, 7, "aggregate"), (7, 8, "temporal"),
    ]  # fmt: skip
    return counted(
        [
            {"kind": "trace", "version": 1, "trace_id": "capital-1", "task_id": "capital"},
            *(
                {"kind": "event", "id": f"e{i}", "t": float(i), "seq": 10 * i, **event}
                for i, event in enumerate(events)
            ),
            *({"kind": "edge", "src": f"e{a}", "dst": f"e{b}", "type": type_} for a, b, type_ in edges),
            {**CALL, "id": "c0"},
            {**CALL, "id": "c1", "parent": "c0", "keep": 5, "prompt_ids": [6]},
            dict(PAYLOAD),
            {"kind": "reward", "family": "shared", "unit": "team", "target": "capital-1", "value": 1.0},
            {"kind": "credit", "unit": "token", "target": "c1:1", "value": 0.5, "estimator": "uniform"},
            {"kind": "end", "costs": {"tokens": 9, "wall_clock_s": 8.5, "tool_calls": 1, "messages": 1}},
        ]
    )


def counted(records: Records) -> Records:
    """The records with an end that counts them."""
    kinds = [record.get("kind") for record in records]
    for record in records:
        if record.get("kind") == "end":
            record["counts"] = {
                kind: kinds.count(kind) for kind in dict.fromkeys(kinds) if kind not in ("trace", "end")
            }
    return records


def of(records: Records, name: str) -> dict[str, Any]:
    """An event or call by its id, or the first record of a kind."""
    return next(record for record in records if name in (record.get("id"), record["kind"]))


def put(name: str, **fields: Any) -> Callable[[Records], Records]:
    """Set fields of one record; None takes one away."""

    def change(records: Records) -> Records:
        record = of(records, name)
        for field, value in fields.items():
            if value is None:
                del record[field]
            else:
                record[field] = value
        return records

    return change


def add(*new: dict[str, Any]) -> Callable[[Records], Records]:
    """More records, counted, before the end."""
    return lambda records: counted([*records[:-1], *deepcopy(list(new)), records[-1]])


def event(**fields: Any) -> dict[str, Any]:
    return {"kind": "event", "id": "new", "t": 8.25, "seq": 90, "type": "message", "agent": "lead", **fields}


def edge(src: str, dst: str, type_: str = "causal") -> dict[str, Any]:
    return {"kind": "edge", "src": src, "dst": dst, "type": type_}


CHANGES: dict[str, Callable[[Records], Records]] = {
    "shape/not-json": lambda records: [records[0], "not JSON", *records[1:]],
    "shape/not-an-object": lambda records: [records[0], "[1, 2]", *records[1:]],
    "shape/unknown-kind": lambda records: [records[0], {"kind": "evnt"}, *records[1:]],
    "shape/no-header": lambda records: counted([r for r in records if r["kind"] not in ("trace", "reward")]),
    "shape/missing-field": put("e2", agent=None),
    "shape/unknown-field": put("e2", reciever="scout"),
    "shape/wrong-type": put("e2", t="2"),
    "shape/unknown-value": put("e2", type="mesage"),
    "shape/not-finite": put("e2", duration_s=float("nan")),
    "shape/negative": put("e2", t=-2.0),
    "shape/too-large": put("c0", prompt_ids=[1, 2, 2**31]),
    "shape/empty": put("e2", agent=""),
    "structure/unfinished": lambda records: records[:-1],
    "structure/checksum": lambda records: [{**r, "crc": 1} if r["kind"] == "end" else r for r in records],
    "structure/counts": lambda records: [r for r in records if r["kind"] != "reward"],
    "structure/after-end": lambda records: [*records, edge("e0", "e8")],
    "structure/no-events": lambda records: [records[0], {"kind": "end"}],
    "structure/duplicate-trace": lambda records: [*records, *records],
    "structure/duplicate-event": add(event(id="e8", type="safety_event")),
    "structure/duplicate-call": add({**CALL, "id": "c0"}),
    "structure/duplicate-payload": add(PAYLOAD),
    "structure/unknown-event": add(edge("e0", "e99")),
    "structure/cycle": add(edge("e5", "e3")),
    "structure/duplicate-seq": put("e2", seq=10),
    "structure/seq-against-edge": add(edge("e7", "e6")),
    "structure/unknown-call": put("e3", call="c9"),
    "structure/span-without-call": put("e3", call=None),
    "structure/span-outside-call": put("e3", span=[0, 3]),
    "structure/unknown-parent": put("c1", parent="c9"),
    "structure/call-cycle": put("c0", parent="c1", keep=1),
    "structure/keep-outside-parent": put("c1", keep=6),
    "structure/logprobs-length": put("c1", logprobs=[-0.5]),
    "structure/token-ends-length": put("c1", token_ends=[3]),
    "structure/versions": put("c1", versions=[{"version": "3", "end": 9}]),
    "structure/choice-outside-options": put("e1", choice=2),
    "structure/propensities-length": put("e1", option_propensities=[0.25, 0.75, 0.0]),
    "meaning/spawn-without-child": add(event(seq=75, type="spawn")),
    "meaning/spawned-twice": add(event(seq=45, type="spawn", to="scout")),
    "meaning/despawn-of-nobody": add(event(seq=75, type="despawn", to="scout")),
    "meaning/acts-before-spawn": add(event(seq=5, type="aggregate", agent="scout")),
    "meaning/acts-after-despawn": add(event(seq=75, type="aggregate", agent="scout")),
    "meaning/acts-after-stop": add(event(seq=90, type="aggregate")),
    "meaning/return-to-stranger": put("e5", to="critic"),
    "meaning/result-without-call": put("e4", tool="browse"),
    "meaning/answered-twice": add(
        event(seq=75, type="tool_result", agent="search", tool="search"), edge("e3", "new", "return")
    ),
    "meaning/unmarked-forced-stop": lambda records: add(
        event(seq=75, type="safety_event", agent="ledger", extra={"budget": "tokens"})
    )(put("e8", propensity=None)(records)),
    "meaning/propensity-range": put("e8", propensity=1.5),
    "meaning/propensity-mismatch": put("e1", propensity=0.25),
    "meaning/propensities-sum": put("e1", option_propensities=[0.75, 0.75]),
    "meaning/cost-mismatch": put("end", costs={"tokens": 10}),
    "meaning/wall-clock-short": put("end", costs={"wall_clock_s": 7.5}),
    "meaning/payload-mismatch": put("payload", data="ZmluZCB0aGUgQ2FwaXRhbA=="),
    "meaning/unknown-target": put("credit", target="c1:2"),
}


def some_seq() -> str:
    """Only the survey's form can leave seq out."""
    events = [{"id": f"e{i}", "t": i, "type": "message", "agent": "a"} for i in range(2)]
    events[0]["seq"] = 0
    return json.dumps(
        {
            "trace_id": "capital-1",
            "task_id": "capital",
            "events": events,
            "edges": [],
            "rewards": {},
            "costs": {"tokens": 0, "wall_clock_s": 1},
        }
    )


def files() -> dict[str, str]:
    """What belongs in tests/golden/invalid/, by file name. The name is the code."""
    made = {"structure-partial-seq.json": some_seq() + "\n"}
    for code, change in CHANGES.items():
        lines = [line if isinstance(line, str) else json.dumps(line) for line in change(good())]
        made[f"{code.replace('/', '-')}.jsonl"] = "".join(f"{line}\n" for line in lines)
    return made


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name, text in files().items():
        (HERE / name).write_text(text, encoding="utf-8")

"""Chrome traces: what the format demands, whatever the trace."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from strategies import arbitrary_traces, valid_traces

from baton.errors import TraceError
from baton.trace import Edge, Event, Header, Trace
from baton.trace.formats.chrome import encode_chrome, to_chrome

ARROWS = ("spawn", "message", "return", "aggregate")


def trace_of(*events: Event, edges: tuple[Edge, ...] = ()) -> Trace:
    return Trace(header=Header(trace_id="t", task_id="k"), events=events, edges=edges)


def event(
    n: int, type_: str = "message", agent: str = "root", t: float | None = None, **fields: Any
) -> Event:
    return Event(id=f"e{n}", t=float(n) if t is None else t, type=type_, agent=agent, seq=n, **fields)  # type: ignore[arg-type]


def of_phase(trace: Trace, *phases: str) -> list[dict[str, Any]]:
    return [entry for entry in to_chrome(trace)["traceEvents"] if entry["ph"] in phases]


def processes(trace: Trace) -> dict[str, str]:
    """Thread name -> process name."""
    names = {
        entry["pid"]: entry["args"]["name"]
        for entry in of_phase(trace, "M")
        if entry["name"] == "process_name"
    }
    return {
        entry["args"]["name"]: names[entry["pid"]]
        for entry in of_phase(trace, "M")
        if entry["name"] == "thread_name"
    }


@given(arbitrary_traces() | valid_traces())
def test_structure(trace: Trace) -> None:
    made = json.loads(encode_chrome(trace))
    threads = {
        (entry["pid"], entry["tid"]) for entry in made["traceEvents"] if entry["name"] == "thread_name"
    }
    flows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    slices: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for entry in made["traceEvents"]:
        assert {"ph", "name", "ts", "pid", "tid"} <= entry.keys()
        assert entry["ph"] in ("M", "X", "s", "f", "C")
        assert entry["ts"] >= 0
        if entry["ph"] == "X":
            assert entry["dur"] > 0
            assert (entry["pid"], entry["tid"]) in threads
            slices[entry["pid"], entry["tid"]].append((entry["ts"], entry["dur"]))
        if entry["ph"] in "sf":
            flows[entry["id"]].append(entry)
    assert sum(map(len, slices.values())) == len(trace.events)
    ids = {event.id for event in trace.events}
    assert len(flows) == sum(edge.type in ARROWS and {edge.src, edge.dst} <= ids for edge in trace.edges)
    for pair in flows.values():
        start, end = pair
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["ts"] <= end["ts"]
        assert start["ts"] in [ts for ts, _ in slices[start["pid"], start["tid"]]]


@given(valid_traces())
def test_agents_come_and_go(trace: Trace) -> None:
    alive = [entry["args"]["agents"] for entry in of_phase(trace, "C") if entry["name"] == "agents alive"]
    spent = [entry["args"]["tokens"] for entry in of_phase(trace, "C") if entry["name"] == "tokens"]
    assert min(alive) >= 0
    assert alive[-1] == 0
    assert max(alive) <= 1 + sum(event.type == "spawn" for event in trace.events)
    assert spent == sorted(spent)
    assert spent[-1] == trace.costs["tokens"]


def test_counts_who_is_alive_and_not_the_tools() -> None:
    trace = trace_of(
        event(0, "spawn", to="w"),
        event(1, "tool_call", "w", tool="search"),
        event(2, "tool_result", "search", tool="search"),
        event(3, "despawn", to="w"),
        event(4, "orchestrator_decision", duration_s=2.0),
    )
    assert [(entry["ts"] / 1e6, entry["args"]["agents"]) for entry in of_phase(trace, "C")] == [
        (0, 2),
        (3, 1),
        (6, 0),
    ]


def test_times_have_no_noise_of_the_multiplication() -> None:
    trace = trace_of(event(0, t=0.1 + 0.2, duration_s=0.1), event(1, t=1.1, duration_s=1e-9))
    first, second = of_phase(trace, "X")
    assert (first["ts"], first["dur"]) == (300_000.0, 100_000.0)
    assert (second["ts"], second["dur"]) == (1_100_000.0, 1.0)
    assert {entry["ts"] for entry in of_phase(trace, "C")} == {300_000.0, 1_100_000.001}


def test_a_process_per_team_that_has_members() -> None:
    trace = trace_of(
        event(0, "spawn", to="lead"),
        event(1, "spawn", to="alone"),
        event(2, "spawn", "lead", to="w"),
        *(event(n, agent=name) for n, name in enumerate(["lead", "alone", "w"], 3)),
    )
    assert processes(trace) == {"root": "root", "alone": "root", "lead": "lead", "w": "lead"}


def test_a_loop_of_spawns_ends() -> None:
    trace = trace_of(
        event(0, "spawn", "a", to="b"), event(1, "spawn", "b", to="a"), event(2, "spawn", "c", to="c")
    )
    assert processes(trace).keys() == {"a", "b", "c"}


def test_a_deep_chain_is_not_slow() -> None:
    trace = trace_of(*(event(n, "spawn", f"a{n}", to=f"a{n + 1}") for n in range(20_000)))
    assert set(processes(trace).values()) == {"a0", "a1"}


def test_overlapping_events_get_a_lane_of_their_own() -> None:
    trace = trace_of(event(0, duration_s=5.0), event(1, duration_s=1.0), event(2), event(6))
    assert processes(trace).keys() == {"root", "root (2)"}
    assert len({entry["tid"] for entry in of_phase(trace, "X")}) == 2


def test_an_arrow_never_goes_back_in_time() -> None:
    trace = trace_of(event(0, t=9.0), event(1, t=1.0), edges=(Edge("e0", "e1", "message"),))
    assert [entry["ts"] for entry in of_phase(trace, "s", "f")] == [9e6, 9e6]


def test_no_time_that_json_cannot_hold() -> None:
    with pytest.raises(TraceError, match="not finite"):
        to_chrome(trace_of(event(0, t=float("nan"))))

"""Sightings become the trace that a person would draw of them, in whatever order and however often they come."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.connect.assemble import assemble
from baton.connect.assembly.agent_lines import NO_CALL, OPEN_CALL
from baton.connect.assembly.causal import TIMED
from baton.connect.assembly.links import AGGREGATED, RECEIVED
from baton.connect.import_report import ImportReport
from baton.connect.seen import Link, Seen, SeenAgent, SeenCall, SeenEvent, SeenReward, SeenSession
from baton.trace.canonical import canonical_hash
from baton.trace.graph.lineage import Lineage
from baton.trace.outcome import answer_of, final_event
from baton.trace.trace import Trace
from baton.trace.validation.checks import validate

S = "a session, with spaces"


def event(key: str, agent: str, type: Any, order: float, **rest: Any) -> SeenEvent:
    return SeenEvent(session=S, key=key, agent=agent, type=type, order=(order,), t=1e9 + order, **rest)


def call(key: str, agent: str, order: float, **rest: Any) -> SeenCall:
    return SeenCall(session=S, key=key, agent=agent, order=(order,), t=1e9 + order, **rest)


def team() -> list[Seen]:
    """A lead with three scouts of one name; one scout is asked again after it returned."""
    seen: list[Seen] = [
        SeenSession(session=S, key=S, system="odd 0.1", task="find\n it", metrics={"m": 2.0}),
        SeenAgent(session=S, key="main", name="lead", role="boss"),
        call(
            "m1", "main", 1, prompt_tokens=100, completion_tokens=7, policy="big", prompt=(("user", "find"),)
        ),
        call("m2", "main", 50, prompt_tokens=150, completion_tokens=9, completion="it is x"),
        call("m3", "main", 20),
        event("stop", "main", "orchestrator_decision", 51, decision="stop", call="m2", content="it is x"),
        event("more", "main", "message", 21, to="s1", decision="delegate", content="again", call="m3"),
        SeenReward(session=S, key="r", value=0.5, name="judge"),
        SeenReward(session=S, key="r2", value=1.0, unit="agent", target="s2"),
    ]
    for k in range(3):
        at = 5.0 + k
        seen += [
            SeenAgent(session=S, key=f"s{k}", name="scout", parent="main"),
            event(f"spawn{k}", "main", "spawn", 1.1 + k / 10, to=f"s{k}", call="m1", content=f"look {k}"),
            event(f"s{k}t", f"s{k}", "tool_call", at, tool="grep", content="{}", call=f"s{k}c"),
            call(f"s{k}c", f"s{k}", at - 0.5, prompt_tokens=10, completion_tokens=k),
            event(f"s{k}r", f"s{k}", "tool_result", at + 0.2, tool="grep",
                  after=(Link(f"s{k}t", "tool_dependency"),), content="hit", trusted=False),
            event(f"s{k}done", f"s{k}", "return", at + 0.5, to="main", content=f"r{k}"),
        ]  # fmt: skip
    seen.append(event("s1again", "s1", "return", 30, content="r1'", after=(Link("more", "message"),)))
    return seen


def test_a_team_by_hand() -> None:
    report = ImportReport()
    (trace,) = assemble(team(), report, kind="odd")
    assert validate(trace) == []
    assert trace.header.system == "odd 0.1"
    assert trace.header.task_id == "find it"
    lives = Lineage.of(trace)
    assert lives.roots == ("lead",)
    assert set(lives["lead"].children) == {"scout", "scout-2", "scout-3"}
    types = [e.type for e in trace.events]
    assert (types.count("spawn"), types.count("return"), types.count("tool_call")) == (3, 4, 3)
    assert trace.costs["tokens"] == 107 + 159 + 10 + 11 + 12
    assert sum(e.tokens or 0 for e in trace.events) == trace.costs["tokens"]
    assert (trace.costs["messages"], trace.costs["tool_calls"]) == (1, 3)
    assert answer_of(trace) == "it is x"
    assert trace.metrics == {"m": 2.0}
    # All three were back before the lead's next answer, and the one that went out again before its last.
    (first,) = [e for e in trace.events if e.type == "aggregate"]
    assert (first.why, first.inferred, first.call) == (AGGREGATED, True, trace.events[first.seq].call)
    assert {trace.event(edge.src).agent for edge in trace.edges if edge.type == "aggregate"} == {
        "scout", "scout-2", "scout-3",
    }  # fmt: skip
    # The order of the files says that s1 heard of the second task; that the lead heard back is concluded.
    heard = {
        (trace.event(e.src).extra["source"], e.why) for e in trace.edges if e.type in ("return", "message")
    }
    assert heard == {("more", None), *((f"s{k}done", RECEIVED) for k in range(3)), ("s1again", RECEIVED)}
    assert {r.target for r in trace.rewards} == {
        trace.trace_id,
        trace.header.meta["connect"]["agents"] and "scout-3",
    }
    spoken = {e.why for e in trace.events} | {e.why for e in trace.edges}
    assert spoken - {None} == set(report.inferred) - {"the topology, as one agent spawns all the others"}
    assert trace.header.topology == "centralized"
    assert (
        trace.header.meta["connect"]["topology"]
        == "inferred: the topology, as one agent spawns all the others"
    )


def test_the_tokens_of_a_call_stand_on_its_first_event_and_silence_is_an_event() -> None:
    (trace,) = assemble(
        [
            call("c", "a", 1, prompt_tokens=3, completion_tokens=4, duration_s=0.5, status="failed"),
            call("d", "a", 2, completion_tokens=4),
            event("e1", "a", "tool_call", 2.1, tool="x", call="d"),
            event("e2", "a", "tool_call", 2.2, tool="x", call="d"),
            call("unknown", "a", 3),
        ]
    )
    got = [(e.type, e.decision, e.tokens, e.status, e.duration_s) for e in trace.events]
    assert got == [
        ("orchestrator_decision", "continue", 7, "failed", 0.5),
        ("tool_call", "none", 4, "ok", None),
        ("tool_call", "none", None, "ok", None),
        ("orchestrator_decision", "continue", None, "ok", None),
    ]
    assert [c.prompt_tokens for c in trace.calls] == [3, None, None]
    assert trace.calls[2].completion_tokens is None


def test_a_handoff_grows_from_another_agents_call() -> None:
    (trace,) = assemble(
        [
            call("a1", "a", 1, prompt_ids=(1, 2), completion_ids=(3,), logprobs=(-0.5,)),
            call("b1", "b", 2, parent="a1", prompt_ids=(1, 2, 3, 4), completion_ids=(5,)),
            call("b2", "b", 3, parent="nobody"),
        ]
    )
    first, second, third = trace.calls
    assert (second.parent, second.keep, second.agent) == (first.id, 3, "b")
    assert list(trace.prompt_ids(second) or ()) == [1, 2, 3, 4]
    assert third.parent is None
    assert validate(trace) == []


def test_what_contradicts_itself_is_mended_and_told() -> None:
    report = ImportReport()
    (trace,) = assemble(
        [
            SeenAgent(session=S, key="x", name="x", parent="y"),
            SeenAgent(session=S, key="y", name="y", parent="x"),
            SeenAgent(session=S, key="z", name="z", parent="gone", at="f:3"),
            SeenAgent(session=S, key="w", name="w", parent="x"),
            event("1", "x", "message", 1, to="y", after=(Link("2", "causal"), Link("lost", "causal"))),
            event("2", "y", "message", 2, to="x", after=(Link("1", "causal"),)),
            event("3", "z", "tool_result", 3, tool="t", at="f:9"),
            event("4", "z", "despawn", 4, to="w"),
            SeenEvent(session=S, key="5", agent="w", type="message", order=(5,), t=math.nan, call="none"),
            SeenEvent(session=S, key="6", agent="w", type="message", order=(6,), t=1e9 - 50, duration_s=-1.0),
            event("7", "w", "message", 7),
            SeenReward(session=S, key="r", value=math.nan),
            SeenReward(session=S, key="s", value=1.0, unit="agent", target="nobody"),
        ],
        report,
    )
    assert validate(trace) == []
    told = " | ".join(report.mended)
    for words in (
        "each other's parents", "parent is not there", "circle", "one that is not there", "no time",
        "call that is not there", "duration that is none", "a pause", "no number", "is not there: left out",
    ):  # fmt: skip
        assert words in told, words
    assert report.places["an agent's parent is not there: the agent stands as a root"] == ["f:3"]
    spawn = next(e for e in trace.events if e.type == "spawn" and e.to == "w")
    assert (spawn.agent, spawn.inferred) == ("x", True)


def test_results_find_their_calls() -> None:
    """A result that names its call has it, whatever a result without a name would have taken; nothing is lost."""
    report = ImportReport()
    (trace,) = assemble(
        [
            event("c1", "a", "tool_call", 1, tool="x"),
            event("c2", "a", "tool_call", 2, tool="x"),
            event("nameless", "a", "tool_result", 3, tool="x"),
            event("r2", "a", "tool_result", 4, tool="y", after=(Link("c2", "tool_dependency"),)),
            event("again", "a", "tool_result", 5, tool="x", after=(Link("c2", "tool_dependency"),)),
            event("alone", "a", "tool_result", 6, tool="x"),
        ],
        report,
    )
    assert validate(trace) == []
    source = {e.id: e.extra["source"] for e in trace.events}
    answers = {source[e.dst]: (source[e.src], e.why) for e in trace.edges if e.type == "tool_dependency"}
    assert answers["nameless"] == ("c1", OPEN_CALL)
    assert answers["r2"] == ("c2", None)
    assert answers["alone"] == ("alone/call", NO_CALL)
    assert {e.extra["source"]: e.type for e in trace.events}["again"] == "orchestrator_decision"
    assert [e.tool for e in trace.events if e.extra["source"] == "r2"] == ["x"]
    assert len(report.mended) == 2


def test_nothing_that_json_cannot_hold_gets_into_a_trace() -> None:
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    extra = {"nan": math.nan, "huge": 10**5000, "deep": deep, "sur\ud800": "\udfff", 3: {4: (1,)}}
    (trace,) = assemble(
        [
            event("e", "\ud800", "message", 1, content="\ud800 text", extra=extra, tool="\udc00"),
            SeenSession(session=S, key=S, meta={"x": math.inf}, task="\ud800"),
        ]
    )
    assert validate(trace) == []
    assert trace.text(trace.events[0].content_ref)


def test_a_stop_that_was_not_the_last_word_went_on() -> None:
    (trace,) = assemble(
        [
            event("1", "a", "orchestrator_decision", 1, decision="stop", content="first"),
            event("2", "user", "human_intervention", 2, to="a", content="and?"),
            event("3", "a", "orchestrator_decision", 3, decision="stop", content="second"),
            SeenAgent(session=S, key="b", parent="a"),
            event("late", "b", "message", 9, to="a"),
        ]
    )
    assert validate(trace) == []
    assert trace.events[0].extra["went_on"] is True
    final = final_event(trace)
    assert final is not None
    assert trace.text(final.content_ref) == "second"


def test_a_log_tells_how_long_things_took_by_when_they_were_written() -> None:
    """Times by hand: the answer was written 3 s after the result it waited for, which came 5 s after its call."""
    report = ImportReport()
    (trace,) = assemble(
        [
            SeenSession(session=S, key=S, logged=True),
            call("c1", "a", 2),
            event("t", "a", "tool_call", 2, tool="x", call="c1"),
            event("r", "a", "tool_result", 7, tool="x", after=(Link("t", "tool_dependency"),)),
            call("c2", "a", 10),
            event("m", "a", "message", 10, to="b", call="c2"),
            event("own", "b", "message", 10.5, duration_s=0.25, after=(Link("m", "message"),)),
            call("note", "b", 12, duration_s=9.0),
        ],
        report,
    )
    took = {e.extra["source"]: (e.t, e.duration_s) for e in trace.events}
    assert took == {
        "t": (0.0, None), "r": (0.0, 5.0), "m": (5.0, 3.0), "own": (8.5, 0.25), "note/answer": (10.0, 9.0),
    }  # fmt: skip
    assert {e.extra["source"] for e in trace.events if "timed" in e.extra} == {"r", "m"}
    assert report.inferred[TIMED] == 2


def test_what_nobody_chose_may_follow_the_last_word() -> None:
    (trace,) = assemble(
        [
            event("1", "a", "orchestrator_decision", 1, decision="stop", content="done"),
            event("2", "a", "orchestrator_decision", 2, content="the program tidies up"),
            event("3", "a", "human_intervention", 3, content="thanks"),
        ]
    )
    assert validate(trace) == []
    assert answer_of(trace) == "done"


KEYS = st.sampled_from("abcdefgh")
AGENTS = st.sampled_from(["p", "q", "r", "s"])
TYPES = st.sampled_from(
    ["message", "tool_call", "tool_result", "spawn", "return", "despawn", "orchestrator_decision"]
)
TIMES = st.none() | st.integers(0, 9).map(float)
MAYBE_WHY = st.none() | st.sampled_from(["because", "so it seems"])
LINKS = st.lists(
    st.builds(Link, KEYS, st.sampled_from(["causal", "message", "return"]), MAYBE_WHY), max_size=2
)
BASE: dict[str, Any] = {"session": st.sampled_from([S, "t"]), "key": KEYS, "why": MAYBE_WHY}
ORDERS = st.lists(st.integers(0, 5).map(float), max_size=2).map(tuple)
SIGHTINGS = st.lists(
    st.one_of(
        st.builds(SeenAgent, **BASE, name=st.none() | st.sampled_from(["n", "n-2"]), parent=st.none() | AGENTS),
        st.builds(SeenCall, **BASE, agent=AGENTS, order=ORDERS, t=TIMES, prompt_tokens=st.none() | st.integers(0, 9)),
        st.builds(
            SeenEvent, **BASE, agent=AGENTS, type=TYPES, order=ORDERS, t=TIMES, to=st.none() | AGENTS,
            after=LINKS.map(tuple), call=st.none() | KEYS, tool=st.none() | st.sampled_from("xy"),
            decision=st.none() | st.sampled_from(["stop", "delegate"]), duration_s=st.none() | st.just(0.5),
            content=st.none() | st.sampled_from(["one", "two"]),
        ),
        st.builds(SeenReward, **BASE, value=st.floats(allow_nan=True)),
    ),
    max_size=14,
)  # fmt: skip


def hashes(sightings: list[Seen]) -> list[str]:
    return [canonical_hash(trace, times=True) for trace in assemble(sightings)]


@settings(max_examples=80, deadline=None)
@given(SIGHTINGS, st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(sightings: list[Seen], draw: random.Random) -> None:
    mixed = sightings + draw.sample(sightings, len(sightings) // 2)
    draw.shuffle(mixed)
    assert hashes(mixed) == hashes(sightings)


@settings(max_examples=80, deadline=None)
@given(SIGHTINGS)
def test_whatever_is_seen_makes_sound_traces_that_say_all_of_it(sightings: list[Seen]) -> None:
    report = ImportReport()
    traces = assemble(sightings, report)
    by_session: dict[str, list[Seen]] = defaultdict(list)
    for seen in sightings:
        by_session[seen.session].append(seen)
    acting = {s for s, each in by_session.items() if any(isinstance(x, SeenCall | SeenEvent) for x in each)}
    assert len(traces) == len(acting)
    for trace, session in zip(traces, sorted(acting), strict=True):
        # To whom an agent returns is the source's word, also where it is a stranger.
        assert [problem for problem in validate(trace) if problem.code != "meaning/return-to-stranger"] == []
        check_against_brute_force(trace, by_session[session])


def check_against_brute_force(trace: Trace, sightings: list[Seen]) -> None:
    """A joiner that knows nothing but keys: every event and call is there once, and nothing unsaid without a reason."""
    keys = {x.key for x in sightings if isinstance(x, SeenEvent)}
    calls = {x.key for x in sightings if isinstance(x, SeenCall)}
    told = [e.extra["source"] for e in trace.events]
    assert sorted(set(told)) == sorted(told)
    assert keys <= set(told)
    silent = calls - {e.extra["source"].removesuffix("/answer") for e in trace.events}
    assert len(trace.calls) == len(calls)
    for e in trace.events:
        if e.extra["source"] in keys:
            mine = [x for x in sightings if isinstance(x, SeenEvent) and x.key == e.extra["source"]]
            assert e.inferred == all(x.why is not None for x in mine)
        else:
            assert e.inferred or e.extra["source"].rstrip("'").endswith("/answer")
            assert e.why is not None or not e.inferred
    for edge in trace.edges:
        assert edge.inferred == (edge.why is not None)
        assert trace.event(edge.src).t <= trace.event(edge.dst).t
    charged = [e.call for e in trace.events if e.tokens is not None]
    assert len(charged) == len(set(charged))
    billed = defaultdict(list)
    for x in sightings:
        if isinstance(x, SeenCall) and x.prompt_tokens is not None:
            billed[x.key].append(x.prompt_tokens)
    assert len(charged) == len(billed)
    least, most = sum(map(min, billed.values())), sum(map(max, billed.values()))
    assert least <= sum(e.tokens or 0 for e in trace.events) <= most
    assert silent <= calls


def test_nothing_seen_is_no_trace() -> None:
    report = ImportReport()
    assert assemble([SeenSession(session=S, key=S)], report) == []
    assert sum(report.mended.values()) == 1


@pytest.mark.parametrize("session", ["0b9c-11", "../../etc/x y", "é" * 200, ""])
def test_names_of_traces_derive_from_their_session(session: str) -> None:
    (trace,) = assemble([SeenEvent(session=session, key="k", agent="a", type="message")], kind="odd")
    (again,) = assemble([SeenEvent(session=session, key="k", agent="a", type="message")], kind="odd")
    assert trace.trace_id == again.trace_id
    assert trace.trace_id.startswith("odd-")
    assert "/" not in trace.trace_id

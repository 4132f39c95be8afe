"""Who asked, by headers, spans and prompts: each rule by a session made for it, and many drawn ones by their truth."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from served_sessions import Played, assistant, result, system, user

from baton.serve.exchange import Exchange, Posted, Utterance
from baton.serve.journal import SpansLine
from baton.serve.lineage.askers import EDITED
from baton.serve.lineage.begins import SAME_WORDS, SAME_WORDS_ANSWER, UNSURE, WORD_FOR_WORD
from baton.serve.lineage.joining import COMPACTED
from baton.serve.lineage.team import HEARD_LATER, PROGRAM, team_of
from baton.serve.session_trace import session_trace
from baton.trace.trace import Trace
from baton.trace.validation import validate
from lineage import score, total
from made_teams import KINDS, MIXED, made_team

MANY = "how many of them are there?"


def traced(played: Played, *posted: Posted, spans: tuple[SpansLine, ...] = ()) -> Trace:
    trace = session_trace(played.exchanges, posted, spans, name=played.name)
    assert [one for one in validate(trace) if one.code != "structure/unfinished"] == []
    return trace


def arrows(trace: Trace, kind: str) -> list[tuple[str, str | None, str | None]]:
    return [(event.agent, event.to, event.why) for event in trace.events if event.type == kind]


@pytest.mark.parametrize(
    ("headers", "by"),
    [
        (
            [
                {"x-baton-agent": "chief", "x-baton-role": "boss"},
                {"x-baton-agent": "hand", "x-baton-parent": "chief", "x-baton-role": "worker"},
            ],
            "x-baton-agent",
        ),
        (
            [
                {"x-claude-code-session-id": "s"},
                {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a1"},
            ],
            "x-claude-code-agent-id",
        ),
        (
            [{"thread-id": "t0"}, {"thread-id": "t1", "x-codex-parent-thread-id": "t0"}],
            "thread-id",
        ),
    ],
)
def test_headers_say_it_and_no_reason_is_given(headers: list[dict[str, str]], by: str) -> None:
    """Not a word of the task stands in what the tool was asked."""
    played = Played()
    lead = played.talk(user("go"), **{k.replace("-", "_"): v for k, v in headers[0].items()})
    (use,) = lead.say("", ("Agent", {"prompt": "something else"}))
    child = played.talk(user("count the boats"), **{k.replace("-", "_"): v for k, v in headers[1].items()})
    child.say("nine")
    lead.hear(result(use, "It says: nine.")).say("nine boats")
    trace = traced(played)
    ((parent, to, why),) = arrows(trace, "spawn")
    assert (why, len(trace.header.meta["connect"]["agents"])) == (None, 2)
    assert trace.header.meta["asked_by"].get(by, 0) >= 1
    if by == "x-baton-agent":
        assert (parent, to) == ("chief", "hand")
        assert {call.agent: call.role for call in trace.calls} == {"chief": "boss", "hand": "worker"}


def spans(*names: tuple[str, str, str | None]) -> SpansLine:
    """Agents as spans: (span id, agent's name, parent's span id)."""
    told = [
        {
            "traceId": "a" * 32,
            "spanId": span,
            "parentSpanId": parent or "",
            "name": f"invoke_agent {name}",
            "startTimeUnixNano": str(10**18 + place),
            "endTimeUnixNano": str(10**18 + 10**9 - place),
            "attributes": [
                {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}},
                {"key": "gen_ai.agent.name", "value": {"stringValue": name}},
            ],
        }
        for place, (span, name, parent) in enumerate(names)
    ]
    body = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "x"}, "spans": told}]}]}
    return SpansLine(signal="traces", is_json=True, body=json.dumps(body).encode())


def test_spans_say_it_before_the_words_do() -> None:
    played = Played()
    head = f"00-{'a' * 32}-"
    lead = played.talk(user("go"), traceparent=f"{head}{'1' * 16}-01")
    first, second = lead.say("", ("ask", {"q": "count the boats"}), ("ask", {"q": "count the boats"}))
    # The words of both are those of either tool; the spans name one of them as the other's child.
    one = played.talk(user("count the boats"), traceparent=f"{head}{'2' * 16}-01")
    (inner,) = one.say("", ("ask", {"q": "count the boats"}))
    played.talk(user("count the boats"), traceparent=f"{head}{'3' * 16}-01").say("nine")
    one.hear(result(inner, "nine")).say("nine")
    lead.hear(result(first, "nine"), result(second, "none")).say("nine boats")
    line = spans(("1" * 16, "chief", None), ("2" * 16, "hand", "1" * 16), ("3" * 16, "finger", "2" * 16))
    assert arrows(traced(played, spans=(line,)), "spawn") == [
        ("chief", "hand", None),
        ("hand", "finger", None),
    ]
    assert traced(played, spans=(line,)).header.meta["asked_by"] == {"traceparent": 5}
    broken = SpansLine(signal="traces", is_json=False, body=b"\xff\xff")
    assert traced(played, spans=(broken,)).header.meta["asked_by"] == {"words": 5}


def test_equal_words_are_told_apart_by_their_answers() -> None:
    played = Played()
    lead = played.talk(system("You are the lead."), user("go"))
    one, other = lead.say("", ("ask", {"q": "how many?"}), ("ask", {"q": "how many?"}))
    first, second = (played.talk(system("You are a counter."), user("how many?")) for _ in "ab")
    first.say("nine of them")
    second.say("seven of them")
    lead.hear(result(one, "seven of them"), result(other, "nine of them")).say("sixteen")
    spawned = {event.to: event for event in traced(played).events if event.type == "spawn"}
    asked = {name: event.extra["tool_call_id"] for name, event in spawned.items()}
    assert asked == {"counter": other.id, "counter-2": one.id}
    assert {event.why for event in spawned.values()} == {f"{WORD_FOR_WORD}; {SAME_WORDS_ANSWER}"}


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        (
            "nine of them",
            f"Your task, of many that are done by many, and not by you alone: {MANY} Answer in a sentence.",
        ),
        (
            "(cut) nine of",
            f"Your task, of many that are done by many, and not by you alone: {MANY} Answer in a sentence.",
        ),
        ("started", f"Task: {MANY}"),
    ],
)
def test_a_search_for_ones_own_task_begins_nobody(heard: str, told: str) -> None:
    """Two are told the same in the same frame, and one looks all of it up before the other has begun."""
    played = Played()
    lead = played.talk(system("You are the lead."), user("go"))
    one, other = lead.say("", ("ask", {"q": MANY}), ("ask", {"q": MANY}))
    if heard == "started":
        lead.hear(result(one, heard), result(other, heard)).say("They are under way.")
    first = played.talk(system("You are a counter."), user(told))
    (search,) = first.say("", ("search", {"words": told}))
    played.talk(system("You are a counter."), user(told)).say("nine of them")
    first.hear(result(search, "a page")).say("seven of them")
    if heard != "started":
        lead.hear(result(one, "seven of them"), result(other, heard)).say("sixteen")
    spawned = [(event.agent, event.tool) for event in traced(played).events if event.type == "spawn"]
    assert spawned == [("lead", "ask")] * 2


def test_what_nothing_tells_apart_is_shared_out_and_says_so() -> None:
    played = Played()
    lead = played.talk(system("You are the lead."), user("go"))
    uses = lead.say("", *([("ask", {"q": "how many?"})] * 3))
    for _ in uses:
        played.talk(system("You are a counter."), user("how many?")).say("nine of them")
    lead.hear(*(result(use, "nine of them") for use in uses)).say("nine")
    spawned = [event for event in traced(played).events if event.type == "spawn"]
    assert sorted(event.extra["tool_call_id"] for event in spawned) == sorted(use.id for use in uses)
    assert {event.why for event in spawned} == {f"{WORD_FOR_WORD}; {SAME_WORDS}"}


def test_a_broken_prefix_is_no_new_agent() -> None:
    """Compaction begins anew with a summary; an edited history has tools as text."""
    played = Played()
    head = system("You are the lead of a long day.")
    lead = played.talk(head, user("go"))
    (use,) = lead.say("", ("lookup", {"q": "the boats in the harbour"}))
    edited = [
        head,
        user("go"),
        assistant('lookup("the boats in the harbour")'),
        user("Observation: nine boats"),
    ]
    played.add(edited, assistant("So far there are nine boats, and the tide is low."), (), {}, None)
    played.talk(head, user("Summary: So far there are nine boats, and the tide is low. Go on.")).say("done")
    trace = traced(played)
    assert {call.agent for call in trace.calls} == {"lead"}
    assert use.name == "lookup"
    (asker,) = team_of(played.exchanges).askers.all()
    assert asker.why in (EDITED, COMPACTED)


def test_a_handoff_is_a_message_and_nobody_is_born() -> None:
    played = Played()
    talk = [user("my boat leaks")]
    use = played.use("transfer_to_carpenter", {})
    played.add([system("You are the desk."), *talk], assistant("", use), ("transfer_to_carpenter",), {}, None)
    talk += [assistant("", use), result(use, "{}")]
    played.add([system("You are the carpenter."), *talk], assistant("It is mended."), (), {}, None)
    trace = traced(played, Posted(session="s", ended=True))
    assert [(a, to) for a, to, _ in arrows(trace, "message")] == [("desk", "carpenter")]
    assert arrows(trace, "spawn") == []
    assert [e.agent for e in trace.events if e.decision == "stop"] == ["carpenter"]


@pytest.mark.parametrize("voice", [user, system])
def test_a_late_return_is_found_in_what_the_parent_is_told(voice: Callable[[str], Utterance]) -> None:
    """Claude Code 2.1.325 tells it in the system's name where the parent was still at work."""
    played = Played()
    lead = played.talk(system("You are the lead."), user("go"))
    (use,) = lead.say(
        "", ("Agent", {"description": "counter", "prompt": "count the boats", "subagent_type": "any"})
    )
    child = played.talk(system("You count."), user("<context/>"), user("count the boats"))
    lead.hear(result(use, "started in the background")).say("waiting")
    child.say("there are nine boats")
    lead.hear(voice("<note>the agent says: there are nine boats</note>")).say("nine")
    trace = traced(played)
    assert arrows(trace, "return") == [("counter", "lead", HEARD_LATER)]
    assert not any(event.type == "human_intervention" for event in trace.events)


def test_agents_that_nobody_asked_for_are_the_programs() -> None:
    played = Played()
    played.talk(system("You are the planner."), user("two rivers")).say("the Daugava; the Gauja")
    for river in ("the Daugava", "the Gauja"):
        played.talk(system("You are a writer."), user(f"Write on {river}.")).say(
            f"Long is {river} ({river[-1]})."
        )
    told = "Put together:\nLong is the Daugava (a).\nLong is the Gauja (a)."
    played.talk(system("You are the editor."), user(told)).say("Both are long.")
    trace = traced(played, Posted(session="s", ended=True, status="ok", answer="Both are long."))
    assert [(a, to) for a, to, _ in arrows(trace, "spawn")] == [
        ("program", "planner"), ("program", "writer"), ("program", "writer-2"), ("program", "editor"),
    ]  # fmt: skip
    assert {why for _, _, why in arrows(trace, "spawn")} == {PROGRAM}
    fused = next(event for event in trace.events if event.type == "aggregate")
    sources = {edge.src for edge in trace.edges if edge.dst == fused.id and edge.type == "aggregate"}
    assert {trace.event(src).agent for src in sources} == {"writer", "writer-2"}
    assert (trace.events[-1].agent, trace.text(trace.events[-1].content_ref)) == ("program", "Both are long.")


def test_what_cannot_be_known_is_said_and_not_guessed() -> None:
    """Two leads wait for a tool each when an agent begins of whose words and answer neither knows anything."""
    played = Played()
    leads = [played.talk(system(f"You are {name}."), user(f"{name}, go")) for name in ("Ann", "Bob")]
    uses = [lead.say("", ("think", {"about": "boats"}))[0] for lead in leads]
    played.talk(system("You are Eve."), user("colours of the sky")).say("blue, mostly")
    for lead, use in zip(leads, uses, strict=True):
        lead.hear(result(use, "42")).say("so be it")
    trace = traced(played)
    (eve,) = (event for event in trace.events if event.type == "spawn" and event.to == "Eve")
    assert (eve.agent, eve.why) == ("program", UNSURE)
    assert set(trace.header.meta["unsure"].values()) == {UNSURE}


@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("chooses", [False, True])
def test_best_of_n_is_one_agent_that_was_asked_n_times(times: int, chooses: bool) -> None:
    played = Played()
    for number in range(times):
        played.talk(system("You are the poet."), user("a line on boats")).say(
            f"Boat number {number} is blue."
        )
    if chooses:
        told = " | ".join(f"Boat number {number} is blue." for number in range(times))
        played.talk(system("You are the judge."), user(f"Which is best? {told}")).say("The first.")
    trace = traced(played, Posted(session="s", ended=True, status="ok", answer="Boat number 0 is blue."))
    poets = [call.agent for call in trace.calls[:times]]
    assert len(set(poets)) == (times if chooses else 1), poets


@pytest.mark.parametrize("answers", [["a blue one", "a red one", "no idea"], ["a blue one"] * 2])
def test_short_answers_put_together_are_nobodys_message(answers: list[str]) -> None:
    played = Played()
    for number, answer in enumerate(answers):
        played.talk(system("You are the joker."), user(f"joke {number}")).say(answer)
    played.talk(system("You are the judge."), user("\n".join(answers))).say("The first.")
    trace = traced(played, Posted(session="s", ended=True, status="ok", answer="The first."))
    assert arrows(trace, "message") == []
    assert [to for _, to, _ in arrows(trace, "return")] == ["program"] * (len(answers) + 1)


def test_a_room_of_two_is_messages() -> None:
    played = Played()
    writer = played.talk(system("You are the writer."), user("a line on boats"))
    writer.say("Boats are blue things.")
    critic = played.talk(
        system("You are the critic."), user("a line on boats"), user("Boats are blue things.")
    )
    critic.say("Not all of them are.")
    writer.hear(user("Not all of them are.")).say("Some boats are blue.")
    trace = traced(played)
    assert [(a, to) for a, to, _ in arrows(trace, "message")] == [("writer", "critic"), ("critic", "writer")]
    assert arrows(trace, "human_intervention") == []


def test_refusals_and_lost_answers_stand_where_they_were_asked() -> None:
    played = Played()
    talk = played.talk(system("You are the lead."), user("go"))
    talk.say("one")
    last = played.exchanges[-1]
    refused = Exchange(
        session="s", id="r", number=1, ask=last.ask, refused="the session has its tokens", begun=2000.0
    )
    lost = Exchange(session="s", id="l", number=2, ask=last.ask, begun=2001.0)
    played.exchanges += [refused, lost]
    trace = traced(played)
    assert [(e.status, e.extra["call_extra"].get("refused")) for e in trace.events if e.status != "ok"] == [
        ("failed", "the session has its tokens"),
        ("in_doubt", "no answer was written down"),
    ]


def test_order_of_arrival_in_the_list_does_not_matter() -> None:
    made = made_team("same task in parallel", 3)
    there = session_trace(made.exchanges, name="x")
    back = session_trace(made.exchanges[::-1], name="x")
    assert there == back


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "task handed on"])
def test_made_up_programs_are_seen_through(kind: str) -> None:
    found = total(kind, range(100, 102))
    assert found.calls_right == found.calls
    assert found.spawns_right == found.spawns == found.spawns_said == found.tools_right
    assert found.returns_right == found.returns == found.returns_said


def test_mixtures_of_difficulties_are_mostly_seen_through() -> None:
    """What is left are teams in which everybody says the same few letters."""
    found = total(MIXED, range(1000, 1020))
    assert found.spawns_right >= 0.95 * max(found.spawns, found.spawns_said)
    assert found.returns_right >= 0.9 * max(found.returns, found.returns_said)


def test_a_wrong_guess_is_counted_as_one() -> None:
    """The score itself: a truth that says otherwise is missed."""
    made = made_team("plain", 5)
    whole = score(made)
    agent, (parent, use) = next(iter(made.truth.spawned.items()))
    made.truth.spawned[agent] = (agent if parent == "agent1" else "agent1", use)
    made.truth.heard.pop()
    worse = score(made)
    assert (worse.spawns_right, worse.returns_right) == (whole.spawns_right - 1, whole.returns_right - 1)
    assert whole.spawns_right == whole.spawns


def test_made_up_programs_make_traces_that_hold() -> None:
    for kind in [*KINDS, MIXED]:
        trace = session_trace(made_team(kind, 7).exchanges, [Posted(session="s", ended=True)], name="made")
        assert validate(trace) == []
        assert all(event.why for event in trace.events if event.type in ("spawn", "return"))

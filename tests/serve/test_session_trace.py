"""A session as a trace: every token where it was, every event with what it was concluded from."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_sessions import Played, result, system, user

from baton.cli import main
from baton.serve.exchange import Ask, Exchange, Posted, Reply, ReplyChoice, Utterance
from baton.serve.session_trace import session_trace
from baton.trace.formats.files import write
from baton.trace.records import Ints
from baton.trace.trace import Trace
from baton.trace.validation import validate

END = Posted(session="s", ended=True, status="ok")


def two_cities(name: str = "two-cities") -> Played:
    played = Played(name)
    lead = played.talk(system("You are the lead."), user("two cities"), tools=("ask_scout", "ask_other"))
    one, other = lead.say(
        "Let me see.",
        ("ask_scout", {"input": "capital of Fränce?"}),
        ("ask_other", {"input": "second city?"}),
    )
    scout = played.talk(system("You are a scout."), user("capital of Fränce?"), tools=("lookup",))
    (looked,) = scout.say("", ("lookup", {"q": "France"}))
    played.talk(system("Be other."), user("second city?")).say("Lyon")
    scout.hear(result(looked, "Pàris")).say("Pàris")
    lead.hear(result(one, "Pàris"), result(other, "Lyon")).say("Pàris and Lyon")
    return played


def story(trace: Trace) -> list[tuple[str, ...]]:
    return [(e.agent, e.type, e.to or "", e.decision, trace.text(e.content_ref) or "") for e in trace.events]


def test_a_lead_and_two_tools_that_are_agents() -> None:
    trace = session_trace(two_cities().exchanges, [END], name="s")
    assert validate(trace) == []
    assert story(trace) == [
        ("lead", "spawn", "scout", "spawn", '{"input": "capital of Fr\\u00e4nce?"}'),
        ("lead", "spawn", "other", "spawn", '{"input": "second city?"}'),
        ("scout", "tool_call", "", "none", '{"q": "France"}'),
        ("other", "return", "lead", "none", "Lyon"),
        ("scout", "tool_result", "", "none", "Pàris"),
        ("scout", "return", "lead", "none", "Pàris"),
        ("lead", "aggregate", "", "aggregate", "Pàris and Lyon"),
        ("lead", "orchestrator_decision", "", "stop", "Pàris and Lyon"),
    ]
    assert {e.type for e in trace.events if e.why is None} == {
        "tool_call",
        "tool_result",
        "orchestrator_decision",
    }
    assert trace.finished


def test_ids_and_log_probabilities_arrive_exactly() -> None:
    played = two_cities()
    trace = session_trace(played.exchanges, name="s")
    by_text = {
        (e.reply.prompt_ids, e.reply.choices[0].completion_ids): e for e in played.exchanges if e.reply
    }
    assert len(trace.calls) == len(by_text) == 5
    for call in trace.calls:
        exchange = by_text.pop((trace.prompt_ids(call), call.completion_ids))
        assert exchange.reply is not None
        choice = exchange.reply.choices[0]
        assert (call.logprobs, call.token_ends) == (choice.logprobs, choice.token_ends)
        assert (call.policy, call.policy_version, call.role) == ("tiny", "7", call.agent)
        assert call.sampling == exchange.ask.sampling
        grown = exchange.grows_from is not None
        assert bool(call.keep) == bool(call.parent) == grown
        assert call.prompt_tokens == len(exchange.reply.prompt_ids or ())
    assert not trace.finished


@pytest.mark.parametrize("ids", [False, True])
def test_several_answers_to_one_ask_have_its_bill_together(ids: bool) -> None:
    """The prompt is read once; what a server tells of all answers together is none of it lost."""
    said = ["no", "", "a much longer answer"]
    choices = tuple(
        ReplyChoice(
            message=Utterance(speaker="assistant", text=text),
            completion_ids=Ints(range(2 * place + 1)) if ids else None,
        )
        for place, text in enumerate(said)
    )
    asked = Ask(dialect="chat", model="m", messages=(user("which?"),), n=3)
    reply = Reply(choices=choices, policy="p", prompt_tokens=40, completion_tokens=9)
    trace = session_trace([Exchange(session="s", id="e", number=1, ask=asked, reply=reply)], [END], name="s")
    bills = {
        trace.text(call.completion_ref): (call.prompt_tokens, call.completion_tokens) for call in trace.calls
    }
    assert bills == dict(zip(said, [(40, 1), (0, 3 if ids else 0), (0, 5 if ids else 8)], strict=True))
    assert {call.estimated for call in trace.calls} == {not ids}
    assert sum(event.tokens or 0 for event in trace.events) == 49
    assert validate(trace) == []


def test_spans_are_the_tokens_of_what_was_decided() -> None:
    trace = session_trace(two_cities().exchanges, name="s")
    said: dict[str, bytes] = {call.id: bytes(call.completion_ids or ()) for call in trace.calls}
    texts = {}
    for event in trace.events:
        if event.call is not None and event.span is not None:
            texts[event.agent, event.type, event.to] = said[event.call][slice(*event.span)].decode()
    spawn = texts["lead", "spawn", "scout"]
    assert spawn.startswith("<tool_call>")
    assert spawn.endswith("</tool_call>")
    assert "ask_scout" in spawn
    assert "second city?" in texts["lead", "spawn", "other"]
    assert "ask_scout" not in texts["lead", "spawn", "other"]
    assert texts["lead", "orchestrator_decision", None] == "Pàris and Lyon"
    assert texts["scout", "return", "lead"] == "Pàris"


def test_rewards_and_the_end_are_what_was_posted() -> None:
    played = two_cities()
    posted = [
        Posted(session="s", reward=0.25),
        Posted(session="s", reward=-1.0, name="turn", target=played.exchanges[3].id),
        Posted(session="s", ended=True, status="cut"),
    ]
    trace = session_trace(played.exchanges[:-1], posted, name="s")
    assert [(r.unit, r.value, r.channel) for r in trace.rewards] == [
        ("team", 0.25, "shared"),
        ("turn", -1.0, "turn"),
    ]
    call = trace.call_by_id[trace.rewards[1].target]
    assert call.completion_ids == played.exchanges[3].reply.choices[0].completion_ids  # type: ignore[union-attr]
    last = trace.events[-1]
    assert (last.agent, last.decision, last.status) == ("lead", "stop", "forced")
    assert validate(trace) == []


def test_a_session_without_exchanges_is_an_empty_trace() -> None:
    trace = session_trace([], [END], name="nothing")
    assert (trace.trace_id, trace.events, trace.finished) == ("serve-nothing", (), True)


@pytest.mark.parametrize("command", ["show", "stats", "measure", "validate"])
def test_commands_read_it(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = session_trace(two_cities().exchanges, [Posted(session="s", reward=1.0), END], name="s")
    write(trace, tmp_path / "s.jsonl")
    assert main([command, str(tmp_path / "s.jsonl")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("estimator", ["group", "agent-group", "role-group", "turn-group", "return-to-go"])
def test_credit_that_needs_no_forks(
    estimator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = []
    for name, value in (("first", 1.0), ("second", 0.0), ("third", 0.25)):
        posted = [Posted(session=name, reward=value), END]
        places.append(str(tmp_path / f"{name}.jsonl"))
        write(session_trace(two_cities(name).exchanges, posted, name=name), places[-1])
    assert main(["credit", *places, "--estimator", estimator, "--json"]) == 0
    assert '"value"' in capsys.readouterr().out


def test_what_a_person_and_a_program_said_stands_in_the_trace_as_it_was_said() -> None:
    code = "def f(x):\n    return  x\n"
    talk = (played := Played("blanks")).talk(system("You are the lead."), user("Mend  this."))
    talk.say("Which file?")
    talk.hear(user(code)).say("Done.")
    played.talk(system("You are the critic."), user("Read:\n\n" + code)).say("Good.")
    told = {
        e.type: trace.text(e.content_ref) for trace in [_trace(played)] for e in trace.events if e.content_ref
    }
    spawned = [text for _, kind, _, _, text in story(_trace(played)) if kind == "spawn"]
    assert told["human_intervention"] == code
    assert spawned == ["Mend  this.", "Read:\n\n" + code]


@pytest.mark.parametrize(
    ("said", "task"),
    [
        ("<system-reminder>\nEnd messages so.\n</system-reminder>\n\nCapitals?", "Capitals?"),
        ("<system-reminder>a</system-reminder>", "<system-reminder>a</system-reminder>"),
        ("What is a <system-reminder>?", "What is a <system-reminder>?"),
    ],
)
def test_a_harnesses_reminders_are_not_the_task(said: str, task: str) -> None:
    played = Played("reminded")
    played.talk(system("You are the lead."), user(said)).say("Rome")
    assert _trace(played).header.meta["connect"]["task"] == task


def _trace(played: Played) -> Trace:
    return session_trace(played.exchanges, [END], name="s")

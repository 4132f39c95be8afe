"""The headline of a trace: why it ended is always there, links lead to events, and no word of what nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from strategies import arbitrary_traces, valid_traces
from viewer_runs import credited, hostile, odd, run_team, tainted

from baton.cli import main
from baton.measure.prices import Price, PriceTable
from baton.trace import Credit, Event, Header, Recorder, Trace, read, write
from baton.trace.formats import read_all
from baton.view.headline import headline, titled
from baton.view.terminal.endings import why_ended

PRICES = PriceTable(models={"reference": Price(prompt=2.0, completion=8.0)})


def told(trace: Trace, **given: object) -> dict[str, str]:
    return {one.about: one.text for one in headline(trace, **given)}  # type: ignore[arg-type]  # as the test names them


@given(st.one_of(valid_traces(), arbitrary_traces()))
def test_whatever_the_trace_the_end_is_told_and_links_lead_to_events(trace: Trace) -> None:
    sentences = headline(trace, prices=PRICES)
    assert sentences[0].about == "ended"
    assert sentences[0].text == why_ended(trace)
    assert len({one.about for one in sentences}) == len(sentences)
    for sentence in sentences:
        assert sentence.text.isprintable()
        assert {piece.event for piece in sentence.pieces} - {None} <= trace.position.keys()


def test_a_team_that_did_well() -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    found = told(trace)
    assert found["ended"] == "orchestrator stopped"
    assert found["time"].startswith("lead2 took ")
    assert "tokens" in found["cost"]
    assert "wrong" not in found
    assert "worth" not in found


def test_a_call_that_waited_and_was_let_through_is_nothing_wrong() -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    first, second, *others = trace.events
    waited = structs.replace(first, status="in_doubt", extra={**first.extra, "request": {"tool": "send"}})
    let_through = structs.replace(second, extra={**second.extra, "request": first.id, "allowed": "endorsed"})
    assert "1 event not ok" in told(structs.replace(trace, events=(waited, second, *others)))["wrong"]
    assert "wrong" not in told(structs.replace(trace, events=(waited, let_through, *others)))


def test_money_where_there_is_a_price_and_at_least_where_not_all_have_one() -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    assert " USD in all, most in " in told(trace, prices=PRICES)["cost"]
    strange = structs.replace(trace, calls=(structs.replace(trace.calls[0], policy="odd"), *trace.calls[1:]))
    assert "at least ~0.00" in told(strange, prices=PRICES)["cost"]
    assert "has no price for 'odd'" in told(strange, prices=PRICES)["cost"]
    assert "USD" not in told(structs.replace(trace, calls=()), prices=PRICES)["cost"]


def test_what_mattered_most_by_credit_and_by_regret() -> None:
    trace = credited(run_team("shard-sum", "hierarchical", 3))
    assert "by " in told(trace)["worth"]
    only = structs.replace(
        trace, credits=(Credit(unit="orchestrator", target="lead1#1", value=-2.0, estimator="coma"),)
    )
    assert told(only)["worth"] == "lead1’s spawn → lead1.worker1 lost most: -2 by coma"
    zero = structs.replace(only, credits=(structs.replace(only.credits[0], value=0.0),))
    assert "worth" not in told(zero)
    lost = told(only, losses=[("lead1#1", 0.0), ("lead2#1", 0.25), ("gone", 9.0)])
    assert lost["worth"] == "lead2’s spawn → lead2.worker1 lost most against the best choice: 0.25"


def test_a_fork_says_what_was_changed(tmp_path: Path) -> None:
    place = str(tmp_path / "sum")
    assert main(["run", "shard-sum", "--topology", "hierarchical", "--out", place]) == 0
    assert main(["fork", place, "--at", "lead1#4", "--replace", "0", "--out", place + "-fork"]) == 0
    (fork,) = read_all(place + "-fork")
    assert (
        told(fork)["fork"] == "forked from shard-sum-hierarchical-0, changed at lead1’s return → orchestrator"
    )
    for run in (3, {"interventions": [3]}, {"interventions": 3}):
        header = structs.replace(fork.header, meta={"forked_from": "x", "run": run})
        assert told(structs.replace(fork, header=header))["fork"] == "forked from x"
    header = structs.replace(fork.header, meta={"forked_from": 3})
    assert "fork" not in told(structs.replace(fork, header=header))


def test_taint_and_failure_modes_are_told(tmp_path: Path) -> None:
    tainted(tmp_path / "t.jsonl")
    assert told(read(tmp_path / "t.jsonl"))["wrong"].startswith(
        "1 consequential call under taint, first lead’s tool call pay"
    )
    with Recorder(None, task_id="t") as team:
        lead = team.agent("lead")
        for _ in range(2):
            with lead.tool("look", {"at": 1}) as call:
                call.result("nothing")
        lead.stop("x")
    assert "step repetition (FM-1.3), at lead’s tool call look" in told(team.trace())["wrong"]


def test_nothing_is_said_of_an_empty_trace_but_that_it_is_empty(tmp_path: Path) -> None:
    assert told(Trace(header=Header(trace_id="t", task_id=""), finished=False)) == {
        "ended": "unfinished: nothing has happened yet"
    }
    for trace in odd():
        assert headline(trace)
    hostile(tmp_path / "h.jsonl")
    assert all(
        "\u202e" not in one.text and "\n" not in one.text for one in headline(read(tmp_path / "h.jsonl"))
    )


@pytest.mark.parametrize(
    ("fields", "title"),
    [
        ({"decision": "spawn", "options": ("spawn w", "stop none"), "choice": 1}, "spawn? stop none"),
        ({"decision": "spawn", "options": ("spawn w", "stop none"), "choice": 0}, "spawn w"),
        ({"decision": "spawn"}, "spawn decision"),
        ({"decision": "stop", "options": ("stop", "continue"), "choice": 1}, "stop? continue"),
        ({"decision": "stop", "extra": {"went_on": True}}, "stop decision"),
        ({"decision": "stop"}, "stop"),
        ({"decision": "wait"}, "wait"),
        ({"decision": "delegate", "options": ("amy", "bob"), "choice": 1}, "delegate: bob"),
        ({"options": ("amy", "bob"), "choice": 1}, "bob"),
        ({"options": ("amy",), "choice": 7}, "decision"),
        ({}, "decision"),
    ],
)
def test_a_decision_is_named_by_what_was_chosen(fields: dict[str, object], title: str) -> None:
    event = Event(id="e", t=0.0, seq=1, type="orchestrator_decision", agent="a", **fields)  # type: ignore[arg-type]
    assert titled(event) == title


def test_show_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = run_team("shard-sum", "hierarchical", 3)
    write(trace, tmp_path / "team.jsonl")
    (tmp_path / "prices.toml").write_text("[models.reference]\nprompt = 2.0\ncompletion = 8.0\n")
    assert main(["show", str(tmp_path / "team.jsonl"), "--prices", str(tmp_path / "prices.toml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for sentence in headline(trace, prices=PRICES):
        assert f"{sentence.about} {' '.join(sentence.text.split())}" in shown

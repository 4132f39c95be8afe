from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arbitrary_traces

from baton.errors import UsageError
from baton.trace.recorder import Recorder
from baton.trace.records import Edge, Event
from baton.trace.trace import Header, Trace
from baton.view.terminal.trace_summary import above, below
from baton.view.terminal.trace_tree import Options, page
from baton.view.text import duration, moment, number, printable, shortened

HEADER = Header(trace_id="t", task_id="k")


def shown(trace: Trace, **options: object) -> str:
    lines = [*above(trace), *page(trace, Options(**options)).lines, *below(trace, fold=True)]
    return "\n".join("".join(text for text, _ in line) for line in lines)


def wide_team(num_agents: int, num_tools: int) -> Trace:
    with Recorder(None, task_id="t", clock=lambda: 0.0) as team:
        lead = team.agent("lead", role="orchestrator")
        for number_ in range(num_agents):
            worker = lead.spawn(f"w{number_}", role="searcher")
            for step in range(num_tools):
                with worker.tool("search") as call:
                    call.result(status="failed" if step == 1 else "ok")
            worker.returns("done")
        lead.stop("x")
    return team.trace()


def test_agents_hang_under_their_spawn_with_their_events() -> None:
    with Recorder(None, task_id="t", topology="swarm", trace_id="id", clock=lambda: 0.0) as team:
        lead = team.agent("lead", role="orchestrator")
        lead.call(completion_ids=[1, 2, 3], duration_s=2.0)
        worker = lead.spawn("w", role="searcher", task="look", options=["spawn", "stop"], propensity=0.25)
        worker.tool("grep", {"q": "x"}).result("no", status="failed", trusted=False)
        worker.returns("none")
        lead.delegate(team.agent("other"), "go on")
        lead.stop("done", status="forced")
        team.reward("shared", 0.5, by="judge")
        team.credit("agent", worker, 0.25, estimator="shapley", stderr=0.125)
    assert shown(team.trace()) == (
        "id  task t  swarm  finished\n"
        "2 agents (1 spawned, depth 1, 1 busy at once)  7 events  1 message  1 tool call  1 LLM call  "
        "1 failed  1 forced\n"
        "3 tokens  took 2.00s  work 2.00s, span 2.00s  parallelism 1.00\n"
        "ended  lead was forced to stop: the trace does not say why\n"
        "time  lead took 2.00s of the 2.00s that nothing shortens; longest: lead’s spawn → w (2.00s)\n"
        "cost  lead’s spawn → w cost most: 3 of 3 tokens\n"
        "wrong  1 event not ok, first w’s tool result grep; unaware of termination (FM-1.5), at lead’s stop\n"
        "failed  1 tool result; w: no\n"
        "\n"
        "lead (orchestrator)  0.00s–2.00s  4 events  3 tokens\n"
        '├─ e1  0.00s spawn → w "look" [p=0.25 of 2] 3 tok took 2.00s\n'
        "├─ w (searcher)  2.00s–2.00s  3 events  returned\n"
        '│  ├─ e2  0.00s tool_call grep {"q":"x"}\n'
        '│  ├─ e3  0.00s tool_result grep "no" took 0.00s FAILED untrusted\n'
        '│  └─ e4  0.00s return → lead "none"\n'
        "├─ e5  0.00s despawn → w\n"
        '├─ e6  0.00s message → other "go on" [delegate]\n'
        '└─ e7  0.00s orchestrator_decision stop "done" FORCED\n'
        "\n"
        "rewards\n"
        "  shared  team    0.5  by judge\n"
        "\n"
        "credits\n"
        "  shapley  agent  w  0.25 ± 0.125"
    )


def test_a_long_trace_is_folded_and_says_what_is_missing() -> None:
    trace = wide_team(1000, 8)
    folded = page(trace, Options())
    assert len(folded.lines) <= 160
    text = "\n".join("".join(part for part, _ in line) for line in folded.lines)
    events_shown = len(re.findall(r"─ e\d+ ", text))
    assert folded.num_events == len(trace.events) == 19_001
    assert folded.num_left_out == 19_001 - events_shown
    assert "7 events left out: 4 tool_result, 3 tool_call" in text
    assert "agents with" in text
    assert "w0 (searcher)" in text
    assert "orchestrator_decision stop" in text, "the end is shown"
    whole = page(trace, Options(fold=False))
    assert whole.num_left_out == 0
    assert len(whole.lines) == 19_001 + 1001


def test_folds_count_what_went_wrong() -> None:
    team = Recorder(None, task_id="t")
    lead = team.agent("lead")
    for step in range(400):
        lead.decide("continue", status="invalid" if step % 100 == 50 else "ok")
    text = shown(team.trace())
    assert "… 340 events left out: 340 orchestrator_decision, 4 invalid" in text


def test_depth_and_agent() -> None:
    team = Recorder(None, task_id="t")
    agent = team.agent("a0")
    for level in range(1, 6):
        agent = agent.spawn(f"a{level}")
    agent.decide("continue")
    trace = team.trace()
    shallow = page(trace, Options(depth=2))
    text = shown(trace, depth=2)
    assert "a2  " in text
    assert "└─ … 3 agents with 3 events below left out" in text
    assert shallow.num_left_out == 3
    only = page(trace, Options(agent="a4"))
    assert (only.num_events, only.num_left_out) == (2, 0)
    assert "".join(part for part, _ in only.lines[0]).startswith("a4  ")
    with pytest.raises(UsageError, match=r"no agent 'a9' in this trace\. Did you mean"):
        page(trace, Options(agent="a9"))
    with pytest.raises(UsageError, match=r"There are 1,001\."):
        page(wide_team(1000, 0), Options(agent="zzz"))


def test_a_deep_chain_of_agents_prints() -> None:
    team = Recorder(None, task_id="t")
    agent = team.agent("a0")
    for level in range(1, 5000):
        agent = agent.spawn(f"a{level}")
    for fold in (True, False):
        found = page(team.trace(), Options(fold=fold))
        assert "left out" in found.lines[-1][-1][0]
        assert found.num_left_out > 4000


def test_endless_names_are_cut() -> None:
    with Recorder(None, task_id="t") as team:
        lead = team.agent("a" * 5000, role="r" * 5000)
        lead.spawn("b" * 5000).tool("c" * 5000)
    assert max(map(len, shown(team.trace()).splitlines())) < 200


NASTY = "\x1b[31mred\x1b[0m\x07\r\n[bold]markup[/bold]\u202egnp.exe\u2028\x9b2J:smile:\x00\u200b"


def test_nothing_in_a_trace_takes_effect() -> None:
    with Recorder(None, task_id=NASTY, trace_id=NASTY) as team:
        lead = team.agent("lead" + NASTY, role=NASTY)
        worker = lead.spawn("w" + NASTY, role=NASTY, task=NASTY)
        worker.tool(NASTY, NASTY).result(NASTY)
        lead.stop(NASTY + "\ud800")
        team.reward("shared", 1.0, name=NASTY, by=NASTY)
        team.credit("agent", worker, 1.0, estimator=NASTY)
        team.metric(NASTY, 1.0)
    for options in ({}, {"text": True}):
        text = shown(team.trace(), **options)
        assert text.replace("\n", "").isprintable()
        assert "\\e[31mred\\e[0m\\x07\\r\\n[bold]markup[/bold]\\u202egnp.exe\\u2028\\x9b2J:smile:" in text


@given(st.text(), st.integers(2, 30))
def test_text_is_visible_and_short(text: str, width: int) -> None:
    assert all(char == " " or char.isprintable() for char in printable(text))
    assert len(shortened(text, width)) <= width
    if len(printable(text)) <= width:
        assert shortened(text, width) == printable(text)


def test_a_cut_never_splits_an_escape() -> None:
    assert shortened("ab\x1b\x1bcd", 6) == "ab\\e…"


def test_whole_text() -> None:
    with Recorder(None, task_id="t") as team:
        team.agent("lead").stop("first line\nsecond line " + "x" * 300)
    text = shown(team.trace(), text=True)
    assert "\n        first line\n" in text
    assert "second line " + "x" * 300 in text


def test_content_that_is_not_there() -> None:
    with Recorder(None, task_id="t", payloads=False) as team:
        team.agent("lead").stop("secret")
    trace = team.trace()
    assert "stop (6 bytes withheld)" in shown(trace)
    event = Event(id="e", t=0, type="message", agent="a", seq=1, content_ref="some_hash")
    assert "message <some_hash>" in shown(Trace(header=HEADER, events=(event,)))


def test_a_tool_that_answers_in_its_own_name_is_no_agent() -> None:
    events = (
        Event(id="e1", t=0, type="tool_call", agent="a", tool="web", seq=1),
        Event(id="e2", t=1, type="tool_result", agent="web", tool="web", seq=2),
    )
    text = shown(Trace(header=HEADER, events=events, edges=(Edge("e1", "e2", "return"),)))
    assert "└─ e2  1.00s tool_result web" in text
    assert "\nweb" not in text


def test_agents_that_spawn_each_other_in_a_circle() -> None:
    events = tuple(
        Event(id=f"e{seq}", t=0, type="spawn", agent=agent, to=to, seq=seq)
        for seq, (agent, to) in enumerate([("a", "b"), ("b", "a"), ("c", "c"), ("b", "b")])
    )
    found = page(Trace(header=HEADER, events=events), Options())
    assert (found.num_events, found.num_left_out) == (4, 0)


@given(arbitrary_traces())
def test_every_trace_can_be_shown(trace: Trace) -> None:
    for options in (Options(), Options(fold=False, text=True), Options(depth=0, width=40)):
        found = page(trace, options)
        assert found.num_events == len(trace.events)
        assert all(
            "\n" not in text
            for line in (*found.lines, *above(trace), *below(trace, fold=True))
            for text, _ in line
        )


def test_units() -> None:
    assert [duration(s) for s in (0, 0.0004, 0.52, 9.999, 59.99, 200, 3600 * 2 + 300)] == [
        "0.00s", "0.4ms", "0.52s", "10.0s", "1m00s", "3m20s", "2h05m",
    ]  # fmt: skip
    assert moment(0.0004) == "0.00s"
    assert [number(n) for n in (0, 12000, 0.123456, 1234.5)] == ["0", "12,000", "0.1235", "1,234"]

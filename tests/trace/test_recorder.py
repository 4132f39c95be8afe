from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import FormatError, TraceError, UsageError
from baton.trace.formats.jsonl import read_jsonl
from baton.trace.formats.sqlite.store import Store
from baton.trace.formats.sqlite.store_read import read_store
from baton.trace.graph.arrays import Graph
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace
from baton.trace.validation import validate


class Clock:
    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


def finished(team: Recorder) -> Trace:
    team.close()
    return team.trace()


def edges(trace: Trace) -> set[tuple[str, str, str]]:
    return {(edge.src, edge.dst, edge.type) for edge in trace.edges}


def small_team(path: Path | str | Store | None, **options: object) -> Recorder:
    clock = Clock()
    with Recorder(
        path,
        task_id="t",
        topology="centralized",
        trace_id=options.pop("trace_id", "small"),
        clock=clock,
        **options,
    ) as team:
        lead = team.agent("lead", role="orchestrator")
        clock.seconds += 2
        lead.call(prompt_ids=[1, 2], completion_ids=[3, 4, 5], logprobs=[-0.5, -0.25, -1.0], duration_s=1.5)
        scout = lead.spawn("scout", role="searcher", task="find the capital", span=(0, 2), propensity=0.7)
        lead.send(scout, "hurry", span=(2, 3))
        with scout.tool("search", {"q": "capital"}, pure=True) as call:
            clock.seconds += 0.5
            call.result("Paris", trusted=False)
        scout.returns("Paris")
        lead.aggregate([scout], "Paris", method="first")
        lead.stop("Paris")
        team.reward("shared", 1.0)
        team.credit("agent", scout, 0.5, estimator="shapley")
        team.metric("task_success", 1.0)
    return team


def test_a_few_calls_make_a_complete_trace() -> None:
    trace = small_team(None).trace()
    assert [(event.type, event.agent, event.to, event.decision) for event in trace.events] == [
        ("spawn", "lead", "scout", "spawn"),
        ("message", "lead", "scout", "communicate"),
        ("tool_call", "scout", None, "none"),
        ("tool_result", "scout", None, "none"),
        ("return", "scout", "lead", "none"),
        ("despawn", "lead", "scout", "none"),
        ("aggregate", "lead", None, "aggregate"),
        ("orchestrator_decision", "lead", None, "stop"),
    ]
    assert edges(trace) == {
        ("e1", "e2", "temporal"),
        ("e1", "e3", "spawn"),
        ("e2", "e3", "message"),
        ("e3", "e4", "tool_dependency"),
        ("e4", "e5", "temporal"),
        ("e5", "e6", "causal"),
        ("e2", "e7", "temporal"),
        ("e5", "e7", "aggregate"),
        ("e7", "e8", "temporal"),
    }
    spawn, message, _, result, *_ = trace.events
    assert (spawn.t, spawn.duration_s, spawn.tokens, spawn.call, spawn.span) == (0.5, 1.5, 5, "c1", (0, 2))
    assert (message.tokens, message.call, message.span) == (None, "c1", (2, 3))
    assert (result.t, result.duration_s, result.trusted, result.call) == (2.0, 0.5, False, None)
    assert trace.events[6].extra == {"method": "first"}
    assert trace.text(spawn.content_ref) == "find the capital"
    assert trace.text(trace.events[2].content_ref) == '{"q":"capital"}'
    assert trace.costs == {"wall_clock_s": 2.5, "tokens": 5, "messages": 1, "tool_calls": 1}
    assert trace.metrics == {"task_success": 1.0}
    assert [(reward.channel, reward.target, reward.value) for reward in trace.rewards] == [
        ("shared", "small", 1.0)
    ]
    assert trace.finished
    assert validate(trace) == []


def test_every_place_holds_the_same_trace(tmp_path: Path) -> None:
    kept = small_team(None).trace()
    for name in ("a.jsonl", "a.db"):
        assert small_team(tmp_path / name).trace() == kept
    assert list(read_jsonl(tmp_path / "a.jsonl")) == [kept]
    assert list(read_store(tmp_path / "a.db")) == [kept]


def test_a_file_takes_several_traces_one_after_the_other(tmp_path: Path) -> None:
    for trace_id in ("one", "two"):
        small_team(tmp_path / "a.jsonl", trace_id=trace_id)
    assert [trace.trace_id for trace in read_jsonl(tmp_path / "a.jsonl")] == ["one", "two"]
    with Recorder(tmp_path / "a.jsonl", task_id="t"), pytest.raises(UsageError, match="is being written"):
        Recorder(tmp_path / "a.jsonl", task_id="t")


def test_several_traces_at_once_in_one_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db", "process") as store:
        teams = [Recorder(store, task_id="t", trace_id=name) for name in ("x", "y")]
        for team in teams:
            team.agent("solo").stop("done")
        for team in teams:
            team.close()
    assert [(trace.trace_id, trace.finished) for trace in read_store(tmp_path / "a.db")] == [
        ("x", True),
        ("y", True),
    ]


def test_an_unknown_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.jsonl or \.db"):
        Recorder(tmp_path / "trace.txt", task_id="t")


@pytest.mark.parametrize("name", ["a.jsonl", "a.db"])
def test_an_event_is_written_when_the_call_returns(tmp_path: Path, name: str) -> None:
    """Another process kills ours right after each acknowledgement; all of those are there."""
    code = f"""
import sys
from baton.trace.graph.arrays import Graph
from baton.trace.recorder import Recorder
team = Recorder({str(tmp_path / name)!r}, task_id="t", trace_id="killed")
lead = team.agent("lead")
for number in range(1000):
    lead.decide("continue", f"step {{number}}")
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 20:
            process.send_signal(signal.SIGKILL)
            break
    acknowledged = 21 + len(process.stdout.read().splitlines())
    process.stdout.close()
    process.wait()
    path = tmp_path / name
    (trace,) = read_jsonl(path, tolerate_torn_tail=True) if path.suffix == ".jsonl" else read_store(path)
    assert not trace.finished
    assert len(trace.events) - acknowledged in (0, 1)
    assert [trace.text(event.content_ref) for event in trace.events] == [
        f"step {n}" for n in range(len(trace.events))
    ]


def test_an_exception_leaves_a_readable_unfinished_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    team = Recorder(path, task_id="t")
    lead = team.agent("lead")
    lead.spawn("w")
    with pytest.raises(ZeroDivisionError), team:
        raise ZeroDivisionError
    (trace,) = read_jsonl(path)
    assert not trace.finished
    assert [event.type for event in trace.events] == ["spawn"]
    with pytest.raises(TraceError, match="closed"):
        lead.send("w", "too late")


def test_content_can_be_withheld(tmp_path: Path) -> None:
    open_trace = small_team(tmp_path / "open.jsonl").trace()
    closed = small_team(tmp_path / "closed.jsonl", payloads=False).trace()
    assert b"Paris" not in (tmp_path / "closed.jsonl").read_bytes()
    assert closed == open_trace.without_payloads()


def test_the_same_content_is_stored_once() -> None:
    with Recorder(None, task_id="t") as team:
        a, b = team.agent("a"), team.agent("b")
        for _ in range(3):
            a.send(b, "again")
    trace = team.trace()
    assert len(trace.payloads) == 1
    assert len({event.content_ref for event in trace.events}) == 1


class TestCalls:
    def test_a_growing_prompt_is_stored_as_what_is_new(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        prompts = [[1, 2, 3], [1, 2, 3, 9, 8, 4], [1, 2, 7], [5]]
        for prompt in prompts:
            lead.call(prompt_ids=prompt, completion_ids=[9, 8])
            lead.decide("continue")
        trace = team.trace()
        assert [list(trace.prompt_ids(call) or ()) for call in trace.calls] == prompts
        assert [len(call.prompt_ids or ()) for call in trace.calls] == [3, 1, 1, 1]

    def test_a_call_is_charged_to_one_event(self) -> None:
        team = Recorder(None, task_id="t")
        lead, other = team.agent("lead"), team.agent("other")
        lead.call(prompt="hello", completion="spawn, send", prompt_tokens=11, completion_tokens=4)
        lead.send(other, "one")
        lead.send(other, "two")
        trace = team.trace()
        assert [(event.call, event.tokens) for event in trace.events] == [("c1", 15), ("c1", None)]
        assert trace.text(trace.calls[0].prompt_ref) == "hello"

    def test_a_call_that_led_to_nothing_is_charged_too(self) -> None:
        with Recorder(None, task_id="t") as team:
            lead = team.agent("lead")
            lead.call(completion_tokens=3)
            lead.call(completion_tokens=4)
        trace = team.trace()
        assert [(event.decision, event.call, event.tokens) for event in trace.events] == [
            ("continue", "c1", 3),
            ("continue", "c2", 4),
        ]
        assert trace.costs["tokens"] == 7

    def test_tokens_nobody_measured_are_not_zero(self) -> None:
        with Recorder(None, task_id="t") as team:
            team.agent("lead").stop()
        assert "tokens" not in team.trace().costs

    def test_an_event_may_name_an_earlier_call_or_none(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        lead.call(completion_ids=[1, 2, 3])
        lead.decide("continue")
        lead.call(completion_ids=[1], completion_tokens=1)
        lead.decide("wait", call="c1", span=(2, 3))
        lead.decide("wait", call=None)
        lead.decide("wait")
        assert [(event.call, event.tokens) for event in team.trace().events] == [
            ("c1", 3),
            ("c1", None),
            (None, None),
            ("c2", 1),
        ]
        with pytest.raises(TraceError, match=r"'c7' is no call of lead\. Did you mean"):
            lead.decide("wait", call="c7")

    def test_a_long_first_call_does_not_outlast_the_trace(self) -> None:
        with Recorder(None, task_id="t") as team:
            lead = team.agent("lead")
            lead.call(duration_s=30.0)
            lead.stop()
        assert team.trace().costs["wall_clock_s"] == 30.0
        assert validate(team.trace()) == []

    def test_what_comes_during_a_call_is_acted_on_after_it(self) -> None:
        clock = Clock()
        team = Recorder(None, task_id="t", clock=clock)
        lead, other = team.agent("lead"), team.agent("other")
        lead.decide("continue")
        clock.seconds += 1
        other.send(lead, "wait!")
        clock.seconds += 1
        lead.call(duration_s=1.5)
        lead.decide("continue")  # said by a call that began before the message came
        lead.decide("wait")
        assert edges(team.trace()) == {
            ("e1", "e3", "temporal"),
            ("e3", "e4", "temporal"),
            ("e2", "e4", "message"),
        }


class TestTools:
    def test_parallel_calls_do_not_wait_for_each_other(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        first, second = lead.tool("a"), lead.tool("b")
        second.result("b done")
        first.result("a done")
        lead.stop()
        assert edges(team.trace()) == {
            ("e1", "e2", "temporal"),
            ("e2", "e3", "tool_dependency"),
            ("e1", "e4", "tool_dependency"),
            ("e3", "e5", "temporal"),
            ("e4", "e5", "tool_dependency"),
        }

    @pytest.mark.parametrize(
        ("error", "status"), [(ValueError("no luck"), "failed"), (asyncio.CancelledError("x"), "cancelled")]
    )
    def test_a_tool_that_raises(self, error: BaseException, status: str) -> None:
        team = Recorder(None, task_id="t")
        with pytest.raises(type(error)), team.agent("lead").tool("a"):
            raise error
        trace = team.trace()
        assert trace.events[-1].status == status
        assert trace.text(trace.events[-1].content_ref) == f"{type(error).__name__}: {error}"

    def test_a_block_without_a_result_ends_the_call(self) -> None:
        team = Recorder(None, task_id="t")
        with team.agent("lead").tool("a"):
            pass
        assert [event.type for event in team.trace().events] == ["tool_call", "tool_result"]

    def test_one_result_for_a_call(self) -> None:
        call = Recorder(None, task_id="t").agent("lead").tool("a")
        call.result(1)
        with pytest.raises(TraceError, match="already has its result"):
            call.result(2)

    def test_a_result_of_any_type_is_kept_as_words(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        lead.tool("a").result(threading.Lock)
        lead.tool("b").result(b"\x00\xff")
        texts = [team.trace().text(event.content_ref) for event in team.trace().events if event.content_ref]
        assert "lock" in (texts[0] or "")
        assert team.trace().payloads[team.trace().events[-1].content_ref or ""].content() == b"\x00\xff"


class TestEndings:
    def test_what_is_left_open_is_cancelled_deepest_first(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        middle = lead.spawn("middle")
        bottom = middle.spawn("bottom")
        call = bottom.tool("slow")
        lead.stop("enough")
        call.result("too late")  # dropped
        trace = team.trace()
        assert [(event.type, event.to, event.status) for event in trace.events[3:]] == [
            ("orchestrator_decision", None, "ok"),
            ("tool_result", None, "cancelled"),
            ("despawn", "bottom", "cancelled"),
            ("despawn", "middle", "cancelled"),
        ]
        assert validate(finished(team)) == []

    def test_cancel_ends_a_subtree_and_nothing_else(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        gone, stays = lead.spawn("gone"), lead.spawn("stays")
        below = gone.spawn("below")
        lead.cancel(gone)
        stays.returns("ok")
        for agent in (gone, below):
            with pytest.raises(TraceError, match="was cancelled"):
                agent.decide("continue")
        lead.stop()
        assert validate(finished(team)) == []

    def test_a_return_ends_what_is_below(self) -> None:
        team = Recorder(None, task_id="t")
        lead = team.agent("lead")
        middle = lead.spawn("middle")
        middle.spawn("bottom")
        middle.returns("done")
        assert [(event.type, event.to) for event in team.trace().events[2:]] == [
            ("return", "lead"),
            ("despawn", "bottom"),
            ("despawn", "middle"),
        ]
        assert validate(finished(team)) == []

    def test_a_chain_of_agents_as_deep_as_you_like(self) -> None:
        team = Recorder(None, task_id="t")
        lead = agent = team.agent("a0")
        for depth in range(1, 3000):
            agent = agent.spawn(f"a{depth}")
        lead.stop()
        assert len(team.trace().events) == 2 * 2999 + 1


def test_misuse_is_said_clearly() -> None:
    team = Recorder(None, task_id="t")
    lead = team.agent("lead")
    worker = lead.spawn("worker")
    elsewhere = Recorder(None, task_id="t").agent("elsewhere")
    call_id = worker.call(completion_ids=[1, 2])
    for act, message in [
        (lambda: lead.send("worke", "x"), r"names 'worke', no agent of this trace\. Did you mean 'worker'\?"),
        (lambda: lead.send(elsewhere, "x"), "'elsewhere', no agent"),
        (lambda: lead.returns("x"), "was not spawned"),
        (lambda: lead.spawn("worker"), "already in this trace"),
        (lambda: team.agent("lead"), "already in this trace"),
        (lambda: team.agent(""), "not empty"),
        (lambda: worker.cancel(lead), "not below it"),
        (lambda: lead.aggregate([worker]), "has done nothing yet"),
        (lambda: lead.decide("halt"), r"decision 'halt' .* Expected one of: .*stop"),
        (lambda: lead.decide("wait", status="done"), "status 'done'"),
        (lambda: lead.decide("wait", propensity=1.5), "propensity 1.5"),
        (lambda: lead.decide("wait", propensity=0.0), r"propensity 0\.0"),
        (lambda: lead.decide("wait", span=(0, 1)), "no call to point into"),
        (lambda: worker.decide("wait", span=(1, 3)), f"not inside call {call_id}, of 2"),
        (lambda: lead.decide("wait", options=["a"], choice="b"), "'b' is not among the options"),
        (lambda: lead.decide("wait", options=["a"], choice=1), "no index"),
        (
            lambda: lead.decide("wait", options=["a", "b"], option_propensities=[1.0]),
            "1 option_propensities for 2",
        ),
        (lambda: lead.decide("wait", choice=0), "need options"),
        (lambda: lead.decide("wait", tokns=3), r"'tokns' .* Did you mean 'tokens'\?"),
        (lambda: lead.record("massage"), r"'massage' .* Did you mean 'message'\?"),
        (lambda: lead.call(logprobs=[0.0]), "completion_ids of the same length"),
        (lambda: team.reward("shred", 1.0), r"Did you mean 'shared'\?"),
        (lambda: team.reward("tool", 1.0, unit="tool_call"), "needs a target"),
        (lambda: team.reward("shared", float("nan")), "finite"),
        (lambda: team.reward("individual", 1.0, unit="agent", target="nobody"), "'nobody' is no agent"),
        (lambda: team.reward("shared", "high"), "'high' is not a finite number"),
        (lambda: team.metric("task_success", None), "None is not a finite number"),
        (lambda: team.metric("\ud800", 1.0), "cannot be kept"),
        (lambda: Recorder(None, task_id="t", topology="star"), "topology 'star'"),
        (lambda: Recorder(None, task_id=5), "task_id is 5; expected a string"),
        (lambda: Recorder(None, task_id="t", trace_id=""), "trace_id is ''; expected at least one character"),
        (lambda: Recorder(None, task_id="t", meta={"x": float("nan")}), "meta is nan; expected a finite"),
        (
            lambda: Recorder(None, task_id="t", meta={"x": object()}),
            "cannot be kept: it holds a value that JSON cannot hold",
        ),
    ]:
        with pytest.raises(TraceError, match=message):
            act()
    worker.returns("done")
    for act in (lambda: worker.returns("again"), lambda: worker.tool("x"), lambda: worker.call()):
        with pytest.raises(TraceError, match=r"worker cannot .*: it has returned"):
            act()
    with pytest.raises(TraceError, match="cannot send to 'worker': it has returned"):
        lead.send(worker, "x")
    lead.stop()
    with pytest.raises(TraceError, match="lead cannot spawn: it has stopped"):
        lead.spawn("late")
    # Nothing of all that left a mark.
    assert [event.type for event in team.trace().events] == [
        "spawn", "return", "despawn", "orchestrator_decision",
    ]  # fmt: skip
    assert validate(finished(team)) == []


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.db", None])
def test_what_could_not_be_read_back_is_refused_and_leaves_no_mark(tmp_path: Path, name: str | None) -> None:
    nested: list[object] = []
    nested.append(nested)
    with Recorder(name and tmp_path / name, task_id="t") as team:
        lead = team.agent("lead")
        for details, message in [
            ({"tokens": "many"}, "tokens is 'many'; expected an integer"),
            ({"tokens": -1}, "tokens is -1; expected an integer from 0"),
            ({"tokens": 2**70}, "tokens is 1180591620717411303424; expected an integer"),
            ({"duration_s": "long"}, "duration_s is 'long'; expected a finite number >= 0"),
            ({"duration_s": -1.0}, r"duration_s is -1\.0; expected a finite number >= 0"),
            ({"duration_s": float("nan")}, "duration_s is nan; expected a finite number >= 0"),
            ({"propensity": "likely"}, "propensity is 'likely'; expected a number"),
            ({"seed_key": 5}, "seed_key is 5; expected a string"),
            ({"trusted": "yes"}, "trusted is 'yes'; expected true or false"),
            ({"extra": "x"}, "extra is 'x'; expected an object"),
            ({"extra": {"x": float("inf")}}, "extra is inf; expected a finite number"),
            ({"extra": {"x": object()}}, "cannot be kept: it holds a value that JSON cannot hold"),
            ({"extra": {"x": nested}}, "cannot be kept: it holds a value that JSON cannot hold"),
        ]:
            with pytest.raises(TraceError, match=message):
                lead.send(lead, "what nobody sent", **details)
        for act, message in [
            (
                lambda: team.agent("\ud800").send(lead, "x"),
                "cannot be kept: it holds a value that JSON cannot hold",
            ),
            (lambda: lead.tool(5), "tool is 5; expected a string"),
            (lambda: team.agent("odd", role=5).stop(), "role is 5; expected a string"),
            (
                lambda: lead.call(completion_ids=["x"]),
                r"completion_ids is \['x'\]; expected an array of 32-bit",
            ),
            (lambda: lead.call(prompt_ids=[2**40]), r"prompt_ids is \[.*\]; expected an array of 32-bit"),
            (lambda: lead.call(completion_ids=[-4]), "completion_ids is -4; expected an integer from 0"),
            (
                lambda: lead.call(completion_ids=[4], logprobs=[float("nan")]),
                "logprobs is nan; expected a finite",
            ),
            (lambda: lead.call(prompt_tokens=1.5), r"prompt_tokens is 1\.5; expected an integer"),
            (lambda: team.reward("shared", 1.0, by=5), "by is 5; expected a string"),
            (
                lambda: team.credit("team", None, 1.0, estimator="x", stderr=-1.0),
                r"stderr is -1\.0; expected",
            ),
        ]:
            with pytest.raises(TraceError, match=message):
                act()
        lead.send(lead, "hello")
        lead.stop()
    trace = team.trace()
    assert [event.type for event in trace.events] == ["message", "orchestrator_decision"]
    assert [payload.text() for payload in trace.payloads.values()] == ["hello"]
    assert validate(trace) == []


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    with Recorder(tmp_path / "trace.jsonl", task_id="t") as team:
        lead = team.agent("lead")
        lead.call(completion_ids=np.array([1, 2]), logprobs=np.array([-1.0, -2.0]), prompt_tokens=np.int64(7))
        lead.stop(propensity=np.float32(0.5), tokens=np.int32(3), duration_s=np.float64(0.0))
        team.reward("shared", np.float32(1))
    (event,) = team.trace().events
    assert (event.propensity, event.tokens, event.duration_s) == (0.5, 3, 0.0)
    assert validate(team.trace()) == []


@pytest.mark.parametrize("depth", [1, 100_000])
def test_content_without_end_is_kept_in_words(depth: int) -> None:
    content: list[object] = []
    content.append(content)
    for _ in range(depth):
        content = [content]
    team = Recorder(None, task_id="t")
    team.agent("lead").stop(content)
    assert validate(finished(team)) == []


def test_content_too_large_for_its_file_does_not_stop_the_rest(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("baton.trace.formats.jsonl.MAX_LINE_BYTES", 1000)
    with Recorder(tmp_path / "trace.jsonl", task_id="t") as team:
        lead = team.agent("lead")
        with pytest.raises(TraceError, match="a line holds at most 1,000"):
            lead.send(lead, random.Random(0).randbytes(2000))
        lead.stop("done")
    assert [event.type for event in team.trace().events] == ["orchestrator_decision"]
    assert validate(team.trace()) == []


def test_a_trace_of_the_same_name_is_not_mistaken_for_it(tmp_path: Path) -> None:
    small_team(tmp_path / "trace.jsonl")
    with Recorder(tmp_path / "trace.jsonl", task_id="other", trace_id="small") as team:
        team.agent("lead").stop()
    assert team.trace().header.task_id == "other"


def test_nothing_is_added_to_what_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("dear diary\n")
    with pytest.raises(FormatError, match="dear diary"):
        Recorder(path, task_id="t")
    assert path.read_text() == "dear diary\n"


def test_threads(tmp_path: Path) -> None:
    def work(agent: object) -> None:
        for number in range(20):
            with agent.tool("t", number) as call:
                call.result(number)
            agent.send("lead", f"{agent.id} {number}")
        agent.returns("done")

    with Recorder(tmp_path / "a.jsonl", task_id="t") as team:
        lead = team.agent("lead")
        workers = [lead.spawn(f"w{n}") for n in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, workers))
        lead.aggregate(workers, "all")
        lead.stop()
    trace = team.trace()
    assert [event.seq for event in trace.events] == list(range(1, 8 + 8 * 62 + 2 + 1))
    assert validate(trace) == []


def test_asyncio_tasks() -> None:
    async def work(agent: object) -> None:
        with agent.tool("sleep") as call:
            await asyncio.sleep(0)
            call.result("slept")
        agent.returns("done")

    async def main(team: Recorder) -> None:
        lead = team.agent("lead")
        workers = [lead.spawn(f"w{n}") for n in range(5)]
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(work(worker))
        lead.stop()

    with Recorder(None, task_id="t") as team:
        asyncio.run(main(team))
    types = [event.type for event in team.trace().events]
    assert types[5:10] == ["tool_call"] * 5, "the calls overlap"
    assert validate(team.trace()) == []


ACTS = (
    "spawn",
    "send",
    "delegate",
    "tool",
    "result",
    "aggregate",
    "decide",
    "returns",
    "cancel",
    "stop",
    "call",
    "record",
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_a_team_does_its_trace_is_valid(data: st.DataObject) -> None:
    """Random acts by random agents; those that are misuse are refused and leave nothing behind."""
    clock = Clock()
    team = Recorder(None, task_id="t", clock=clock)
    agents = [team.agent("r0"), team.agent("r1")]
    agents[0].decide("continue")
    tools = []
    for _ in range(data.draw(st.integers(0, 40))):
        clock.seconds += data.draw(st.sampled_from([0.0, 0.5]))
        agent = data.draw(st.sampled_from(agents))
        other = data.draw(st.sampled_from(agents))
        act = data.draw(st.sampled_from(ACTS))
        before = len(team.trace().events)
        try:
            if act == "spawn":
                agents.append(agent.spawn(f"a{len(agents)}", role="r"))
            elif act in ("send", "delegate"):
                getattr(agent, act)(other, "hi")
            elif act == "tool":
                tools.append(agent.tool("t"))
            elif act == "result" and tools:
                tools.pop(data.draw(st.integers(0, len(tools) - 1))).result("r")
            elif act == "aggregate":
                agent.aggregate({agent, other})
            elif act == "decide":
                agent.decide("wait")
            elif act == "record":
                agent.record("safety_event", to=other)
            elif act == "cancel":
                agent.cancel(other)
            elif act == "call":
                clock.seconds += 0.25
                agent.call(completion_ids=[1, 2], duration_s=0.25)
            elif act in ("returns", "stop"):
                getattr(agent, act)("x")
        except TraceError:
            assert len(team.trace().events) == before
    team.close()
    trace = team.trace()
    assert validate(trace) == []
    assert {call.id for call in trace.calls} <= {event.call for event in trace.events}
    graph = Graph.of(trace)
    assert graph.span is None or graph.span <= trace.costs["wall_clock_s"] + 1e-5, (
        "no path takes longer than the run"
    )

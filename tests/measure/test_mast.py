"""Each failure mode with a planted trace that fires and a clean one that does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from planted import Scene, event, is_right, reading, trace_of
from strategies import arbitrary_traces, valid_traces

from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.mast import MODES, MastFinding, failures, rates
from baton.trace.gold import Gold
from baton.trace.trace import Trace

RIGHT = Gold(verify=is_right("42"))


def repeats(again: int, told: bool = False, fails: bool = False) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="critic")
        worker = lead.spawn("w", task="a")
        for k in range(again):
            with worker.tool("look", {"q": 1}) as call:
                call.result("x", status="failed" if fails else "ok")
            if told and k == 0:
                lead.send(worker, "look again, it changed")
                worker.decide("continue", "all right")
        worker.returns("42")
        lead.aggregate([worker], "42")
        lead.stop("42")

    return reading(play, RIGHT)


def stops(status: str, rounds: int = 1) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="critic")
        worker = lead.spawn("w", task="a")
        worker.send(lead, "x")
        for k in range(rounds):
            stage.says(lead)
            lead.aggregate([worker], "42" if k == 0 else "13")
        lead.stop("42", status=status)

    return reading(play, RIGHT)


def converses(*prompts: list[int], delegated: bool = False) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="critic")
        worker = lead.spawn("w", task="a")
        for k, prompt in enumerate(prompts):
            if delegated and k == len(prompts) - 1:
                lead.delegate(worker, "something new")
            stage.says(worker, tokens=2, prompt=prompt)
            worker.send(lead, f"note {k}")
        lead.stop("42")

    return reading(play, RIGHT)


def keeps(shares: bool, answer: str = "13") -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="critic")
        worker = lead.spawn("w", task="a")
        with worker.tool("look", {}) as call:
            call.result("the port is 8080")
        worker.returns("8080, I believe" if shares else "nothing to report")
        lead.aggregate([worker], answer)
        lead.stop(answer)

    return reading(play, Gold(facts=("8080",), verify=is_right("8080")))


def hears(reads: bool) -> MeasuredTrace:
    events = [
        event(1, "lead", "spawn", to="w", role="critic"),
        event(2, "w", "message", to="lead"),
        event(3, "lead", "orchestrator_decision"),
        event(4, "lead", "orchestrator_decision"),
        event(5, "lead", "orchestrator_decision", decision="stop"),
    ]
    edges = [
        ("e1", "e2", "spawn"),
        ("e1", "e3", "temporal"),
        ("e3", "e4", "temporal"),
        ("e4", "e5", "temporal"),
    ]
    return MeasuredTrace(trace_of(events, [*edges, ("e2", "e4", "message")] if reads else edges))


def ends(answer: str, waits: bool, gold: Gold = RIGHT) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="critic")
        lead.spawn("slow", task="a")
        worker = lead.spawn("quick", task="b")
        worker.returns(answer)
        if waits:
            stage.team._log.agents["slow"].returns("x")
        lead.aggregate([worker], answer)
        lead.stop(answer)

    return reading(play, gold)


def checks(by: str | None) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead", role="orchestrator")
        worker = lead.spawn("w", role="worker", task="a")
        worker.returns("42")
        crew = [worker]
        if by is not None:
            checker = lead.spawn("c", role=by, task="check 42")
            checker.returns("accepted")
            crew.append(checker)
        lead.aggregate(crew, "42")
        lead.stop("42")

    return reading(play, RIGHT)


unreached = Gold(verify=is_right("42"), milestones=("a", "b"), reached=lambda trace: {"a"})
PLANTED: dict[str, tuple[list[Callable[[], MeasuredTrace]], list[Callable[[], MeasuredTrace]]]] = {
    "step_repetition": (
        [lambda: repeats(2)],
        [lambda: repeats(1), lambda: repeats(2, told=True), lambda: repeats(3, fails=True)],
    ),
    "unaware_of_termination": (
        [lambda: stops("forced"), lambda: stops("ok", rounds=3)],
        [lambda: stops("ok")],
    ),
    "conversation_reset": (
        [lambda: converses([1, 2], [9, 9, 9]), lambda: converses([1, 2], [1, 2, 7, 7])],
        [
            lambda: converses([1, 2], [1, 2, 0, 1, 5]),
            lambda: converses([1, 2], [9, 9, 9], delegated=True),
        ],
    ),
    "withheld_information": (
        [lambda: keeps(False)],
        [lambda: keeps(True), lambda: keeps(False, answer="8080")],
    ),
    "ignored_input": ([lambda: hears(False)], [lambda: hears(True)]),
    "premature_termination": (
        [lambda: ends("13", waits=False), lambda: ends("13", waits=True, gold=unreached)],
        [lambda: ends("42", waits=False), lambda: ends("13", waits=True)],
    ),
    "no_verification": (
        [lambda: checks(None), lambda: checks("worker")],
        [lambda: checks("verifier"), lambda: checks("critic")],
    ),
}


def finding(one: MeasuredTrace, mode: str) -> MastFinding:
    (found,) = [found for found in failures(one) if found.mode == mode]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_fires_where_it_was_planted_and_nowhere_else(mode: str) -> None:
    planted, clean = PLANTED[mode]
    for make in planted:
        one = make()
        found = finding(one, mode)
        assert found.fired
        assert found.events
        assert set(found.events) <= set(one.trace.position)
    for make in clean:
        assert finding(make(), mode).fired is False


def test_what_a_trace_cannot_say_is_not_a_clean_bill() -> None:
    bare = MeasuredTrace(trace_of([event(1, "a", to="b"), event(2, "b", to="a")]))
    unsaid = {found.mode: found.why_not for found in failures(bare) if found.fired is None}
    assert set(unsaid) == {
        "step_repetition",
        "unaware_of_termination",
        "conversation_reset",
        "withheld_information",
        "ignored_input",
        "premature_termination",
        "no_verification",
    }
    assert all(unsaid.values())


def test_rates() -> None:
    found = rates([repeats(2), repeats(1), repeats(1), MeasuredTrace(trace_of([event(1, "a")]))])
    assert (found["step_repetition"].value, found["step_repetition"].n) == (pytest.approx(1 / 3), 3)
    assert found["withheld_information"].value is None


@given(arbitrary_traces(max_events=8))
def test_no_trace_breaks_a_rule(trace: Trace) -> None:
    for found in failures(MeasuredTrace(trace, Gold(facts=("a",), verify=lambda answer: 0.0))):
        assert (found.fired is None) == (found.why_not is not None)


@given(valid_traces())
def test_evidence_is_in_the_trace(trace: Trace) -> None:
    for found in failures(MeasuredTrace(trace)):
        assert set(found.events) <= set(trace.position)
        assert bool(found.events) == bool(found.fired)

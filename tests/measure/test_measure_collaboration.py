"""E3: milestones, redundancy, duplicates, voters, aggregation, attribution, value of messages."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import Scene, event, is_right, reading, team_of, trace_of

from baton.engine.scripted import ScriptedEngine
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.collaboration import (
    attribution,
    attribution_accuracy,
    duplicate_messages,
    milestones,
    redundancy,
)
from baton.measure.metrics.message_worth import message_values, useful_message_share
from baton.measure.metrics.votes import (
    aggregation_efficiency,
    efficiency,
    n_eff,
    optimal_accuracy,
    voters,
)
from baton.team.forks import rerun_of
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.trace.gold import Gold


def test_milestones() -> None:
    gold = Gold(milestones=("a", "b", "c", "d"), reached=lambda trace: {"a", "c", "not one of them"})
    assert milestones(team_of(gold=gold)).value == 0.5
    assert milestones(team_of()).value is None


def sent(tasks: list[str], messages: list[tuple[str, str]]) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        for k, task in enumerate(tasks):
            lead.spawn(f"w{k}", task=task)
        for to, text in messages:
            lead.send(to, text)
        lead.stop("x")

    return reading(play)


def test_redundancy_counts_executions_of_the_same_subtask() -> None:
    assert redundancy(sent(["a", "b", "c"], [])).value == 0
    assert redundancy(sent(["a", "A ", "b", "a."], [])).value == 0.5
    by_first = Gold(subtask_of=lambda text: text[0])
    assert redundancy(MeasuredTrace(sent(["x1", "x2"], []).trace, by_first)).value == 0.5
    withheld = MeasuredTrace(sent(["a", "a", "b"], []).trace.without_payloads())
    assert redundancy(withheld).value == pytest.approx(1 / 3)
    assert redundancy(sent([], [])).why_not == "no subtask was given to anybody"


def test_duplicate_messages_are_to_the_same_receiver() -> None:
    found = duplicate_messages(sent(["a", "b"], [("w0", "hi"), ("w1", "hi"), ("w0", "hi"), ("w0", "ho")]))
    assert found.value == 0.25
    assert duplicate_messages(sent(["a"], [])).value is None


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8))
def test_redundancy_is_a_share_and_one_more_of_the_same_raises_it(tasks: list[str]) -> None:
    before, after = redundancy(sent(tasks, [])).value, redundancy(sent([*tasks, tasks[0]], [])).value
    assert before is not None
    assert after is not None
    assert 0 <= before <= after < 1


def test_n_eff_of_independent_and_of_identical_voters() -> None:
    rng = np.random.default_rng(0)
    independent = (rng.random((4000, 5)) < 0.7).astype(float)
    assert n_eff(independent.tolist()).value == pytest.approx(5, rel=0.1)
    assert n_eff(np.repeat(independent[:200, :1], 5, axis=1).tolist()).value == pytest.approx(1)
    shared = rng.random((4000, 1)) < 0.7
    half = np.where(rng.random((4000, 4)) < 0.5**0.5, shared, rng.random((4000, 4)) < 0.7)
    assert n_eff(half.astype(float).tolist()).value == pytest.approx(4 / (1 + 3 * 0.5), rel=0.1)
    assert n_eff([[1.0, 1.0]] * 5).value is None  # always right: nothing shows
    assert n_eff([[1.0]]).why_not == "there are fewer than two voters"


def test_the_published_voters() -> None:
    p = (0.9, 0.6, 0.6, 0.55, 0.55)
    assert optimal_accuracy(p) == pytest.approx(0.9)
    assert optimal_accuracy((0.7, 0.7, 0.7)) == pytest.approx(0.784)  # by majority
    assert efficiency(0.755, 0.9, 0.9).why_not == "no aggregator could do better than the best single one"
    assert efficiency(0.8, 0.7, 0.9).value == pytest.approx(0.5)


@given(st.lists(st.floats(0.5, 1.0), min_size=1, max_size=7))
def test_the_optimum_beats_everybody(p: list[float]) -> None:
    assert optimal_accuracy(p) >= max(p) - 1e-9
    assert optimal_accuracy(p) <= 1 + 1e-9


def voted(answers: list[str], fused: str, k: int) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        crew = [lead.spawn(f"w{i}", task="vote") for i in range(len(answers))]
        for worker, answer in zip(crew, answers, strict=True):
            worker.returns(answer)
        lead.aggregate(crew, fused)
        lead.stop(fused)

    return reading(play, Gold(verify=is_right("y")), trace_id=f"t{k}")


def test_voters_from_traces() -> None:
    rows = ["yyn", "yny", "nyy", "yyy", "yyn", "nyy", "yny", "nnn"]
    found = [voted(list(row), "y" if row.count("y") > 1 else "n", k) for k, row in enumerate(rows)]
    right = [[float(c == "y") for c in row] for row in rows]
    assert voters(found) == n_eff(right)
    single = np.mean(right, axis=0)
    expected = (7 / 8 - single.max()) / (optimal_accuracy(single.tolist()) - single.max())
    assert aggregation_efficiency(found).value == pytest.approx(expected)
    given_best = [MeasuredTrace(one.trace, Gold(verify=is_right("y"), best_aggregate=1.0)) for one in found]
    assert aggregation_efficiency(given_best).value == pytest.approx((7 / 8 - 5 / 8) / (1 - 5 / 8))
    assert voters(found[:2]).why_not == "fewer than three traces have the same voters"
    assert voters([team_of()]).why_not == "no verifier is given"


def test_attribution_against_injected_faults() -> None:
    who, when = attribution_accuracy(
        [("a", "e1"), ("b", "e9"), (None, None)], [("a", "e1"), ("b", "e2"), ("c", "e3")]
    )
    assert (who.value, when.value) == (pytest.approx(2 / 3), pytest.approx(1 / 3))

    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        one, two = lead.spawn("one", task="a"), lead.spawn("two", task="b")
        fault = one.send(lead, "wrong", extra={"injected": True})
        other = two.send(lead, "right")
        lead.stop("x")
        stage.team.credit("agent", "one", -0.5, estimator="x")
        stage.team.credit("agent", "two", 0.5, estimator="x")
        stage.team.credit("message", fault, 0.25, estimator="x")
        stage.team.credit("message", other, -0.25, estimator="x")

    who, when = attribution([reading(play), team_of()])
    assert (who.value, who.n) == (1.0, 1)
    assert when.value == 0.0
    assert "no fault was put in" in (attribution([team_of()])[0].why_not or "")
    plain = trace_of([event(1, "a", extra={"injected": True})])
    assert attribution([MeasuredTrace(plain)])[0].why_not == "no credit says whom to blame"


def test_message_value_by_masking() -> None:
    """The lead repeats what worker 1 returns; what worker 2 returns and says is for nothing."""

    def script(request: Request) -> str:
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        if request.role == "orchestrator":
            if turn == 0:
                return "spawn worker: a\nspawn worker: b\nwait all"
            heard = [e.text for e in request.entries if e.text.startswith("worker1 returned: ")]
            return f"stop {heard[0].rpartition(' ')[2]}"
        if request.agent == "worker2" and turn == 0:
            return "send orchestrator: hello"
        return "return 42" if request.agent == "worker1" else "return 7"

    team = Team.of(make_topology("centralized"), ScriptedEngine("script", script))
    assignment = Assignment(task_id="t", prompt="p", verify=is_right("42"))
    trace = asyncio.run(run(team, assignment))
    values = message_values(MeasuredTrace(trace), rerun_of(team, assignment))
    told = {value.event.partition("#")[0]: [] for value in values}
    for value in values:
        told[value.event.partition("#")[0]].append(value.value.value)
    assert told == {"worker1": [1.0], "worker2": [0.0, 0.0]}
    assert useful_message_share(values).value == pytest.approx(1 / 3)
    assert useful_message_share(values, price_per_token=1.0).value == 0.0
    assert useful_message_share([]).value is None

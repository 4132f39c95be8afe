"""E2, on a team whose every duration is known."""

from __future__ import annotations

import pytest
from planted import Scene, event, reading, team_of, trace_of

from baton.measure.measured import MeasuredTrace
from baton.measure.metrics import parallel
from baton.trace.gold import Gold

# lead 1 s, two workers 1 s at once, lead 1 s: T1 = 4, Tinf = T_P = 3.
GOLD = Gold(least_work_s=3.0, least_span_s=1.5, slots=2)


def test_every_figure_of_a_known_team() -> None:
    one = team_of(gold=GOLD)
    expected = {
        parallel.work: 4.0,
        parallel.span: 3.0,
        parallel.makespan: 3.0,
        parallel.serial_over_parallel: 4 / 3,
        parallel.useful_speed_up: 1.0,
        parallel.work_inflation: 4 / 3,
        parallel.schedule_efficiency: 0.5,
        parallel.mean_concurrency: 4 / 3,
        parallel.serial_collapse: 1 - (4 / 3 - 1) / (2 - 1),
        parallel.critical_steps: one.stages.critical_steps,
        parallel.dead_tokens: 0.0,
        parallel.dead_seconds: 0.0,
        parallel.useful_agent_share: 1.0,
        parallel.useful_action_share: 1.0,
    }
    assert {metric.name: metric(one).value for metric in expected} == {
        metric.name: pytest.approx(value) for metric, value in expected.items()
    }


def test_dead_work_is_what_the_answer_does_not_depend_on() -> None:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        stage.says(lead, tokens=10)
        useful, dead = lead.spawn("useful", task="a"), lead.spawn("dead", task="b")
        stage.says(useful, tokens=20)
        useful.returns("42")
        lead.aggregate([useful], "42")
        stage.says(dead, took=3.0, tokens=70)
        dead.send(useful.parent or lead, "too late")
        lead.stop("42")

    # Recorded order puts the message in front of the stop; take its edge away.
    one = reading(play)
    late = next(e for e in one.trace.events if e.agent == "dead")
    edges = tuple(edge for edge in one.trace.edges if edge.src != late.id)
    from msgspec import structs

    one = MeasuredTrace(structs.replace(one.trace, edges=edges))
    assert parallel.dead_tokens(one).value == pytest.approx(0.7)
    assert parallel.dead_seconds(one).value == pytest.approx(3 / 5)
    assert parallel.useful_agent_share(one).value == 0.5
    assert parallel.useful_action_share(one).value == 0.5


def test_parallel_tools_of_one_agent_do_not_lengthen_the_span() -> None:
    def play(stage: Scene) -> None:
        alone = stage.team.agent("a")
        calls = [alone.tool("look", k) for k in range(3)]
        stage.seconds += 2
        for call in calls:
            call.result("x")
        alone.stop("x")

    one = reading(play)
    assert parallel.work(one).value == 6.0
    assert parallel.span(one).value == 2.0


def test_a_serial_team_has_collapsed_and_a_sequential_task_cannot() -> None:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        for k in range(3):
            worker = lead.spawn(f"w{k}", task=str(k))
            stage.says(worker)
            worker.returns("x")
        lead.stop("x")

    one = reading(play, gold=Gold(least_work_s=3.0, least_span_s=1.0, slots=8))
    assert parallel.serial_collapse(one).value == pytest.approx(1.0)
    chain = MeasuredTrace(one.trace, Gold(least_work_s=3.0, least_span_s=3.0, slots=8))
    assert "cannot be done in parallel" in (parallel.serial_collapse(chain).why_not or "")


def test_gold_that_cannot_be_is_noticed() -> None:
    one = team_of(gold=Gold(least_work_s=100.0, least_span_s=50.0, slots=2))
    assert "is wrong" in (parallel.schedule_efficiency(one).why_not or "")


def test_reasons() -> None:
    untimed = MeasuredTrace(trace_of([event(1, "a"), event(2, "a", decision="stop")]))
    assert parallel.work(untimed).why_not == "no event was timed"
    assert parallel.useful_agent_share(untimed).why_not == "nobody was spawned"
    assert parallel.dead_tokens(untimed).why_not == "no event's tokens were counted"
    assert parallel.useful_speed_up(team_of()).why_not == "the task's least work T1* is not given"
    assert parallel.serial_collapse(team_of(gold=Gold(least_work_s=1.0, least_span_s=1.0))).why_not == (
        "the number of slots P is not given"
    )
    assert "no answer" in (
        parallel.dead_tokens(MeasuredTrace(trace_of([event(1, "a", tokens=3)]))).why_not or ""
    )

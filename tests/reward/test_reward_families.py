"""Every rule on traces whose numbers can be worked out by hand."""

from __future__ import annotations

import math

import pytest
from reward_traces import Clock, checked, full_gold, golden, recorded, star, values, with_verdicts

from baton.errors import TraceError, UsageError
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.parallel import span, work
from baton.reward import Gold
from baton.reward.rules.debate import JudgePanel, Resolution, SolutionEvaluation, Swing, Verifiers
from baton.reward.rules.individual import Difference, OwnAnswer, SoloGap
from baton.reward.rules.orchestration import (
    Aggregation,
    CriticalSteps,
    EvenWork,
    FinishRate,
    Parallel,
    SpeedUp,
    Split,
)
from baton.reward.rules.process import Milestones, Scorer, ValidFormat
from baton.reward.rules.role import MainSub, ProposerSolverJudge, Rubric, SolverVerifier
from baton.reward.rules.shared import ItemF1, Length, RunCost, StepCost, Success
from baton.reward.rules.tool_use import ToolUse, ToolUsed
from baton.trace.graph.stages import Stages
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.records import Edge, Event
from baton.trace.trace import Header, Trace

PORT = Gold(answer="8080")


def answering(text: str | None, **kwargs: object) -> Trace:
    return recorded(lambda _, lead, clock: lead.stop(text) and None, **kwargs)  # type: ignore[arg-type]


# -- R1 ------------------------------------------------------------------------------------------


def test_success_says_where_it_is_from() -> None:
    trace = golden("centralized")
    for gold, value, basis in (
        (None, 1.0, "recorded"),
        (Gold(answer=" 8080. "), 1.0, "verified"),
        (Gold(answer="9090"), 0.0, "verified"),
        (Gold(verify=lambda text: 0.25 if text == "8080" else 0.0), 0.25, "verified"),
    ):
        (reward,) = Success().score(trace, gold)
        assert (reward.value, reward.unit, reward.target) == (value, "team", trace.trace_id)
        assert reward.by is not None
        assert reward.by.endswith(f" # {basis}")
    (reward,) = Success(threshold=0.5).score(trace, Gold(verify=lambda _: 0.25))
    assert reward.value == 0.0


def test_no_outcome_is_an_error_and_no_answer_is_not() -> None:
    with pytest.raises(TraceError, match="does not say how it came out"):
        Success().score(answering("x"))
    assert Success().score(answering(None), PORT)[0].value == 0.0
    assert Success().score(recorded(lambda *_: None), PORT)[0].value == 0.0
    withheld = golden("centralized").without_payloads()
    with pytest.raises(TraceError, match="withheld"):
        Success().score(withheld, PORT)
    two = answering("x", outcome=1.0)
    two = two.with_records(
        rewards=[type(two.rewards[0])(family="shared", unit="team", target="t", value=0.0)]
    )
    with pytest.raises(TraceError, match="several outcomes that differ"):
        Success().score(two)


def test_a_decision_to_go_on_is_no_answer() -> None:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        lead.decide("stop", "8080", options=["stop 8080", "wait"], choice="stop 8080")
        lead.decide("stop", "wait", options=["stop 9", "wait"], choice="wait")

    assert Success().score(recorded(play), PORT)[0].value == 1.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("a\nb\nc", 1.0), ('["A", "b "]', 2 * 2 / 5), ("a\na\na", 2 * 1 / 6), ("x", 0.0), (None, 0.0)],
)
def test_item_f1_of_lists(answer: str | None, expected: float) -> None:
    assert ItemF1().score(answering(answer), Gold(items=("a", "b", "c")))[0].value == expected


def test_item_f1_of_tables() -> None:
    rows = ({"city": "Rome", "pop": 3}, {"city": "Bonn", "pop": 1})
    answer = answering('[{"city": "rome", "pop": 3}, {"city": "Bonn", "pop": 2}]')
    assert ItemF1(key="city").score(answer, Gold(items=rows))[0].value == 2 * 3 / 8  # cells
    assert ItemF1().score(answer, Gold(items=rows))[0].value == 2 * 1 / 4  # rows
    with pytest.raises(TraceError, match="`items`"):
        ItemF1().score(answer)


def test_costs() -> None:
    trace = golden("centralized")  # 116 tokens, 2 tool calls, 4 s
    assert (
        RunCost(per_token=0.01, per_tool_call=0.5, per_second=0.25).score(trace)[0].value == 1.16 + 1.0 + 1.0
    )
    assert Length(free=16, limit=216).score(trace)[0].value == 0.5
    assert Length(free=200, limit=216).score(trace)[0].value == 0.0
    with pytest.raises(TraceError, match="none were measured"):
        Length(free=0, limit=1).score(answering("x"))
    with pytest.raises(UsageError, match="above free"):
        Length(free=5, limit=5).score(trace)


def test_step_cost_is_puppeteers() -> None:
    trace = golden("centralized")
    rule = StepCost(max_steps=9, role_factors={"orchestrator": 2.0}, unit="turn")
    found = values(rule.score(trace))
    assert list(found) == [f"c{n}" for n in range(1, 8)]
    assert found["c1"] == pytest.approx(-0.1 * math.log(1 + 1 / 10) / math.log(2) * 2.0 * 13 / 1e5)
    assert found["c2"] == pytest.approx(-0.1 * math.log(1 + 2 / 10) / math.log(2) * 1.0 * 9 / 1e5)
    team = StepCost(max_steps=9, role_factors={"orchestrator": 2.0}).score(trace)[0].value
    assert team == pytest.approx(1.0 + sum(found.values()), abs=1e-15)


# -- R2 ------------------------------------------------------------------------------------------


def test_own_answers() -> None:
    trace = golden("centralized")
    assert values(OwnAnswer().score(trace, PORT)) == {"lead": 1.0, "docs": 0.0, "code": 1.0}
    assert values(OwnAnswer(team_weight=1.0, roles=("searcher",)).score(trace, PORT)) == {
        "docs": -1.0,
        "code": 0.0,
    }
    with pytest.raises(TraceError, match="the roles here are: orchestrator, searcher"):
        OwnAnswer(roles=("sercher",)).score(trace, PORT)
    with pytest.raises(TraceError, match="`verify` or `answer`"):
        OwnAnswer().score(trace)


def test_difference_and_solo_gap() -> None:
    trace = golden("centralized")
    gold = Gold(without={"code": 0.25, "docs": 1.0}, solo=0.5)
    assert values(Difference().score(trace, gold)) == {"docs": 0.0, "code": 0.75}
    assert values(Difference(weight=2.0, team_weight=0.5).score(trace, gold)) == {"docs": 0.5, "code": 2.0}
    assert values(SoloGap(thinkers=("searcher",)).score(trace, gold)) == {
        "lead": 1.0,
        "docs": 1.1,
        "code": 1.1,
    }
    for rule in (Difference(), SoloGap()):
        with pytest.raises(TraceError, match="give gold data"):
            rule.score(trace)
    with pytest.raises(TraceError, match="Did you mean 'code'"):
        Difference().score(trace, Gold(without={"cod": 0.0}))


# -- R3 ------------------------------------------------------------------------------------------


def test_rubrics() -> None:
    trace = golden("debate")
    gold = Gold(rubrics={"debater": lambda t, e: float(t.text(t.event(e).content_ref) == "no")})
    assert values(Rubric().score(trace, gold)) == {"debater": 2 / 3}
    assert values(Rubric(unit="agent").score(trace, gold)) == {"ann": 1.0, "ben": 1.0, "cid": 0.0}
    with pytest.raises(TraceError, match="no rubric for 'resolver'"):
        Rubric(roles=("resolver",)).score(trace, gold)


def test_main_sub_is_m_grpos() -> None:
    trace = golden("centralized")
    judges = {"a": lambda t, e: 1.0, "b": lambda t, e: float(t.event(e).agent == "code")}
    found = values(MainSub().score(trace, Gold(judges=judges)))
    assert found == {"lead": 1.0, "docs": 0.1 + 0.4 + 0.25, "code": 0.1 + 0.4 + 0.5}
    recorded_verdicts = with_verdicts(trace, docs=0.5, code=1.0)
    assert values(MainSub().score(recorded_verdicts)) == found
    assert values(MainSub().score(with_verdicts(golden("harness"), helper=0.5))) == {
        "main": 0.0,  # it said something invalid
        "helper": 0.1 + 0.25,
    }
    with pytest.raises(TraceError, match="`judges`"):
        MainSub().score(trace)


@pytest.mark.parametrize(
    ("answer", "verdict", "expected"),
    [
        ("7", "accepted", {"solver": 1.0, "verifier": 1.0}),
        ("7", "Wrong.", {"solver": 1.0, "verifier": 0.0}),
        ("8", "This is not correct", {"solver": 0.0, "verifier": 1.0}),
        ("8", "yes", {"solver": 0.0, "verifier": 0.0}),
        ("8", "hm", {"solver": 0.0, "verifier": 0.0}),
    ],
)
def test_solver_verifier_is_marsrls(answer: str, verdict: str, expected: dict[str, float]) -> None:
    assert values(SolverVerifier().score(checked(answer, verdict), Gold(answer="7"))) == expected


def test_a_verdict_on_nothing_is_an_error() -> None:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        lead.spawn("v", role="verifier").returns("yes")
        lead.spawn("s", role="solver").returns("7")
        lead.stop("7")

    with pytest.raises(TraceError, match="depends on nothing a solver said"):
        SolverVerifier().score(recorded(play), Gold(answer="7"))


def test_proposer_solver_judge_is_maes() -> None:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        for name, role in (("p", "proposer"), ("s1", "solver"), ("s2", "solver"), ("j", "judge")):
            agent = lead.spawn(name, role=role)
            if name == "j":
                agent.decide("none", "gibberish", status="invalid")
            agent.returns(f"{name} says")
        lead.stop()

    trace = with_verdicts(recorded(play), p=10.0, s1=10.0, s2=1.0)
    found = values(ProposerSolverJudge().score(trace))
    assert found == {"p": 1.0 + 0.5 + 1.0, "s1": 1.0, "s2": 0.0, "j": 0.0}
    with pytest.raises(TraceError, match="expects 1 to 10"):
        ProposerSolverJudge().score(with_verdicts(recorded(play), p=11.0, s1=10.0, s2=1.0))


# -- R4 ------------------------------------------------------------------------------------------


def test_milestones_land_where_they_were_first_reached() -> None:
    trace = golden("centralized")

    def reached(prefix: Trace) -> set[str]:
        return {f"grep {n}" for n in range(sum(e.type == "tool_call" for e in prefix.events))}

    gold = Gold(milestones=("grep 0", "grep 1", "grep 2", "grep 3"), reached=reached)
    assert values(Milestones().score(trace, gold)) == {"c2": 0.25, "c3": 0.25}
    assert values(Milestones(unit="agent").score(trace, gold)) == {"docs": 0.25, "code": 0.25}
    assert values(Milestones(unit="team").score(trace, gold)) == {trace.trace_id: 0.5}
    with pytest.raises(TraceError, match="no call of 'bee-0'"):
        Milestones().score(golden("swarm"), gold)
    with pytest.raises(TraceError, match="`milestones` and `reached`"):
        Milestones().score(trace, Gold(milestones=("x",)))


def test_scorer_differences_telescope() -> None:
    trace = golden("hierarchical")
    gold = full_gold()
    rewards = Scorer().score(trace, gold)
    assert [reward.unit for reward in rewards] == ["turn"] * 14
    assert math.fsum(values(rewards).values()) == len(trace.events) / 32
    assert Scorer(difference=False).score(trace, gold)[-1].value == len(trace.events) / 32
    with pytest.raises(TraceError, match="`scorer`"):
        Scorer().score(trace)


def test_valid_format() -> None:
    trace = golden("harness")
    assert values(ValidFormat().score(trace)) == {trace.trace_id: 0.0}
    assert values(ValidFormat(unit="agent").score(trace)) == {"main": 0.0, "helper": 1.0}
    turns = values(ValidFormat(unit="turn", valid=0.0, invalid=-1.0).score(trace))
    assert turns == {f"c{n}": 0.0 for n in range(1, 7)} | {"c7": -1.0}


# -- R5 ------------------------------------------------------------------------------------------


def test_tools_earn_only_by_use() -> None:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        used, idle = lead.spawn("used", role="w"), lead.spawn("idle", role="w")
        used.tool("look", {"q": 1}).result("one")
        used.tool("look", {"q": 1}).result("one")  # asked again
        used.tool("roll", {"q": 1}, pure=False).result("six")
        used.tool("roll", {"q": 1}, pure=False).result("two")  # the world may have changed
        used.tool("look", {"q": 2}).result("no", status="failed")
        idle.tool("look", {"q": 1}).result("one")  # another agent may ask the same; never heard
        used.returns("done")
        lead.stop("done")

    rule = ToolUse(worth=1.0, price=0.5, prices={"roll": 0.25}, failed=0.125, repeat=0.0625)
    trace = recorded(play)
    found = [reward.value for reward in rule.score(trace)]
    assert found == [0.5, -0.5625, 0.75, 0.75, -0.625, -0.5]
    per_agent = ToolUse(price=0.5, prices={"roll": 0.25}, failed=0.125, repeat=0.0625, unit="agent").score(
        trace
    )
    assert values(per_agent) == {"used": math.fsum(found[:5]), "idle": -0.5}
    assert ToolUsed(tools=("roll",)).score(trace)[0].value == 1.0
    assert ToolUsed(tools=("dig",)).score(trace)[0].value == 0.0
    assert ToolUse().score(golden("debate")) == []
    with pytest.raises(TraceError, match="reached the answer, and there is none"):
        ToolUse().score(recorded(lambda _, lead, clock: lead.tool("x").result("y")))


# -- R6 ------------------------------------------------------------------------------------------


def test_resolution_and_swing() -> None:
    trace = golden("debate")
    assert values(Resolution().score(trace, Gold(answer="no"))) == {"ann": 1.0, "ben": 1.0, "cid": -1.0}
    assert values(Resolution().score(trace, Gold(answer="yes"))) == {"ann": -1.0, "ben": -1.0, "cid": 1.0}
    assert values(Resolution(roles=("debater",)).score(trace)) == {"ann": 1.0, "ben": 1.0, "cid": -1.0}
    for right, value in (("no", 1.0), ("yes", -1.0)):
        gold = Gold(verify=lambda text, right=right: float(text.startswith(right)))
        assert values(Swing().score(trace, gold)) == {"e10": value}  # ann alone changed her mind


def test_panels() -> None:
    trace = golden("debate")
    judges = {"strict": lambda t, e: 0.0, "kind": lambda t, e: 1.0, "kind too": lambda t, e: 1.0}
    gold = Gold(judges=judges)
    for how, value in (("mean", 2 / 3), ("majority", 1.0), ("strict", 0.0)):
        found = values(JudgePanel(how=how).score(trace, gold))  # type: ignore[arg-type]  # the words of the type
        assert found == {"e10": value, "e12": value, "e14": value}
    (on_team,) = JudgePanel(of="answer").score(trace, gold)
    assert (on_team.unit, on_team.value) == ("team", 2 / 3)
    kinds = {"kind": "llm", "kind too": "llm"}
    assert (
        Verifiers(kinds=kinds, disagreement=0.0).score(trace, gold)[0].value == 0.5
    )  # two kinds, one vote each
    assert Verifiers(kinds=kinds, disagreement=0.5).score(trace, gold)[0].value == 0.25  # their spread is 0.5
    with pytest.raises(TraceError, match="needs a judge of e17"):
        Verifiers().score(trace)


@pytest.mark.parametrize(("tau", "solution"), [("3", 1.0), ("score: 2", 0.5), ("1", 0.0)])
def test_solution_evaluation_is_comas(tau: str, solution: float) -> None:
    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        names = (("s", "solver"), ("e", "evaluator"), ("j", "scorer"))
        solver, evaluator, scorer = (lead.spawn(name, role=role) for name, role in names)
        solver.send(evaluator, "x = 3")
        evaluator.send(scorer, "wrong: x = 4")
        scorer.returns(tau)
        lead.stop()

    first, second = SolutionEvaluation().score(recorded(play))
    assert (first.value, second.value) == (solution, 1 - solution)
    assert first.unit == "message"


def test_a_scorer_without_a_score() -> None:
    with pytest.raises(TraceError, match="needs an agent with the role 'evaluator'"):
        SolutionEvaluation().score(checked("7", "31"))


# -- R7 ------------------------------------------------------------------------------------------


def test_speed_up_says_which() -> None:
    trace = star(4)  # four tool results of 1 s at once
    (own,) = SpeedUp().score(trace)
    assert own.value == 4.0
    assert own.by is not None
    assert "T1/Tinf" in own.by
    (least,) = SpeedUp().score(trace, Gold(least_work_s=3.0))
    assert least.value == 3.0 / trace.costs["wall_clock_s"]
    assert least.by is not None
    assert "T1*/T_P" in least.by
    assert SpeedUp(cap=2.0).score(trace)[0].value == 2.0
    with pytest.raises(TraceError, match="no event was timed"):
        SpeedUp().score(answering("x"))


def test_speed_up_and_the_measured_span_agree_where_events_overlap() -> None:
    """Results of two tools that ran at once, from 0 to 10 and from 0.5 to 10.5 s, one written after the other."""
    events = (
        Event(id="a", type="tool_result", agent="x", seq=1, t=0.0, duration_s=10.0),
        Event(id="b", type="tool_result", agent="x", seq=2, t=0.5, duration_s=10.0),
    )
    trace = Trace(
        header=Header(trace_id="t", task_id="q"), events=events, edges=(Edge("a", "b", "temporal"),)
    )
    (found,) = SpeedUp().score(trace)
    assert found.value == 20.0 / 10.5
    reading = MeasuredTrace(trace)
    assert (work(reading).value, span(reading).value) == (20.0, 10.5)


def test_parallel_counts_who_is_busy_at_once() -> None:
    assert Parallel(n_ref=8).score(star(4))[0].value == 0.5
    assert Parallel(n_ref=3).score(star(4))[0].value == 1.0
    assert Parallel(n_ref=4).score(star(4, serial=True))[0].value == 0.25
    assert Parallel().score(answering("x"))[0].value == 0.0

    def untimed(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        first, second = lead.spawn("a"), lead.spawn("b")
        first.returns()
        third = lead.spawn("c")
        second.returns()
        third.returns()
        lead.stop("x")

    (reward,) = Parallel(n_ref=4).score(recorded(untimed))
    assert reward.value == 0.5
    assert reward.by is not None
    assert reward.by.endswith("# out at once: not timed")


def test_finish_rate() -> None:
    trace = golden("swarm")
    assert FinishRate().score(trace)[0].value == 3 / 5
    on_spawns = values(FinishRate(unit="orchestrator").score(trace))
    assert on_spawns == {"e1": 1.0, "e2": 1.0, "e3": 0.0, "e4": 1.0, "e5": 0.0}
    with pytest.raises(TraceError, match="nobody was spawned"):
        FinishRate().score(answering("x"))
    assert FinishRate(without_spawns=0.0).score(answering("x"))[0].value == 0.0


def test_split() -> None:
    trace = golden("centralized")
    gold = Gold(parts=("docs", "code", "changelog", "tests"))
    assert Split().score(trace, gold)[0].value == 2 * 3 / (3 + 4)
    assert values(Split(unit="orchestrator").score(trace, gold)) == {"e1": 1.0, "e2": 1.0, "e11": 1.0}
    twice = Gold(parts=("docs", "code"), covers=lambda task: {"docs"})
    assert values(Split(unit="orchestrator").score(trace, twice)) == {"e1": 1.0, "e2": 0.0, "e11": 0.0}
    assert Split().score(trace, twice)[0].value == 2 * 1 / (3 + 2)
    assert Split().score(trace, Gold(parts=("doc",)))[0].value == 0.0  # whole words only
    with pytest.raises(TraceError, match="`parts`"):
        Split().score(trace)


def test_aggregation() -> None:
    trace = golden("debate")
    assert values(Aggregation().score(trace, Gold(answer="no"))) == {"e16": 0.0}
    assert values(Aggregation().score(trace, Gold(answer="yes"))) == {"e16": -1.0}  # cid's yes was lost
    assert values(Aggregation(unit="team").score(trace, Gold(answer="yes"))) == {trace.trace_id: -1.0}
    with pytest.raises(TraceError, match="needs an aggregate"):
        Aggregation().score(answering("x"), PORT)


def test_even_work() -> None:
    trace = golden("centralized")
    spent = {
        name: sum(e.tokens or 0 for e in trace.events if e.agent == name)
        for name in {e.to for e in trace.events if e.type == "spawn" and e.status == "ok"}
    }
    assert len(spent) > 1
    n, busiest = len(spent), max(spent.values()) / sum(spent.values())
    assert EvenWork().score(trace)[0].value == pytest.approx((1 - busiest) * n / (n - 1))
    with pytest.raises(TraceError, match="Set without"):
        EvenWork().score(answering("x"))
    assert EvenWork(without=0.25).score(answering("x"))[0].value == 0.25


def test_critical_steps() -> None:
    trace = golden("swarm")
    stages = Stages.of(trace)
    assert CriticalSteps(budget=40).score(trace)[0].value == 1 - stages.critical_steps / 40
    assert CriticalSteps().score(trace)[0].value == 1 - stages.critical_steps / stages.total_steps
    with pytest.raises(UsageError, match="at least 1"):
        CriticalSteps(budget=0).score(trace)

"""Rewards that methods publish, written out, against what the recipes' rules give recorded teams."""

from __future__ import annotations

import pytest
from marked import marked
from reward_traces import Clock, recorded

from baton.compose.training import reward_of
from baton.learn.recipe import load
from baton.reward import Gold
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder
from baton.trace.trace import Trace

ROLES = ("planner", "executor", "critic")


def team(*roles: str, answer: str = "42") -> Trace:
    """One agent of each role, who returns its own name; the lead gives the answer."""

    def play(_: Recorder, lead: RecordedAgent, clock: Clock) -> None:
        for number, role in enumerate(roles):
            clock.seconds += 1
            lead.spawn(f"{role}{number}", role=role, task=f"do {role}").returns(f"{role}{number}")
        lead.stop(answer)

    return recorded(play, topology="centralized")


def given(recipe: str, trace: Trace, gold: Gold) -> dict[str, float]:
    rules = reward_of(load(recipe).reward)
    assert rules is not None
    return {reward.target: reward.value for rule in rules.rules for reward in rule.score(trace, gold)}


@marked(["m-grpo"], ["reward"])
def test_main_and_sub(recipe: str) -> None:
    """main .1 + .9 c; sub .1 + .4 c + .5 judge."""
    trace = team("worker", "worker", "worker")
    judge = {"worker0": 0.2, "worker1": 1.0, "worker2": 0.7}
    for correct in (0.0, 1.0):
        gold = Gold(
            verify=lambda answer, c=correct: c,
            judges={"task": lambda trace, event: judge[trace.event(event).agent]},
        )
        wanted = {"lead": 0.1 + 0.9 * correct}
        wanted |= {agent: 0.1 + 0.4 * correct + 0.5 * score for agent, score in judge.items()}
        assert given(recipe, trace, gold) == pytest.approx(wanted)


@marked(["ccpo"], ["reward"])
def test_the_thinker_s_gap(recipe: str) -> None:
    """thinker R + .2 (R - R_solo), everybody else R."""
    trace = team(*ROLES)
    for outcome, solo in ((1.0, 0.0), (0.0, 1.0), (1.0, 0.25)):
        gold = Gold(verify=lambda answer, r=outcome: r, solo=solo)
        wanted = {"lead": outcome, "executor1": outcome, "critic2": outcome}
        wanted["planner0"] = outcome + 0.2 * (outcome - solo)
        assert given(recipe, trace, gold) == pytest.approx(wanted)


@marked(["mae"], ["reward"])
def test_proposer_solver_judge(recipe: str) -> None:
    """proposer (q - 1)/9 + (1 - solver) + format, solver (s - 1)/9, judge format."""
    trace = team(*ROLES)
    scores = {"planner0": 7.0, "executor1": 4.0, "critic2": 1.0}
    gold = Gold(judges={"task": lambda trace, event: scores[trace.event(event).agent]})
    solver = (4 - 1) / 9
    wanted = {"planner0": (7 - 1) / 9 + (1 - solver) + 1, "executor1": solver, "critic2": 1.0}
    assert given(recipe, trace, gold) == pytest.approx(wanted)


@marked(["debate-as-reward"], ["reward"])
def test_every_judge_has_to_pass_it(recipe: str) -> None:
    trace = team("debater", "debater")
    for scores in ((0.9, 0.8, 0.5), (0.9, 0.4, 1.0), (0.1, 0.2, 0.3)):
        judges = {f"j{n}": lambda trace, event, s=score: s for n, score in enumerate(scores)}
        assert given(recipe, trace, Gold(judges=judges)) == {"t": float(min(scores) >= 0.5)}

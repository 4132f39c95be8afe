"""A recipe's rewards on rollouts and on the forks that estimators compare them with."""

from __future__ import annotations

import asyncio

import pytest
from credit_teams import make_trace
from fork_teams import voters
from msgspec import structs

from baton.compose.training import reward_of
from baton.credit import find
from baton.errors import TraceError, UsageError
from baton.learn.recipe import RewardPart, load
from baton.learn.scoring import Scoring, check_balance
from baton.reward.hybrid import Hybrid, Linear, Term
from baton.reward.rule import Rule
from baton.reward.rules.individual import Difference
from baton.reward.rules.orchestration import FinishRate
from baton.reward.rules.shared import Length, Success
from baton.team.forks import Forks
from baton.team.intervene import BarAgent
from baton.team.running import run
from baton.trace.gold import Gold
from baton.trace.outcome import task_return
from baton.trace.trace import Trace


def scoring_of(*rules: Rule) -> Scoring:
    made = Scoring(reward_of(RewardPart(recipe="shared")))
    assert made.recipe is not None
    made.recipe = structs.replace(made.recipe, rules=rules)
    return made


def played(count: int) -> tuple[list[Trace], list[Gold], Forks]:
    traces = [asyncio.run(run(*voters(seed), trace_id=f"t{seed}")) for seed in range(count)]
    team, assignment = voters(0)
    return traces, [Gold(verify=assignment.verify)] * count, Forks(team, assignment)


def without(forks: Forks, trace: Trace, *agents: str) -> Trace:
    return asyncio.run(forks.fork(trace, [BarAgent(agent) for agent in agents])).trace


PRICED = Hybrid(name="priced", terms=(Term(of=Success()), Term(of=Length(free=0, limit=1000), weight=-1.0)))


def test_a_fork_of_a_fork_earns_by_the_recipe() -> None:
    traces, gold, forks = played(2)
    scoring = scoring_of(PRICED)
    scoring.score(traces, gold)
    first = without(forks, traces[0], "worker1")
    for fork in (first, without(forks, first, "worker2")):
        exact = sum(reward.value for reward in PRICED.score(fork, gold[0]) if reward.unit == "team")
        assert exact != task_return(fork)
        assert scoring.team_return(fork) == exact


def test_a_fork_that_a_rule_cannot_read_earns_nothing_as_a_rollout_would() -> None:
    traces, gold, forks = played(2)
    scoring = scoring_of(FinishRate())
    alone = without(forks, traces[0], "worker1", "worker2", "worker3")
    meta = {key: value for key, value in alone.header.meta.items() if key != "forked_from"}
    rollout = structs.replace(alone, header=structs.replace(alone.header, trace_id="third", meta=meta))
    *_, scored = scoring.score([*traces, rollout], [*gold, gold[0]])
    assert scoring.team_return(scored) == 0.0
    assert scoring.team_return(alone) == 0.0
    with pytest.raises(TraceError, match="nobody was spawned"):
        FinishRate().score(alone, gold[0])


def test_rewards_of_agents_leave_a_forks_team_its_own() -> None:
    """What runs without an agent earned is known of rollouts, and not of forks."""
    traces, gold, forks = played(2)
    known = [structs.replace(g, without={"worker1": 0.0, "worker2": 1.0}) for g in gold]
    scoring = scoring_of(Hybrid(name="each", terms=(Term(of=Difference(team_weight=1.0)),)))
    scored = scoring.score(traces, known)
    alone = without(forks, traces[0], "worker1", "worker2", "worker3")
    assert scoring.team_return(alone) == task_return(alone)
    assert asyncio.run(find("shapley").function(scored, runner=forks, reward=scoring.team_return))


def test_terms_about_the_team_count_beside_those_about_agents() -> None:
    traces, gold, forks = played(2)
    known = [structs.replace(g, without={"worker1": 0.0}) for g in gold]
    both = Hybrid(name="both", terms=(*PRICED.terms, Term(of=Difference())))
    scoring = scoring_of(both)
    scoring.score(traces, known)
    fork = without(forks, traces[0], "worker1")
    exact = sum(reward.value for reward in PRICED.score(fork, gold[0]) if reward.unit == "team")
    assert scoring.team_return(fork) == exact


def nested(weight: Linear) -> Hybrid:
    inner = Hybrid(name="inner", terms=(Term(of=Success(), weight=weight),))
    return Hybrid(name="outer", terms=(Term(of=inner),))


def test_schedules_of_a_hybrid_within_a_hybrid_move() -> None:
    scoring = scoring_of(nested(Linear(start=1.0, end=0.0, steps=10)))
    trace = make_trace("a", 1.0)
    for _ in range(5):
        scoring.observe([trace])
    assert scoring.weights() == {"inner": 1.0, "success": 0.5}
    kept = scoring.state_dict()
    again = scoring_of(nested(Linear(start=1.0, end=0.0, steps=10)))
    again.load_state_dict(kept)
    assert again.rules == scoring.rules
    again.observe([trace])
    assert again.weights()["success"] == pytest.approx(0.4)


def test_gradients_of_a_hybrid_within_a_hybrid_are_not_measured() -> None:
    inner = Hybrid(name="inner", terms=(Term(of=Success()),), balance="gradient")
    with pytest.raises(UsageError, match="inner"):
        check_balance(load("grpo"), (Hybrid(name="outer", terms=(Term(of=inner),)),))

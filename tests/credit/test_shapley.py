"""Shapley values: exact against two independent implementations, sampled within its claims, from forks."""

from __future__ import annotations

import asyncio
from itertools import permutations

import numpy as np
import pytest
from fork_teams import additive, team_of, traces, turn_of, voters
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from baton.credit.estimator import CreditError
from baton.credit.estimators.shapley_forks import absent, players_of, shapley, shapley_of
from baton.credit.estimators.shapley_values import (
    _Forest,
    closed_part,
    exact,
    exact_precedence,
    interaction,
    sampled,
    symmetric,
)
from baton.games import coalition
from baton.games.library import make_game
from baton.team.clock import generator
from baton.team.forks import Forks
from baton.team.protocol import Request
from baton.team.running import run


@st.composite
def forests(draw: st.DrawFn, most: int = 8) -> tuple[list[int], list[float]]:
    n = draw(st.integers(1, most))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    seed = draw(st.integers(0, 2**32 - 1))
    return parents, np.random.default_rng(seed).normal(size=1 << n).tolist()


@given(forests())
@settings(max_examples=60)
def test_exact_values_of_small_forests(forest: tuple[list[int], list[float]]) -> None:
    parents, worths = forest
    v = worths.__getitem__
    permission, precedence = exact(v, parents), exact_precedence(v, parents)
    assert permission.values == pytest.approx(coalition.permission(parents, v))
    assert precedence.values == pytest.approx(coalition.precedence(parents, v))
    for found in (permission, precedence):
        assert abs(found.residual) < 1e-9
        assert sum(found.values) == pytest.approx(worths[-1] - worths[0])


@given(forests(5))
@settings(max_examples=25)
def test_precedence_by_listing_every_order(forest: tuple[list[int], list[float]]) -> None:
    parents, worths = forest
    n = len(parents)
    orders = [
        o
        for o in permutations(range(n))
        if all(p < 0 or o.index(p) < o.index(i) for i, p in enumerate(parents))
    ]
    credit = [0.0] * n
    for order in orders:
        mask = 0
        for player in order:
            credit[player] += (worths[mask | 1 << player] - worths[mask]) / len(orders)
            mask |= 1 << player
    assert exact_precedence(worths.__getitem__, parents).values == pytest.approx(credit)


@pytest.mark.parametrize(
    "name", ["airport", "gloves", "weighted-voting", "induced-subgraph", "signalling-chain"]
)
def test_closed_forms_of_the_games(name: str) -> None:
    game = make_game(name)
    n = game.players()
    assert exact(game.worth, [-1] * n).values == pytest.approx(game.credit())
    assert exact_precedence(game.worth, [-1] * n).values == pytest.approx(game.credit())
    found = sampled(game.worth, [-1] * n, max_evaluations=400)
    assert found.residual == pytest.approx(0.0, abs=1e-6)


def test_enabling_orchestrator_earns_by_permission_only() -> None:
    forest = make_game("spawn-forest")
    permission = exact(forest.worth, forest.parents)
    precedence = exact_precedence(forest.worth, forest.parents)
    assert precedence.values[0] == pytest.approx(-0.02)
    assert permission.values[0] > 0.1
    assert sum(permission.values) == pytest.approx(sum(precedence.values))


def test_redundant_messages_interact() -> None:
    game = make_game("signalling-chain")
    assert coalition.leave_one_out(4, game.worth)[:2] == pytest.approx([0.0, 0.0])
    assert interaction(game.worth, 4, 0, 1) == pytest.approx(coalition.interaction(4, game.worth, 0, 1))
    assert interaction(game.worth, 4, 0, 1) < 0


def test_coalitions_are_closed_and_asked_once() -> None:
    assert closed_part([-1, 0, 1, -1], 0b1101) == 0b1001
    asked: list[int] = []

    def v(mask: int) -> float:
        asked.append(mask)
        return float(mask.bit_count())

    found = exact(v, [-1, 0, 0])
    assert sorted(asked) == [0, 0b001, 0b011, 0b101, 0b111]
    assert found.num_evaluations == 5
    with pytest.raises(CreditError, match="spawners before"):
        exact(v, [1, -1])
    with pytest.raises(CreditError, match="at most 20"):
        exact(v, [-1] * 30)


def test_exchangeable_workers_by_count() -> None:
    gloves = make_game("gloves", {"left": 5, "right": 3})
    found = symmetric(gloves.worth, [0] * 5 + [1] * 3, num_checks=8)
    assert found.values == pytest.approx(gloves.credit())
    # 6 x 4 counts, and two for each of the checks at most.
    assert found.num_evaluations <= 24 + 16 < 2**8
    with pytest.raises(CreditError, match="not exchangeable"):
        symmetric(gloves.worth, [0] * 8)


def test_linear_extensions_are_uniform() -> None:
    parents = [-1, 0, 0, 1]
    forest, draw = _Forest(parents), generator("test")
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(3000):
        for order in forest.round(draw, 4):
            seen[tuple(order)] = seen.get(tuple(order), 0) + 1
    assert set(seen) == {(0, 1, 2, 3), (0, 1, 3, 2), (0, 2, 1, 3)}
    assert all(abs(count - 4000) < 250 for count in seen.values())
    orders, times = np.unique(forest.many(draw, 12_000), axis=0, return_counts=True)
    assert {tuple(order) for order in orders.tolist()} == set(seen)
    assert (np.abs(times - 4000) < 250).all()


@pytest.mark.parametrize("value", ["permission", "precedence"])
def test_sampling_is_unbiased_and_its_intervals_hold(value: str) -> None:
    """Over many seeds, on a forest whose value is known; the surrogate must not bend it."""
    forest = make_game(
        "spawn-forest",
        {"parents": [-1, 0, 0, 0, 1, 1, 2], "chances": [0, 0.1, 0, 0.3, 0.5, 0.2, 0.4], "costs": [0.02] * 7},
    )
    true = forest.credit() if value == "permission" else forest.precedence_credit()
    found = [
        sampled(forest.worth, forest.parents, value=value, max_evaluations=30, orders_per_round=2, seed=s)
        for s in range(200)
    ]
    means = np.array([f.values for f in found])
    errors = means.mean(axis=0) - true
    assert (np.abs(errors) < 4 * means.std(axis=0) / 200**0.5 + 1e-9).all()
    held = [
        abs(x - t) <= h + 1e-12
        for f in found
        if f.halfwidth is not None
        for x, t, h in zip(f.values, true, f.halfwidth, strict=True)
    ]
    assert np.mean(held) > 0.9


def test_from_forks_on_a_fixed_set() -> None:
    [trace] = traces(additive, 1)
    for ablation in ("bar", "mask"):
        forks = Forks(*additive(0))
        [credits] = asyncio.run(shapley([trace], runner=forks, ablation=ablation))  # type: ignore[arg-type]  # a literal
        assert [c.target for c in credits] == ["worker1", "worker2", "worker3"]
        assert [c.value for c in credits] == pytest.approx([1.0, 2.0, 3.0])
        assert f"ablation: {ablation}" in credits[0].assumes
        assert sum(c.cost_calls or 0 for c in credits) == forks.cost.calls
    with pytest.raises(CreditError, match="not exchangeable"):
        asyncio.run(shapley([trace], runner=forks, method="count"))
    _, counted = asyncio.run(shapley_of(forks, trace, method="count", tolerance=10.0))
    assert counted.values == pytest.approx([2.0, 2.0, 2.0])


def test_masked_agents_stay_silent_when_they_are_asked_again() -> None:
    """A leader that hears nothing asks the same worker once more; what it says then is masked like the rest."""

    def script(request: Request) -> str:
        if request.role == "worker":
            return "return 1"
        if turn_of(request) == 0:
            return "spawn worker: vote\nwait all"
        heard = any("returned: 1" in entry.text for entry in request.entries)
        return f"stop {int(heard)}" if heard or turn_of(request) > 2 else "delegate worker1: again\nwait all"

    team, assignment = team_of(script, 0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    [[credit]] = asyncio.run(shapley([trace], runner=forks, ablation="mask"))
    assert credit.value == 1.0
    assert forks.num_run == 1
    players, parents = players_of(trace)
    nobody = asyncio.run(forks.fork(trace, absent(players, parents, 0, "mask"))).trace
    assert [nobody.text(e.content_ref) for e in nobody.events if e.type == "return"] == ["", "", ""]


def test_an_agent_that_never_came_to_act_can_be_masked() -> None:
    def script(request: Request) -> str:
        if request.role == "worker":
            return "return 1"
        return ("spawn worker: x", "stop 1")[turn_of(request)]

    team, assignment = team_of(script, 0)
    trace = asyncio.run(run(team, assignment))
    assert not any(event.agent == "worker1" for event in trace.events)
    [[credit]] = asyncio.run(shapley([trace], runner=Forks(team, assignment), ablation="mask"))
    assert credit.value == 0.0


def test_from_forks_on_a_spawn_forest() -> None:
    def script(request: Request) -> str:
        if request.role == "worker":
            return "return 1"
        if turn_of(request) == 0:
            kind = "lead: y" if request.role == "orchestrator" else "worker: z"
            return f"spawn {kind}\nspawn {kind}\nwait all"
        said = [e.text.rsplit(" ", 1)[-1] for e in request.entries if "returned:" in e.text]
        total = sum(int(x) for x in said if x.isdigit())
        return f"{'stop' if request.role == 'orchestrator' else 'return'} {total}"

    team, assignment = team_of(script, 0, "hierarchical")
    trace = asyncio.run(run(team, assignment))
    players, parents = players_of(trace)
    assert len(players) == 6
    forks = Forks(team, assignment)
    _, permission = asyncio.run(shapley_of(forks, trace, value="permission"))
    _, precedence = asyncio.run(shapley_of(forks, trace, value="precedence"))
    for found in (permission, precedence):
        assert abs(found.residual) < 1e-9
    leads = [i for i, p in enumerate(parents) if p < 0]
    assert all(precedence.values[i] == pytest.approx(0.0) for i in leads)
    assert all(permission.values[i] == pytest.approx(1.0) for i in leads)


def test_stand_ins_are_barred_unless_allowed() -> None:
    """An orchestrator that misses its worker spawns another: then the first was worth nothing."""

    def script(request: Request) -> str:
        if request.role == "worker":
            return "return 1"
        said = [e.text[-1] for e in request.entries if "returned:" in e.text]
        return (
            f"stop {said[0]}" if said else "stop 0" if turn_of(request) > 2 else "spawn worker: x\nwait all"
        )

    team, assignment = team_of(script, 0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    [[alone]] = asyncio.run(shapley([trace], runner=forks))
    assert forks.num_run == 1  # the names of those it would spawn next are barred beforehand
    [[replaced]] = asyncio.run(shapley([trace], runner=forks, stand_ins=True))
    assert (alone.value, replaced.value) == (1.0, 0.0)
    assert "stand-ins: barred" in alone.assumes


def test_a_stand_in_of_another_name_is_barred_in_turn() -> None:
    """Missing its worker, the lead of a hierarchy sends for another lead, whose workers have other names."""

    def script(request: Request) -> str:
        if request.role == "worker":
            return "return 1"
        said = [e.text[-1] for e in request.entries if "returned:" in e.text]
        if request.role == "lead":
            return (
                f"return {said[0]}"
                if said
                else ("spawn worker: x\nwait all", "return 0")[turn_of(request) > 1]
            )
        if said and (said[-1] == "1" or turn_of(request) > 3):
            return f"stop {said[-1]}"
        return "spawn lead: x\nwait all" if turn_of(request) < 4 else "stop 0"

    team, assignment = team_of(script, 0, "hierarchical")
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    [credits] = asyncio.run(shapley([trace], runner=forks))
    assert {c.target: c.value for c in credits} == {"lead1": 0.5, "lead1.worker1": 0.5}


def test_a_team_that_tries_again_and_again_is_forked_once_for_each_coalition() -> None:
    """Barred orchestrators that send for two more at every turn took a fork for every few names that they tried."""

    def script(request: Request) -> str:
        if request.role == "worker":
            return "return 1"
        said = [e.text[-1] for e in request.entries if "returned:" in e.text]
        if said or turn_of(request) > 20:
            return f"stop {len(said)}"
        return "spawn worker: x\n" * 3 + "wait all"

    team, assignment = team_of(script, 0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    [credits] = asyncio.run(shapley([trace], runner=forks))
    assert forks.num_run == 7  # 2^3 coalitions, of which everybody together is the recorded run
    assert {c.target: c.value for c in credits} == {"worker1": 1.0, "worker2": 1.0, "worker3": 1.0}
    assert credits[0].cost_calls == forks.cost.calls


def test_a_trace_without_spawns_is_a_clear_error() -> None:
    team, assignment = team_of(lambda _: "stop 1", 0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)
    with pytest.raises(CreditError, match="nobody to share"):
        asyncio.run(shapley([trace], runner=forks))
    with pytest.raises(CreditError, match="none of these 2 traces"):
        asyncio.run(shapley([trace, trace], runner=forks))


def test_over_a_group_the_spread_counts_and_rollouts_without_spawns_get_none() -> None:
    group = traces(voters, 6)
    forks = Forks(*voters(0))
    credits = asyncio.run(shapley(group, runner=forks))
    for place in range(3):
        values = [mine[place].value for mine in credits]
        wide = stats.t.ppf(0.975, 4) / stats.norm.ppf(0.975)  # of one draw, told by the five others
        assert credits[0][place].stderr == pytest.approx(np.std(values[1:], ddof=1) * wide, rel=1e-3)
    [alone] = asyncio.run(shapley(group[:1], runner=forks))
    assert {credit.stderr for credit in alone} == {0.0}


def test_votes_are_efficient() -> None:
    for seed, trace in enumerate(traces(voters, 10)):
        [credits] = asyncio.run(shapley([trace], runner=Forks(*voters(seed))))
        assert sum(c.value for c in credits) == pytest.approx(trace.rewards[0].value)

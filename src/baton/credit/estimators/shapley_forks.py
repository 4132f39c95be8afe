"""Shapley credit of a trace's agents, with the worth of a coalition found by running the trace without the others.

Players are the agents that were spawned; the root is always there. Two ablations, which are different
questions, so the one that was used stands in the credit:
  bar   absent agents cannot be spawned; their spawner is told they are unavailable, and may adapt;
  mask  everyone works, but what absent agents say to others arrives empty, however often they are asked.
A spawner that misses someone may spawn another in its stead; those stand-ins are barred too, unless allowed, or
the team would be worth as much without anybody.
Luck is as recorded (common random numbers), so v(everyone) is the recorded return and costs nothing.
Values and their sources: `baton.credit.estimators.shapley_values`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from baton.credit.core.baseline import BY_SPREAD, pooled
from baton.credit.core.spending import own_tokens, spent
from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator, make_credit
from baton.credit.estimators.shapley_scarce import scarce
from baton.credit.estimators.shapley_values import (
    ORDERS_PER_ROUND,
    Coalitions,
    Shapley,
    exact,
    exact_precedence,
    num_closed,
    sampled,
    symmetric,
)
from baton.settings import Count, Positive
from baton.team.forks import Cost, Forks, WhatIf
from baton.team.intervene import BarAgent, Intervention, MuteAgent, OnlyAgents
from baton.trace.graph.lineage import Lineage
from baton.trace.outcome import team_return
from baton.trace.records import Credit
from baton.trace.trace import Trace

Ablation = Literal["bar", "mask"]
Value = Literal["permission", "precedence"]
Method = Literal["auto", "exact", "sampled", "count"]
_MAX_EXACT_PLAYERS = 8


def players_of(trace: Trace) -> tuple[list[str], list[int]]:
    """The spawned agents, spawners first, and who spawned each (-1: a root did)."""
    lives = [life for life in Lineage.of(trace).lives.values() if life.parent is not None]
    place = {life.agent: i for i, life in enumerate(lives)}
    return [life.agent for life in lives], [place.get(life.parent or "", -1) for life in lives]


def absent(players: list[str], parents: list[int], mask: int, ablation: Ablation) -> list[Intervention]:
    """The interventions that leave only a closed coalition of players."""
    gone = [i for i in range(len(players)) if not mask >> i & 1]
    if ablation == "bar":  # whoever an absent agent would have spawned is not there either
        return [BarAgent(players[i]) for i in gone if parents[i] < 0 or mask >> parents[i] & 1]
    return [MuteAgent(players[i]) for i in gone]


def most_forks(trace: Trace) -> int:
    """How often a trace is run again at the most: once for each coalition, but for everybody together."""
    return num_closed(players_of(trace)[1]) - 1


async def shapley_of(
    runner: Forks,
    trace: Trace,
    *,
    value: Value = "permission",
    ablation: Ablation = "bar",
    method: Method = "auto",
    max_evaluations: int = 2000,
    spend: float | None = None,
    tolerance: float = 1e-9,
    stand_ins: bool = False,
    seed: int = 0,
    reward: RewardOf = team_return,
) -> tuple[list[str], Shapley]:
    """The agents of a trace and their values. `count`: siblings of one role are exchangeable, which is tested."""
    players, parents = players_of(trace)
    if not players:
        raise CreditError(f"trace {trace.trace_id} has no spawned agents, so there is nobody to share among.")
    loop = asyncio.get_running_loop()
    worths = _Worths(runner, trace, players, parents, ablation, stand_ins, reward)

    def together(masks: Sequence[int]) -> Sequence[tuple[float, float]]:
        return asyncio.run_coroutine_threadsafe(worths.of(masks), loop).result()

    def worth(mask: int) -> float:
        return together([mask])[0][0]

    v = Coalitions(worth, parents, together)
    # The values ask for v some coalitions at a time, from a thread; the forks run here.
    found = await asyncio.to_thread(
        _values, v, trace, players, value, method, max_evaluations, spend, tolerance, seed
    )
    return players, found


class _Worths:
    """What coalitions of a trace's agents are worth, by forks, and what those cost."""

    def __init__(
        self,
        runner: Forks,
        trace: Trace,
        players: list[str],
        parents: list[int],
        ablation: Ablation,
        stand_ins: bool,
        reward: RewardOf,
    ) -> None:
        self._runner = runner
        self._trace = trace
        self._players = players
        self._parents = parents
        self._ablation: Ablation = ablation
        self._only = () if stand_ins else (OnlyAgents(tuple(players)),)
        self._reward = reward
        self._own = own_tokens(trace)

    async def of(self, masks: Sequence[int]) -> list[tuple[float, float]]:
        """Worth and cost of each, in runs of the trace. Everybody together is the recorded run, which costs nothing."""
        everyone = (1 << len(self._players)) - 1
        others = [mask for mask in masks if mask != everyone]
        forks = await self._runner.fork_all(self._trace, [self._branch(mask) for mask in others])
        found = {everyone: (self._reward(self._trace), 0.0)}
        for mask, made in zip(others, forks, strict=True):
            found[mask] = self._reward(made.trace), spent(made, self._own)
        return [found[mask] for mask in masks]

    def _branch(self, mask: int) -> WhatIf:
        changes = absent(self._players, self._parents, mask, self._ablation)
        return WhatIf(interventions=(*changes, *self._only))


def _values(
    v: Coalitions,
    trace: Trace,
    players: list[str],
    value: Value,
    method: Method,
    max_evaluations: int,
    spend: float | None,
    tolerance: float,
    seed: int,
) -> Shapley:
    parents = v.parents
    if method == "count":
        if max(parents) >= 0:
            raise CreditError(
                "counting needs agents that the root spawned; some here were spawned by others."
            )
        lives = Lineage.of(trace).lives
        roles = sorted({lives[p].role or "" for p in players})
        return symmetric(v, [roles.index(lives[p].role or "") for p in players], tolerance=tolerance)
    count = num_closed(parents)
    # Running all of them again takes about as much as the trace itself did for each, at the most.
    few = count <= max_evaluations and (spend is None or count - 1 <= spend)
    if method == "exact" or (method == "auto" and len(players) <= _MAX_EXACT_PLAYERS and few):
        return exact_precedence(v, parents) if value == "precedence" else exact(v, parents)
    one_round = ORDERS_PER_ROUND * (len(players) - 1) + 2
    if spend is None and max_evaluations >= min(one_round, count):
        found = sampled(v, parents, value=value, max_evaluations=max_evaluations, seed=seed)
    else:
        found = scarce(
            v,
            value=value,
            max_evaluations=max_evaluations,
            budget=math.inf if spend is None else spend,
            seed=seed,
        )
    if len(players) <= _MAX_EXACT_PLAYERS and v.num_evaluations >= count:  # then nothing is left to chance
        return exact_precedence(v, parents) if value == "precedence" else exact(v, parents)
    return found


@estimator(
    "shapley",
    "agent",
    needs=("runtime",),
    source="Shapley 1953; Gilles, Owen and van den Brink 1992 (permission); Faigle and Kern 1992 (precedence)",
    evidence="M",
    spend=64.0,
)
async def shapley(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    value: Value = "permission",
    ablation: Ablation = "bar",
    method: Method = "auto",
    max_evaluations: Count = 2000,
    spend: Positive | None = None,
    tolerance: float = 1e-9,
    stand_ins: bool = False,
    seed: int = 0,
) -> Credits:
    """phi_i = average over orders of v(those before i, and i) - v(those before i), for each spawned agent.

    v of a coalition is the return of the trace run again with only these agents; orders are those the spawn forest
    allows (`value`). Standard error: over rounds of sampled orders, zero where every coalition was asked, None
    where there was one round; luck is as recorded. Few coalitions (`max_evaluations`, or forks of at most `spend` times
    the trace's own tokens and work) tell about everybody at once (`baton.credit.estimators.shapley_scarce`). Over a
    group each value is one draw of what the agent is worth on average, so the spread of its values over the rollouts is
    added.
    Source: Shapley 1953; permission, Gilles, Owen and van den Brink 1992; precedence, Faigle and Kern 1992 [M].
    """
    assumes = (
        f"value: {value}",
        f"ablation: {ablation}",
        f"stand-ins: {'allowed' if stand_ins else 'barred'}",
        "the root is always present",
        "luck as recorded",
    )
    out: Credits = []
    for trace in group:
        if not players_of(trace)[0] and len(group) > 1:
            out.append([])  # an error, if it is so of all of them
            continue
        before = runner.cost
        players, found = await shapley_of(
            runner,
            trace,
            value=value,
            ablation=ablation,
            method=method,
            max_evaluations=max_evaluations,
            spend=spend,
            tolerance=tolerance,
            stand_ins=stand_ins,
            seed=seed,
            reward=reward,
        )
        # One set of forks serves all agents; its cost stands on the first, so that costs can be added.
        cost = runner.cost - before
        notes = (*assumes, *_bound(trace, found, spend, cost))
        out.append(_written(players, found, cost, notes))
    if not any(out):
        raise CreditError(
            f"none of these {len(group)} traces has spawned agents, so there is nobody to share among."
        )
    if len(group) == 1:
        return out
    spread = iter(pooled((credit.target, credit.value) for mine in out for credit in mine))
    return [[_in_group(credit, next(spread)) for credit in mine] for mine in out]


def _bound(trace: Trace, found: Shapley, spend: float | None, cost: Cost) -> tuple[str, ...]:
    """That not every coalition was asked, why, and what was spent: one pair is run whatever it takes."""
    count = num_closed(players_of(trace)[1])
    if found.num_evaluations >= count:
        return ()
    asked = f"{found.num_evaluations} of {count if count < 10**6 else f'{count:.1e}'} coalitions were asked"
    if spend is None:
        return (asked,)
    times = cost.tokens / max(1, own_tokens(trace))
    return (f"{asked}, bound by spend {spend:g}; {times:.3g} times the trace's own tokens were run",)


def _written(players: list[str], found: Shapley, cost: Cost, assumes: tuple[str, ...]) -> list[Credit]:
    errors = found.stderr or (None,) * len(players)
    return [
        make_credit(
            "shapley",
            "agent",
            agent,
            found.values[i],
            stderr=errors[i],
            cost=cost if i == 0 else Cost(),
            assumes=(*assumes, f"efficiency residual {found.residual:.2g}", *filter(None, [found.note])),
        )
        for i, agent in enumerate(players)
    ]


def _in_group(credit: Credit, spread: float | None) -> Credit:
    if spread is None or credit.stderr is None:
        return replace(credit, stderr=None)
    return replace(credit, stderr=math.hypot(credit.stderr, spread), assumes=(*credit.assumes, BY_SPREAD))

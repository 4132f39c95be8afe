"""R2, individual: what each agent's own work is worth. Lands on agents.

Risk: the lazy agent, who earns by being right alone and leaves the team's work to others.
"""

from __future__ import annotations

import math
from typing import ClassVar

from baton.errors import TraceError
from baton.reward.reading import agents_in, outcome
from baton.reward.rule import Rule
from baton.settings import Count
from baton.trace.acts import last_said, said_in
from baton.trace.gold import Gold, verifier
from baton.trace.graph.lineage import Lineage
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class OwnAnswer(Rule, tag="own_answer", frozen=True, kw_only=True):
    """Each agent's own answer verified: r_i = verify(answer_i), less `team_weight` x R. [M]

    An agent's answer is its last return; of the one who stops, what it stopped with. With
    team_weight = 1 it is the difference to the team: above zero for whoever was better than the team.
    Source: individual outcome rewards [M].
    """

    family: ClassVar[RewardFamily] = "individual"
    name: str = "own_answer"
    roles: tuple[str, ...] = ()
    """Whose answers count; empty: everyone's who gave one."""
    team_weight: float = 0.0

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        verify = verifier(gold, self.name)
        lineage = Lineage.of(trace)
        answers = last_said(trace, lineage)
        if self.roles:
            wanted = agents_in(trace, lineage, self.roles, self.name)
            answers = {agent: event for agent, event in answers.items() if agent in wanted}
        if not answers:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} reads agents' answers and nobody gave one."
            )
        team = self.team_weight * outcome(trace, gold)[0] if self.team_weight else 0.0
        return [
            self.reward("agent", agent, float(verify(said_in(trace, event))) - team)
            for agent, event in answers.items()
        ]


class Difference(Rule, tag="difference", frozen=True, kw_only=True):
    """r_i = team_weight x R + weight x (R - R_-i), R_-i the outcome of a fork with agent i barred.

    team_weight = 0, weight = 1: the difference reward G(z) - G(z_-i).
    Source: difference rewards, Wolpert & Tumer 2002 [M].
    """

    family: ClassVar[RewardFamily] = "individual"
    needs: ClassVar[frozenset[str]] = frozenset({"without"})
    name: str = "difference"
    weight: float = 1.0
    team_weight: float = 0.0

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or not gold.without:
            raise TraceError(
                f"{self.name} compares with runs that lack an agent: give gold data with `without`, the outcome of "
                "a fork for each barred agent (baton fork TRACE --bar AGENT)."
            )
        lineage = Lineage.of(trace)
        value, basis = outcome(trace, gold)
        for agent in gold.without:
            _ = lineage[agent]  # an agent that is not there is an error with the nearest name
        return [
            self.reward(
                "agent", agent, self.team_weight * value + self.weight * (value - gold.without[agent]), basis
            )
            for agent in lineage.agents
            if agent in gold.without
        ]


class ShapleyShare(Rule, tag="shapley_share", frozen=True, kw_only=True):
    """r_i = team_weight x R + weight x phi_i, phi_i agent i's Shapley value in runs with some of the agents alone.

    phi of who leads is what is left: R less all others', which is what it earns alone. So all phi add up to R.
    `max_evaluations` bounds the runs that a trainer makes for one trace; coalitions are then sampled.
    Source: Shapley 1953 [M]; as a reward beside the team's and a tool term, SHARP, arXiv 2602.08335 [A].
    """

    family: ClassVar[RewardFamily] = "individual"
    needs: ClassVar[frozenset[str]] = frozenset({"shapley"})
    name: str = "shapley_share"
    weight: float = 1.0
    team_weight: float = 0.0
    max_evaluations: Count = 12

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or gold.shapley is None:
            raise TraceError(
                f"{self.name} shares by runs with some of the agents: give gold data with `shapley`, each spawned "
                "agent's value (baton credit TRACE --estimator shapley)."
            )
        lineage = Lineage.of(trace)
        value, basis = outcome(trace, gold)
        for agent in gold.shapley:
            _ = lineage[agent]  # an agent that is not there is an error with the nearest name
        shares = dict(gold.shapley)
        if lineage.root is not None:
            shares[lineage.root] = value - math.fsum(gold.shapley.values())
        return [
            self.reward("agent", agent, self.team_weight * value + self.weight * shares[agent], basis)
            for agent in lineage.agents
            if agent in shares
        ]


class SoloGap(Rule, tag="solo_gap", frozen=True, kw_only=True):
    """CCPO: r_thinker = R + weight (R - R_solo), every other agent R; weight = 0.2. [C]

    R_solo is the outcome when the solver works without the thinker.
    Source: CCPO [C].
    """

    family: ClassVar[RewardFamily] = "individual"
    needs: ClassVar[frozenset[str]] = frozenset({"solo"})
    name: str = "solo_gap"
    thinkers: tuple[str, ...] = ("thinker",)
    """Roles that earn the gap."""
    weight: float = 0.2

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or gold.solo is None:
            raise TraceError(f"{self.name} compares with the solver alone: give gold data with `solo`.")
        lineage = Lineage.of(trace)
        thinkers = set(agents_in(trace, lineage, self.thinkers, self.name))
        value, basis = outcome(trace, gold)
        gap = self.weight * (value - gold.solo)
        return [
            self.reward("agent", agent, value + gap if agent in thinkers else value, basis)
            for agent in lineage.agents
        ]

"""R3, role: what an agent of each role is there for. Lands on roles or agents.

Risk: a rubric that does not fit what the role does in this trace.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from baton.errors import TraceError
from baton.reward.reading import agents_in, judged, outcome, verdict, verdicts
from baton.reward.rule import Rule
from baton.trace.acts import last_said, said_in
from baton.trace.gold import Gold, verifier
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import Lineage
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class Rubric(Rule, tag="rubric", frozen=True, kw_only=True):
    """A rubric per role: r_role = mean over its agents of rubric_role(last thing said). [M]

    Source: scoring by rubric [M].
    """

    family: ClassVar[RewardFamily] = "role"
    name: str = "rubric"
    roles: tuple[str, ...] = ()
    """Which roles are judged; empty: every role that has a rubric."""
    unit: Literal["role", "agent"] = "role"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        rubrics = gold.rubrics if gold is not None else None
        if not rubrics:
            raise TraceError(f"{self.name} needs a rubric for each role: give gold data with `rubrics`.")
        lineage = Lineage.of(trace)
        heard = last_said(trace, lineage)
        records: list[Reward] = []
        for role in self.roles or tuple(sorted(rubrics)):
            if role not in rubrics:
                raise TraceError(
                    f"{self.name}: gold data has no rubric for {role!r}; it has {sorted(rubrics)}."
                )
            scores = {
                agent: float(rubrics[role](trace, heard[agent].id))
                for agent in agents_in(trace, lineage, (role,), self.name)
                if agent in heard
            }
            if not scores:
                raise TraceError(f"trace {trace.trace_id}: {self.name} reads {role!r} and it said nothing.")
            if self.unit == "agent":
                records += [self.reward("agent", agent, value) for agent, value in scores.items()]
            else:
                records.append(self.reward("role", role, math.fsum(scores.values()) / len(scores)))
        return records


class MainSub(Rule, tag="main_sub", frozen=True, kw_only=True):
    """M-GRPO: main R = 0.1 fmt + 0.9 correct; sub R = 0.1 fmt + 0.4 main correct + 0.5 judge; invalid 0. [P]

    Main is the leading agent; every other agent is a sub. fmt is 1 when none of the agent's own
    events is invalid, and then counts; otherwise the whole reward is 0. The judge scores an agent's last
    return; an agent that never returned anything has judge 0, since there is nothing to judge.
    Source: M-GRPO, arXiv 2511.13288 [P].
    """

    family: ClassVar[RewardFamily] = "role"
    name: str = "main_sub"
    main_format: float = 0.1
    main_correct: float = 0.9
    sub_format: float = 0.1
    sub_main_correct: float = 0.4
    sub_judge: float = 0.5

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        lineage = Lineage.of(trace)
        root = lineage.root
        if root is None:
            raise TraceError(f"trace {trace.trace_id}: {self.name} needs agents and there are none.")
        correct, basis = outcome(trace, gold)
        broken = {event.agent for event in trace.events if event.status == "invalid"}
        heard = last_said(trace, lineage)
        records = []
        for agent in lineage.agents:
            if agent == root:
                value = self.main_format + self.main_correct * correct
            else:
                judge = _mean(verdicts(trace, gold, heard[agent], self.name)) if agent in heard else 0.0
                value = self.sub_format + self.sub_main_correct * correct + self.sub_judge * judge
            records.append(self.reward("agent", agent, 0.0 if agent in broken else value, basis))
        return records


class SolverVerifier(Rule, tag="solver_verifier", frozen=True, kw_only=True):
    """MarsRL: a solver or corrector earns 1 when its own answer is right, a verifier when its verdict is. [P]

    A verdict is right when it accepts a right answer or rejects a wrong one. What it is about is the
    latest thing a solver said among what the verdict depends on. A verdict that says neither is not
    right. Whether words accept is read off the first word that says so [I].
    Source: MarsRL [P]; how a verdict is read [I].
    """

    family: ClassVar[RewardFamily] = "role"
    name: str = "solver_verifier"
    solvers: tuple[str, ...] = ("solver", "corrector")
    verifiers: tuple[str, ...] = ("verifier",)
    right_from: float = 0.5
    """Score from which an answer is right."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        verify = verifier(gold, self.name)
        lineage = Lineage.of(trace)
        graph = Graph.of(trace)
        solvers = agents_in(trace, lineage, self.solvers, self.name)
        checkers = agents_in(trace, lineage, self.verifiers, self.name)
        heard = last_said(trace, lineage)

        def right(event: Event) -> bool:
            return verify(said_in(trace, event)) >= self.right_from

        records = [self.reward("agent", a, float(right(heard[a]))) for a in solvers if a in heard]
        for agent in checkers:
            if agent not in heard:
                continue
            about = judged(trace, graph, heard[agent], solvers)
            if about is None:
                raise TraceError(
                    f"trace {trace.trace_id}: {agent}'s verdict {heard[agent].id} depends on nothing a solver said, "
                    "so there is no answer to hold it against."
                )
            accepts = verdict(said_in(trace, heard[agent]))
            records.append(
                self.reward("agent", agent, float(accepts is not None and accepts == right(about)))
            )
        if not records:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} reads solvers and verifiers; none said anything."
            )
        return records


class ProposerSolverJudge(Rule, tag="proposer_solver_judge", frozen=True, kw_only=True):
    """MAE: proposer = quality + (1 - mean solver) + format; solver = (s - 1) / 9; judge = format. [C]

    s is a judge's score from 1 to 10 of what the agent said; quality is the same of the proposer. Format
    is 1 when none of the agent's own events is invalid.
    Source: MAE [C].
    """

    family: ClassVar[RewardFamily] = "role"
    needs: ClassVar[frozenset[str]] = frozenset({"of_ten"})
    name: str = "proposer_solver_judge"
    proposers: tuple[str, ...] = ("proposer",)
    solvers: tuple[str, ...] = ("solver",)
    judges: tuple[str, ...] = ("judge",)

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        lineage = Lineage.of(trace)
        heard = last_said(trace, lineage)
        broken = {event.agent for event in trace.events if event.status == "invalid"}
        solvers = agents_in(trace, lineage, self.solvers, self.name)
        proposers = agents_in(trace, lineage, self.proposers, self.name)
        judges = agents_in(trace, lineage, self.judges, self.name)
        value: dict[str, float] = {}
        for agent in (*solvers, *proposers):
            if agent not in heard:
                raise TraceError(f"trace {trace.trace_id}: {self.name} judges {agent!r}, which said nothing.")
            value[agent] = self._unit(trace, agent, _mean(verdicts(trace, gold, heard[agent], self.name)))
        difficulty = 1.0 - math.fsum(value[agent] for agent in solvers) / len(solvers)
        for agent in proposers:
            value[agent] += difficulty + (agent not in broken)
        value |= {agent: float(agent not in broken) for agent in judges}
        return [self.reward("agent", agent, value[agent]) for agent in lineage.agents if agent in value]

    def _unit(self, trace: Trace, agent: str, score: float) -> float:
        if not 1 <= score <= 10:
            raise TraceError(
                f"trace {trace.trace_id}: the judge gave {agent!r} {score:g}; {self.name} expects 1 to 10."
            )
        return (score - 1) / 9


def _mean(scores: dict[str, float]) -> float:
    return math.fsum(scores.values()) / len(scores)

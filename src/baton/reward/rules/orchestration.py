"""R7, orchestration: was it worth being a team? Lands on the team, or on the decision where each has its own share.

Risk: pseudo-parallelism, agents spawned for the parallel term alone. So speed-up is measured against least
work where that is known (the team's own work would reward busywork), and parallel agents count only while
they are busy at once. See also `monitors.pseudo_parallelism`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import ClassVar, Literal

from baton.errors import TraceError
from baton.reward.rule import Rule
from baton.trace.acts import said_in
from baton.trace.gold import Gold, verifier
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import NO_EFFECT, Lineage, dominance, in_seq_order
from baton.trace.graph.stages import Stages
from baton.trace.graph.timing import Concurrency, critical_path
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class SpeedUp(Rule, tag="speed_up", frozen=True, kw_only=True):
    """Parallel speed-up against a serial baseline; the record says which.

    T1*/T_P, least work over makespan, where the gold data gives least work [M]. Otherwise T1/Tinf, all
    durations over those on the critical path: what the trace could gain from parallelism, busywork
    included [M].
    Source: work and span, Brent 1974; E2 of the survey, arXiv 2605.02801 [M].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "speed_up"
    cap: float | None = None
    """Speed-up from which more earns nothing."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is not None and gold.least_work_s is not None:
            makespan = trace.costs.get("wall_clock_s")
            if makespan is None:
                ends = (event.t + event.duration_s for event in trace.events if event.duration_s is not None)
                makespan = max(ends, default=0.0)
            work, span, basis = gold.least_work_s, makespan, "T1*/T_P: least work over makespan"
        else:
            # fsum: the order of events in the file must not show in the last digit.
            work = math.fsum(event.duration_s or 0.0 for event in trace.events)
            found = critical_path(Graph.of(trace))
            span = 0.0 if found is None else found[1]
            basis = "T1/Tinf: the trace's own work over its span"
        if span <= 0:
            raise TraceError(f"trace {trace.trace_id}: {self.name} divides by time and no event was timed.")
        value = work / span
        return [
            self.reward("team", trace.trace_id, value if self.cap is None else min(self.cap, value), basis)
        ]


class Parallel(Rule, tag="parallel", frozen=True, kw_only=True):
    """PARL's r_parallel = min(1, n_parallel / n_ref), n_parallel the most sub-agents busy at once. [I]

    Kimi K2.5 names the term and gives no closed form; this one is ours. Where no sub-agent's work was timed,
    it is the most that were out at once, spawned and not back; the record says which. Nobody spawned: 0.
    Source: Kimi K2.5 PARL, arXiv 2602.02276 [A], names the term without a closed form; this one is ours [I].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "parallel"
    n_ref: int = 8

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        self.require(self.n_ref >= 1, "n_ref", "it must be at least 1")
        lineage = Lineage.of(trace)
        below = Lineage([life for life in lineage.lives.values() if life.parent is not None])
        peak, basis = Concurrency.of(trace, below).peak, "busy at once"
        if peak is None:
            peak, basis = _most_out(trace), "out at once: not timed" if len(below) else "nobody was spawned"
        return [self.reward("team", trace.trace_id, min(1.0, peak / self.n_ref), basis)]


class FinishRate(Rule, tag="finish_rate", frozen=True, kw_only=True):
    """PARL's r_finish = agents that returned ok / agents spawned. [I]

    On decisions: 1 on the spawn of an agent that returned ok, 0 on that of one that did not; the mean is
    the rate.
    Source: Kimi K2.5 PARL, arXiv 2602.02276 [A], names the term; this form of it is ours [I].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "finish_rate"
    without_spawns: float | None = None
    """The rate where nobody was spawned, which has none of its own; None: that is an error."""
    unit: Literal["team", "orchestrator"] = "team"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        events = in_seq_order(trace)
        spawned = {
            event.to: event for event in reversed(events)
            if event.type == "spawn" and event.status not in NO_EFFECT and event.to is not None
        }  # fmt: skip
        last = {event.agent: event.status for event in events if event.type == "return"}
        if not spawned:
            if self.without_spawns is None:
                raise TraceError(
                    f"trace {trace.trace_id}: {self.name} is a share of spawned agents and nobody was spawned. "
                    "Set without_spawns to say what that is worth."
                )
            records = [self.reward("team", trace.trace_id, self.without_spawns, "nobody was spawned")]
            return records if self.unit == "team" else []
        if self.unit == "orchestrator":
            order = sorted(spawned.items(), key=lambda item: item[1].seq)
            return [self.reward("orchestrator", spawn.id, float(last.get(a) == "ok")) for a, spawn in order]
        finished = sum(last.get(agent) == "ok" for agent in spawned)
        return [self.reward("team", trace.trace_id, finished / len(spawned))]


class Split(Rule, tag="split", frozen=True, kw_only=True):
    """Split correctness: F1 of the subtasks against the task's parts. [I]

    The leading agent's spawns and delegations ask for parts. Recall is the share of parts asked for,
    precision the share of asks that were new, so asking twice costs. On decisions: new parts / parts
    asked for, 0 where a subtask asks for none.
    Source: split correctness, R7 of the survey, arXiv 2605.02801; F1 over parts is ours [I].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "split"
    unit: Literal["team", "orchestrator"] = "team"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        if gold is None or not gold.parts:
            raise TraceError(f"{self.name} needs what the task splits into: give gold data with `parts`.")
        root = Lineage.of(trace).root
        sent = [
            event for event in in_seq_order(trace)
            if event.agent == root and (event.type == "spawn" or event.decision == "delegate")
            and event.status not in NO_EFFECT and event.content_ref is not None
        ]  # fmt: skip
        covered: set[str] = set()
        num_asked = 0
        records = []
        for event in sent:
            asked = _asked(gold, said_in(trace, event))
            new = asked - covered
            covered |= asked
            num_asked += len(asked)
            value = len(new) / len(asked) if asked else 0.0
            records.append(self.reward("orchestrator", event.id, value))
        if self.unit == "orchestrator":
            return records
        # 2 P R / (P + R) with P = covered / asked and R = covered / parts.
        return [self.reward("team", trace.trace_id, 2 * len(covered) / (num_asked + len(gold.parts)))]


class Aggregation(Rule, tag="aggregation", frozen=True, kw_only=True):
    """Aggregation quality: r = score(fused) - max_i score(i), i what went in. [M]

    Below zero: a right answer was lost in fusing. On decisions: each aggregate; on the team: their mean.
    (The survey's aggregation leakage is another thing: sub-agents' text copied as progress; `baton measure`.)
    Source: E3 of the survey, arXiv 2605.02801 [M].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "aggregation"
    unit: Literal["team", "orchestrator"] = "orchestrator"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        verify = verifier(gold, self.name)
        sources: dict[str, list[Event]] = {}
        for edge in trace.edges:
            if edge.type == "aggregate":
                sources.setdefault(edge.dst, []).append(trace.event(edge.src))
        gains: dict[str, float] = {}
        for event in in_seq_order(trace):
            if event.type == "aggregate" and event.status not in NO_EFFECT and event.id in sources:
                best = max(float(verify(said_in(trace, source))) for source in sources[event.id])
                gains[_deciding(trace, event).id] = float(verify(said_in(trace, event))) - best
        if not gains:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} needs an aggregate with its sources and there is none."
            )
        if self.unit == "team":
            return [self.reward("team", trace.trace_id, math.fsum(gains.values()) / len(gains))]
        return [self.reward("orchestrator", target, gain) for target, gain in gains.items()]


class CriticalSteps(Rule, tag="critical_steps", frozen=True, kw_only=True):
    """1 - C / budget, C = sum over stages of (main steps + most steps of any one sub-agent). [A]

    C is Kimi PARL's measure and budget; the reward is our form of it [I]. Without a budget: 1 - C / all
    steps, the share of steps that were off the critical path.
    Source: Kimi K2.5 PARL, arXiv 2602.02276 [A], where C is a measure and a budget; as a reward, ours [I].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "critical_steps"
    budget: int | None = None

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        self.require(self.budget is None or self.budget >= 1, "budget", "it must be at least 1")
        stages = Stages.of(trace)
        if not stages.total_steps:
            raise TraceError(f"trace {trace.trace_id}: {self.name} counts steps and no agent took one.")
        whole = stages.total_steps if self.budget is None else self.budget
        basis = f"{stages.critical_steps} of {whole} {'steps' if self.budget is None else 'allowed'}"
        return [self.reward("team", trace.trace_id, 1 - stages.critical_steps / whole, basis)]


class EvenWork(Rule, tag="even_work", frozen=True, kw_only=True):
    """1 - (s - 1/n) / (1 - 1/n), s the busiest sub-agent's share of the work of n: 1 even, 0 one does it all. [I]

    A diversity term against one agent that dominates (P3). It pays for spreading work whoever is good at it, so it
    belongs into a sum whose weight falls (`hybrid`); a bonus for entropy does as much on the game it was tried on
    (docs/learning/rewards.md).
    Source: one-dominant-agent collapse, P3 of the survey, arXiv 2605.02801 [I].
    """

    family: ClassVar[RewardFamily] = "orchestration"
    name: str = "even_work"
    without: float | None = None
    """What a team is given where fewer than two were spawned or none did anything; None: that is an error."""

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:  # noqa: ARG002 (the contract)
        found = dominance(trace)
        if found is not None:
            return [self.reward("team", trace.trace_id, 1 - found)]
        if self.without is None:
            raise TraceError(
                f"trace {trace.trace_id}: {self.name} compares the work of sub-agents, and fewer than two were spawned "
                "or none did anything. Set without to say what that is worth."
            )
        return [self.reward("team", trace.trace_id, self.without, "fewer than two at work")]


def _most_out(trace: Trace) -> int:
    """Most agents that were spawned or delegated to, and neither returned nor gone, at one time."""
    out: set[str] = set()
    most = 0
    for event in in_seq_order(trace):
        sent = event.type == "spawn" or event.decision == "delegate"
        if sent and event.to is not None and event.status not in NO_EFFECT:
            out.add(event.to)
        if event.type == "return":
            out.discard(event.agent)
        elif event.type == "despawn":
            out.discard(event.to or event.agent)
        most = max(most, len(out))
    return most


def _asked(gold: Gold, task: str) -> set[str]:
    assert gold.parts is not None
    named: Collection[str]
    if gold.covers is not None:
        named = gold.covers(task)
    else:
        named = [part for part in gold.parts if re.search(rf"(?<!\w){re.escape(part)}(?!\w)", task)]
    return set(named) & set(gold.parts)


def _deciding(trace: Trace, aggregate: Event) -> Event:
    """The event that carries the decision: where a model had to write the result, one before it."""
    if aggregate.decision != "none":
        return aggregate
    before = [
        event for event in in_seq_order(trace)
        if event.agent == aggregate.agent and event.decision == "aggregate" and event.seq < aggregate.seq
    ]  # fmt: skip
    if not before:
        raise TraceError(
            f"trace {trace.trace_id}: aggregate {aggregate.id} carries no decision to reward. Use unit = 'team'."
        )
    return before[-1]

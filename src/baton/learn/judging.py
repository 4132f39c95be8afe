"""What a task knows about its rollouts, as reward rules ask for it: verifier, milestones, judges, runs not made.

The task itself is the judge: it scores what an agent said against the subtask the agent was given (`Task.judge`).
Where a rule compares with a team that lacks somebody (difference, SHARP, CCPO), the trace is run again with that
agent barred, under the same luck.

Invariant: an agent that leads cannot be barred; without it there is no answer, and that is worth 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from baton.credit.acts import agents
from baton.credit.forking import Forks
from baton.learn.stage import Stage
from baton.learn.terms import flat
from baton.reward.contract import Gold, Judge, Rule
from baton.reward.individual import Difference, SoloGap
from baton.reward.role import ProposerSolverJudge
from baton.team.intervene import BarAgent
from baton.trace.event import Event
from baton.trace.forest import Forest
from baton.trace.trace import Trace

__all__ = ["Judging", "outcome_of", "returns_without"]


def outcome_of(trace: Trace) -> float:
    """What the task itself says a run was worth."""
    return sum(r.value for r in trace.rewards if r.unit == "team" and r.family == "shared" and not r.name)


async def returns_without(
    forks: Forks, trace: Trace, names: Sequence[str], reward: Callable[[Trace], float]
) -> dict[str, float]:
    """Agent -> the return of the trace run again without it; 0 without the one who leads."""
    root = Forest.of(trace).root
    others = [name for name in names if name != root]
    made = await asyncio.gather(*(forks.fork(trace, [BarAgent(name)]) for name in others))
    found = {name: reward(each.trace) for name, each in zip(others, made, strict=True)}
    return {name: found.get(name, 0.0) for name in names}


class Judging(Struct, frozen=True):
    """A stage's task, asked about traces of it."""

    stage: Stage
    rules: tuple[Rule, ...]

    async def gold(self, traces: Sequence[Trace], runner: Callable[[], Forks]) -> tuple[list[Gold], int]:
        """For each trace, and the tokens it took to run some of them again."""
        every = list(flat(self.rules))
        needs_forks = any(isinstance(rule, Difference | SoloGap) for rule in every)
        forks = runner() if needs_forks else None
        found = list(await asyncio.gather(*(self._one(trace, every, forks) for trace in traces)))
        return found, 0 if forks is None else forks.cost.tokens

    async def _one(self, trace: Trace, rules: Sequence[Rule], forks: Forks | None) -> Gold:
        task = self.stage.task
        told = trace.header.meta["train"]
        instance = task.instance(told["instance"], told["split"])
        parts = task.parts(instance)
        without: dict[str, float] | None = None
        solo: float | None = None
        if forks is not None:
            roles = agents(trace)
            thinkers = {role for rule in rules if isinstance(rule, SoloGap) for role in rule.thinkers}
            all_ = any(isinstance(rule, Difference) for rule in rules)
            names = [agent for agent, role in roles.items() if all_ or role in thinkers]
            known = await returns_without(forks, trace, names, outcome_of)
            without = known if all_ else None
            solo = next((value for agent, value in known.items() if roles[agent] in thinkers), None)
        return Gold(
            verify=self.stage.assignment(told["instance"], told["split"]).verify,
            milestones=task.milestones(instance) or None,
            reached=lambda prefix: task.reached(instance, prefix),
            parts=parts or None,
            covers=(lambda text: task.covers(instance, text)) if parts else None,
            judges={"task": _judge(self.stage, trace, rules)},
            without=without,
            solo=solo,
        )

    def in_scope(self, trace: Trace, agent: str) -> bool | None:
        """Whether what an agent returned answers the subtask it was given; None: it returned nothing."""
        said = [e for e in trace.events if e.agent == agent and e.type == "return" and e.status == "ok"]
        return None if not said else _judge(self.stage, trace, ())(trace, said[-1].id) >= 0.5


def _judge(stage: Stage, trace: Trace, rules: Sequence[Rule]) -> Judge:
    """0 to 1; from 1 to 10 where a rule wants that."""
    told = trace.header.meta["train"]
    instance = stage.task.instance(told["instance"], told["split"])
    of_ten = any(isinstance(rule, ProposerSolverJudge) for rule in rules)

    def judge(trace: Trace, event_id: str) -> float:
        event = trace.event(event_id)
        score = stage.task.judge(instance, _asked(trace, event), trace.text(event.content_ref) or "")
        return 1 + 9 * score if of_ten else score

    return judge


def _asked(trace: Trace, event: Event) -> str:
    """The latest task its agent was given before."""
    given = [
        other
        for other in trace.events[: trace.position[event.id]]
        if other.to == event.agent and (other.type == "spawn" or other.decision == "delegate")
    ]
    return (trace.text(given[-1].content_ref) or "") if given else ""

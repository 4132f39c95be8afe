"""Rollouts of a step: groups of traces, by the weights as they are or, with overlap, by those of one step before.

On-policy (the default) a step's rollouts are played when it begins. With `rollout.overlap` the next step's are played
in a thread while this one is trained, by samplers that have their own copy of the weights.

Invariant: which weights play a step depends on its number alone and not on how long anything took. With overlap,
step 1 is played by the first weights and step n + 1 by those that step n began with; samplers get new weights only
between two plays, never during one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from baton.credit.core.acts import turns
from baton.credit.forking import Forks
from baton.errors import UsageError
from baton.learn.buffer import Group
from baton.learn.lockstep import lockstep
from baton.learn.options import with_propensities
from baton.learn.policy import Policy, samplers
from baton.learn.recipe import Recipe
from baton.learn.stage import Episode, Stage
from baton.team.protocol import Engine
from baton.team.team import Assignment
from baton.trace.trace import Trace

# -- branching --
# Rollouts as a tree: after an agent's turn, what follows is drawn again, so that branches share all before it.
#
# What C3 and MALT compare, and AT-GRPO's samples from one state, are such branches. A branch is a fork of its
# trace: the turns before are the recorded ones, token by token, and the update trains them once.

_DEPTHS = 1000
"""Replicates of one depth: branches of a rollout after one turn must not draw as those after another.

Branches of its branches do not either, since a fork's draws name the replicates of all it was made of.
"""


async def branched(group: Sequence[Trace], fan_out: Sequence[int], forks: Forks) -> list[Trace]:
    """All rollouts of one instance's tree: of each, `fan_out[k]` branches after its turn number k + 1."""
    grown = list(group)
    for depth, width in enumerate(fan_out, start=1):
        every = await asyncio.gather(*(_branches(trace, depth, width, forks) for trace in grown))
        grown = [trace for each in every for trace in each]
    return grown


async def _branches(trace: Trace, depth: int, width: int, forks: Forks) -> list[Trace]:
    said = turns(trace)
    if len(said) <= depth:  # nothing follows that could be drawn again
        return [trace]
    at = trace.events[said[depth - 1].start].id
    made = await asyncio.gather(
        *(
            forks.fork(
                trace, redraw=at, replicate=depth * _DEPTHS + k, trace_id=f"{trace.trace_id}.{depth}-{k}"
            )
            for k in range(1, width)
        )
    )
    return [trace, *(each.trace for each in made)]


SEEDS = 1_000_003
"""Apart: instances of a run from those of its evaluation, draws of one rollout from those of the next."""


class Rollouts:
    """Plays a run's steps."""

    def __init__(self, recipe: Recipe, stage: Stage, policies: Mapping[str, Policy]) -> None:
        check_rollouts(recipe)
        self.recipe = recipe
        self.stage = stage
        self.policies = policies
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: Future[list[Group]] | None = None

    def take(self, number: int) -> list[Group]:
        """The groups of a step, not scored yet: those played ahead, or played now."""
        if self._ahead is not None:
            groups = self._ahead.result()
            self._ahead = None
            if groups and groups[0].step == number:
                return groups
        self.publish()
        return self._play(number, number - 1)

    def begin(self, number: int, version: int) -> None:
        """Play a step in a thread from now on, by the weights of this moment: those after `version` steps."""
        self.publish()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "baton-rollouts")
        self._ahead = self._pool.submit(self._play, number, version)

    def ahead(self) -> list[Group]:
        """What was played ahead and not taken yet. Waits for it."""
        return [] if self._ahead is None else self._ahead.result()

    def recall(self, groups: list[Group]) -> None:
        """What `ahead` gave, from a checkpoint."""
        self._ahead = Future()
        self._ahead.set_result(groups)

    def publish(self) -> None:
        """Samplers with a copy of their own get the weights as they are. Nobody may be playing."""
        self.ahead()
        for policy in self.policies.values():
            policy.publish()

    def close(self) -> None:
        """Wait for what is being played."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._ahead = None

    def engines(self, *, patient: bool = False) -> dict[str, Engine]:
        """By role, in lockstep."""
        wrapped = lockstep({name: policy.engine for name, policy in self.policies.items()}, patient=patient)
        return {role: wrapped[name] for name, policy in self.policies.items() for role in policy.roles}

    def forks(self) -> Forks:
        """Runs traces again under the weights that answer now."""
        # Nobody looks whether forks were answered, so that none may be left unasked.
        team = self.stage.team(self.engines(patient=True), self.stage.assignment(0), 0)
        return Forks(team, self._assigned)

    def _assigned(self, trace: Trace) -> Assignment:
        told = trace.header.meta["train"]
        return self.stage.assignment(told["instance"], told["split"])

    def _play(self, number: int, version: int) -> list[Group]:
        groups = asyncio.run(self._played(number))
        # Chances are those of the weights that sampled, so they are asked before these change.
        models = samplers(self.policies)
        every = [trace for group in groups for trace in group]
        told = iter(with_propensities(every, models, max_tokens=self.recipe.pack.max_tokens))
        return [
            Group(step=number, version=version, traces=tuple(next(told) for _ in group)) for group in groups
        ]

    async def _played(self, number: int) -> list[Sequence[Trace]]:
        rollout = self.recipe.rollout
        traces = await self.stage.play(self.engines(), self._episodes(number))
        size = rollout.group_size
        groups: list[Sequence[Trace]] = [traces[at : at + size] for at in range(0, len(traces), size)]
        if rollout.fan_out:
            forks = self.forks()
            groups = list(
                await asyncio.gather(*(branched(group, rollout.fan_out, forks) for group in groups))
            )
        return groups

    def _episodes(self, number: int) -> list[Episode]:
        rollout, seed = self.recipe.rollout, self.recipe.train.seed
        return [
            Episode(
                name=f"step-{number:04d}/{group:02d}-{member:02d}",
                instance=seed * SEEDS + number * rollout.groups + group,
                seed=(number * rollout.groups + group) * SEEDS + member + seed * SEEDS**2,
                step=number,
            )
            for group in range(rollout.groups)
            for member in range(rollout.group_size)
        ]


def check_rollouts(recipe: Recipe) -> None:
    """Refuse bounds that would leave nothing to train on."""
    rollout = recipe.rollout
    if rollout.overlap and rollout.staleness < 1:
        raise UsageError(
            f"rollout.overlap trains on rollouts that are one step old, and rollout.staleness is {rollout.staleness}. "
            "Set staleness to 1 or more, or overlap to false."
        )
    if rollout.replay and rollout.staleness < 1 + rollout.overlap:
        raise UsageError(
            f"rollout.replay trains on rollouts of earlier steps, and rollout.staleness is {rollout.staleness}, which "
            f"leaves none. Set staleness to {1 + rollout.overlap} or more, or replay to 0."
        )

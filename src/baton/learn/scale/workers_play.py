"""A rollout worker: the recipe's stage and samplers, without optimisers, and lots that it plays with them.

The same class is behind a process of this machine and behind an actor of a Ray cluster.

Invariant: what a lot gives depends on its step, its groups and its weights, and neither on what was played before nor
on who plays it.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from baton.errors import UsageError
from baton.learn.policy import Policy
from baton.learn.recipe import Recipe, RolloutPart
from baton.learn.rollouts import Rollouts
from baton.learn.scale.workers_lots import Lot, PlayedLot, WorkerReady, WorkerSetup, played
from baton.learn.scale.workers_weights import read_weights, unchanging
from baton.learn.stage import Stage, failures
from baton.team.protocol import MODEL_FAILED, Engine
from baton.trace.trace import Trace


class RolloutWorker:
    """Plays lots, one after the other."""

    def __init__(
        self,
        setup: WorkerSetup,
        recipe: Recipe,
        stage: Stage,
        policies: Mapping[str, Policy],
        part_at: Callable[[int], RolloutPart],
    ) -> None:
        self.number = setup.number
        self.done = 0
        """Rounds of answers so far, and other signs that it gets on."""
        self._policies = policies
        self._rollouts = _Counting(recipe, stage, policies, part_at, self._tick)
        for name, policy in policies.items():
            if (found := unchanging(policy)) != (expected := setup.given.get(name, found)):
                raise UsageError(
                    f"policy {name!r} ({policy.part.model}) is another one here than where the run is trained: the "
                    f"tokenizer or weights that are not trained differ (checksum {found}, expected {expected}). Copy "
                    "the model's folder, or Baton's cache of it, from there."
                )

    def ready(self) -> WorkerReady:
        """Where it is."""
        return WorkerReady(platform.node(), os.getpid())

    def play(self, lot: Lot, contents: Sequence[bytes] | None = None) -> PlayedLot:
        """A lot's traces. `contents`: its weights, where they did not come as files."""
        began = time.monotonic()
        for number, weights in enumerate(lot.weights):
            policy = self._policies[weights.policy]
            state = read_weights(weights, None if contents is None else contents[number])
            policy.load_state_dict(state, weights.version)
            self._tick()
        for told in lot.served:
            asking: Any = self._policies[told.policy].engine
            asking.use(told)
            self._policies[told.policy].version = told.version
        groups = self._rollouts.play_lot(lot.step, lot.groups)
        if not _broken(trace for group in groups for trace in group):
            groups = self._rollouts.told(groups)
        self._tick()
        return played(lot, groups, time.monotonic() - began)

    def close(self) -> None:
        """Let go of what it played with."""
        self._rollouts.close()
        for policy in self._policies.values():
            policy.close()

    def _tick(self) -> None:
        self.done += 1


def _broken(traces: Iterable[Trace]) -> bool:
    """Whether a model broke; whoever gathers the step says so."""
    return any(error.startswith(MODEL_FAILED) for trace in traces for _, error in failures(trace))


class _Counting(Rollouts):
    """Rollouts that count how often all runs of a play waited for answers."""

    def __init__(
        self,
        recipe: Recipe,
        stage: Stage,
        policies: Mapping[str, Policy],
        part_at: Callable[[int], RolloutPart],
        tick: Callable[[], None],
    ) -> None:
        super().__init__(recipe, stage, policies, part_at)
        self._tick = tick

    def engines(self, *, patient: bool = False, look: Callable[[], None] | None = None) -> dict[str, Engine]:
        return super().engines(patient=patient, look=look or self._tick)

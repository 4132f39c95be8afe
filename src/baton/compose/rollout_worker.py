"""Rollout workers of a recipe: how the trainer makes them, and how one of them makes itself.

A worker imports what the recipe names: whoever started the run has given leave for all of it there.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from baton import __version__
from baton.compose.run_settings import is_given
from baton.compose.stage_from_recipe import make_stage
from baton.errors import UsageError
from baton.learn.models.start import starting_models
from baton.learn.phases import spans
from baton.learn.policy import Policy, make_policies
from baton.learn.recipe import Recipe, RolloutPart, extensions, parse, resolved
from baton.learn.rollouts import lockstep
from baton.learn.scale.workers import Seats, Workers
from baton.learn.scale.workers_link import serve
from baton.learn.scale.workers_lots import WorkerSetup
from baton.learn.scale.workers_play import RolloutWorker
from baton.learn.scale.workers_process import ProcessSeats
from baton.learn.scale.workers_weights import unchanging
from baton.learn.stage import Stage
from baton.trace.trace import Trace


def check_workers(recipe: Recipe, given: Sequence[str]) -> None:
    """Refuse what workers cannot make for themselves; `given` are parts of the run that are objects, in words."""
    if recipe.program is not None:
        raise UsageError(
            f"scale.rollout_workers={recipe.scale.rollout_workers}: a [program] is run in processes of its own "
            "already, program.at_once of them, and answered by the one that trains. Leave rollout_workers out."
        )
    objects = [
        *given,
        *(f"{kind} {name}" for kind, name in extensions(recipe) if is_given(name) and kind in _PLAYED),
    ]
    if objects:
        raise UsageError(
            f"scale.rollout_workers={recipe.scale.rollout_workers}: workers are other processes, and {objects[0]} was "
            "given as an object, which they cannot make. Put it into a module and name it in the recipe, as "
            "module:NAME; or leave rollout_workers out."
        )


_PLAYED = ("task", "game", "topology", "surface", "aggregator", "tool", "engine")
"""Extensions that are asked while a team plays. Rewards, credit and the like stay with the trainer."""


def make_players(
    recipe: Recipe, stage: Stage, note: Callable[[str], None] | None
) -> Callable[[Mapping[str, Policy]], Workers]:
    """Makes the run's rollout workers; nothing is started before the first step."""
    text = resolved(recipe)

    def make(policies: Mapping[str, Policy]) -> Workers:
        known: dict[str, str] = {}

        def setup(number: int) -> WorkerSetup:
            if not known:
                known.update({name: unchanging(policy) for name, policy in policies.items()})
            return WorkerSetup(number=number, baton=__version__, recipe=text, given=dict(known))

        def check(traces: Sequence[Trace]) -> None:
            asked = lockstep({name: policy.engine for name, policy in policies.items()})
            stage.check({role: asked[name] for name, p in policies.items() for role in p.roles}, traces)

        return Workers(_seats(recipe, setup), policies, recipe.scale, parts_of(recipe), check, note)

    return make


def _seats(recipe: Recipe, setup: Callable[[int], WorkerSetup]) -> Seats:
    if recipe.scale.workers == "ray":
        from baton.learn.scale.ray_workers import RaySeats  # nobody else needs Ray

        return RaySeats(setup, f"{__name__}:make_worker", recipe.scale)
    return ProcessSeats(setup, __name__)


def parts_of(recipe: Recipe) -> Callable[[int], RolloutPart]:
    """How much is played for a step, which hangs on the phase that it is in."""
    found = spans(recipe)

    def part_at(step: int) -> RolloutPart:
        return [each for each in found if each.first <= max(1, step)][-1].recipe.rollout

    return part_at


def make_worker(setup: WorkerSetup) -> RolloutWorker:
    """A worker, in its own process."""
    if setup.baton != __version__:
        raise UsageError(
            f"Baton {__version__} is installed here, and the run is trained with {setup.baton}. Install the same "
            f'version: pip install "baton-rl=={setup.baton}"'
        )
    recipe = parse(setup.recipe, "the run's recipe", trust=True)
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    stage = make_stage(recipe)
    stage.check_tools()
    policies = make_policies(recipe, stage.roles, starting_models(recipe, stage, None), plays=True)
    return RolloutWorker(setup, recipe, stage, policies, parts_of(recipe))


def main() -> None:
    """Of a worker's process: the socket to the trainer, the folder of its files."""
    descriptor, folder = sys.argv[1:3]
    serve(socket.socket(fileno=int(descriptor)), Path(folder), make_worker)

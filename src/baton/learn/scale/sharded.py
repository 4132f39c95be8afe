"""Updates in several processes: weights, gradients and optimisers in shards (FSDP2), everything else as it was.

`shard` takes the models of a run's policies apart. What answers keeps a whole copy in this process, which gets the
weights from the shards when they are published; what is trained lives in shares, one in each of
`scale.trainer_processes` processes, of which this is the first. Rows, losses, denominators and optimisers are those of
one process, so a run gives the numbers of one process up to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.torch import TorchEngine
from baton.errors import UsageError
from baton.forest.rows import Row
from baton.learn import lora
from baton.learn.loss import Loss
from baton.learn.optimiser import MasterAdamW
from baton.learn.policy import Policy
from baton.learn.recipe import Recipe
from baton.learn.scale import sharded_checkpoint
from baton.learn.scale.sharded_model import sketch_of
from baton.learn.scale.sharded_ranks import Ranks
from baton.learn.update import Packed, UpdateReport


def shard(recipe: Recipe, policies: Mapping[str, Policy]) -> Ranks:
    """Hand the weights of all policies that learn to the processes of `[scale]`; close what is returned."""
    learning = {name: policy for name, policy in policies.items() if policy.learns}
    for name, policy in learning.items():
        if policy.model is None:
            raise UsageError(
                f"scale.trainer_processes is {recipe.scale.trainer_processes}, and the weights of policy {name!r} are "
                "not here: they are moved elsewhere. Set it to 1."
            )
    kinds = {policy.model.device.type for policy in learning.values()}
    if len(kinds) > 1:
        raise UsageError(
            f"policies are trained on {' and '.join(sorted(kinds))}, and processes that compute updates together need "
            "one kind of device. Give all of them the same device."
        )
    ranks = Ranks(
        recipe.scale.trainer_processes,
        kinds.pop(),
        patience_seconds=recipe.scale.trainer_patience,
        threads=recipe.train.threads,
    )
    try:
        hand_over(ranks, list(learning.values()), ahead=recipe.lag > 0)
    except BaseException:
        ranks.close()
        raise
    return ranks


def hand_over(ranks: Ranks, policies: Sequence[Policy], *, ahead: bool = False) -> None:
    """From now on these processes hold what the policies train. Policies that share a base go on sharing it.

    `ahead`: what answers here may have older weights than those that are trained.
    """
    keys: dict[int, str] = {}
    for policy in policies:
        key = keys.setdefault(id(policy.model), policy.name)
        if key == policy.name:
            ranks.run("take_model", key, sketch_of(policy.model), own=policy.model.state_dict())
    for policy in policies:
        ShardedWeights(ranks, policy, ahead=ahead).take(keys[id(policy.model)])
    for policy in policies:  # the whole one is the sampler's alone
        policy.model = ranks.rank.held[policy.name].model.model


class ShardedWeights:
    """A policy's weights, held in shares by several processes."""

    def __init__(self, ranks: Ranks, policy: Policy, *, ahead: bool = False) -> None:
        self._ranks = ranks
        self._name = policy.name
        self._policy = policy
        self._ahead = ahead
        self._spare: tuple[int, Any] | None = None
        """A whole model besides the one that answers, and the version of its weights."""
        self._references = count()

    def take(self, key: str) -> None:
        """Train the shares from now on; whoever answered goes on with the whole copy."""
        policy, adapter = self._policy, self._policy.name if self._policy.part.train == "lora" else None
        assert policy.optimizer is not None
        rate = float(policy.optimizer.param_groups[0]["lr"])
        masters = isinstance(policy.optimizer, MasterAdamW)
        self._ranks.run("take_policy", self._name, key, adapter, rate, masters)
        if not isinstance(
            policy.engine, TorchEngine
        ):  # a server answers, and pushes are compared with this one
            self._spare = -1, policy.model if adapter is None else lora.Adapted(policy.model, adapter)
        policy.optimizer = self._ranks.rank.held[self._name].optimizer
        policy.apart = True
        policy.shards = self
        policy.learning = self.learner

    def learner(self, loss: Loss, packed: Packed, reference: Any) -> ShardedLearner:
        """Who moves the shares by a loss."""
        number = None if reference is None else reference.number
        self._ranks.run("learn", self._name, loss, packed, number)
        return ShardedLearner(self._ranks, self._policy, loss)

    def state_dict(self) -> dict[str, Tensor]:
        """What was trained, whole, on the CPU."""
        return self._ranks.run("state", self._name)  # type: ignore[no-any-return]  # a command's

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._ranks.run("set_state", self._name, own=dict(state))
        if self._spare is not None:
            self._spare = -1, self._spare[1]

    def whole(self) -> Any:
        """A model with the weights of now: the one that answers, or a second copy where that one plays ahead or is a
        server's."""
        policy = self._policy
        if not self._ahead and self._spare is None:
            policy.publish()
            return policy.sampler
        if self._spare is None and policy.part.train == "lora":
            self._spare = -1, lora.Adapted(lora.copied(policy.sampler.base), self._name)
        elif self._spare is None:
            self._spare = -1, copy.deepcopy(policy.sampler)
        version, model = self._spare
        if version != policy.version:
            model.load_state_dict(self.state_dict())
            self._spare = policy.version, model
        return model

    def reference(self, *, base: bool) -> ShardedReference:
        """The weights of now, to compare with; `base`: of an adapter, its base."""
        number = next(self._references)
        self._ranks.run("take_reference", self._name, number, base)
        return ShardedReference(self._ranks, self._name, number)

    def save(self, folder: Path) -> list[str]:
        """Write weights and optimiser to a folder of their own; the names of its files."""
        self._ranks.run("save", self._name, folder)
        return sharded_checkpoint.written(folder)

    def restore_optimiser(self, folder: Path) -> None:
        """The optimiser's state of a folder of shards."""
        self._ranks.run("restore_optimiser", self._name, folder)

    def load_optimiser(self, state: Mapping[str, Any]) -> None:
        """The optimiser's state as one process keeps it."""
        kept = sharded_checkpoint.named_tensors(state)
        shapes = {path: (tuple(each.shape), each.dtype) for path, each in kept.items()}
        self._ranks.run("set_optimiser", self._name, shapes, own=kept)


class ShardedReference:
    """What KL and preferences are taken to, in shares."""

    def __init__(self, ranks: Ranks, name: str, number: int) -> None:
        self._ranks = ranks
        self._name = name
        self.number = number

    def state_dict(self) -> dict[str, Tensor]:
        return self._ranks.run("reference_state", self._name, self.number)  # type: ignore[no-any-return]  # a command's

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._ranks.run("set_reference", self._name, self.number, own=dict(state))


class ShardedLearner:
    """Moves weights that several processes hold."""

    def __init__(self, ranks: Ranks, policy: Policy, loss: Loss) -> None:
        self._ranks = ranks
        self._policy = policy
        self._name = policy.name
        self.loss = loss
        self.gradients = _PairGradients(ranks, policy.name, loss)

    def backward(self, rows: Sequence[Row], *, version: str) -> UpdateReport:
        return self._ranks.run("backward", self._name, rows, version)  # type: ignore[no-any-return]  # a command's

    def advance(self, clip_norm: float) -> float:
        assert self._policy.optimizer is not None
        rates = [float(group["lr"]) for group in self._policy.optimizer.param_groups]
        return float(self._ranks.run("advance", self._name, clip_norm, rates))

    def drop(self) -> None:
        self._ranks.run("drop", self._name)

    def sound(self) -> bool:
        return bool(self._ranks.run("sound", self._name))

    def moved(self, rows: Sequence[Row]) -> float | None:
        return self._ranks.run("moved", self._name, rows)  # type: ignore[no-any-return]  # a command's


class _PairGradients:
    """What `baton.learn.preference` asks of gradients."""

    model, reference = False, True
    """Stand for the two in `row_logprobs`."""

    def __init__(self, ranks: Ranks, name: str, loss: Loss) -> None:
        self._ranks = ranks
        self._name = name
        self.loss = loss

    def row_logprobs(self, of_reference: bool, rows: Sequence[Row]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._ranks.run("row_logprobs", self._name, of_reference, rows)
        return found

    def backward(self, rows: Sequence[Row]) -> UpdateReport:
        return self._ranks.run("backward", self._name, rows, None)  # type: ignore[no-any-return]  # a command's

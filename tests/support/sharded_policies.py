"""Policies to train in several processes and in one, alike in everything, and rows of many shapes."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from exact_model import make_row, plain_logprobs
from msgspec import structs
from tiny_model import tiny_tokenizer

from baton.engine.torch import TorchEngine
from baton.forest.rows import Row
from baton.learn import lora
from baton.learn.loss import Loss
from baton.learn.policy import Policy
from baton.learn.recipe import PolicyPart
from baton.learn.scale.sharded import hand_over
from baton.learn.scale.sharded_ranks import Ranks
from baton.learn.update import Gradients, LocalLearner, Packed

PACKED = Packed(max_tokens=60)


class Named(NamedTuple):
    """Stands for an engine that is not asked."""

    name: str


def policy_of(model: Any, name: str = "main", *, train: str = "full", masters: bool = False) -> Policy:
    """A policy over a copy of this model, or over an adapter of it."""
    model = copy.deepcopy(model)
    if train == "lora":
        lora.attach(model, [name], 3, 6, seed=5)
        with torch.no_grad():  # an adapter that does something already
            for number, each in enumerate(lora.parameters_of(model, name)):
                generator = torch.Generator().manual_seed(number)
                each.add_(0.05 * torch.randn(each.shape, generator=generator, dtype=each.dtype))
    answering = lora.Adapted(model, name) if train == "lora" else model
    # The engine computes in float32 at most, and nobody asks it there.
    exact = model.dtype == torch.float64
    engine: Any = Named(name) if exact else TorchEngine(answering, tiny_tokenizer(), name=name)
    part = PolicyPart(train=train, rank=3 if train == "lora" else PolicyPart().rank, masters=masters)  # type: ignore[arg-type]
    return Policy(name, part, ["lead"], engine, model=model, learning_rate=1e-2)


def rows_of_odd_sizes(model: Any, num: int = 7, seed: int = 0) -> list[Row]:
    """Rows that share some of their prompts, of 1 to 30 trained tokens, sampled near to what the model says."""
    rng = np.random.default_rng(seed)
    stem = rng.integers(0, 256, 14).tolist()
    found = []
    for number in range(num):
        prompt = stem[: int(rng.integers(2, 14))] + rng.integers(0, 256, int(rng.integers(1, 6))).tolist()
        said = rng.integers(0, 256, 30 if number == 1 else int(rng.integers(1, 9))).tolist()
        names = {
            "group": f"g{number // 4}", "trace": f"t{number % 3}", "agent": f"a{number % 2}", "call": f"c{number}",
            "sample": f"s{number}", "temperature": 0.7 if number == 2 else 1.0, "version": str(number % 2),
        }  # fmt: skip
        row = make_row(prompt + said, len(prompt), rng=rng, **names)
        with torch.no_grad():
            near = plain_logprobs(model, row).double().numpy() + 0.2 * rng.normal(size=len(row.places))
        found.append(structs.replace(row, sampler=np.minimum(near, 0)))
    return found


def local_learner(policy: Policy, loss: Loss, reference: Any = None) -> LocalLearner:
    gradients = Gradients(policy.model, loss, PACKED, reference=reference)
    return LocalLearner(gradients, policy.parameters(), policy.optimizer)


def pair_of(model: Any, ranks: Ranks, **more: Any) -> tuple[Policy, Policy]:
    """The same policy here and in shards."""
    here, there = policy_of(model, **more), policy_of(model, **more)
    hand_over(ranks, [there])
    return here, there


def apart(here: Policy, ranks: Ranks, name: str = "main") -> float:
    """The largest difference of a gradient, against the largest gradient."""
    found = ranks.run("gradients", name)
    own = [each.grad for each in here.parameters()]
    assert len(found) == len(own)
    largest = max(float(each.abs().max()) for each in own if each is not None)
    worst = max(float((found[str(n)] - each).abs().max()) for n, each in enumerate(own) if each is not None)
    return worst / largest


def here_computes(policy: Policy) -> Any:
    """The body computes with the policy's own adapter, where it has one."""
    return lora.use(policy.model, policy.name) if policy.part.train == "lora" else torch.enable_grad()

"""Prefill in few calls, as on a GPU, gives what it gives in many."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from tiny_model import tiny_model
from torch import Tensor

from baton.engine.torch.forest import Forest, Ids, Node
from baton.engine.torch.load import checked_forward, kv_shape
from baton.engine.torch.prefill import PrefillPass

MODEL = tiny_model()
SHAPE = kv_shape(MODEL)
FORWARD = checked_forward(MODEL, SHAPE)


def prefilled(nodes: Iterable[Node], *, few_calls: bool) -> tuple[PrefillPass, Tensor]:
    run = PrefillPass(nodes, SHAPE, few_calls=few_calls)
    with torch.inference_mode():
        FORWARD(run, *run.inputs())
    run.keep()
    return run, run.kv


def grown(seed: int) -> list[list[Ids]]:
    """A system prompt, questions of several lengths below it, several conversations below each of those."""
    rng = np.random.default_rng(seed)

    def ids(length: int) -> Ids:
        return rng.integers(0, 256, length).astype(np.int32)

    system = ids(20)
    questions = [np.concatenate((system, ids(int(n)))) for n in rng.integers(3, 30, 7)]
    talks = [
        np.concatenate((question, ids(int(n))))
        for question in questions
        for n in rng.integers(1, 12, int(rng.integers(1, 5)))
    ]
    return [questions, talks]


@pytest.mark.parametrize("seed", range(4))
def test_few_calls_compute_what_many_do(seed: int) -> None:
    found = []
    for few_calls in (False, True):
        forest = Forest(10**6, 64)
        for prompts in grown(seed):
            cold = {n.number: n for ids in prompts for n in forest.plant(ids)[0].chain() if n.kv is None}
            run, kv = prefilled(cold.values(), few_calls=few_calls)
        found.append(kv)
    assert run._continued
    assert len(run._above) < 7
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)

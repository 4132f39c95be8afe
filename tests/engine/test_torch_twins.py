"""Calls that read the same: computed once as long as they say the same, and answered as each would be alone."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import tiny_model, tiny_tokenizer

from baton.engine.torch import TorchEngine
from baton.engine.torch.batch import CallRow, EngineLimits
from baton.team.protocol import Answer, Request
from baton.trace.records import Sampling

MODEL = tiny_model()
TOKENIZER = tiny_tokenizer()
RNG = np.random.default_rng(11)
PROMPTS = [RNG.integers(0, 250, n).tolist() for n in (1, 2, 37, 80)]


def engine(**limits: Any) -> TorchEngine:
    return TorchEngine(MODEL, TOKENIZER, limits=EngineLimits(**limits))


def request(prompt: list[int], key: str, **sampling: Any) -> Request:
    return Request(
        call=key, agent="a", role="r", entries=(), prompt_ids=prompt, sampling=Sampling(key=key, **sampling)
    )


def asked() -> list[Request]:
    """Unequal numbers of each prompt, with other limits, temperatures, cuts and stops; two keys twice."""
    rng = np.random.default_rng(3)
    found = [
        request(
            prompt,
            f"{len(prompt)}-{k // 2 if k < 4 else k}",
            max_tokens=int(rng.integers(1, 40)),
            temperature=float(rng.choice([0.0, 0.2, 0.7, 1.0])),
            top_k=int(rng.choice([2, 50])),
            stop=("a",) if k % 5 == 4 else (),
        )
        for prompt, count in zip(PROMPTS, (5, 1, 13, 8), strict=True)
        for k in range(count)
    ]
    return [found[i] for i in rng.permutation(len(found))]


@cache
def alone() -> list[Answer]:
    """Each by itself, one after the other."""

    async def one_by_one() -> list[Any]:
        which = engine(cache_tokens=0)
        return [(await which.answer([each]))[0] for each in asked()]

    return asyncio.run(one_by_one())


@pytest.mark.parametrize("limits", [{}, {"cache_tokens": 0}, {"max_rows": 6}, {"shared_reads": 1}])
def test_each_is_answered_as_it_would_be_alone(limits: dict[str, Any]) -> None:
    together = asyncio.run(engine(**limits).answer(asked()))
    for answer, own in zip(together, alone(), strict=True):
        assert isinstance(answer, Answer)
        assert answer.completion_ids == own.completion_ids
        assert answer.finish_reason == own.finish_reason
        assert answer.logprobs is not None
        assert own.logprobs is not None
        np.testing.assert_allclose(answer.logprobs.numpy(), own.logprobs.numpy(), atol=1e-4)


def test_what_they_say_alike_is_computed_once() -> None:
    batch = engine()._batch
    keys = ["x", "y", "x", "z", "y", "x", "w"]
    rows = [CallRow(np.array(PROMPTS[2], np.int32), Sampling(key=k, max_tokens=9)) for k in keys]
    for row in rows:
        assert batch.add(row) is None
    compute: Any = batch._compute
    forward, widths = compute._stepper._forward, []

    def counted(run: Any, ids: torch.Tensor, positions: torch.Tensor, **rest: Any) -> torch.Tensor:
        widths.append(len(ids))
        return forward(run, ids, positions, **rest)  # type: ignore[no-any-return]

    compute._stepper._forward = counted
    with torch.inference_mode():
        ended = 0
        while ended < len(rows):
            ended += len(batch.step())
        batch.step()
    said = [tuple(row.ids) for row in rows]
    steps = max(map(len, said))
    expected = [len({each[:k] for each in said if len(each) > k}) for k in range(steps)]
    assert widths == expected
    assert widths[0] == 1
    assert len(dict(zip(keys, said, strict=True))) == len(set(zip(keys, said, strict=True)))
    assert not compute._pools.taken()  # nobody is left in a slot


def test_one_that_is_cancelled_leaves_the_others_as_they_are() -> None:
    keys = [f"k{n}" for n in range(6)]
    whole = asyncio.run(
        engine().answer([request(PROMPTS[3], k, max_tokens=30, temperature=0.3) for k in keys])
    )
    batch = engine()._batch
    rows = [
        CallRow(np.array(PROMPTS[3], np.int32), Sampling(key=k, max_tokens=30, temperature=0.3)) for k in keys
    ]
    for row in rows:
        batch.add(row)
    with torch.inference_mode():
        for number in range(40):
            if number == 2:
                rows[0].cancelled = rows[4].cancelled = True  # the first computes for others
            batch.step()
    for n, (row, expected) in enumerate(zip(rows, whole, strict=True)):
        assert isinstance(expected, Answer)
        if n not in (0, 4):
            assert isinstance(row.result, Answer)
            assert row.result.completion_ids == expected.completion_ids

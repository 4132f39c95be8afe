"""Beside the drawing: what may not come is never drawn, and log-probabilities are of what was drawn from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import tiny_model, tiny_tokenizer

from baton.engine.torch import TorchEngine
from baton.team.protocol import Answer, Request
from baton.trace.records import Sampling

SIZE = 258


class OnlyEvery:
    """Lets every n-th token come, another set at each place; keeps what it hears."""

    def __init__(self, step: int, top: int) -> None:
        self.step, self.top = step, top
        self.heard: list[list[tuple[int, float]]] = []

    def allowed(self, place: int) -> np.ndarray[Any, Any]:
        return np.arange(SIZE) % self.step == place % self.step

    def mask(self, ids: Sequence[int]) -> bytes | None:
        return None if self.step == 1 else np.packbits(self.allowed(len(ids)), bitorder="little").tobytes()

    def hear(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        self.heard.append(list(zip(tokens, logprobs, strict=True)))


def asked(text: str, key: str, watch: OnlyEvery | None, **more: Any) -> Request:
    sampling = Sampling(max_tokens=7, key=key, **more)
    return Request(
        call=key,
        agent="a",
        role="a",
        entries=(),
        prompt_ids=list(text.encode()),
        sampling=sampling,
        watch=watch,
    )


@pytest.mark.parametrize(
    "more", [{}, {"temperature": 0.7}, {"temperature": 1.3, "top_k": 9}, {"top_p": 0.8}, {"temperature": 0.0}]
)
def test_draws_and_logprobs_are_of_the_masked_distribution(more: dict[str, Any]) -> None:
    model = tiny_model(seed=3)
    engine = TorchEngine(model, tiny_tokenizer(), name="tiny")
    assert engine.watches
    watches = [OnlyEvery(3, 4), OnlyEvery(11, 0), None, OnlyEvery(1, 2), OnlyEvery(3, 4)]
    requests = [asked("what now?"[: 4 + n % 2], f"k{n}", watch, **more) for n, watch in enumerate(watches)]
    answers = asyncio.run(engine.answer(requests))
    for request, watch, answer in zip(requests, watches, answers, strict=True):
        assert isinstance(answer, Answer)
        ids, told = list(answer.completion_ids or ()), list(answer.logprobs or ())
        assert ids
        with torch.no_grad():
            every = model(torch.tensor([[*(request.prompt_ids or ()), *ids]])).logits[0].double()
        for place, (token, logprob) in enumerate(zip(ids, told, strict=True)):
            logits = every[len(request.prompt_ids or ()) - 1 + place].numpy()
            plain = by_hand(logits, None if watch is None else watch.allowed(place), request.sampling)
            assert plain[token] == pytest.approx(logprob, abs=1e-4)
            if watch is not None and watch.top:
                best = sorted((-value, n) for n, value in enumerate(plain) if value > -np.inf)[: watch.top]
                assert [n for n, _ in watch.heard[place]] == [n for _, n in best]
                assert [value for _, value in watch.heard[place]] == pytest.approx(
                    [-v for v, _ in best], abs=1e-4
                )


def by_hand(logits: Any, allowed: Any, sampling: Sampling) -> Any:
    """Log-probabilities after the mask, the temperature, top-k and top-p, in plain numpy."""
    logits = logits.copy() if allowed is None else np.where(allowed, logits, -np.inf)
    if sampling.temperature == 0:
        return np.where(np.arange(len(logits)) == logits.argmax(), 0.0, -np.inf)
    logits = logits / sampling.temperature
    order = np.argsort(-logits, kind="stable")
    kept = order[: sampling.top_k or len(order)]
    chance = np.exp(logits[kept] - logits[kept].max())
    chance /= chance.sum()
    before = np.concatenate(([0.0], np.cumsum(chance)[:-1]))
    kept = kept[(before < sampling.top_p) | (np.arange(len(kept)) == 0)]
    found = np.full(len(logits), -np.inf)
    found[kept] = logits[kept] - np.log(np.exp(logits[kept] - logits[kept].max()).sum()) - logits[kept].max()
    return found


def test_whoever_is_not_watched_draws_as_before() -> None:
    engine = TorchEngine(tiny_model(seed=3), tiny_tokenizer(), name="tiny")
    alone = asyncio.run(engine.answer([asked("what now?", "k", None)]))
    beside = asyncio.run(
        engine.answer([asked("what now?", "k", None), asked("what now?", "k", OnlyEvery(5, 0))])
    )
    assert [a.completion_ids for a in alone] == [beside[0].completion_ids]  # type: ignore[union-attr]
    free, held = (list(a.completion_ids or ()) for a in beside)  # type: ignore[union-attr]
    assert free != held
    assert all(token % 5 == place % 5 for place, token in enumerate(held))

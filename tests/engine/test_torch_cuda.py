"""What only a GPU does: recorded steps, which new weights keep, and numbers that stay among others. Needs one."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import tiny_model, tiny_tokenizer

from baton.engine.torch import TorchEngine
from baton.engine.torch.batch import EngineLimits
from baton.learn import lora
from baton.team.protocol import Answer, Request
from baton.trace.records import Sampling

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
RNG = np.random.default_rng(5)
SHARED = RNG.integers(0, 256, 60).tolist()
PROMPTS = [SHARED + RNG.integers(0, 256, int(n)).tolist() for n in RNG.integers(1, 80, 30)]


def adapted() -> Any:
    return lora.attach(tiny_model().cuda(), ["a"], rank=4)


def moved(model: Any, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for part in lora.parameters_of(model, "a"):
            part.add_(torch.randn(part.shape).to(part) * 0.3)


def ask(engine: TorchEngine, prompts: list[list[int]] = PROMPTS, first: int = 0) -> list[Answer]:
    requests = [
        Request(
            call=f"k{n}", agent="a", role="r", entries=(), prompt_ids=prompt,
            sampling=Sampling(key=f"k{n}", max_tokens=24),
        )
        for n, prompt in enumerate(prompts, first)
    ]  # fmt: skip
    found = asyncio.run(engine.answer(requests))
    assert all(isinstance(answer, Answer) for answer in found), found
    return found  # type: ignore[return-value]


def recorded(engine: TorchEngine) -> dict[int, Any]:
    steps = engine._batch._compute._steps._by_rows.values()  # type: ignore[attr-defined]
    return {id(step): step for step in steps if step.graph is not None}


def ids_of(answers: list[Answer]) -> list[list[int]]:
    return [answer.completion_ids.tolist() for answer in answers if answer.completion_ids is not None]


def logprobs_of(answers: list[Answer]) -> list[float]:
    return [x for answer in answers for x in answer.logprobs or ()]


def test_recorded_steps_outlast_new_weights_and_use_them() -> None:
    model = adapted()
    engine = TorchEngine(lora.Adapted(model, "a"), tiny_tokenizer())
    ask(engine)
    with engine.updating("1"):
        moved(model, 1)
    first = ask(engine)
    before = recorded(engine)
    assert before
    with engine.updating("2"):
        moved(model, 2)
    second = ask(engine)
    assert before.keys() & recorded(engine).keys()
    fresh = ask(TorchEngine(lora.Adapted(model, "a"), tiny_tokenizer()))
    assert ids_of(first) != ids_of(second)
    assert ids_of(second) == ids_of(fresh)
    assert logprobs_of(second) == pytest.approx(logprobs_of(fresh), abs=1e-4)


def test_weights_that_moved_elsewhere_are_recorded_anew() -> None:
    model = adapted()
    engine = TorchEngine(lora.Adapted(model, "a"), tiny_tokenizer())
    ask(engine)
    with engine.updating("1"):
        pass
    ask(engine)
    assert recorded(engine)
    for some in ("mlp.up_proj", "norm", "embed_tokens"):
        ask(engine)
        assert recorded(engine)
        with engine.updating("2"):
            for name, part in model.named_parameters():
                if some in name:
                    part.data = part.data.clone() * 1.1
            moved(model, 3)
        assert not recorded(engine)
    fresh = TorchEngine(lora.Adapted(model, "a"), tiny_tokenizer())
    assert ids_of(ask(engine)) == ids_of(ask(fresh))


def test_the_same_as_on_a_cpu() -> None:
    model = adapted()
    moved(model, 1)
    there = ask(TorchEngine(lora.Adapted(model, "a"), tiny_tokenizer()))
    here = ask(TorchEngine(lora.Adapted(model.cpu(), "a"), tiny_tokenizer()))
    same = sum(a == b for a, b in zip(ids_of(there), ids_of(here), strict=True))
    assert same >= len(PROMPTS) - 2  # rounding moves a draw at an edge


def test_the_same_alone_and_among_others_when_steady() -> None:
    """In bfloat16, where a product of another size rounds differently."""
    model = tiny_model().cuda().bfloat16()
    engine = TorchEngine(model, tiny_tokenizer(), limits=EngineLimits(steady=True))
    together = ask(engine)
    for number in (0, 7, 29):
        fresh = TorchEngine(model, tiny_tokenizer(), limits=EngineLimits(steady=True))
        [alone] = ask(fresh, [PROMPTS[number]], first=number)
        assert list(alone.completion_ids or ()) == list(together[number].completion_ids or ())
        assert list(alone.logprobs or ()) == list(together[number].logprobs or ())


def test_a_workers_first_pass_is_recorded() -> None:
    """It is of the size that was tried when the engine was made, in another thread, so it comes for the second time."""
    engine = TorchEngine(tiny_model().cuda().bfloat16(), tiny_tokenizer())
    ask(engine, [PROMPTS[0][:9]])
    compute: Any = engine._batch._compute
    assert [each.graph is not None for each in compute._prefills._by_size.values()] == [True]
    assert not compute._recorder._failed

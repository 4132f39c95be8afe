"""Rows that read keys where they are: the same answers as rows in pools, and kernels that do what plain torch does.

The kernels need a GPU, or Triton's interpreter (TRITON_INTERPRET=1), which runs them on a CPU; without Triton their
tests are skipped, and the rest runs on the plain functions.
"""

from __future__ import annotations

import asyncio
import os
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_model import tiny_model, tiny_tokenizer
from torch import Tensor

from baton.engine.torch import TorchEngine
from baton.engine.torch.batch import EngineLimits
from baton.engine.torch.cache import PrefixCache
from baton.engine.torch.cuda import plain
from baton.engine.torch.cuda.pointed import pointed_of
from baton.engine.torch.cuda.reads import Reads, Stretch
from baton.engine.torch.load import context_length, kv_shape
from baton.learn import lora
from baton.team.protocol import Answer, Request
from baton.trace.records import Sampling

RNG = np.random.default_rng(7)
SHARED = RNG.integers(0, 256, 40).tolist()
PROMPTS = [SHARED + RNG.integers(0, 256, int(n)).tolist() for n in RNG.integers(1, 30, 9)]
KINDS = [Sampling(), Sampling(temperature=0.7), Sampling(temperature=0), Sampling(stop=("e", "the"))]


def pointed(model: Any, ops: ModuleType = plain, **settings: Any) -> TorchEngine:
    engine = TorchEngine(model, tiny_tokenizer())
    found = pointed_of(model, kv_shape(model), context_length(model), ops=ops, **settings)
    assert found is not None
    engine._batch._compute = found
    return engine


def ask(
    engine: TorchEngine, prompts: list[list[int]] = PROMPTS, kinds: list[Sampling] = KINDS
) -> list[Answer]:
    requests = [
        Request(
            call=f"k{n}", agent="a", role="r", entries=(), prompt_ids=prompt,
            sampling=Sampling(
                key=f"k{n}", max_tokens=3 + 7 * (n % 5), temperature=kind.temperature, stop=kind.stop,
                top_k=kind.top_k, top_p=kind.top_p,
            ),
        )
        for n, prompt in enumerate(prompts)
        for kind in [kinds[n % len(kinds)]]
    ]  # fmt: skip
    found = asyncio.run(engine.answer(requests))
    assert all(isinstance(answer, Answer) for answer in found), found
    return found  # type: ignore[return-value]


def same(ours: list[Answer], theirs: list[Answer]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.text == b.text
        assert list(a.completion_ids or ()) == list(b.completion_ids or ())
        assert list(a.logprobs or ()) == pytest.approx(list(b.logprobs or ()), abs=5e-4)
        assert a.finish_reason == b.finish_reason


def test_same_answers_as_in_pools() -> None:
    same(ask(pointed(tiny_model())), ask(TorchEngine(tiny_model(), tiny_tokenizer())))


def test_same_with_gates_computed_with_their_products() -> None:
    engine = pointed(tiny_model())
    engine._batch._compute._model._joins = True  # type: ignore[attr-defined]
    same(ask(engine), ask(TorchEngine(tiny_model(), tiny_tokenizer())))


def test_same_when_steady() -> None:
    same(ask(pointed(tiny_model(), steady=True)), ask(TorchEngine(tiny_model(), tiny_tokenizer())))


def test_same_with_cuts_of_the_distribution() -> None:
    kinds = [Sampling(top_k=3), Sampling(top_p=0.6), Sampling(temperature=0)]
    ours = ask(pointed(tiny_model()), kinds=kinds)
    same(ours, ask(TorchEngine(tiny_model(), tiny_tokenizer()), kinds=kinds))


def test_conversations_that_grow_and_outgrow_their_slots() -> None:
    engines = [pointed(tiny_model()), TorchEngine(tiny_model(), tiny_tokenizer())]
    contexts = [list(prompt) for prompt in PROMPTS[:4]]
    for turn in range(4):
        found = [ask(engine, contexts) for engine in engines]
        same(*found)
        for context, answer in zip(contexts, found[0], strict=True):
            context += list(answer.completion_ids or ())
            context += RNG.integers(0, 256, 5 + turn).tolist()
    assert engines[0].reused_tokens == engines[1].reused_tokens
    assert engines[0].prefilled_tokens == engines[1].prefilled_tokens


def test_a_chain_of_many_stretches() -> None:
    """More than a row has pointers for: the rest is copied."""
    engine = pointed(tiny_model())
    whole = RNG.integers(0, 256, 60).tolist()
    for cut in range(4, 60, 5):
        ask(engine, [[*whole[:cut], 1, 2, 3]])
    prompts = [[*whole, 9]]
    same(ask(engine, prompts), ask(TorchEngine(tiny_model(), tiny_tokenizer()), prompts))


def test_adapters_and_new_weights() -> None:
    model = lora.attach(tiny_model(), ["a", "b"], rank=4)
    torch.manual_seed(3)
    with torch.no_grad():
        for name in ("a", "b"):
            for part in lora.parameters_of(model, name):
                part.add_(torch.randn(part.shape) * 0.2)
    ours = {name: pointed(lora.Adapted(model, name)) for name in ("a", "b", None)}
    theirs = {name: TorchEngine(lora.Adapted(model, name), tiny_tokenizer()) for name in ours}
    for name, engine in ours.items():
        same(ask(engine), ask(theirs[name]))
    with ours["a"].updating("1"), theirs["a"].updating("1"), torch.no_grad():
        for part in lora.parameters_of(model, "a"):
            part.mul_(0.5)
    same(ask(ours["a"]), ask(theirs["a"]))


def test_the_model_keeps_its_parameters(tmp_path: Any) -> None:
    """They are views of one tensor now: saving, loading, copying and training go on as before."""
    model = tiny_model()
    before = {name: part.clone() for name, part in model.state_dict().items()}
    names = [name for name, _ in model.named_parameters()]
    parts = dict(model.named_parameters())
    engine = pointed(model)
    assert names == [name for name, _ in model.named_parameters()]
    assert all(parts[name] is part for name, part in model.named_parameters())
    assert all(torch.equal(before[name], part) for name, part in model.state_dict().items())
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert all(torch.equal(before[name], part) for name, part in again.state_dict().items())
    first = ask(engine)
    with engine.updating("1"), torch.no_grad():
        for part in model.parameters():
            part.add_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    second = ask(engine)
    assert [a.text for a in first] != [a.text for a in second]
    same(second, ask(TorchEngine(model, tiny_tokenizer())))


@torch.inference_mode()
def test_the_probe_gives_the_models_own_logits() -> None:
    model = tiny_model()
    compute = pointed_of(model, kv_shape(model), context_length(model), ops=plain)
    assert compute is not None
    ids = np.array([7, 80, 33, 5, 12, 200, 41, 90], np.int32)
    chain = PrefixCache(0, 5).plant(ids)[0].chain()
    own = model(input_ids=torch.from_numpy(ids).long()[None]).logits[0, -1]
    torch.testing.assert_close(compute.probe(chain), own, atol=1e-4, rtol=1e-4)


def test_steady_is_refused_without_a_gpu() -> None:
    with pytest.raises(Exception, match="needs a GPU"):
        TorchEngine(tiny_model(), tiny_tokenizer(), limits=EngineLimits(steady=True))


# The kernels, against plain torch.


def kernels() -> tuple[ModuleType, torch.device]:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        device = torch.device("cuda")
    elif os.environ.get("TRITON_INTERPRET") == "1":
        device = torch.device("cpu")
    else:
        pytest.skip("needs a GPU, or TRITON_INTERPRET=1")
    from baton.engine.torch.cuda import kernels as made

    return made, device


DTYPES = [torch.float32, torch.bfloat16]


def near(ours: Tensor, theirs: Tensor) -> None:
    slack = 2e-5 if theirs.dtype == torch.float32 else 3e-2
    torch.testing.assert_close(ours.float(), theirs.float(), atol=slack, rtol=slack)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [24, 96, 576])
def test_norms_and_gates(dtype: torch.dtype, size: int) -> None:
    ops, device = kernels()
    torch.manual_seed(size)
    x, h = torch.randn(2, 5, size).to(device, dtype)
    weight = torch.randn(size).to(device, dtype)
    for more in (None, h):
        a, b = x.clone(), x.clone()
        near(ops.add_norm(a, more, weight, 1e-5), plain.add_norm(b, more, weight, 1e-5))
        near(a, b)
    both = torch.randn(5, 2 * size).to(device, dtype)
    near(ops.silu_mul(both), plain.silu_mul(both))


def some_reads(heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device, queries: int) -> Any:
    """Rows with none, one and several stretches of odd lengths, and own ones that have begun or not."""
    gen = torch.Generator().manual_seed(sum(heads))

    def made(length: int) -> Tensor:
        return torch.randn(2, 2, heads[1], length, heads[2], generator=gen).to(device, dtype)

    common = made(70)
    rows = []
    for whole, own, count in [((), 0, 1), ((33,), 4, 1), ((5, 130, 1), 64, 1), ((2, 2), 17, 1)]:
        stretches = [Stretch(made(n), n) for n in whole] + ([Stretch(common, 70)] if len(whole) < 2 else [])
        rows.append(
            (stretches, Stretch(made(own + 40), own), count if queries == 1 else count + 3 * own % 37)
        )
    return Reads(heads, rows, device, queries=queries)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "queries"), [((6, 2, 16), 1), ((9, 3, 64), 1), ((9, 3, 64), 16), ((4, 4, 24), 5)]
)
def test_attention(dtype: torch.dtype, heads: tuple[int, int, int], queries: int) -> None:
    ops, device = kernels()
    if device.type == "cpu" and dtype == torch.bfloat16:
        pytest.skip("the interpreter's products of bfloat16 are wrong")
    reads = some_reads(heads, dtype, device, queries)
    tokens = len(reads.who)
    torch.manual_seed(1)
    qkv = torch.randn(tokens, (heads[0] + 2 * heads[1]) * heads[2]).to(device, dtype)
    rotation = torch.randn(2, 300, heads[2] // 2).clamp(-1, 1).to(device, dtype).unbind()
    positions = torch.randint(0, 300, (tokens,)).to(device)
    before = [own.kv.clone() for _, own in reads.stretches]
    q = ops.turn_and_keep(qkv, rotation, positions, reads, 1)
    kept = [own.kv.clone() for _, own in reads.stretches]
    for (_, own), kv in zip(reads.stretches, before, strict=True):
        own.kv.copy_(kv)
    near(q, plain.turn_and_keep(qkv, rotation, positions, reads, 1))
    for (_, own), kv in zip(reads.stretches, kept, strict=True):
        near(kv, own.kv)
    near(ops.attend(q, reads, 1, 0.3), plain.attend(q, reads, 1, 0.3))
    if queries == 1:
        for (_, own), kv in zip(reads.stretches, before, strict=True):
            own.kv.copy_(kv)
        found = ops.turn_and_attend(qkv, rotation, positions, reads, 1, 0.3)
        for (_, own), kv in zip(reads.stretches, kept, strict=True):
            near(own.kv, kv)
        near(found, plain.turn_and_attend(qkv, rotation, positions, reads, 1, 0.3))


@pytest.mark.parametrize("vocab", [50, 257, 9001])
def test_draws(vocab: int) -> None:
    ops, device = kernels()
    torch.manual_seed(vocab)
    rows = 12
    logits = torch.randn(rows, vocab).mul(3).to(device)
    logits[2, 5:] = -torch.inf
    logits[3, 1] = torch.nan
    logits[4] = -torch.inf
    temperatures = torch.tensor([1, 0.5, 1, 1, 1, 0, 2, 1, 1, 1, 1, 0.0], device=device)
    uniforms = torch.rand(rows, dtype=torch.float64).to(device)
    uniforms[7], uniforms[8], uniforms[2] = 0.0, 1 - 2**-53, 1 - 2**-53
    found = []
    for each in (ops, plain):
        step = SimpleNamespace(
            ids=torch.zeros(rows, dtype=torch.long, device=device), positions=torch.arange(rows, device=device),
            moves=(torch.arange(rows, device=device) % 3 > 0).long(),
            reads=SimpleNamespace(index=torch.arange(rows, dtype=torch.int32, device=device)),
        )  # fmt: skip
        tokens, logprobs = (
            torch.zeros(rows, dtype=torch.long, device=device),
            torch.zeros(rows, device=device),
        )
        each.draw(logits, temperatures, uniforms, tokens, logprobs, step)
        found.append((tokens, logprobs, step))
    (tokens, logprobs, step), (expected, wanted, moved) = found
    sound = ~torch.isnan(wanted)
    assert torch.equal(sound, ~torch.isnan(logprobs))
    assert torch.equal(tokens[sound], expected[sound])
    torch.testing.assert_close(logprobs[sound], wanted[sound], atol=1e-5, rtol=1e-5)
    assert torch.equal(step.positions, moved.positions)
    assert torch.equal(step.reads.index, moved.reads.index)
    assert torch.equal(step.ids, tokens)
    assert bool((tokens < vocab).all())


def shared_reads(heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> Any:
    """Eight rows: of the first four all read one stretch and some more, of the others every one something else."""
    gen = torch.Generator().manual_seed(11)

    def made(length: int) -> Tensor:
        return torch.randn(2, 2, heads[1], length, heads[2], generator=gen).to(device, dtype)

    common, other = made(77), made(35)
    rows = []
    for n, own in enumerate([0, 3, 33, 8, 40, 0, 1, 64]):
        whole = [common] if n < 4 else [[common], [], [other, common], [other]][n - 4]
        more = [made(1 + 5 * n)] if n % 3 else []
        rows.append(([Stretch(kv, kv.shape[3]) for kv in whole + more], Stretch(made(own + 2), own), 1))
    return Reads(heads, rows, device)


@pytest.mark.parametrize("beside", [2, 4])
@pytest.mark.parametrize("splits", [1, 4])
def test_attention_of_rows_beside_each_other(
    beside: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops, device = kernels()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    for name, value in {"BESIDE": beside, "MANY": 4, "MANY_SPLITS": splits}.items():
        monkeypatch.setattr(f"baton.engine.torch.cuda.attending.{name}", value)
    reads = shared_reads((6, 2, 32), dtype, device)
    torch.manual_seed(2)
    qkv = torch.randn(8, 10 * 32).to(device, dtype)
    rotation = torch.rand(2, 99, 16).to(device, dtype).unbind()
    given = qkv, rotation, torch.arange(8, device=device) * 9, reads, 1, 0.2
    for _ in range(2):  # the second finds the counters as the first one did
        near(ops.turn_and_attend(*given), plain.turn_and_attend(*given))
    assert not reads.ended.any()


@pytest.mark.parametrize(("num", "width", "inner"), [(5, 96, 72), (33, 40, 130), (140, 64, 48)])
def test_gates_with_their_products(num: int, width: int, inner: int) -> None:
    ops, device = kernels()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(num)
    x = torch.randn(num, width).to(device, dtype)
    weight = (torch.randn(2 * inner, width) * width**-0.5).to(device, dtype)
    near(ops.project_gate(x, weight), plain.project_gate(x, weight))

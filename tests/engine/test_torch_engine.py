"""The torch engine against transformers itself: same tokens, same log-probs, whatever shares the batch."""

from __future__ import annotations

import asyncio
import gc
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import tiny_model, tiny_tokenizer
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from baton.engine.torch import PlainTemplate, TorchEngine
from baton.engine.torch.batch import EngineLimits
from baton.engine.torch.forward import Beside
from baton.engine.torch.load import kv_shape
from baton.errors import UsageError
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Sampling

torch.set_num_threads(1)
MODEL = tiny_model()
TOKENIZER = tiny_tokenizer()
RNG = np.random.default_rng(5)
SHARED = RNG.integers(0, 256, 60).tolist()
PROMPTS = [SHARED + RNG.integers(0, 256, int(n)).tolist() for n in RNG.integers(1, 40, 9)]
PROMPTS += [SHARED[:20], SHARED, [7], RNG.integers(0, 256, 90).tolist()]


def engine(**limits: Any) -> TorchEngine:
    return TorchEngine(MODEL, TOKENIZER, limits=EngineLimits(**limits))


def request(prompt: list[int], key: str = "k", **sampling: Any) -> Request:
    sampling = {"max_tokens": 12, **sampling}
    return Request(
        call=key, agent="a", role="r", entries=(), prompt_ids=prompt, sampling=Sampling(key=key, **sampling)
    )


def ask(which: TorchEngine, *requests: Request) -> list[Answer]:
    results = asyncio.run(which.answer(requests))
    assert all(isinstance(result, Answer) for result in results), results
    return results  # type: ignore[return-value]


def ids_of(answers: list[Answer]) -> list[list[int]]:
    return [answer.completion_ids.tolist() for answer in answers if answer.completion_ids is not None]


def test_what_is_kept_fits_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = kv_shape(MODEL)
    assert shape.kept_tokens == 131_072
    assert shape.token_bytes == 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, size, float32
    small = types.SimpleNamespace(total_memory=16 * 1000 * shape.token_bytes)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: small)
    assert shape._replace(device=torch.device("cuda")).kept_tokens == 1000


def test_is_an_engine() -> None:
    assert isinstance(engine(), Engine)


# Sharing thresholds: never read a prefix for all rows at once, always, and the default.
@pytest.mark.parametrize("shared_reads", [10**9, 1, None])
def test_greedy_equals_generate(shared_reads: int | None) -> None:
    answers = ask(
        engine(shared_reads=shared_reads), *(request(p, temperature=0.0, max_tokens=20) for p in PROMPTS)
    )
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = torch.tensor([prompt])
        expected = MODEL.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False
        )
        assert answer.completion_ids is not None
        assert answer.completion_ids.tolist() == expected[0, len(prompt) :].tolist()
        assert answer.logprobs is not None
        assert set(answer.logprobs) == {0.0}


@pytest.mark.parametrize("shared_reads", [1, 10**9])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_a_plain_forward_pass(shared_reads: int, temperature: float) -> None:
    which = engine(shared_reads=shared_reads, prefill_tokens=16)
    answers = ask(which, *(request(p, f"k{i}", temperature=temperature) for i, p in enumerate(PROMPTS)))
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.completion_ids is not None
        assert answer.logprobs is not None
        ids = answer.completion_ids.tolist()
        with torch.no_grad():
            logits = MODEL(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / temperature
        expected = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        np.testing.assert_allclose(answer.logprobs.numpy(), expected.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        ([40, 40, 40], [3, 3, 3]),
        ([33, 60, 40], [2, 4, 3]),
        ([35, 90, 300], [2, 3, 2]),
        ([64, 20, 200], [5, 4, 3]),
    ],
)
def test_prompts_that_groups_share_are_read_side_by_side(
    lengths: list[int], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alike and unlike in length and in readers, below a beginning that all share, ending at different times."""
    rng = np.random.default_rng(0)
    start = rng.integers(0, 250, 5).tolist()
    prompts = [start + rng.integers(0, 250, length).tolist() for length in lengths]
    asked = [
        request(prompt, f"{i}-{k}", max_tokens=3 + 2 * k + i)
        for i, prompt in enumerate(prompts)
        for k in range(sizes[i])
    ]
    apart = ask(engine(shared_reads=10**9, cache_tokens=0), *asked)
    plain, num_used = Beside.attend, 0

    def counted(self: Beside, *args: Any) -> Any:
        nonlocal num_used
        num_used += 1
        return plain(self, *args)

    monkeypatch.setattr(Beside, "attend", counted)
    # No prompt is shared by enough rows to be read on its own.
    together = ask(
        engine(shared_reads=1 + max(n * (k - 1) for n, k in zip(lengths, sizes, strict=True))), *asked
    )
    assert num_used
    assert ids_of(together) == ids_of(apart)
    for one, other in zip(together, apart, strict=True):
        assert one.logprobs is not None
        assert other.logprobs is not None
        np.testing.assert_allclose(one.logprobs.numpy(), other.logprobs.numpy(), atol=1e-4)


def test_same_key_same_tokens_whatever_else_is_asked() -> None:
    together = ids_of(ask(engine(shared_reads=1), *(request(p, f"k{i}") for i, p in enumerate(PROMPTS))))
    alone = [ids_of(ask(engine(cache_tokens=0), request(p, f"k{i}")))[0] for i, p in enumerate(PROMPTS)]
    backwards = ids_of(
        ask(
            engine(max_rows=3, prefill_tokens=8),
            *(request(p, f"k{i}") for i, p in reversed([*enumerate(PROMPTS)])),
        )
    )
    assert together == alone == backwards[::-1]
    other = ids_of(ask(engine(), *(request(p, f"other{i}") for i, p in enumerate(PROMPTS))))
    assert other != together


@settings(max_examples=15)
@given(st.data())
def test_any_schedule_gives_the_same_answers(data: st.DataObject) -> None:
    """Prompts that branch anywhere, in batches of any make-up, with any limits."""
    alphabet = st.integers(0, 2)
    prompts = data.draw(st.lists(st.lists(alphabet, min_size=1, max_size=24), min_size=1, max_size=8))
    limits = data.draw(
        st.builds(
            EngineLimits,
            max_rows=st.integers(1, 6),
            cache_tokens=st.sampled_from([0, 20, 10**6]),
            prefill_tokens=st.integers(1, 30),
            shared_reads=st.sampled_from([1, 20, 10**9]),
        )
    )
    which = TorchEngine(MODEL, TOKENIZER, limits=limits)
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=len(prompts), max_size=len(prompts)))
    requests = [
        request(p, f"k{i}", max_tokens=n) for i, (p, n) in enumerate(zip(prompts, lengths, strict=True))
    ]
    first = ids_of(ask(which, *requests))
    again = ids_of(ask(which, *requests[::-1]))[::-1]
    forgetful = engine(cache_tokens=0)
    plain = [ids_of(ask(forgetful, each))[0] for each in requests]
    for one, other, alone in zip(first, again, plain, strict=True):
        assert on_an_edge(one, alone), (one, alone)
        assert on_an_edge(other, alone), (other, alone)


def on_an_edge(one: list[int], other: list[int]) -> bool:
    """The same tokens, or the same up to a draw that rounding takes across an edge: to the token next to it."""
    apart = [abs(a - b) for a, b in zip(one, other, strict=False) if a != b]
    return apart[0] == 1 if apart else len(one) == len(other)


def test_a_growing_conversation_is_computed_once() -> None:
    which, fresh = engine(), engine(cache_tokens=0)
    context = list(SHARED)
    for turn in range(4):
        before = which.prefilled_tokens
        asked = request(list(context), f"t{turn}", max_tokens=10)
        [answer], [expected] = ask(which, asked), ask(fresh, asked)
        assert answer.completion_ids == expected.completion_ids
        assert answer.completion_ids is not None
        assert answer.logprobs is not None
        assert expected.logprobs is not None
        np.testing.assert_allclose(answer.logprobs.numpy(), expected.logprobs.numpy(), atol=1e-4)
        new = len(context) - 1 if turn == 0 else 1 + 5 - 1
        assert which.prefilled_tokens - before == new
        context += [*answer.completion_ids, *RNG.integers(0, 256, 5).tolist()]
    assert which.reused_tokens > 100


def put_away(which: TorchEngine) -> None:
    """Answers are given before their slots are freed."""
    deadline = time.monotonic() + 60
    while not which._batch.idle:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_cache_stays_within_its_limit() -> None:
    which = engine(cache_tokens=50)
    for i, prompt in enumerate(PROMPTS):
        ask(which, request(prompt, f"k{i}"))
        put_away(which)
        assert which._batch._prefixes.num_tokens <= 50


def test_sampling_follows_the_distribution() -> None:
    prompt = [3, 1, 4]
    answers = ask(engine(max_rows=512), *(request(prompt, f"draw{i}", max_tokens=1) for i in range(2000)))
    with torch.no_grad():
        chances = MODEL(torch.tensor([prompt])).logits[0, -1].softmax(-1).double().numpy()
    counts = np.bincount([ids[0] for ids in ids_of(answers)], minlength=len(chances))
    likely = chances > 0.005
    chi2 = (((counts - 2000 * chances) ** 2) / (2000 * chances))[likely].sum()
    assert chi2 < likely.sum() + 5 * np.sqrt(2 * likely.sum())


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (None, 0.5), (5, 0.6), (None, 1e-9), (1, 1.0)])
def test_truncation_as_transformers_does_it(top_k: int | None, top_p: float) -> None:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    prompts = PROMPTS[:6]
    sampling = {"top_k": top_k, "top_p": top_p, "temperature": 1.3, "max_tokens": 6}
    answers = ask(engine(), *(request(p, f"k{i}", **sampling) for i, p in enumerate(prompts)))
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.completion_ids is not None
        assert answer.logprobs is not None
        ids = answer.completion_ids.tolist()
        with torch.no_grad():
            logits = MODEL(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        logits = TemperatureLogitsWarper(1.3)(None, logits)
        if top_k is not None:
            logits = TopKLogitsWarper(top_k)(None, logits)
        if top_p < 1:
            logits = TopPLogitsWarper(top_p)(None, logits)
        expected = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        np.testing.assert_allclose(answer.logprobs.numpy(), expected.numpy(), atol=1e-4)


def test_mixed_sampling_in_one_batch() -> None:
    kinds = [{"temperature": 0.0}, {"top_k": 4}, {"temperature": 0.5}, {"top_p": 0.7}, {}]
    requests = [request(PROMPTS[i], f"k{i}", **kind) for i, kind in enumerate(kinds)]
    assert ids_of(ask(engine(), *requests)) == [ids_of(ask(engine(), each))[0] for each in requests]


def test_max_tokens_and_end_of_turn() -> None:
    answers = ask(engine(), *(request(SHARED, f"k{i}", max_tokens=200) for i in range(40)))
    ended = [a for a in answers if a.finish_reason == "stop"]
    cut = [a for a in answers if a.finish_reason == "length"]
    assert ended
    assert cut or len(ended) == 40
    for answer in ended:
        assert answer.completion_ids is not None
        assert answer.completion_ids[-1] == 257
        assert "<|im_end|>" not in answer.text
        assert answer.token_ends is not None
        assert answer.token_ends[-1] == len(answer.text)
    for answer in cut:
        assert answer.completion_tokens == 200


def test_stop_strings_end_the_text_before_them() -> None:
    [free] = ask(engine(), request(SHARED, "stop", max_tokens=60, temperature=1.5))
    plain = next(c for c in free.text if c.isascii() and free.text.index(c) > 3)
    at = free.text.index(plain)
    [stopped] = ask(
        engine(), request(SHARED, "stop", max_tokens=60, temperature=1.5, stop=("never said", plain))
    )
    assert stopped.text == free.text[:at]
    assert stopped.finish_reason == "stop"
    assert stopped.completion_ids is not None
    assert free.completion_ids is not None
    assert stopped.completion_ids == free.completion_ids[: len(stopped.completion_ids)]
    assert stopped.token_ends is not None
    assert stopped.token_ends[-1] == at


def test_damaged_weights_are_an_error_not_an_answer() -> None:
    model = tiny_model()
    which = TorchEngine(model, TOKENIZER)
    with which.updating("1"), torch.no_grad():
        model.lm_head.weight[5] = torch.nan
    for temperature in (0.0, 1.0):
        [result] = asyncio.run(which.answer([request(SHARED, temperature=temperature)]))
        assert isinstance(result, EngineError)
        assert "not finite" in str(result)


def test_a_failing_pass_fails_its_calls_and_the_next_call_works(monkeypatch: pytest.MonkeyPatch) -> None:
    which = engine()
    with monkeypatch.context() as patch:
        patch.setattr(which._batch._compute._forward, "prefill", lambda *_, **__: 1 / 0)
        [result] = asyncio.run(which.answer([request(SHARED)]))
    assert isinstance(result, EngineError)
    assert "ZeroDivisionError" in str(result)
    assert ask(which, request(SHARED))


def test_what_cannot_run_says_why() -> None:
    too_long = [1] * 600
    asked = [
        request(too_long, max_tokens=None),
        request([1] * 500, max_tokens=50),
        request([]),
        request([1], max_tokens=0),
        request([1, 4000]),
        request([1, -1]),
    ]
    results = asyncio.run(engine().answer([*asked, request([1])]))
    said = ["context, 512", "lower max_tokens", "empty", "at least 1", "0 to 257", "0 to 257"]
    for result, words in zip(results, said, strict=False):
        assert isinstance(result, EngineError)
        assert words in str(result)
    assert isinstance(results[-1], Answer)


def test_calls_join_and_leave_while_others_run() -> None:
    which = engine()

    async def play() -> list[list[Answer | EngineError]]:
        tasks = []
        for i, prompt in enumerate(PROMPTS):
            tasks.append(asyncio.create_task(which.answer([request(prompt, f"k{i}", max_tokens=5 + 7 * i)])))
            await asyncio.sleep(0.003)
        return await asyncio.gather(*tasks)

    results = [answers[0] for answers in asyncio.run(play())]
    expected = ask(engine(), *(request(p, f"k{i}", max_tokens=5 + 7 * i) for i, p in enumerate(PROMPTS)))
    for result, wanted in zip(results, expected, strict=True):
        assert isinstance(result, Answer)
        assert result.completion_ids == wanted.completion_ids


def test_cancelling_frees_the_slot() -> None:
    which = engine(max_rows=1)

    async def play() -> Answer | EngineError:
        long = asyncio.create_task(which.answer([request(SHARED, "long", max_tokens=440, temperature=3.0)]))
        while not which._batch._compute.rows:
            await asyncio.sleep(0.001)
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        [result] = await which.answer([request(SHARED, "short")])
        return result

    assert isinstance(asyncio.run(play()), Answer)
    put_away(which)


def test_publish_changes_version_weights_and_forgets_prefixes() -> None:
    model = tiny_model()
    which = TorchEngine(model, TOKENIZER, version="7")
    [old] = ask(which, request(SHARED, temperature=0.0))
    other = tiny_model(seed=9)
    which.publish("8", other.state_dict())
    [new] = ask(which, request(SHARED, temperature=0.0))
    assert (old.policy_version, new.policy_version, which.version) == ("7", "8", "8")
    [expected] = ask(TorchEngine(other, TOKENIZER), request(SHARED, temperature=0.0))
    assert new.completion_ids == expected.completion_ids != old.completion_ids


def test_nothing_of_old_weights_is_left() -> None:
    """Not in the slots either, which are used again: also after weights that were damaged."""
    model = tiny_model()
    good = {name: weight.clone() for name, weight in model.state_dict().items()}
    which = TorchEngine(model, TOKENIZER)
    asked = [request(prompt, f"k{i}") for i, prompt in enumerate(PROMPTS)]
    first = ask(which, *asked)
    which.publish("1", tiny_model(seed=9).state_dict())
    ask(which, *reversed(asked))
    which.publish("2", {name: torch.full_like(weight, torch.nan) for name, weight in good.items()})
    assert all(isinstance(result, EngineError) for result in asyncio.run(which.answer(asked)))
    which.publish("3", good)
    again = ask(which, *asked)
    assert ids_of(again) == ids_of(first)
    assert [answer.logprobs for answer in again] == [answer.logprobs for answer in first]


def test_publish_waits_for_calls_in_flight() -> None:
    model = tiny_model()
    which = TorchEngine(model, TOKENIZER)
    asked = request(SHARED, "long", max_tokens=300, temperature=3.0)
    [expected] = ask(TorchEngine(tiny_model(), TOKENIZER), asked)

    async def play() -> tuple[Answer | EngineError, Answer | EngineError]:
        running = asyncio.create_task(which.answer([asked]))
        while not which._batch._compute.rows:
            await asyncio.sleep(0.001)
        publishing = asyncio.to_thread(which.publish, "1", tiny_model(seed=3).state_dict())
        later = asyncio.create_task(which.answer([request(SHARED)]))
        await publishing
        return (await running)[0], (await later)[0]

    first, second = asyncio.run(play())
    assert isinstance(first, Answer)
    assert (first.completion_ids, first.policy_version) == (expected.completion_ids, "0")
    assert isinstance(second, Answer)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model()
    ids = torch.tensor([SHARED])
    before = model(ids).logits
    ask(TorchEngine(model, TOKENIZER), request(SHARED))
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(ids).logits, before)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 1)])
def test_head_layouts(heads: int, kv_heads: int) -> None:
    model = tiny_model(heads=heads, kv_heads=kv_heads)
    which = TorchEngine(model, TOKENIZER, limits=EngineLimits(shared_reads=1))
    for prompt, answer in zip(
        PROMPTS, ask(which, *(request(p, temperature=0.0) for p in PROMPTS)), strict=True
    ):
        ids = torch.tensor([prompt])
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False
        )
        assert answer.completion_ids is not None
        assert answer.completion_ids.tolist() == expected[0, len(prompt) :].tolist()


def test_another_architecture() -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        n_embd=32, n_layer=2, n_head=2, vocab_size=258, n_positions=512, eos_token_id=257, bos_token_id=257,
        initializer_range=0.3,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    [answer] = ask(TorchEngine(model, TOKENIZER), request(SHARED, temperature=0.0))
    ids = torch.tensor([SHARED])
    expected = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=257
    )
    assert answer.completion_ids is not None
    assert answer.completion_ids.tolist() == expected[0, len(SHARED) :].tolist()


def test_models_it_cannot_serve_are_refused() -> None:
    config = MistralConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=258, sliding_window=16,
    )  # fmt: skip
    with pytest.raises(UsageError, match="sliding"):
        TorchEngine(MistralForCausalLM(config), TOKENIZER)


def test_opening_a_folder(tmp_path: Path) -> None:
    MODEL.save_pretrained(tmp_path / "tiny")
    TOKENIZER.save_pretrained(tmp_path / "tiny")
    which = TorchEngine.open(tmp_path / "tiny", device="cpu")
    assert which.name == "tiny"
    asked = request(SHARED, temperature=0.0)
    assert ids_of(ask(which, asked)) == ids_of(ask(engine(), asked))


def test_what_is_not_a_model_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        TorchEngine.open(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"no config\.json"):
        TorchEngine.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="names no model_type"):
        TorchEngine.open(tmp_path, device="cpu")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(UsageError, match="dtype"):
        TorchEngine.open(tmp_path, device="cpu", dtype="float31")


def test_no_chat_template_is_an_error_with_a_way_out() -> None:
    with pytest.raises(UsageError, match="PlainTemplate"):
        TorchEngine(MODEL, tiny_tokenizer(chat=False))
    which = TorchEngine(MODEL, tiny_tokenizer(chat=False), template=PlainTemplate())
    [answer] = ask(
        which,
        Request(
            call="c", agent="a", role="r", entries=(Entry("user", "hi"),), prompt_ids=None,
            sampling=Sampling(max_tokens=3, key="k"),
        ),
    )  # fmt: skip
    assert answer.prompt_tokens == len("user: hi\nassistant: ")


@pytest.mark.parametrize("gpu", [False, True])
def test_a_gpu_does_not_wait_for_a_collection_of_everything(
    gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there when the worker began is left alone while it works, and looked at again afterwards."""
    monkeypatch.setattr("baton.engine.torch.engine._on_gpu", lambda model: gpu)
    monkeypatch.setattr("baton.engine.torch.engine._LINGER_SECONDS", 0.02)
    monkeypatch.setattr("baton.engine.torch.engine._GLANCE_SECONDS", 0.02)
    done: list[str] = []
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, partial(done.append, name))
    which = engine()
    ask(which, request(SHARED, max_tokens=2))
    if (worker := which._worker) is not None:
        worker.join(10)
    assert which._worker is None
    assert set(done) == (
        {"freeze", "unfreeze"} if gpu else set()
    )  # workers of earlier tests may end here too

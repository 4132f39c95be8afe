"""vLLM itself behind the engine: what it draws, what it says of it, and which weights it says drew it.

The expected log-probabilities are computed here from transformers' logits by the plain formulas.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_server import only_with_vllm

from baton.cli import main
from baton.engine import make_engine
from baton.engine.posting import NoAnswer
from baton.engine.vllm.client import VllmClient
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.local import LocalServer
from baton.errors import UsageError
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.testing import check_engine
from baton.trace import read_all
from baton.trace.records import Sampling

only_with_vllm()
pytestmark = pytest.mark.slow

TEXTS = ("what is 6 x 7?", "AA the thin A", "é 漢 🙂", "", "def f(x):\n\treturn x")


@pytest.fixture
def engine(server: LocalServer) -> VllmEngine:
    made = make_engine(f"vllm:odd-llama@{server.url}")
    assert isinstance(made, VllmEngine)
    return made


def _request(engine: VllmEngine, text: str, key: str, **sampling: Any) -> Request:
    entries = [Entry("system", "You are odd."), Entry("user", text)]
    return Request(
        call=key,
        agent="a",
        role="r",
        entries=entries,
        prompt_ids=engine.encode(entries, None),
        sampling=Sampling(**{"max_tokens": 40, "key": key, **sampling}),
    )


def _answers(engine: VllmEngine, requests: Sequence[Request]) -> list[Answer]:
    found = _run(engine, lambda: engine.answer(requests))
    assert all(isinstance(each, Answer) for each in found), found
    return found  # type: ignore[return-value]


def _run(engine: Any, asking: Callable[[], Any]) -> Any:
    """One event loop, and none of its connections left."""

    async def asked() -> Any:
        try:
            return await asking()
        finally:
            await engine.close()

    return asyncio.run(asked())


def _expected(model: Any, prompt: Sequence[int], answer: Answer, sampling: Sampling) -> list[float]:
    """Log-probabilities after temperature, the k likeliest and the nucleus, written out."""
    ids = list(answer.completion_ids or ())
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double()
    found = []
    for row, token in zip(logits / sampling.temperature, ids, strict=True):
        if sampling.top_k is not None:
            least = row.topk(sampling.top_k).values[-1]
            row = row.masked_fill(row < least, -torch.inf)
        order = row.softmax(-1).sort(descending=True)
        before = order.values.cumsum(-1) - order.values
        gone = order.indices[before >= sampling.top_p]
        row = row.index_fill(-1, gone, -torch.inf)
        found.append(float(row.log_softmax(-1)[token]))
    return found


def _metric(server: LocalServer, name: str) -> float:
    told = urllib.request.urlopen(f"{server.url}/metrics", timeout=30).read().decode()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in told.splitlines()
        if re.match(rf"{re.escape(name)}[{{ ]", line)
    )


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.7},
        {"temperature": 1.3, "top_p": 0.9},
        {"top_k": 5},
        {"temperature": 0.6, "top_k": 7},
    ],
    ids=str,
)
def test_log_probabilities_are_of_what_was_drawn_from(
    engine: VllmEngine, model: tuple[Any, Path], how: dict[str, Any]
) -> None:
    requests = [_request(engine, text, f"gap/{how}/{k}", **how) for k, text in enumerate(TEXTS)]
    gaps = []
    for request, answer in zip(requests, _answers(engine, requests), strict=True):
        expected = _expected(model[0], request.prompt_ids or (), answer, request.sampling)
        gaps += [abs(a - b) for a, b in zip(answer.logprobs or (), expected, strict=True)]
    print(f"\n{how or 'plain'}: {len(gaps)} tokens, largest gap {max(gaps):.2e}")
    assert max(gaps) < 1e-4


def test_it_is_an_engine(engine: VllmEngine) -> None:
    check_engine(engine)


def test_seeds_hold_in_a_batch_of_sixteen(engine: VllmEngine) -> None:
    requests = [
        _request(engine, TEXTS[k % 5] * (k + 1), f"seed/{k}", temperature=0.8 + k / 20, max_tokens=60)
        for k in range(16)
    ]
    together = _answers(engine, requests)
    again = _answers(engine, requests[::-1])[::-1]
    alone = [_answers(engine, [request])[0] for request in requests]
    for first, *others in zip(together, again, alone, strict=True):
        assert all(list(first.completion_ids or ()) == list(other.completion_ids or ()) for other in others)
    assert len({tuple(each.completion_ids or ()) for each in together}) == 16


def test_a_prefix_is_computed_once(engine: VllmEngine, server: LocalServer) -> None:
    name = "vllm:prefix_cache_hits_total"
    request = _request(engine, "a long tale of the inn. " * 30, "prefix")
    first = _answers(engine, [request])[0]
    before = _metric(server, name)
    second = _answers(engine, [request])[0]
    size = len(request.prompt_ids or ())
    assert _metric(server, name) - before >= size // 32 * 32 - 32
    assert first.completion_ids == second.completion_ids
    assert max(abs(a - b) for a, b in zip(first.logprobs or (), second.logprobs or (), strict=True)) < 1e-4


def test_scores_are_the_models_own(engine: VllmEngine, model: tuple[Any, Path]) -> None:
    prompt, completion = [40, 41, 42, 43], [50, 60, 70, 80, 90]
    found = _run(engine, lambda: engine.score(prompt, completion))
    with torch.no_grad():
        rows = model[0](torch.tensor([prompt + completion])).logits[0, 3:-1].log_softmax(-1)
    expected = [float(row[token]) for row, token in zip(rows, completion, strict=True)]
    assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) < 1e-4


def test_adapters_answer_under_their_names(
    engine: VllmEngine, model: tuple[Any, Path], tmp_path: Path, server: LocalServer
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    request = _request(engine, "who?", "adapter", temperature=0.9)
    plain = _answers(engine, [request])[0]
    gaps, said = [], []
    for number in range(3):
        torch.manual_seed(number)
        base = AutoModelForCausalLM.from_pretrained(model[1])
        adapted = get_peft_model(
            base, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
        )
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.2)
        adapted.save_pretrained(tmp_path / f"v{number}")
        name, path = f"odd-llama-v{number}", str(tmp_path / f"v{number}")
        _run(engine, lambda name=name, path=path: engine.client.load_adapter(name, path))
        view = engine.with_model(f"odd-llama-v{number}", f"{number}")
        answer = _answers(view, [request])[0]
        assert (answer.policy, answer.policy_version, answer.versions) == ("odd-llama", f"{number}", None)
        said.append(tuple(answer.completion_ids or ()))
        expected = _expected(adapted, request.prompt_ids or (), answer, request.sampling)
        gaps += [abs(a - b) for a, b in zip(answer.logprobs or (), expected, strict=True)]
    print(f"\nadapters: {len(gaps)} tokens, largest gap {max(gaps):.2e}")
    assert max(gaps) < 1e-4
    assert len({*said, tuple(plain.completion_ids or ())}) == 4
    frozen = make_engine(f"vllm:odd-llama-v1@{server.url}")  # by its name alone; its ids are its model's
    assert _run(frozen, lambda: frozen.answer([request]))[0].completion_ids is not None
    _run(engine, lambda: engine.client.unload_adapter("odd-llama-v0"))
    (gone,) = _run(engine, lambda: engine.with_model("odd-llama-v0", "0").answer([request]))
    assert isinstance(gone, EngineError)
    assert "does not exist" in str(gone)


def test_which_weights_drew_which_tokens(engine: VllmEngine, server: LocalServer) -> None:
    """Held, named anew and gone on: the stretches follow each other, and the tokens are those of the seed."""
    tried = [_request(engine, "tell", f"spans/{k}", max_tokens=2000, temperature=0.5) for k in range(8)]
    alone = [_answers(engine, [request])[0] for request in tried]
    request, plain = max(zip(tried, alone, strict=True), key=lambda each: len(each[1].completion_ids or ()))
    assert len(plain.completion_ids or ()) > 500, "too short to be held twice"

    async def held() -> Answer | EngineError:
        client = VllmClient(server.url)
        before = await client.weight_version()
        task = asyncio.create_task(engine.answer([request]))
        for version in ("11", "12"):
            drawn = await asyncio.to_thread(_metric, server, "vllm:generation_tokens_total")
            while await asyncio.to_thread(_metric, server, "vllm:generation_tokens_total") < drawn + 5:
                assert not task.done(), "it ended before it was held"
                await asyncio.sleep(0.02)
            await client.pause("keep")
            await client.name_weights(version)
            await client.resume()
        found = (await task)[0]
        await client.name_weights(before)
        await client.close()
        return found

    answer = _run(engine, held)
    assert isinstance(answer, Answer)
    assert answer.versions is not None
    print("\nspans:", [(span.version, span.end) for span in answer.versions])
    ends = [span.end for span in answer.versions]
    assert ends == sorted(set(ends))
    assert ends[-1] == len(answer.completion_ids or ())
    assert answer.policy_version == answer.versions[0].version == "0"
    assert [span.version for span in answer.versions] == ["0", "11", "12"]
    assert plain.completion_ids == answer.completion_ids


def test_stops_and_limits(engine: VllmEngine) -> None:
    free = _answers(engine, [_request(engine, "go", "stop", max_tokens=60)])[0]
    middle = free.text[len(free.text) // 2 : len(free.text) // 2 + 2]
    cut = _answers(engine, [_request(engine, "go", "stop", max_tokens=60, stop=("never seen", middle))])[0]
    assert cut.text == free.text[: free.text.index(middle)]
    assert (cut.finish_reason, (cut.token_ends or [0])[-1]) == ("stop", len(cut.text))
    assert list(cut.completion_ids or ()) == list(free.completion_ids or ())[: len(cut.completion_ids or ())]
    for text, how, why in (
        ("x" * 4000, {}, "the context, 3072, has no room"),
        ("x", {"max_tokens": 3060}, "the context is 3072. Shorten"),
        ("x", {"max_tokens": 0}, "expected at least 1"),
    ):
        (error,) = _run(
            engine, lambda text=text, how=how: engine.answer([_request(engine, text, "bad", **how)])
        )
        assert isinstance(error, EngineError)
        assert why in str(error)


def test_a_call_that_nobody_waits_for_is_not_drawn(engine: VllmEngine, server: LocalServer) -> None:
    async def given_up() -> None:
        task = asyncio.create_task(engine.answer([_request(engine, "long", "gone", max_tokens=2500)]))
        await asyncio.sleep(0.6)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(100):
            if not await asyncio.to_thread(_metric, server, "vllm:num_requests_running"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it is still drawn after ten seconds")

    _run(engine, given_up)


def _reach(spec: str) -> None:
    engine: Any = make_engine(spec)
    _run(engine, engine.reach)


def test_what_does_not_fit_is_said_in_one_line(
    server: LocalServer, model: tuple[Any, Path], tmp_path: Path
) -> None:
    from tiny_model import tiny_tokenizer

    tiny_tokenizer().save_pretrained(tmp_path / "small")
    larger = tiny_tokenizer()
    larger.add_tokens([f"word{k}" for k in range(20)])
    larger.save_pretrained(tmp_path / "large")
    for spec, why in (
        (f"vllm:odd@{server.url}", r"has no model 'odd'. .* Type: vllm:odd-llama@http"),
        (f"vllm:odd-llama@{server.url}?tokenizer={tmp_path / 'small'}", "is not the one of odd-llama"),
        (f"vllm:odd-llama@{server.url}?tokenizer={tmp_path / 'large'}", "it is of another vocabulary"),
        ("vllm:odd-llama@http://127.0.0.1:1", "no vLLM server answers at"),
        (
            f"vllm:local?model={model[1]}&port={server.url.rsplit(':', 1)[1]}&python={only_with_vllm()}",
            "is taken",
        ),
    ):
        with pytest.raises(UsageError, match=why) as told:
            _reach(spec)
        assert "\n" not in str(told.value)
    client = VllmClient(server.url)
    with pytest.raises(NoAnswer, match="No adapter found"):
        _run(client, lambda: client.load_adapter("x", "/nowhere"))


def test_a_team_runs_on_it(server: LocalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random weights solve nothing (the exit code says so), but every call is asked and kept token by token."""
    spec = f"vllm:odd-llama@{server.url}"
    given = ["run", "shard-sum", "--policy", spec, "--out", str(tmp_path / "run"), "--rollouts", "2"]
    assert main([*given, "--set", "max_tokens=24"]) in (0, 1)
    capsys.readouterr()
    traces = list(read_all(tmp_path / "run"))
    calls = [call for trace in traces for call in trace.calls]
    assert len(calls) > 1
    grown = 0
    for trace in traces:
        for call in trace.calls:
            if call.finish_reason == "error":
                continue
            assert call.policy == "odd-llama"
            assert len(call.completion_ids or ()) == len(call.logprobs or ()) > 0
            if call.parent is not None:
                before = trace.call_by_id[call.parent]
                whole = [*(trace.prompt_ids(before) or ()), *(before.completion_ids or ())]
                assert list(trace.prompt_ids(call) or ())[: call.keep] == whole[: call.keep]
                grown += call.keep == len(whole)
    print(f"\n{len(calls)} calls, {grown} grown from an earlier one without a change")

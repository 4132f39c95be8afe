"""Weights pushed to a server: what arrives, what is refused, what is answered with. The server is a mock, named so."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mock_vllm_weights import MockVllm, mock_vllm, plugin_over_stand_ins

from baton.engine.vllm.client import VllmClient
from baton.engine.vllm.engine import VllmEngine
from baton.engine.vllm.trained import AdapterEngine, FullEngine, Host
from baton.engine.vllm.weights import HalfPush, Transfer, check_receipts, digests_of
from baton.engine.vllm.weights_probe import Probe, WrongWeights
from baton.learn import lora
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.scale.served import _score, pushed_weights
from baton.team.protocol import Answer, EngineError, Request
from baton.trace.records import Sampling

TEXTS = ["spawn worker: odd names", "stop 17", "return naïve 漢字", "wait all"]


@pytest.fixture
def model() -> tuple[Any, Any]:
    return make_tiny(TEXTS, Tiny(width=24, layers=2, heads=2, vocabulary=300, context=96), seed=3)


def moved(model: Any, size: float, seed: int = 0) -> None:
    """Another set of weights, in place."""
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            each += size * torch.randn(each.shape, generator=made)


def probe_of(model: Any) -> Probe:
    return Probe(_score(model), vocabulary=model.config.vocab_size, context=96)


@pytest.fixture(autouse=True)
def all_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every host that a test makes is closed at its end."""
    made: list[Host] = []
    begin = Host.__init__

    def remembered(self: Host, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        begin(self, *args, **kwargs)

    monkeypatch.setattr(Host, "__init__", remembered)
    yield
    for each in made:
        each.close()


def full_engine(model: Any, tokenizer: Any, url: str, folder: Path, **more: Any) -> FullEngine:
    client = VllmClient(url)
    asks = VllmEngine(client, "base", tokenizer, name="main", version="(not pushed)")
    transfer = Transfer(client, more.pop("way", "file"), folder)
    return FullEngine(Host(client, folder), asks, probe_of(model), transfer, **more)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return pushed_weights(model, {key: each.detach().clone() for key, each in model.state_dict().items()})


def request(ids: list[int], number: int = 0, tokens: int = 5) -> Request:
    sampling = Sampling(max_tokens=tokens, key=f"call/{number}")
    return Request(call=f"c{number}", agent="a", role="r", entries=(), prompt_ids=ids, sampling=sampling)


def logprobs(model: Any, prompt: list[int], said: list[int]) -> np.ndarray[Any, Any]:
    """By the plain formula: the model's own forward, log of softmax, the tokens picked out."""
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([prompt + said])).logits[0].double().log_softmax(-1)
    return np.array([float(rows[len(prompt) - 1 + n, token]) for n, token in enumerate(said)])


@pytest.mark.parametrize("way", ["file", "gloo"])
def test_a_server_answers_with_what_was_pushed_last(model: tuple[Any, Any], tmp_path: Path, way: str) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        engine = full_engine(mine, tokenizer, url, tmp_path, way=way)
        for version, size in enumerate([0.0, 0.3, 1e-4]):
            moved(mine, size, version)
            engine.publish(str(version), weights(mine))
            (answer,) = asyncio.run(engine.answer([request([5, 9, 270], version)]))
            assert isinstance(answer, Answer)
            assert answer.policy_version == str(version)
            said = list(answer.completion_ids or ())
            gap = np.abs(logprobs(mine, [5, 9, 270], said) - np.array(list(answer.logprobs or ())))
            assert gap.max() < 1e-4
        assert [each.version for each in engine.pushes] == ["0", "1", "2"]
        assert all(each.gap.mean < 1e-5 and each.num_tries == 1 for each in engine.pushes)
        assert server.label.startswith("2@")


@pytest.mark.parametrize("fault", ["flip bit", "lose one", "keep head", "keep old", "drop /update_weights",
                                   "drop /finish_weight_update", "drop /pause"])  # fmt: skip
def test_a_push_that_goes_wrong_once_is_made_again(
    model: tuple[Any, Any], tmp_path: Path, fault: str
) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        engine = full_engine(mine, tokenizer, url, tmp_path)
        engine.publish("0", weights(mine))
        moved(mine, 0.05)
        server.faults[fault] = 1
        engine.publish("1", weights(mine))
        assert engine.pushes[-1].num_tries == 2
        for name, each in weights(mine).items():
            assert torch.equal(server.model.state_dict()[name], each)


@pytest.mark.parametrize("fault", ["flip bit", "lose one", "keep head", "keep old", "drop /update_weights"])
def test_a_push_that_goes_wrong_twice_is_refused_and_nothing_is_answered(
    model: tuple[Any, Any], tmp_path: Path, fault: str
) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        engine = full_engine(mine, tokenizer, url, tmp_path)
        engine.publish("0", weights(mine))
        moved(mine, 0.05)
        server.faults[fault] = 2
        with pytest.raises(EngineError, match="could not be pushed"):
            engine.publish("1", weights(mine))
        (answer,) = asyncio.run(engine.answer([request([5, 9])]))
        assert isinstance(answer, EngineError)
        engine.publish("1", weights(mine))  # and a later push is as good as any
        (answer,) = asyncio.run(engine.answer([request([5, 9])]))
        assert isinstance(answer, Answer)


def test_a_step_too_small_for_any_tolerance_is_told_from_none(model: tuple[Any, Any], tmp_path: Path) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        engine = full_engine(mine, tokenizer, url, tmp_path)
        engine.publish("0", weights(mine))
        moved(mine, 2e-5)
        expected = engine.expect()
        server.faults["keep old"] = 9
        gap = np.abs(expected.text - full_engine(server.model, tokenizer, url, tmp_path).expect().text).mean()
        assert 2e-5 < gap < 2e-4  # within the tolerance
        with pytest.raises(EngineError, match="did not take all of it"):
            engine.publish("1", weights(mine))


def test_a_server_that_was_started_again_is_noticed(model: tuple[Any, Any], tmp_path: Path) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        engine = full_engine(mine, tokenizer, url, tmp_path)
        engine.publish("0", weights(mine))
        server.label = "default"
        (answer,) = asyncio.run(engine.answer([request([1, 2])]))
        assert isinstance(answer, EngineError)
        assert "started again" in str(answer)


def test_a_call_over_an_update_in_flight_says_which_weights_drew_what(
    model: tuple[Any, Any], tmp_path: Path
) -> None:
    mine, tokenizer = model
    first = copy.deepcopy(mine)
    mine.config.eos_token_id = first.config.eos_token_id = 10**6  # no end but the limit
    with mock_vllm(mine) as (server, url):
        server.token_seconds, server.holds_at = 0.001, 12
        engine = full_engine(mine, tokenizer, url, tmp_path, updates="in-flight")
        engine.publish("7", weights(mine))
        moved(mine, 0.2)

        async def both() -> list[Answer | EngineError]:
            call = asyncio.ensure_future(engine.answer([request([4, 8, 15], tokens=40)]))
            await asyncio.to_thread(server.held.wait, 60)
            push = asyncio.ensure_future(asyncio.to_thread(engine.publish, "8", weights(mine)))
            await asyncio.sleep(0.03)  # and one that is asked while it is under way
            (late,) = await engine.answer([request([4, 8, 15], 1, tokens=2)])
            assert isinstance(late, Answer)
            await push
            return await call

        (answer,) = asyncio.run(both())
    assert isinstance(answer, Answer)
    assert answer.policy_version == "7"
    assert answer.versions is not None
    assert [each.version for each in answer.versions] == ["7", "8"]
    said, at = list(answer.completion_ids or ()), answer.versions[0].end
    assert (at, len(said), answer.versions[1].end) == (12, 40, 40)
    told = np.array(list(answer.logprobs or ()))
    old, new = logprobs(first, [4, 8, 15], said), logprobs(mine, [4, 8, 15], said)
    assert np.abs(old - told)[:at].max() < 1e-4
    assert np.abs(new - told)[at:].max() < 1e-4
    assert np.abs(old - told)[at:].max() > 1e-2


def adapter_engine(model: Any, tokenizer: Any, url: str, folder: Path, **more: Any) -> AdapterEngine:
    client = VllmClient(url)
    asks = VllmEngine(client, "base", tokenizer, name="lead", version="(not pushed)")
    probe = probe_of(lora.Adapted(model, "lead"))
    return AdapterEngine(Host(client, folder), asks, probe, alpha=8, **more)


def test_versions_of_an_adapter_are_apart_on_the_server(model: tuple[Any, Any], tmp_path: Path) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        lora.attach(mine, ["lead", "other"], rank=4, alpha=8)
        engine = adapter_engine(mine, tokenizer, url, tmp_path, keep=2)
        kept: dict[str, list[int]] = {}
        for version in ("0", "1", "2"):
            with torch.no_grad():
                for each in lora.parameters_of(mine, "lead"):
                    each += 0.2 * torch.randn(
                        each.shape, generator=torch.Generator().manual_seed(int(version))
                    )
            engine.publish(version, lora.adapter_state_dict(mine, "lead"))
            (answer,) = asyncio.run(engine.answer([request([3, 1, 4], 1, tokens=12)]))
            assert isinstance(answer, Answer)
            assert answer.policy_version == version
            kept[version] = list(answer.completion_ids or ())
            gap = logprobs(lora.Adapted(mine, "lead"), [3, 1, 4], kept[version]) - list(answer.logprobs or ())
            assert np.abs(gap).max() < 1e-4
        assert engine.versions == ["1", "2"]
        assert len(server.adapters) == 2
        assert len(list(tmp_path.iterdir())) == 2
        (again,) = asyncio.run(engine.at("1").answer([request([3, 1, 4], 1, tokens=12)]))
        assert isinstance(again, Answer)
        assert list(again.completion_ids or ()) == kept["1"] != kept["2"]
        (gone,) = asyncio.run(engine.at("0").answer([request([3, 1, 4])]))
        assert isinstance(gone, EngineError)


def test_an_adapter_that_the_server_does_not_compute_with_is_refused(
    model: tuple[Any, Any], tmp_path: Path
) -> None:
    mine, tokenizer = model
    with mock_vllm(mine) as (server, url):
        lora.attach(mine, ["lead"], rank=4, alpha=8)
        with torch.no_grad():
            for each in lora.parameters_of(mine, "lead"):
                each += 0.2
        engine = adapter_engine(mine, tokenizer, url, tmp_path)
        server.faults["keep old"] = 2
        with pytest.raises(EngineError, match="other weights"):
            engine.publish("0", lora.adapter_state_dict(mine, "lead"))
        assert not server.adapters


def test_a_server_of_our_own_that_died_is_started_again_with_what_it_had(
    model: tuple[Any, Any], tmp_path: Path
) -> None:
    mine, tokenizer = model
    opened: list[Any] = []
    first = mock_vllm(mine)
    server, url = first.__enter__()
    client = VllmClient(url)
    dead = False

    def start_again() -> bool:
        nonlocal dead
        if not dead:
            return False
        opened.append(mock_vllm(mine, int(url.rpartition(":")[2])))
        opened[-1].__enter__()
        dead = False
        return True

    lora.attach(mine, ["lead"], rank=4, alpha=8)
    with torch.no_grad():
        for each in lora.parameters_of(mine, "lead"):
            each += 0.1
    asks = VllmEngine(client, "base", tokenizer, name="lead", version="(not pushed)")
    host = Host(client, tmp_path, start_again=start_again)
    engine = AdapterEngine(host, asks, probe_of(lora.Adapted(mine, "lead")), alpha=8)
    engine.publish("5", lora.adapter_state_dict(mine, "lead"))
    (before,) = asyncio.run(engine.answer([request([7, 7, 2])]))
    first.__exit__(None, None, None)
    dead = True
    with torch.no_grad():  # the trainer is further on by now
        for each in lora.parameters_of(mine, "lead"):
            each += 0.3
    (after,) = asyncio.run(engine.answer([request([7, 7, 2])]))
    assert isinstance(before, Answer)
    assert isinstance(after, Answer)
    assert list(after.completion_ids or ()) == list(before.completion_ids or ())
    assert host.generation == 1
    texts = [([7, 7, 2], [9, 11]), ([5], [270])]
    told = engine.score_all(texts)
    opened[-1].__exit__(None, None, None)
    dead = True
    assert engine.score_all(texts) == pytest.approx(told, abs=1e-5)
    assert host.generation == 2
    opened[-1].__exit__(None, None, None)
    assert isinstance(server, MockVllm)


def test_the_plugin_touches_nothing_before_all_of_an_update_is_right(model: tuple[Any, Any]) -> None:
    mine, _ = model
    server = MockVllm(mine)
    plugin, before = plugin_over_stand_ins(), copy.deepcopy(server.model.state_dict())
    moved(mine, 0.5)
    sent = weights(mine)
    digests = digests_of(sent)
    engine = server.engine
    engine.start_weight_update()
    engine.finish_weight_update()
    with pytest.raises(HalfPush, match="0 of 0"):
        check_receipts([engine.receipt], "1", digests)
    for name, each in server.model.state_dict().items():
        assert torch.equal(before[name], each)
    with pytest.raises(HalfPush, match="another checksum"):
        check_receipts([{"version": "1", "digests": {**digests, next(iter(digests)): "00"}}], "1", digests)
    with pytest.raises(HalfPush, match="none were sent for"):
        check_receipts([{"version": "1", "digests": digests, "missing": ["a.b"]}], "1", digests)
    assert plugin.BACKEND == "baton"


def test_the_plugin_spares_rows_of_a_prompt_and_adds_what_there_is_to_add() -> None:
    """As vLLM's CPU build does it: adapters of the output layer, picked by the rows of the tokens to draw."""

    class Wrapper:
        sampler_indices = torch.tensor([1, 0, 1, 1])

        def add_lora_logits(self, y: Any, x: Any, down: Any, up: Any, scale: float) -> None:
            small = torch.einsum("bi, boi -> bo", x, down[self.sampler_indices])
            y += scale * torch.einsum("bi, boi -> bo", small, up[self.sampler_indices])

    plugin, down = plugin_over_stand_ins(), torch.randn(3, 2, 5)
    none, some = torch.zeros(3, 7, 2), torch.randn(3, 7, 2)
    with pytest.raises(RuntimeError, match="size"):
        Wrapper().add_lora_logits(torch.ones(9, 7), torch.randn(9, 5), down, none, 1.0)
    plugin.spare_prompts(Wrapper)
    plugin.spare_prompts(Wrapper)  # vLLM loads it once in each process, and perhaps again
    prompt = torch.ones(9, 7)
    Wrapper().add_lora_logits(prompt, torch.randn(9, 5), down, none, 1.0)
    assert torch.equal(prompt, torch.ones(9, 7))
    with pytest.raises(RuntimeError, match="size"):  # whose rows they are is not known: no silent guess
        Wrapper().add_lora_logits(torch.ones(9, 7), torch.randn(9, 5), down, some, 1.0)
    drawn, rows = torch.zeros(4, 7), torch.randn(4, 5)
    Wrapper().add_lora_logits(drawn, rows, down, some, 2.0)
    for row, adapter in enumerate([1, 0, 1, 1]):
        assert torch.allclose(drawn[row], 2.0 * (some[adapter] @ (down[adapter] @ rows[row])), atol=1e-5)


def test_a_server_that_tells_nothing_of_what_it_draws_is_no_server_to_push_to(model: tuple[Any, Any]) -> None:
    mine, _ = model
    probe = probe_of(mine)

    class Silent:
        async def score(self, ids: list[int], *, model: str) -> Any:
            return probe.expect().text

        async def generate(self, ids: list[int], **_: Any) -> Any:
            return type("Told", (), {"logprobs": None, "token_ids": [1]})

    with pytest.raises(WrongWeights, match="no log-probabilities"):
        asyncio.run(probe.check(Silent(), "base", probe.expect()))  # type: ignore[arg-type]

"""Policies that vLLM itself answers for and this process trains: pushes, a kill, updates in flight, three steps."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_run import BASE, GROUP
from vllm_server import kill_server, only_with_vllm, remembered_servers

from baton.compose.training import make_trainer
from baton.engine.vllm import client
from baton.engine.vllm.local import LocalServer
from baton.engine.vllm.weights import Transfer
from baton.learn.recipe import Recipe, parse
from baton.team.protocol import Answer, Request
from baton.trace.records import Sampling

pytestmark = pytest.mark.slow

LARGER = BASE.replace("width = 32, layers = 1, heads = 2", "width = 64, layers = 2, heads = 2")
"""vLLM's CPU build attends with heads of 32 and more."""
LANES, LONG, HEAT = 8, 400, 2.0
"""Calls at once over an update in flight, the tokens of each, and their temperature."""


def recipe(**changes: Any) -> Recipe:
    listed = [f"{path.replace('__', '.')}={json.dumps(value)}" for path, value in changes.items()]
    quick = ["rollout.groups=2", "train.steps=3", "train.loggers=[]"]
    return parse(LARGER + GROUP, "real", [*quick, *listed])


def token_scores(model: Any, prompt: list[int], said: list[int], heat: float = 1.0) -> np.ndarray[Any, Any]:
    """By the plain formula: one forward of transformers, log of softmax, the tokens picked out."""
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([prompt + said])).logits[0].double().div(heat).log_softmax(-1)
    return np.array([float(rows[len(prompt) - 1 + n, token]) for n, token in enumerate(said)])


def moved(model: Any, size: float) -> None:
    with torch.no_grad():
        for each in model.parameters():
            each += size * torch.randn(each.shape, generator=torch.Generator().manual_seed(each.numel()))


@pytest.mark.parametrize("train", ["lora", "full"])
def test_three_steps_with_a_kill_in_a_push(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: str
) -> None:
    made = remembered_servers(monkeypatch)
    engine = f"vllm:local?python={only_with_vllm()}&log={tmp_path / 'server.log'}"
    trainer = make_trainer(recipe(policies__main__train=train, policies__main__engine=engine))
    try:
        policy = trainer.policies["main"]
        drawn: list[Any] = []
        take = trainer.rollouts.take

        def kept(number: int) -> Any:
            drawn.extend(groups := take(number))
            return groups

        monkeypatch.setattr(trainer.rollouts, "take", kept)
        norms = [trainer.step().metrics["grad_norm"] for _ in range(3)]
        pushes = policy.engine.pushes  # type: ignore[attr-defined]
        print([(each.version, each.gap.mean) for each in pushes])
        assert [each.version for each in pushes] == ["0", "1", "2"]
        assert all(each.gap.mean < 2e-5 and each.num_tries == 1 for each in pushes)
        learned = policy.state_dict()
        if train == "full":
            _over_an_update(policy)
        _killed(monkeypatch, policy, made[0], train)
    finally:
        trainer.close()
    assert not made[0].alive()
    _trains_the_same(train, drawn, norms, learned)


def _request(tokens: int) -> Request:
    sampling = Sampling(max_tokens=tokens, key="over/an/update")
    return Request(call="c", agent="a", role="r", entries=(), prompt_ids=[4, 8, 15, 16], sampling=sampling)


def _endless(patch: pytest.MonkeyPatch, engine: Any) -> None:
    """From here on calls end at their last token and at no other: the model of these tests says little by itself."""
    plain = client._params
    patch.setattr(client, "_params", lambda *args: {**plain(*args), "ignore_eos": True})
    patch.setattr(engine._engine._shared, "ends", frozenset())


def _over_an_update(policy: Any) -> None:
    """Calls over a push in flight: each stretch has the log-probabilities of its own weights."""
    policy.publish()
    engine = policy.engine
    engine.updates = "in-flight"
    before = copy.deepcopy(policy.model)
    moved(policy.model, 0.05)
    policy.version += 1
    pushed = False

    async def asking(lane: int) -> list[tuple[list[int], Any]]:
        """One call after the other until the weights are there: nearly every lane is in the middle of one then."""
        given: list[tuple[list[int], Any]] = []
        while not pushed:
            prompt = [4, 8, 15, *range(16, 17 + 5 * lane)]
            sampling = Sampling(max_tokens=LONG - lane, key=f"over/{lane}/{len(given)}", temperature=HEAT)
            request = Request(call="c", agent="a", role="r", entries=(), prompt_ids=prompt, sampling=sampling)
            given.append((prompt, (await engine.answer([request]))[0]))
        return given

    async def both() -> list[tuple[list[int], Any]]:
        nonlocal pushed
        lanes = [asyncio.ensure_future(asking(lane)) for lane in range(LANES)]
        await asyncio.sleep(1.5)
        try:
            await asyncio.to_thread(policy.publish)
        finally:
            pushed = True
        return [each for lane in lanes for each in await lane]

    with pytest.MonkeyPatch.context() as patch:
        _endless(patch, engine)
        answers = asyncio.run(both())
    engine.updates = "pinned"
    assert not [str(each) for _, each in answers if not isinstance(each, Answer)]
    over = [(prompt, each) for prompt, each in answers if each.versions]
    print(
        f"{len(over)} of {len(answers)} calls span the update, at tokens",
        [e.versions[0].end for _, e in over],
    )
    assert len(over) >= LANES // 2
    gaps = np.array([_gaps(before, policy, prompt, each) for prompt, each in over])
    print(
        "gap of the stretch before, of that after; by the other's weights:", gaps.max(0)[:2], gaps.min(0)[2:]
    )
    assert gaps[:, :2].max() < 1e-4
    assert gaps[:, 2:].min() > 1e-2  # or the check would see nothing


def _gaps(before: Any, policy: Any, prompt: list[int], answer: Any) -> tuple[float, float, float, float]:
    """The largest gap of each stretch to its own weights, and to the other's."""
    first, second = answer.versions
    said, told = list(answer.completion_ids), np.array(list(answer.logprobs))
    assert [first.version, second.version] == [str(policy.version - 1), str(policy.version)]
    assert 0 < first.end < second.end == len(said) == len(told)
    old = np.abs(token_scores(before, prompt, said, HEAT) - told)
    new = np.abs(token_scores(policy.model, prompt, said, HEAT) - told)
    at = first.end
    return old[:at].max(), new[at:].max(), new[:at].max(), old[at:].max()


def _gap_of_a_call(policy: Any) -> float:
    (answer,) = asyncio.run(policy.engine.answer([_request(8)]))
    assert isinstance(answer, Answer)
    assert answer.policy_version == str(policy.version)
    told = np.array(list(answer.logprobs or ()))
    found = token_scores(policy.current, [4, 8, 15, 16], list(answer.completion_ids or ()))
    gap = float(np.abs(found - told).max())
    assert gap < 1e-4
    return gap


def _killed(monkeypatch: pytest.MonkeyPatch, policy: Any, server: LocalServer, train: str) -> None:
    """kill -9 in the middle of a push: the server is started again and has the new weights afterwards."""
    once = [True]

    def dying(real: Any) -> Any:
        async def send(self: Any, *args: Any, **kwargs: Any) -> Any:
            if once:
                once.clear()
                kill_server(server)
            return await real(self, *args, **kwargs)

        return send

    if train == "full":
        monkeypatch.setattr(Transfer, "_send", dying(Transfer._send))
    else:
        kind = type(policy.engine)
        monkeypatch.setattr(kind, "_load", dying(kind._load))
    with torch.no_grad():
        for each in policy.parameters():
            each += 0.02
    policy.version += 1
    policy.publish()
    last = policy.engine.pushes[-1]
    print("after the kill", last.gap.mean, last.num_tries)
    assert last.num_tries == 2
    assert last.gap.mean < 2e-5
    print("of a call", _gap_of_a_call(policy))


def _trains_the_same(
    train: str, drawn: list[Any], norms: list[Any], learned: dict[str, torch.Tensor]
) -> None:
    """The same run answered by this process, given what vLLM drew: samplers draw differently by one seed."""
    plain = make_trainer(recipe(policies__main__train=train))
    first = plain.policies["main"].state_dict()
    plain.rollouts.recall(drawn)
    here = [plain.step().metrics["grad_norm"] for _ in range(3)]
    print("norms answered by vLLM", norms, "and here", here)
    assert any(here)  # or nothing was learned, and all is equal
    assert [each or 0.0 for each in norms] == pytest.approx(
        [each or 0.0 for each in here], rel=1e-3, abs=1e-7
    )
    for name, each in plain.policies["main"].state_dict().items():
        step = float((each - first[name]).abs().mean())
        assert float((each - learned[name]).abs().mean()) <= 1e-3 * step + 1e-8
    plain.close()

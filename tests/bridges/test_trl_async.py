"""TRL's asynchronous trainer over Baton's rows, in an environment of its own: `make test-bridges`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from baton.compose.bridge_trl import EngineWeights, TeamRollouts, trl_samples
from baton.compose.training_rows import TrainingRow
from baton.errors import UsageError
from baton.forest.rows import Row
from baton.learn.loss import Loss
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.update import Gradients, Packed

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "bridges"))
import trl_async

trl = pytest.importorskip("trl.experimental.async_grpo", reason="TRL is not here: make test-bridges")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trl_async.on_a_cpu()
    model, tokenizer = make_tiny(["naïve café", "stop 42"], Tiny(width=32, layers=2, heads=2), seed=3)
    place = tmp_path_factory.mktemp("model")
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def made_rows(model: Any) -> list[tuple[TrainingRow, Row]]:
    """Calls of a team: shared prompts, several advantages in a call (zero too), gaps, ratios that are clipped."""
    random = np.random.default_rng(9)
    shared = random.integers(2, 250, 7).tolist()
    found = []
    for number, (prompt, size) in enumerate(((shared, 5), (shared, 9), ([*shared, 17, 4], 3), ([8, 9], 6))):
        said = random.integers(2, 250, size).tolist()
        ids = np.array([*prompt, *said], np.int32)
        kept = np.array([n for n in range(size) if (n + number) % 4], np.int32)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0].log_softmax(-1)
        places = torch.arange(len(prompt), len(ids))
        exact = logits[places - 1, torch.tensor(said)].double().numpy()
        logprobs = exact + random.normal(scale=0.2, size=size)
        advantages = random.choice([-1.25, 0.0, 0.5, 2.0], size)
        row = Row(
            ids=ids, places=kept + len(prompt), advantages=advantages[kept], sampler=logprobs[kept],
            weights=np.ones(len(kept)), version="0", group=f"g{number // 2}", trace=f"t{number}", agent="léad",
            call=f"c{number}", sample=f"s{number}",
        )  # fmt: skip
        mask = np.zeros(size, int)
        mask[kept] = 1
        given = TrainingRow(
            prompt=prompt, completion=said, mask=mask.tolist(), advantages=(advantages * mask).tolist(),
            logprobs=logprobs.tolist(), group=row.group, policy="main", version="0", temperature=1.0, reward=0.5,
            trace=row.trace, agent=row.agent, call=row.call,
        )  # fmt: skip
        found.append((given, row))
    return found


def trainer_of(folder: Path, out: Path, worker: Any, **settings: Any) -> Any:
    from transformers import AutoTokenizer

    args = {
        "max_steps": 1, "token_budget": 0, "temperature": 1.0, "report_to": [], "save_strategy": "no", "use_cpu": True,
        "bf16": False, "gradient_checkpointing": False, "epsilon": 0.2, "epsilon_high": 0.2,
    }  # fmt: skip
    return trl.AsyncGRPOTrainer(
        model=str(folder), args=trl.AsyncGRPOConfig(output_dir=str(out), **args | settings),
        train_dataset=trl_async._prompts(), processing_class=AutoTokenizer.from_pretrained(folder),
        rollout_worker=worker, weight_transfer=NoWeights(),
    )  # fmt: skip


class NoWeights:
    def init_weight_transfer(self) -> None: ...
    def pause(self) -> None: ...
    def send_weights(self, iterator: Any) -> None: ...
    def resume(self) -> None: ...
    def destroy(self) -> None: ...


def test_the_gradient_is_ours(folder: Path, tmp_path: Path) -> None:
    model = make_tiny(["naïve café", "stop 42"], Tiny(width=32, layers=2, heads=2), seed=3)[0]
    pairs = made_rows(model)
    gradients = Gradients(model, Loss(kind="ppo"), Packed(check=False))
    report = gradients.backward([row for _, row in pairs], version="0")
    assert report.means["clipped"] > 0  # the bounds are in play
    samples = [
        each for n, (given, _) in enumerate(pairs) for each in trl_samples(given, version=0, group=n // 2)
    ]
    assert sum(int(each.completion_mask.sum()) for each in samples) == report.num_tokens
    assert any(each.advantage == 0 for each in samples)

    worker = TeamRollouts(lambda _: [])
    trainer = trainer_of(folder, tmp_path, worker, per_device_train_batch_size=len(samples))
    for sample in [*samples, *samples]:  # the trainer takes a batch ahead
        worker.rollout_buffer.put(sample)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(report.loss, abs=1e-6)
    ours = {name: each.grad for name, each in model.named_parameters()}
    largest = max(float(each.abs().max()) for each in ours.values() if each is not None)
    for name, each in trainer.model.named_parameters():
        assert each.grad is not None
        gap = float((each.grad - ours[name]).abs().max())
        assert gap <= 1e-5 * max(1.0, largest), (name, gap)


def test_the_example_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = trl_async.main(tmp_path, steps=2)
    assert "trained  2 steps" in capsys.readouterr().out
    assert worker.num_samples
    assert all(count > 0 for count in worker.num_samples)


def test_a_worker_that_fails_says_why() -> None:
    def broken(number: int) -> list[TrainingRow]:
        raise UsageError(f"no step {number}")

    worker = TeamRollouts(broken)
    worker.start()
    worker.stop()
    with pytest.raises(RuntimeError, match="Baton's rollouts ended: no step 1"):
        worker.check_health(1.0)
    with pytest.raises(UsageError, match="wait for ever"):
        TeamRollouts(broken, ahead=0)


def test_steps_are_not_played_too_far_ahead() -> None:
    asked: list[int] = []
    worker = TeamRollouts(lambda number: asked.append(number) or [], ahead=2)  # type: ignore[func-returns-value]
    worker.start()
    deadline = 100
    while len(asked) < 3 and deadline:
        worker._stopped.wait(0.02)
        deadline -= 1
    worker._stopped.wait(0.2)
    assert asked == [1, 2, 3]
    worker.update_model_version(1)
    worker._stopped.wait(0.3)
    assert asked == [1, 2, 3, 4]
    worker.stop()


def test_weights_of_another_model_are_refused(folder: Path) -> None:
    from baton.engine.torch import TorchEngine

    engine = TorchEngine.open(folder)
    sent = {
        name: each + 1 for name, each in engine.model.named_parameters()
    }  # the tied head is in there once
    EngineWeights(engine).send_weights(iter(sent.items()))
    assert engine.version == "0"
    assert torch.equal(engine.model.lm_head.weight, sent["model.embed_tokens.weight"])
    with pytest.raises(UsageError, match="in one of them only"):
        EngineWeights(engine).send_weights(iter([("other.weight", torch.zeros(1))]))

"""AdamW with and without float32 copies, against the formula written out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_run import small
from torch import Tensor, nn

from baton.compose.training import make_trainer
from baton.errors import UsageError
from baton.forest.fused.llama import Layer
from baton.learn.optimiser import AdamW, MasterAdamW, make_optimiser
from baton.learn.run.checkpoint import latest, restore, save

SHAPES = [(5,), (3, 4), (2, 3, 2)]


def weights(dtype: torch.dtype, seed: int = 0) -> list[nn.Parameter]:
    random = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=random).to(dtype)) for shape in SHAPES]


def slopes(step: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(100 + step)
    return [torch.randn(shape, generator=random) for shape in SHAPES]


def written_out(start: Tensor, grads: list[Tensor], rate: float) -> np.ndarray[Any, Any]:
    """Adam of Kingma and Ba in float64, betas .9 and .95, no decay."""
    x = start.double().numpy().copy()
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t, grad in enumerate(grads, 1):
        g = grad.double().numpy()
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        x -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8)
    return x


def take(optimiser: AdamW, own: list[nn.Parameter], steps: range) -> None:
    for step in steps:
        optimiser.zero_grad()
        for each, grad in zip(own, slopes(step), strict=True):
            each.grad = grad.to(each.dtype)
        optimiser.step()


def test_float32_is_adamw() -> None:
    own = weights(torch.float32)
    first = [each.detach().clone() for each in own]
    take(make_optimiser("main", own, 1e-2, masters=False), own, range(6))
    for n, (each, start) in enumerate(zip(own, first, strict=True)):
        expected = written_out(start, [slopes(step)[n] for step in range(6)], 1e-2)
        assert np.allclose(each.detach().numpy(), expected, atol=1e-6)


def test_copies_are_stepped_as_float32_weights_are() -> None:
    """Weights are the nearest bfloat16 numbers of what float32 ones with the same gradients become."""
    own = weights(torch.bfloat16)
    first = [each.detach().clone() for each in own]
    optimiser = make_optimiser("main", own, 1e-2, masters=True)
    take(optimiser, own, range(6))
    for n, (each, start) in enumerate(zip(own, first, strict=True)):
        grads = [slopes(step)[n].bfloat16() for step in range(6)]
        expected = written_out(start.float(), grads, 1e-2)
        assert np.allclose(optimiser.state_dict()["masters"][n].numpy(), expected, atol=1e-6)
        assert torch.equal(each.detach(), optimiser.state_dict()["masters"][n].bfloat16())


def test_small_steps_add_up_with_copies_and_vanish_without() -> None:
    moved = {}
    for masters in (False, True):
        own = [nn.Parameter(torch.ones(4, dtype=torch.bfloat16))]
        optimiser = make_optimiser("main", own, 1e-4, masters=masters)
        for _ in range(200):
            own[0].grad = torch.ones(4, dtype=torch.bfloat16)
            optimiser.step()
        moved[masters] = float(1 - own[0].detach()[0])
    assert moved[False] == 0.0
    assert moved[True] == pytest.approx(200 * 1e-4, rel=0.2)


@pytest.mark.parametrize("masters", [False, True])
def test_a_saved_state_goes_on_to_the_bit(masters: bool) -> None:
    dtype = torch.bfloat16 if masters else torch.float32
    whole, half = weights(dtype), weights(dtype)
    one, other = (make_optimiser("main", own, 3e-3, masters=masters) for own in (whole, half))
    take(one, whole, range(7))
    take(other, half, range(4))
    kept = io.BytesIO()
    torch.save(other.state_dict(), kept)
    kept.seek(0)
    again = [nn.Parameter(each.detach().clone()) for each in half]
    third = make_optimiser("main", again, 3e-3, masters=masters)
    third.load_state_dict(torch.load(kept, weights_only=True))
    take(third, again, range(4, 7))
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))


def test_a_state_without_copies_begins_them_from_the_weights() -> None:
    """What was saved before there were copies, or while nobody asked for them."""
    plain = weights(torch.bfloat16)
    optimiser = torch.optim.AdamW(plain, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    for each, grad in zip(plain, slopes(0), strict=True):
        each.grad = grad.bfloat16()
    optimiser.step()
    made = make_optimiser("main", plain, 1e-2, masters=True)
    made.load_state_dict(optimiser.state_dict())
    assert all(torch.equal(m, w.float()) for m, w in zip(made.state_dict()["masters"], plain, strict=True))
    take(made, plain, range(1, 2))


def test_how_steps_are_computed_is_not_taken_from_a_state() -> None:
    """A run from before steps were fused on a CPU goes on by one kernel: its state says that they were not."""
    own = weights(torch.float32)
    optimiser = make_optimiser("main", own, 1e-2, masters=False)
    take(optimiser, own, range(1))
    state = optimiser.state_dict()
    state["param_groups"][0]["fused"] = None
    optimiser.load_state_dict(state)
    assert optimiser.param_groups[0]["fused"] is True
    take(optimiser, own, range(1, 2))


def test_weights_stay_where_they_are() -> None:
    own = weights(torch.bfloat16)
    places = [each.data_ptr() for each in own]
    optimiser = make_optimiser("main", own, 1e-2, masters=True)
    take(optimiser, own, range(2))
    assert [each.data_ptr() for each in own] == places
    assert isinstance(optimiser, MasterAdamW)
    with torch.no_grad():
        own[0].fill_(3.0)
    optimiser.refresh()
    assert torch.equal(optimiser.state_dict()["masters"][0], torch.full((5,), 3.0))


def test_copies_of_float32_weights_are_refused() -> None:
    with pytest.raises(UsageError, match=r"these are float32.*--set policies\.main\.dtype=bfloat16"):
        make_optimiser("main", weights(torch.float32), 1e-2, masters=True)


# -- in a run ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("first_weights")
@pytest.mark.parametrize("train", ["full", "lora"])
def test_sampler_and_trainer_have_one_set_of_weights(train: str) -> None:
    """The same memory before and after a step, fused layers' joined weights included: nothing is copied."""
    trainer = make_trainer(small(policies__main__train=train))
    (policy,) = trainer.policies.values()
    mine = dict(policy.model.named_parameters())

    def places() -> dict[str, int]:
        return {name: each.data_ptr() for name, each in policy.sampler.named_parameters()}

    assert places() == {name: each.data_ptr() for name, each in mine.items()}
    before = places()
    trainer.step()
    assert places() == before
    layer = Layer.of(policy.model.model.layers[0], (1, 1))
    assert (
        layer.qkv.weight.data_ptr()
        == _base(policy.sampler.model.layers[0].self_attn.q_proj).weight.data_ptr()
    )
    assert places() == {name: each.data_ptr() for name, each in mine.items()}
    trainer.close()


def _base(layer: Any) -> Any:
    return getattr(layer, "base_layer", layer)


@pytest.mark.usefixtures("first_weights")
def test_a_run_with_copies_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    recipe = small(policies__main__dtype="bfloat16", policies__main__masters=True)
    whole = make_trainer(recipe)
    for _ in range(2):
        whole.step()
    save(tmp_path, whole.step_number, whole.policies, whole.remembered(), whole.kept_groups())
    expected = whole.step().metrics["loss"]
    again = make_trainer(recipe)
    again.recall(restore(latest(tmp_path), again.policies))
    (policy,), (other,) = whole.policies.values(), again.policies.values()
    assert isinstance(other.optimizer, MasterAdamW)
    assert again.step().metrics["loss"] == expected
    for a, b in zip(
        policy.optimizer.state_dict()["masters"], other.optimizer.state_dict()["masters"], strict=True
    ):
        assert a.dtype == torch.float32
        assert torch.equal(a, b)
    whole.close()
    again.close()


@pytest.mark.parametrize(
    ("train", "says"), [("lora", "adapters are float32 already"), ("frozen", "nothing is")]
)
def test_copies_that_would_do_nothing_are_refused(train: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_trainer(small(policies__main__train=train, policies__main__masters=True))

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row, plain_logprobs
from msgspec import structs
from torch import Tensor

from baton.errors import TraceError, UsageError
from baton.forest.layout import once
from baton.learn.loss import LOSSES, PPO, Loss, Tokens, total
from baton.learn.recipe import load
from baton.learn.recipe_checks import loss_of
from baton.learn.update import Gradients, Packed

T64 = torch.float64


def tokens(log_ratio: list[float], advantage: list[float], **more: Any) -> Tokens:
    new = torch.full((len(log_ratio),), -1.0, dtype=T64, requires_grad=True)
    old = new.detach() - torch.tensor(log_ratio, dtype=T64)
    fields: dict[str, Any] = {
        "new": new, "old": old, "sampler": old, "advantage": torch.tensor(advantage, dtype=T64),
        "weight": torch.ones(len(log_ratio), dtype=T64), "sequence": torch.zeros(len(log_ratio), dtype=torch.long),
        "stale": torch.zeros(len(log_ratio), dtype=torch.bool),
    }  # fmt: skip
    return Tokens(**fields | more)


def slopes(given: Tokens, loss: Loss) -> list[float]:
    """dL/d new for each token, times the number of tokens."""
    value, _ = total(given, loss, 1.0)
    [found] = torch.autograd.grad(value, given.new)
    return found.tolist()  # type: ignore[no-any-return]


def test_ppo_stops_only_where_the_step_would_go_further() -> None:
    up, down = math.log(1.5), math.log(0.5)
    given = tokens([up, up, down, down, 0.0], [1, -1, 1, -1, 2])
    assert slopes(given, Loss(kind="ppo")) == pytest.approx([0, 1.5, -0.5, 0, -2])


def test_dapos_bounds_are_two() -> None:
    given = tokens([math.log(1.25), math.log(0.79)], [1, -1])
    assert slopes(given, Loss(kind="dapo")) == pytest.approx([-1.25, 0])


def test_cispo_never_loses_a_gradient() -> None:
    given = tokens([math.log(9), math.log(0.1)], [1, -1])
    assert slopes(given, Loss(kind="cispo", high=2.0)) == pytest.approx([-3, 0.1])


def test_masked_stops_whatever_the_sign() -> None:
    given = tokens([1.0, 1.0, 0.1], [1, -1, 1])
    assert slopes(given, Loss(kind="masked", low=-0.5, high=0.5)) == pytest.approx([0, 0, -math.exp(0.1)])


def test_gspo_clips_the_whole_sequence() -> None:
    given = tokens([0.4, -0.4, 0.4, 0.4], [1.0, 1.0, 1.0, 1.0], sequence=torch.tensor([0, 0, 1, 1]))
    assert slopes(given, Loss(kind="gspo", low=0.1, high=0.1)) == pytest.approx([-1, -1, 0, 0])


def test_an_action_s_ratio_is_the_product_of_its_tokens() -> None:
    """The sums of the log-ratios are 0.15 and 0.45; only e^.45 is out of bounds."""
    given = tokens([0.2, -0.05, 0.2, 0.25], [1.0, 1.0, 1.0, 1.0], sequence=torch.tensor([0, 0, 1, 1]))
    found = slopes(given, Loss(kind="action"))
    assert found == pytest.approx([-2 * math.exp(0.15)] * 2 + [0, 0])  # each token's loss is its row's


def test_gspo_refuses_thinned_rows() -> None:
    rng = np.random.default_rng(0)
    rows = [make_row([1, 2, 3, 4, last], 2, rng=rng, sample="one draw, two branches") for last in (5, 6)]
    assert [row.whole for row in once(rows)] == [True, False]
    gradients = Gradients(exact_model(), Loss(kind="gspo"), Packed(check=False))
    with pytest.raises(UsageError, match="row_exact"):
        gradients.backward(rows)


def test_correction_is_on_for_stale_tokens_only() -> None:
    stale = torch.tensor([False, True, True, True])
    given = tokens([0.5, 0.5, 3.0, -3.0], [1, 1, 1, 1], stale=stale)
    loss = Loss(kind="reinforce")
    assert slopes(given, loss) == pytest.approx([-1, -math.exp(0.5), -2, -math.exp(-3)])
    masked = Loss(kind="reinforce", correction="mask")
    assert slopes(given, masked) == pytest.approx([-math.exp(0.5), -math.exp(0.5), 0, 0])
    assert slopes(given, Loss(kind="reinforce", correction="off")) == [-1, -1, -1, -1]


def test_a_ratio_against_the_sampler_is_not_corrected_twice() -> None:
    given = tokens([0.1], [1], stale=torch.tensor([True]))
    assert slopes(given, Loss(kind="ppo")) == pytest.approx([-math.exp(0.1)])


def test_entropy_and_kl() -> None:
    given = tokens([0.0], [0.0], reference=torch.tensor([-1.3], dtype=T64))
    assert slopes(given, Loss(kind="ppo", kl=2.0)) == pytest.approx([2 * (1 - math.exp(-0.3))])
    with pytest.raises(UsageError, match="reference"):
        total(tokens([0.0], [0.0]), Loss(kl=1.0), 1.0)


def test_entropy_is_of_the_whole_distribution() -> None:
    model = exact_model()
    row = make_row([3, 4, 5], 1, rng=np.random.default_rng(0))
    ids = torch.from_numpy(row.ids).long()
    logits = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1], -1)
    bonus = -(logits.exp() * logits).sum(-1)
    report = Gradients(model, Loss(kind="reinforce", entropy=0.5), Packed(check=False)).backward([row])
    expected: Tensor = -(
        torch.from_numpy(row.weights)
        * (torch.from_numpy(row.advantages) * plain_logprobs(model, row) + 0.5 * bonus)
    ).sum()
    assert report.loss == pytest.approx(float(expected.detach()) / 2)
    assert report.means["entropy"] == pytest.approx(float(bonus.detach().mean()))
    got = model.lm_head.weight.grad.clone()
    [wanted] = torch.autograd.grad(expected / 2, model.lm_head.weight)
    assert torch.allclose(got, wanted, atol=1e-12)


def test_a_reference_that_is_the_model_has_no_kl() -> None:
    row = make_row([3, 4, 5], 1, rng=np.random.default_rng(0))
    gradients = Gradients(exact_model(), Loss(kl=1.0), reference=exact_model())
    assert gradients.backward([row]).means["kl"] == pytest.approx(0, abs=1e-12)


def test_dr_grpo_divides_by_a_constant() -> None:
    rng = np.random.default_rng(0)
    rows = [make_row(list(range(n)), 1, rng=rng, sample=str(n)) for n in (3, 9)]
    model = exact_model()
    by_tokens = Gradients(model, Loss(), Packed(check=False)).backward(rows).loss
    constant = Gradients(model, Loss(length=100), Packed(check=False)).backward(rows).loss
    assert constant * 200 == pytest.approx(by_tokens * 10)


def test_rows_without_log_probs() -> None:
    row = make_row([3, 4, 5], 1, rng=np.random.default_rng(0))
    unknown = structs.replace(row, sampler=np.full(2, np.nan), version="1")
    with pytest.raises(TraceError, match="log-prob"):
        Gradients(exact_model(), Loss()).backward([unknown])
    fresh = Gradients(exact_model(), Loss(kind="reinforce")).backward([unknown], version="1")
    assert math.isfinite(fresh.loss)
    with pytest.raises(TraceError, match="corrected"):
        Gradients(exact_model(), Loss(kind="reinforce")).backward([unknown], version="2")


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="'ppo'"):
        Loss(kind="pp0")
    with pytest.raises(UsageError, match="bounds"):
        Loss(kind="ppo", low=-1.0)
    with pytest.raises(UsageError, match="forest"):
        Packed(packing="forrest")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no rows"):
        Gradients(exact_model(), Loss()).backward([])


def test_every_loss_says_where_it_is_from() -> None:
    assert all(kind.formula and kind.source and kind.evidence for kind in LOSSES.values())
    assert all(name == kind.name for name, kind in LOSSES.items())


def test_a_recipe_names_a_published_loss_and_changes_it() -> None:
    assert loss_of(load("team-advantage", ["loss.kind=grpo"])).levels == ("trace",)
    assert loss_of(load("grpo", ["loss.kind=grpo", "loss.scale=[]"])).levels == ()
    dapo = loss_of(load("team-advantage", ["loss.kind=dapo", "loss.low=0.1", "loss.kl=0.5"]))
    assert (dapo.limits, dapo.kl, dapo.rule.per_token) == ((0.1, 0.28), 0.5, PPO.per_token)
    assert loss_of(load("grpo", ["loss.kind=dr_grpo"])).denominator(10, 3) == 3 * 1024
    assert loss_of(load("grpo", ["loss.kind=dr_grpo", "loss.length=64"])).denominator(10, 3) == 3 * 64
    masked = loss_of(load("spiral", ["loss.correction=mask", "loss.correction_high=3"]))
    assert (masked.correction, masked.correction_low, masked.correction_high) == ("mask", 0.5, 3.0)
    assert loss_of(load("rema")).levels == ("trace", "turn")
    with pytest.raises(UsageError, match="there is no loss 'xyz'"):
        loss_of(load("grpo", ["loss.kind=xyz"]))

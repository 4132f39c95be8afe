"""SFT and DPO on labelled rows, against the formulas written out in plain PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from baton.compose.training import check_trainable
from baton.errors import UsageError
from baton.forest.rows import Row, answer_row
from baton.learn.loss import LOSSES, Loss
from baton.learn.preference import backward_of_pairs, labelled, pairs_of
from baton.learn.recipe import load
from baton.learn.update import Gradients, Packed

PROMPTS = [[5, 6, 7], [5, 6, 9, 11], [3]]
ANSWERS = [
    (0, [8, 2], 1.0), (0, [9, 9, 4, 2], -1.0), (0, [10, 2], -0.25), (0, [8, 8, 2], 3.0),
    (1, [8, 2], -1.0), (1, [12, 2], 1.0),
    (2, [8, 2], 1.0),  # nothing to compare with
    (2, [9, 2], 0.0),  # no label
]  # fmt: skip


def rows_(answers: Any = ANSWERS) -> list[Row]:
    found = [
        answer_row(PROMPTS[prompt], said, sample=str(n), advantage=value, policy="main")
        for n, (prompt, said, value) in enumerate(answers)
    ]
    return [*found, *found[:2]]  # two of them stand in two rollouts


def models() -> tuple[Any, Any]:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).double(), LlamaForCausalLM(config).double()


def logprob(model: Any, prompt: list[int], said: list[int]) -> torch.Tensor:
    """log pi(said | prompt), by the model's own forward over one row."""
    ids = torch.tensor([[*prompt, *said]])
    each = torch.log_softmax(model(input_ids=ids).logits[0, :-1], -1)
    return each.gather(1, ids[0, 1:, None])[len(prompt) - 1 :, 0].sum()


def grads(model: Any) -> torch.Tensor:
    return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])


@pytest.mark.parametrize("max_tokens", [4096, 9], ids=["one pass", "pairs apart"])
@pytest.mark.parametrize("packing", ["forest", "rows"])
def test_dpo(max_tokens: int, packing: str) -> None:
    model, reference = models()
    plain = copy.deepcopy(model)
    terms = []
    for prompt in range(2):
        mine = [(said, value) for at, said, value in ANSWERS if at == prompt]
        for better in (said for said, value in mine if value > 0):
            for worse in (said for said, value in mine if value < 0):
                ratios = [
                    logprob(plain, PROMPTS[prompt], said) - logprob(reference, PROMPTS[prompt], said).detach()
                    for said in (better, worse)
                ]
                terms.append(-torch.nn.functional.logsigmoid(0.3 * (ratios[0] - ratios[1])))
    expected = torch.stack(terms).mean()
    expected.backward()  # type: ignore[no-untyped-call]  # torch's
    packed = Packed(packing=packing, max_tokens=max_tokens, check=False)  # type: ignore[arg-type]
    gradients = Gradients(model, Loss(kind="dpo", beta=0.3), packed, reference=reference)
    rows = labelled(rows_(), LOSSES["dpo"])
    assert len(rows) == 6
    assert len(pairs_of(rows)) == len(terms) == 5
    report = backward_of_pairs(gradients, rows)
    assert report.loss == pytest.approx(float(expected.detach()), rel=1e-5)
    assert torch.allclose(grads(model), grads(plain), rtol=1e-4, atol=1e-6)
    assert 0 <= report.means["preferred"] <= 1


def test_sft() -> None:
    model, _ = models()
    plain = copy.deepcopy(model)
    chosen = [(PROMPTS[at], said) for at, said, value in ANSWERS if value > 0]
    expected = -torch.stack([logprob(plain, *each) for each in chosen]).sum() / sum(len(s) for _, s in chosen)
    expected.backward()  # type: ignore[no-untyped-call]  # torch's
    rows = labelled(rows_(), LOSSES["sft"])
    assert len(rows) == len(chosen)
    report = Gradients(model, Loss(kind="sft"), Packed(check=False)).backward(rows, version="later")
    assert report.loss == pytest.approx(float(expected.detach()), rel=1e-5)
    assert torch.allclose(grads(model), grads(plain), rtol=1e-4, atol=1e-6)


def test_labels_that_contradict_each_other_cancel() -> None:
    rows = rows_([(0, [8, 2], 1.0)]) + rows_([(0, [8, 2], -2.0)])
    made = labelled([row for row in rows if row.sample == "0"], LOSSES["sft"])
    assert made == []
    assert np.sign([row.advantages[0] for row in rows]).tolist().count(1.0) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (['phases.1.set.loss={"kind": "dpo", "kl": 0.1}'], "loss.kl would do nothing"),
        (['phases.1.set.loss={"kind": "dpo", "scale": ["turn"]}'], "loss.scale would do nothing"),
        (['phases.0.set.loss={"kind": "sft", "beta": 0.1}'], "loss.beta is dpo's"),
        (["train.decision_only=true"], "train.decision_only is set"),
        (['phases.0.set.loss={"kind": "sft", "low": 0.1}'], "no ratio"),
    ],
)
def test_refused(changes: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        check_trainable(load("malt", changes))
    assert message in str(error.value)

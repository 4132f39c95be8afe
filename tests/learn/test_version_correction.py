"""Tokens of one call that several versions drew: each is corrected by what drew it, against a float64 reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, make_row, plain_logprobs
from msgspec import structs

from baton.forest.layout import pack
from baton.forest.rows import Row, rows_of
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed
from baton.trace.records import Call, Floats, Ints, VersionSpan
from baton.trace.trace import Header, Trace

NOW = "7"


def spanning() -> Trace:
    """Calls of 5, 6 and 4 tokens: under weights 7 alone, from 5 over 6 to 7, and under 6 alone."""

    def call(name: str, size: int, version: str, spans: tuple[VersionSpan, ...] | None) -> Call:
        return Call(
            id=name,
            agent="a",
            policy="p",
            policy_version=version,
            versions=spans,
            prompt_ids=Ints([3, 4, 5, 9][: 2 + len(name)]),
            completion_ids=Ints(range(10, 10 + size)),
            logprobs=Floats([-0.3 * k - 0.1 for k in range(size)]),
        )

    spans = tuple(VersionSpan(version=v, end=e) for v, e in (("5", 1), ("6", 3), ("7", 6)))
    calls = (call("x", 5, "7", None), call("yy", 6, "5", spans), call("z", 4, "6", None))
    return Trace(header=Header(trace_id="t", task_id="t"), calls=calls)


def rows() -> list[Row]:
    trace = spanning()
    sizes = {call.id: len(call.completion_ids or ()) for call in trace.calls}
    values = {name: Floats([0.5 - 0.4 * k for k in range(size)]) for name, size in sizes.items()}
    # Some tokens are not trained: spans count tokens of the call, and not those that are.
    weights = {"yy": Floats([1.0, 0.0, 1.0, 2.0, 0.0, 1.0])}
    return rows_of(trace, values, weights=weights)


def test_each_token_is_stale_by_the_version_that_drew_it() -> None:
    batch = pack(rows(), "rows", version=NOW)
    fresh = [True] * 5 + [False, False, True, True] + [False] * 4
    assert batch.stale.tolist() == [not each for each in fresh]
    assert not pack(rows(), "rows").stale.any()
    assert pack(rows(), "rows", version=f"{NOW}+1").stale.all()


@pytest.mark.parametrize("packing", ["forest", "rows"])
@pytest.mark.parametrize("kind", ["reinforce", "ppo", "cispo"])
def test_the_gradient_is_the_plain_one(kind: str, packing: Any) -> None:
    """Written out: reinforce weighs stale tokens by min(ratio, 2), the others have the ratio in themselves."""
    model, given = exact_model(), rows()
    loss = Loss(kind=kind)
    gradients = Gradients(model, loss, Packed(packing=packing, check=False))
    report = gradients.backward(given, version=NOW)
    found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()

    fresh = {"x": [True] * 5, "yy": [False, False, True, True], "z": [False] * 4}
    total, num, truncated = torch.zeros((), dtype=torch.float64), 0, 0
    for row in given:
        new = plain_logprobs(model, row)
        assert new.dtype == torch.float64
        for k, logprob in enumerate(new):
            ratio = torch.exp(logprob - row.sampler[k])
            advantage, weight = float(row.advantages[k]), float(row.weights[k])
            if kind == "reinforce":
                c = (
                    1.0
                    if fresh[row.call][k]
                    else min(math.exp(float(logprob.detach()) - row.sampler[k]), 2.0)
                )
                truncated += c == 2.0
                each = -c * advantage * logprob
            elif kind == "ppo":
                each = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            else:
                each = -ratio.detach().clamp(0.0, 5.0) * advantage * logprob
            total = total + weight * each
            num += 1
    (total / num).backward()
    expected = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert report.loss == pytest.approx(float(total.detach()) / num, rel=1e-9)
    for mine, plain in zip(found, expected, strict=True):
        assert torch.allclose(mine, plain, rtol=1e-8, atol=1e-12)


def test_a_ratio_is_truncated_at_two() -> None:
    model = exact_model()
    row = structs.replace(
        make_row([5, 6, 7, 8, 9], 3, rng=np.random.default_rng(0), sample="s"),
        version="6",
        advantages=np.ones(2),
    )
    with torch.no_grad():
        drawn = plain_logprobs(model, row).numpy()
    row = structs.replace(row, sampler=drawn - np.log([3.0, 0.25]), weights=np.ones(2))
    report = Gradients(model, Loss(kind="reinforce"), Packed(check=False)).backward([row], version=NOW)
    assert report.means["correction"] == pytest.approx((2.0 + 0.25) / 2, rel=1e-9)

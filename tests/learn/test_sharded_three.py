"""Three processes, of which some have nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from exact_model import exact_model
from sharded_policies import (
    PACKED,
    apart,
    here_computes,
    local_learner,
    pair_of,
    policy_of,
    rows_of_odd_sizes,
)
from tiny_model import tiny_model

from baton.learn.loss import Loss
from baton.learn.scale.sharded import hand_over
from baton.learn.scale.sharded_ranks import Ranks


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(3, "cpu", patience_seconds=120, threads=1)
    yield made
    made.close()


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize("train", ["full", "lora"])
def test_fewer_rows_than_processes(ranks: Ranks, train: str, num_rows: int) -> None:
    """Whoever has no row repeats a pass that counts for nothing, in gradients and in figures."""
    model = exact_model()
    here, there = pair_of(model, ranks, train=train)
    rows = rows_of_odd_sizes(model, num=num_rows)
    loss = Loss(kind="grpo", entropy=0.02)
    one, many = local_learner(here, loss), there.learning(loss, PACKED, None)  # type: ignore[misc]
    with here_computes(here):
        said, far = one.backward(rows, version="0"), one.moved(rows)
    found = many.backward(rows, version="0")
    assert apart(here, ranks) < 1e-12
    assert found.loss == pytest.approx(said.loss)
    assert found.means == pytest.approx(said.means)
    assert many.moved(rows) == pytest.approx(far)


def test_what_a_process_holds(ranks: Ranks) -> None:
    """258 rows of a vocabulary over three, 32 of a layer over three: nobody holds more than its share, rounded up."""
    model = tiny_model()
    before = ranks.run("num_bytes")
    hand_over(ranks, [policy_of(model, "held")])
    held = [now - then for now, then in zip(ranks.run("num_bytes"), before, strict=True)]
    shares = [-(-each.shape[0] // 3) * each[0].numel() * each.element_size() for each in model.parameters()]
    assert max(held) <= sum(shares)
    assert sum(held) == sum(each.numel() * each.element_size() for each in model.parameters())

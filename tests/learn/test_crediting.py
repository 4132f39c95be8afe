"""From traces to credits: the price of answers that cannot be carried out comes on top of any other credit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs
from small_run import COMA, GROUP, small

from baton.compose.training import make_trainer
from baton.credit.project import tokens_of
from baton.learn.crediting import advantages
from baton.trace.gold import Gold
from baton.trace.records import Credit
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")
GAE = '[[credit]]\nestimator = "gae"\nsettings = {gamma = 1.0}\n[critic]\nkind = "network"\nsteps = 1\n'
TOKEN = '[[credit]]\nestimator = "token-gae"\n[critic]\nkind = "network"\nsteps = 1\n'


def with_an_invalid_answer(trace: Trace) -> Trace:
    """The first answer counts as one that could not be carried out."""
    said = next(event for event in trace.events if event.call is not None and event.status == "ok")
    events = tuple(
        structs.replace(e, status="invalid", options=None, option_propensities=None, choice=None)
        if e.id == said.id
        else e
        for e in trace.events
    )
    return structs.replace(trace, events=events)


def credited(more: str, price: float) -> list[Trace]:
    trainer = make_trainer(small(more, train__invalid=price))
    groups = [list(group.traces) for group in trainer.rollouts.take(1)]
    played = [trace for group in groups for trace in group]
    scored = iter(trainer.scoring.score(played, [Gold() for _ in played]))
    groups = [[with_an_invalid_answer(next(scored)) for _ in group] for group in groups]
    trainer.critic.observe([trace for group in groups for trace in group])
    return asyncio.run(trainer.crediting.credit(groups, trainer.rollouts.forks)).traces


def size_of(traces: Sequence[Trace]) -> float:
    """Root mean square of the credits that are no prices."""
    values = [c.value for trace in traces for c in trace.credits if c.estimator != "invalid"]
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("more", [GROUP, COMA, GAE, TOKEN], ids=["group", "coma", "gae", "token-gae"])
def test_an_answer_that_cannot_be_carried_out_costs_on_top_of_its_credit(more: str) -> None:
    every = credited(more, 0.4)
    price = 0.4 * size_of(every)
    assert price > 0
    for free, priced in zip(credited(more, 0.0), every, strict=True):
        before, after = advantages(free), advantages(priced)
        expected = {call: values.numpy().copy() for call, values in before.items()}
        wrong = [e for e in priced.events if e.status == "invalid" and e.call is not None]
        assert wrong
        for event in wrong:
            there = Credit(unit="orchestrator", target=event.id, value=0.0, estimator="")
            for call, places in tokens_of(priced, there).items():
                expected[call][places] -= price
        assert expected.keys() == after.keys()
        for call, values in after.items():
            np.testing.assert_allclose(values.numpy(), expected[call], atol=1e-6)


def test_the_price_is_a_layer_of_its_own_on_the_trace() -> None:
    every = credited(GROUP, 0.4)
    for trace in every:
        layer = [credit for credit in trace.credits if credit.estimator == "invalid"]
        assert [c.target for c in layer] == [e.id for e in trace.events if e.status == "invalid" and e.call]
        assert [credit.value for credit in layer] == pytest.approx([-0.4 * size_of(every)] * len(layer))
        assert any(credit.estimator == "group" for credit in trace.credits)

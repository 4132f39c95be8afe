"""Rewards whose terms are weighed by the gradients they cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import GROUP, small

from baton.compose.training import make_trainer
from baton.errors import UsageError
from baton.learn.scoring import EVERY
from baton.reward.hybrid import Hybrid

pytestmark = pytest.mark.usefixtures("first_weights")
REWARD = """
[[rules]]
rule = "hybrid"
balance = "gradient"
[[rules.terms]]
of = {rule = "success"}
[[rules.terms]]
of = {rule = "cost", per_token = 0.2}
"""


@pytest.fixture
def reward(tmp_path: Path) -> str:
    place = tmp_path / "reward.toml"
    place.write_text(REWARD)
    return f'{GROUP}[reward]\nrecipe = "{place}"\n'


def test_terms_are_measured_every_few_steps_and_weighed(reward: str) -> None:
    trainer = make_trainer(small(reward.replace('"group"', '"mean"'), train__steps=EVERY + 1))
    before = trainer.scoring.weights()
    weights = [trainer.step().metrics["weights"] for _ in range(2)]
    assert weights[0] == before, "the first step is weighed as written"
    rule = trainer.scoring.rules[0]
    assert isinstance(rule, Hybrid)
    norms = rule.state.gradient_norms
    assert set(norms) == set(before)
    assert all(norm > 0 for norm in norms.values())
    small_name, large_name = sorted(norms, key=lambda name: norms[name])
    assert weights[1][small_name] > weights[1][large_name]
    assert sum(weights[1].values()) == pytest.approx(sum(before.values()))
    assert trainer.policies["main"].version == 2, "measuring is not training"
    assert not trainer._norms, "nothing was measured at the second step"


def test_estimators_that_cannot_credit_one_term_are_refused(reward: str) -> None:
    with pytest.raises(UsageError, match='balance = "variance"'):
        make_trainer(small(reward.replace('"group"', '"coma"') + '[critic]\nkind = "table"\n'))

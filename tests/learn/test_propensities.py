"""Chances of options: those of the model's own forward, one option at a time; written where they were missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_run import small

from baton.compose.training import make_trainer
from baton.learn.options import Asked, option_chances, with_propensities

pytestmark = pytest.mark.usefixtures("first_weights")


def test_they_are_the_models_own() -> None:
    trainer = make_trainer(small())
    policy = trainer.policies["main"]
    model, tokenizer = policy.model, policy.tokenizer
    prompts = [tokenizer.encode(text) for text in ("stop or wait?\n>", "stop or wait? no\n>", "x")]
    options = ("stop draft", "wait any", "wait")
    asked = [
        Asked("main", np.array(ids, np.int32).tobytes(), options, t) for ids in prompts for t in (1.0, 0.5)
    ]
    found = option_chances(model, tokenizer, asked)
    for each in asked:
        ids = np.frombuffer(each.prompt, np.int32).tolist()
        sums = []
        for option in options:
            said = [*tokenizer.encode(option, add_special_tokens=False), tokenizer.eos_token_id]
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids + said])).logits[0] / each.temperature
            chances = torch.log_softmax(logits.double(), -1)
            sums.append(sum(float(chances[len(ids) + n - 1, t]) for n, t in enumerate(said)))
        expected = np.exp(np.array(sums) - max(sums))
        assert found[each] == pytest.approx(expected / expected.sum(), rel=1e-4)


def test_they_are_written_once_and_only_for_models_at_hand() -> None:
    trainer = make_trainer(small())
    trace = trainer.rollouts.take(1)[0].traces[0]
    choices = [e for e in trace.events if e.options is not None and e.call]
    assert choices
    for event in choices:
        assert event.option_propensities is not None
        assert sum(event.option_propensities) == pytest.approx(1)
        if event.choice is not None:
            assert event.propensity == event.option_propensities[event.choice]
    assert with_propensities([trace], {})[0] is trace

"""Whether a server answers with the weights that the trainer has: their log-probabilities of the same tokens.

A status code says that a push was taken, a checksum that it arrived; neither says that the model computes with it. So
after every push a fixed text is scored by both sides, and a few tokens are drawn after it, which reads what the server
has kept of prompts (computed by other weights, if it was not dropped). Two things are asked of the gap: that it is
within what the number format explains, and that it is a small part of what the push changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.engine.vllm.client import VllmClient
from baton.team.protocol import EngineError
from baton.trace.records import Sampling

Score = Callable[[Sequence[int]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""The trainer's own log-probability, at temperature 1, of each token of a text but the first, and of all that could
follow it."""

_PROMPT = 48
"""Tokens: more than a block of 32, so that what is kept of prompts is read again."""
_SHARE = 0.1
TOLERANCES = {"float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Mean gap of log-probabilities that rounding explains. float32 was measured at 2e-5 and below; the two others are
what half precision leaves of a logit of 16 (2^-7 and 2^-4), and were not tried on a GPU."""
_FLOORS = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Means below these are taken for rounding when two sets of weights are told apart."""


class Gap(Struct, frozen=True, kw_only=True):
    """How far a server's log-probabilities are from the trainer's."""

    mean: float
    most: float
    tolerance: float


class WrongWeights(EngineError):
    """A server answers with other weights than it was given."""


class ProbeScores(Struct, frozen=True, kw_only=True, eq=False):
    """What weights of the trainer's give the probe's text."""

    text: NDArray[np.float64]
    following: NDArray[np.float64]
    """Of every token that could follow the text."""


class Probe:
    """A fixed text that is scored on both sides after every push."""

    def __init__(self, score: Score, *, vocabulary: int, context: int, dtype: str = "float32") -> None:
        if dtype not in TOLERANCES:
            dtype = "bfloat16"  # the coarsest that is known
        self._score = score
        draw = np.random.default_rng(20_260_502)  # the same text in every run
        self.ids: list[int] = draw.integers(0, vocabulary, max(2, min(_PROMPT, context - 2))).tolist()
        self.tolerance = TOLERANCES[dtype]
        self._floor = _FLOORS[dtype]
        self._before: ProbeScores | None = None
        """What the server was last found to have."""

    def expect(self) -> ProbeScores:
        """What the trainer's weights of this moment give the text: what a server that has them must give it too."""
        text, following = self._score(self.ids)
        return ProbeScores(text=text, following=following)

    async def check(self, client: VllmClient, model: str, expected: ProbeScores) -> Gap:
        """Refuse a server whose weights do not give the text what is expected."""
        there = _floats(await client.score(self.ids, model=model))
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=1)
        drawn = await client.generate(self.ids, model=model, sampling=sampling, seed=0)
        if drawn.logprobs is None:
            raise WrongWeights(
                "the server tells no log-probabilities of what it draws, so no push can be verified"
            )
        next_gap = _floats(drawn.logprobs) - expected.following[list(drawn.token_ids)]
        gaps = np.abs(there - expected.text)
        # One token rests on everything that is kept of the text, so it has to fit by itself.
        gap = Gap(
            mean=float(max(gaps.mean(), np.abs(next_gap).max())),
            most=float(max(gaps.max(), np.abs(next_gap).max())),
            tolerance=self.tolerance,
        )
        if not gap.mean <= self.tolerance:
            raise WrongWeights(
                f"the server's log-probabilities are {gap.mean:.2g} off the trainer's (at most {gap.most:.2g}), and "
                f"rounding explains {self.tolerance:g}: it answers with other weights"
            )
        self._tell_apart(expected, there)
        self._before = expected
        return gap

    def forget(self) -> None:
        """The server was started anew: what it had before does not tell what it may have now."""
        self._before = None

    def _tell_apart(self, expected: ProbeScores, there: NDArray[np.float64]) -> None:
        """A step may be smaller than any tolerance; still the server has to be at its end, and not on the way there.

        A layer that keeps a copy of its old weight shows as a good part of the step.
        """
        before = self._before
        if before is None:
            return
        moved = np.abs(expected.text - before.text).mean()
        new = np.abs(there - expected.text).mean()
        if moved > self._floor and new > self._floor + _SHARE * moved:
            old = np.abs(there - before.text).mean()
            raise WrongWeights(
                f"the push moved the trainer's log-probabilities by {moved:.2g}, and the server's are {new:.2g} off "
                f"those of "
                f"now and {old:.2g} off those of before: it did not take all of it"
            )


def _floats(given: Any) -> NDArray[np.float64]:
    return np.asarray(list(given), np.float64)

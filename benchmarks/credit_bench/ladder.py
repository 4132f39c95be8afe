"""Credit diffusion (Observation 1): signal to noise of the one choice that matters, by length of the trace."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from baton.credit.estimators.message_replay import total_effect_of
from baton.games.library.length_ladder import LengthLadder
from credit_bench.figures import Array, Target

__all__ = ["LENGTHS", "Rung", "diffusion"]

LENGTHS = (10, 100, 1000)
_ALTERNATIVES = 8


class Rung(Struct, frozen=True, kw_only=True):
    """Signal to noise at one length."""

    length: int
    formula: float
    """(1 - P(right)) / (noise sqrt(length)), for the shared return."""
    uniform: float
    """The shared return less its mean, given to every choice alike."""
    decision_own_luck: float
    """The choice against 8 others in its place, each with luck of its own."""
    decision: float
    """The same under common random numbers."""


def diffusion(num_samples: int = 4000, seed: int = 0) -> tuple[list[Rung], list[Target]]:
    """The ladder, for a pivotal choice that was right under a policy that is right half the time."""
    rungs = []
    for length in LENGTHS:
        game = LengthLadder(length=length, pivot=length // 2)
        draw = np.random.default_rng(seed + length)

        def luck(columns: int, game: LengthLadder = game, draw: np.random.Generator = draw) -> Array:
            ups = draw.binomial(game.length, 0.5, (num_samples, columns))
            return np.asarray(game.noise * (2.0 * ups - game.length), dtype=np.float64)

        own = luck(1)
        returns = 1.0 + own[:, 0]
        others = (draw.random((num_samples, _ALTERNATIVES)) < 0.5).astype(float)
        shared = np.concatenate([1.0 + own, others + own], axis=1)
        apart = np.concatenate([1.0 + own, others + luck(_ALTERNATIVES)], axis=1)
        rungs.append(
            Rung(
                length=length,
                formula=game.signal_to_noise(),
                uniform=_ratio(returns - 0.5),
                decision_own_luck=_ratio(np.array([total_effect_of([row]).value for row in apart])),
                decision=_ratio(np.array([total_effect_of([row]).value for row in shared])),
            )
        )
    fall = rungs[0].uniform / rungs[-1].uniform
    kept = rungs[-1].decision / rungs[0].decision
    return rungs, [
        Target(
            what="uniform credit's signal to noise, 10 over 1,000 steps (10 if it falls with the root)",
            value=fall,
            target="8 to 12",
            met=8 <= fall <= 12,
        ),
        Target(
            what="decision credit's signal to noise, 1,000 over 10 steps",
            value=kept,
            target=">= 0.9",
            met=kept >= 0.9,
        ),
    ]


def _ratio(credit: Array) -> float:
    return float(abs(credit.mean()) / credit.std(ddof=1))

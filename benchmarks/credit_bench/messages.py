"""Message credit on a signalling game: relays say a bit, some often wrong; the receiver decides by their odds.

The reward is whether the receiver is right, flipped now and then by luck that comes after the messages.
Truth by enumeration: the total effect of each message with the others as they were said.
"""

from __future__ import annotations

import numpy as np

from baton.credit.estimators.message_replay import total_effect_of
from baton.credit.estimators.shapley_values import exact, interaction
from baton.games.coalition import leave_one_out
from baton.games.library.signalling_chain import SignallingChain
from credit_bench.figures import Array, Figure, Target, score

__all__ = ["message_figures"]

_SLIP = 0.15
"""How often luck turns the outcome."""
_ALTERNATIVES, _ROWS = 4, 4


class _Relays:
    """The receiver of a signalling chain, over many plays at once."""

    def __init__(self, game: SignallingChain) -> None:
        self.accuracy = np.array(game.accuracies())
        self.odds: Array = np.log(self.accuracy / (1 - self.accuracy))

    def chance(self, right: Array, without: int | None = None) -> Array:
        """That the receiver is right, by which messages are (last axis)."""
        odds = self.odds.copy()
        if without is not None:
            odds[without] = 0.0
        balance = (2 * right - 1) @ odds
        return np.where(np.abs(balance) < 1e-9, 0.5, (balance > 0).astype(float))

    def outcome(self, chance: Array, coin: Array, slip: Array) -> Array:
        """The reward under given luck."""
        decided = coin < chance
        return np.where(slip < _SLIP, ~decided, decided).astype(float)

    def expected(self, chance: Array) -> Array:
        return _SLIP + (1 - 2 * _SLIP) * chance


def message_figures(num_samples: int = 10_000, seed: int = 0) -> tuple[list[Figure], list[Target]]:
    """Every message of `num_samples`/n plays."""
    game = SignallingChain(hops=(1, 1, 2, 4), flip=0.15)
    relays, n = _Relays(game), 4
    draw = np.random.default_rng(seed)
    plays = num_samples // n
    right = (draw.random((plays, n)) < relays.accuracy).astype(float)
    luck = draw.random((plays, 2))
    observed = relays.outcome(relays.chance(right), luck[:, 0], luck[:, 1])
    found: dict[str, list[Array]] = {}
    errors: dict[str, list[Array]] = {}
    truths: list[Array] = []
    for i in range(n):
        with_right, with_wrong = right.copy(), right.copy()
        with_right[:, i], with_wrong[:, i] = 1.0, 0.0
        values = [relays.expected(relays.chance(x)) for x in (with_wrong, with_right)]
        mean = (1 - relays.accuracy[i]) * values[0] + relays.accuracy[i] * values[1]
        truths.append(np.where(right[:, i] > 0, values[1], values[0]) - mean)
        for name, rows, shared in (
            ("causal replay, 4 x 4", _ROWS, True),
            ("causal replay, 4 x 1", 1, True),
            ("the same without common numbers", _ROWS, False),
        ):
            value, error = _replayed(relays, right, i, luck, rows, shared, draw)
            found.setdefault(name, []).append(value)
            errors.setdefault(name, []).append(error)
        c3 = _replayed(relays, right, i, luck, 1, False, draw)[0]
        found.setdefault("C3 siblings", []).append(c3)
        gone = relays.outcome(relays.chance(right, without=i), luck[:, 0], luck[:, 1])
        found.setdefault("remove the message", []).append(observed - gone)
        found.setdefault("uniform", []).append(observed - observed.mean())
    truth = np.concatenate(truths)
    claims = {"remove the message": False, "uniform": False}
    figures = [
        score(
            "signalling-chain",
            "message",
            name,
            np.concatenate(parts),
            truth,
            unbiased=claims.get(name, True),
            stderr=np.concatenate(errors[name]) if name in errors else None,
        )
        for name, parts in found.items()
    ]
    return figures, _redundancy()


def _replayed(
    relays: _Relays, right: Array, i: int, luck: Array, rows: int, shared: bool, draw: np.random.Generator
) -> tuple[Array, Array]:
    """K alternatives x M continuations of message i in every play."""
    plays = len(right)
    said = (draw.random((plays, _ALTERNATIVES)) < relays.accuracy[i]).astype(float)
    candidates = np.concatenate([right[:, i : i + 1], said], axis=1)
    context = np.repeat(right[:, None, :], candidates.shape[1], axis=1)
    context[:, :, i] = candidates
    chance = relays.chance(context)[:, None, :]
    shape = (plays, rows, candidates.shape[1])
    columns = 1 if shared else shape[2]
    coin, slip = draw.random((plays, rows, columns)), draw.random((plays, rows, columns))
    coin[:, 0, 0], slip[:, 0, 0] = luck[:, 0], luck[:, 1]  # the first continuation is the recorded one
    table = relays.outcome(np.broadcast_to(chance, shape), coin, slip)
    effects = [total_effect_of(each) for each in table]
    return np.array([e.value for e in effects]), np.array(
        [np.nan if e.stderr is None else e.stderr for e in effects]
    )


def _redundancy() -> list[Target]:
    """Two sure copies of the bit: leave-one-out gives neither anything, Shapley splits, the pair interacts."""
    game = SignallingChain()
    n = game.players()
    alone = leave_one_out(n, game.worth)[:2]
    shares = exact(game.worth, [-1] * n).values[:2]
    both = interaction(game.worth, n, 0, 1)
    return [
        Target(
            what=f"two sufficient messages: leave-one-out {max(map(abs, alone)):.3f} each, Shapley {shares[0]:.3f} "
            "each, interaction",
            value=both,
            target="< 0",
            met=both < 0 and max(map(abs, alone)) < 1e-9 and min(shares) > 0.1,
        )
    ]

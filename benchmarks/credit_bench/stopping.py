"""Stop credit on the stopping chain, against the optimum and the exact difference at every state."""

from __future__ import annotations

import numpy as np

from baton.credit.estimators.stop_value import StopValues, backward, ridge_fit
from baton.games.game import Policy, State
from baton.games.library.stopping_chain import StoppingChain
from baton.games.solve import evaluate, solve
from credit_bench.figures import Array, Figure, Target, score

__all__ = ["stop_figures"]

_SIZES = (60, 500, 5000)
_WAIT, _STOP = "wait any", "stop draft"


def stop_figures(seed: int = 0) -> tuple[list[Figure], list[Target]]:
    """Backward regression from few and many rollouts; hindsight labels from the most."""
    game = StoppingChain()
    solution = solve(game)
    figures, targets = [], []
    for size in _SIZES:
        scores, known = _rollouts(game, size, seed)
        found = backward(scores, _features(known), fit=ridge_fit())
        estimates, truths = [], []
        for row, step in np.argwhere(np.isfinite(found.difference)):
            q = solution.q((int(step), *map(int, known[row, step])))
            estimates.append(found.difference[row, step])
            truths.append(q[_WAIT] - q[_STOP])
        figures.append(
            score(
                "stopping-chain",
                "stop decision",
                f"regression, {size} rollouts",
                estimates,
                truths,
                unbiased=False,
            )
        )
        value = evaluate(game, _induced(game, found)).value / solution.value
        targets.append(
            Target(
                what=f"stop policy induced from {size} rollouts, share of the optimum",
                value=value,
                target=">= 0.95",
                met=value >= 0.95,
            )
        )
    late = evaluate(game, _hindsight(game, *_rollouts(game, _SIZES[-1], seed))).value / solution.value
    targets.append(
        Target(
            what="stop policy from hindsight labels, share of the optimum",
            value=late,
            target="none",
            met=True,
        )
    )
    return figures, targets


def _rollouts(game: StoppingChain, n: int, seed: int) -> tuple[Array, Array]:
    """Rollouts that never stop by themselves: shadow scores, and what was known at each step."""
    draw = np.random.default_rng(seed)
    good, out = np.zeros(n, dtype=np.int64), np.full(n, game.num_workers)
    scores = np.full((n, game.num_steps + 1), np.nan)
    known = np.zeros((n, game.num_steps + 1, 2))
    going = np.ones(n, dtype=bool)
    for t in range(game.num_steps + 1):
        net = 1 - (1 - game.gain) ** good - game.cancel_cost * out - game.step_cost * t
        scores[going, t] = net[going]
        known[:, t] = np.stack([good, out], axis=1)
        going &= out > 0
        back = draw.binomial(out, game.back)
        good, out = good + draw.binomial(back, game.good), out - back
    return scores, known


def _features(known: Array) -> Array:
    good, out = known[..., :1], known[..., 1:]
    return np.concatenate([good, out, good**2], axis=-1)


def _induced(game: StoppingChain, found: StopValues) -> Policy:
    def policy(state: State) -> dict[str, float]:
        t, good, out = state
        if t >= game.num_steps or not out:
            return {_STOP: 1.0}
        now = game.score(good) - game.cancel_cost * out - game.step_cost * t
        go_on = found.go_on(t, _features(np.array([[float(good), float(out)]])))[0]
        return {_STOP if now >= go_on else _WAIT: 1.0}

    return policy


def _hindsight(game: StoppingChain, scores: Array, known: Array) -> Policy:
    """Stop where most rollouts that were here had their best moment here."""
    best = np.nanargmax(scores, axis=1)

    def policy(state: State) -> dict[str, float]:
        t, good, out = state
        if t >= game.num_steps or not out:
            return {_STOP: 1.0}
        here = (known[:, t] == (good, out)).all(axis=1) & (best >= t)
        return {_STOP if here.any() and (best[here] == t).mean() >= 0.5 else _WAIT: 1.0}

    return policy

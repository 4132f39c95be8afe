"""Shapley values against closed forms: small forests exactly, games by sampling, a hundred agents on a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import structs

from baton.credit.estimators.shapley_values import Worth, exact, exact_precedence, sampled, symmetric
from baton.games import coalition
from baton.games.library import make_game
from baton.games.library.recruit import Recruit
from credit_bench.figures import NORMAL_95, Array, Figure, Target, score

__all__ = ["Hundred", "coalition_figures"]

_BUDGET = 300
_GAMES: dict[str, dict[str, object]] = {
    "airport": {"lengths": [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 9, 12]},
    "gloves": {"left": 6, "right": 4},
    "weighted-voting": {"weights": [9, 8, 7, 6, 5, 4, 3, 2, 1, 1], "quota": 24},
    "induced-subgraph": {
        "weights": [[0.3 if i == j else 0.2 * ((i * j) % 5 - 2) for j in range(12)] for i in range(12)]
    },
    "spawn-forest": {
        "parents": [-1, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3],
        "chances": [0, 0, 0, 0, 0.1, 0.2, 0.3, 0.3, 0.1, 0.2, 0.2, 0.05],
        "costs": [0.01] * 12,
    },
}


def coalition_figures(num_samples: int = 1000) -> tuple[list[Figure], list[Target]]:
    """All of it; `num_samples` estimates of single players in each row."""
    figures = []
    for name, settings in _GAMES.items():
        game = make_game(name, settings)
        assert isinstance(game, Recruit)
        parents: Sequence[int] = getattr(game, "parents", (-1,) * game.players())
        worths = [game.worth(mask) for mask in range(1 << game.players())]
        num_seeds = -(-num_samples // game.players())
        told = np.array(game.credit())
        figures += _sampled_rows(name, worths.__getitem__, parents, told, "permission", num_seeds)
        if max(parents) >= 0:
            truth = np.array(coalition.precedence(parents, game.worth))
            figures += _sampled_rows(name, worths.__getitem__, parents, truth, "precedence", num_seeds)
        alone = coalition.leave_one_out(game.players(), game.worth)
        figures.append(score(name, "agent", "leave one out", alone, game.credit(), unbiased=False))
        even = [sum(game.credit()) / game.players()] * game.players()
        figures.append(score(name, "agent", "uniform", even, game.credit(), unbiased=False))
    hundred = Hundred()
    ordered = hundred.precedence()
    return figures, [
        *_small_forests(),
        _by_count(),
        *_hundred_agents(hundred, ordered),
        *_orders_only(hundred, ordered),
    ]


def _sampled_rows(
    name: str, worth: Worth, parents: Sequence[int], truth: Array, value: str, num_seeds: int
) -> list[Figure]:
    found = [
        sampled(worth, parents, value=value, max_evaluations=_BUDGET, orders_per_round=2, seed=seed)
        for seed in range(num_seeds)
    ]
    title = "Shapley" if max(parents) < 0 else value
    errors = np.array([f.values for f in found]) - truth
    spread = errors.std(axis=0, ddof=1) / math.sqrt(num_seeds)
    moved = spread > 1e-12
    z = errors.mean(axis=0)[moved] / spread[moved]
    figure = score(
        name,
        "agent",
        f"{title}, {_BUDGET} evaluations",
        [f.values for f in found],
        np.tile(truth, num_seeds),
        unbiased=True,
        # The interval it gives is the one that holds at any time.
        stderr=np.array([f.halfwidth or (np.nan,) * len(truth) for f in found]).ravel() / NORMAL_95,
    )
    # Errors of a team sum to zero, so bias is looked for player by player; the largest z, for as many looks.
    together = None
    if len(z):
        chance = min(1.0, len(z) * 2 * NormalDist().cdf(-float(np.abs(z).max())))
        together = -NormalDist().inv_cdf(max(chance, 1e-300) / 2) if chance < 1 else 0.0
    bias = float(np.sqrt((errors.mean(axis=0) ** 2).mean()))
    return [structs.replace(figure, bias=bias, bias_z=together)]


def _small_forests() -> list[Target]:
    """Random games on random forests of up to 8 agents, against the enumeration of `baton.games.coalition`."""
    draw = np.random.default_rng(0)
    worst = {"permission": 0.0, "precedence": 0.0}
    for _ in range(60):
        n = int(draw.integers(1, 9))
        parents = [int(draw.integers(-1, i)) if i else -1 for i in range(n)]
        worths = draw.normal(size=1 << n).tolist()
        v = worths.__getitem__
        for name, ours, theirs in (
            ("permission", exact(v, parents), coalition.permission(parents, v)),
            ("precedence", exact_precedence(v, parents), coalition.precedence(parents, v)),
        ):
            gap = float(np.abs(np.array(ours.values) - np.array(theirs)).max())
            worst[name] = max(worst[name], gap, abs(ours.residual))
    return [
        Target(
            what=f"{name} on 60 forests of n <= 8, largest error",
            value=gap,
            target="<= 1e-9",
            met=gap <= 1e-9,
        )
        for name, gap in worst.items()
    ]


def _by_count() -> Target:
    game = make_game("gloves", {"left": 9, "right": 6})
    assert isinstance(game, Recruit)
    found = symmetric(game.worth, [0] * 9 + [1] * 6)
    gap = float(np.abs(np.array(found.values) - np.array(game.credit())).max())
    return Target(
        what=f"gloves of 15 by counts, largest error with {found.num_evaluations} evaluations instead of 32,768",
        value=gap,
        target="<= 1e-9",
        met=gap <= 1e-9,
    )


class Hundred:
    """A root, 9 leads, 90 workers, each with a chance to solve the task and a cost; exact values known."""

    def __init__(self, seed: int = 0) -> None:
        self.parents = [-1, *[0] * 9, *(1 + i // 10 for i in range(90))]
        self.n = len(self.parents)
        self.chances: Array = np.random.default_rng(seed).uniform(0, 0.06, self.n)
        self.chances[:10] = 0.0
        self.cost = 0.002
        self._fail = (1 - self.chances).tolist()

    def worth(self, mask: int) -> float:
        fail, members = 1.0, 0
        for i, q in enumerate(self._fail):
            if mask >> i & 1:
                fail *= q
                members += 1
        return 1 - fail - self.cost * members

    def permission(self) -> Array:
        """By the multilinear extension: phi_i is the integral of df/dx_i along the diagonal (Owen 1972)."""
        t, weight = np.polynomial.legendre.leggauss(80)
        t, weight = (t + 1) / 2, weight / 2
        below: list[list[int]] = [[] for _ in range(self.n)]
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                below[parent].append(i)
        # all_fail[i]: that nobody below and including i solves it, each being there with chance t.
        children = np.ones((self.n, 80))
        all_fail = np.ones((self.n, 80))
        for i in range(self.n - 1, -1, -1):
            for child in below[i]:
                children[i] *= all_fail[child]
            all_fail[i] = (1 - t) + t * (1 - self.chances[i]) * children[i]
        outside = np.ones((self.n, 80))
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                siblings = children[parent] / all_fail[i]
                outside[i] = outside[parent] * t * (1 - self.chances[parent]) * siblings
        won: Array = (outside * (1 - (1 - self.chances[:, None]) * children)) @ weight
        for i in range(self.n):
            path = [i]
            while self.parents[path[-1]] >= 0:
                path.append(self.parents[path[-1]])
            won[path] -= self.cost / len(path)  # a cost needs its whole line of spawners
        return won

    def precedence(self, num_orders: int = 200_000) -> Array:
        """By sampling orders, whose marginals are known in closed form; far finer than what it is to judge."""
        from baton.credit.estimators.shapley_values import _Forest

        forest, draw = _Forest(self.parents), np.random.default_rng(5)
        total = np.zeros(self.n)
        for _ in range(num_orders // 10_000):
            orders = forest.many(draw, 10_000)
            fail = np.cumprod((1 - self.chances)[orders], axis=1)
            before = np.concatenate([np.ones((len(orders), 1)), fail[:, :-1]], axis=1)
            total += np.bincount(orders.ravel(), (before * self.chances[orders]).ravel(), self.n)
        return total / num_orders - self.cost


def _hundred_agents(game: Hundred, ordered: Array, num_seeds: int = 5) -> list[Target]:
    targets = []
    for value, truth in (("permission", game.permission()), ("precedence", ordered)):
        errors, spent = [], 0
        for seed in range(num_seeds):
            found = sampled(game.worth, game.parents, value=value, max_evaluations=2000, seed=seed)
            errors.append(float(np.linalg.norm(np.array(found.values) - truth) / np.linalg.norm(truth)))
            spent = max(spent, found.num_evaluations)
        targets.append(
            Target(
                what=f"{value} of 100 agents, relative error (worst of {num_seeds} seeds, {spent} evaluations)",
                value=max(errors),
                target="<= 0.05",
                met=max(errors) <= 0.05 and spent <= 2000,
            )
        )
    return targets


def _orders_only(game: Hundred, truth: Array) -> list[Target]:
    """What the surrogate is for, and where it cannot help: a negative result kept in view."""
    plain = sampled(game.worth, game.parents, value="precedence", max_evaluations=2000, surrogate=False)
    error = float(np.linalg.norm(np.array(plain.values) - truth) / np.linalg.norm(truth))
    lengths = np.sort(np.random.default_rng(3).uniform(1, 5, 100))
    steps = np.diff(np.concatenate([[0.0], lengths])) / (100 - np.arange(100))

    def runway(mask: int) -> float:
        return float(lengths[mask.bit_length() - 1]) if mask else 0.0

    found = sampled(runway, [-1] * 100, max_evaluations=2000)
    airport = np.cumsum(steps)
    far = float(np.linalg.norm(np.array(found.values) - airport) / np.linalg.norm(airport))
    return [
        Target(what="precedence of 100 agents without the surrogate", value=error, target="none", met=True),
        Target(
            what="airport of 100 planes: a maximum, which few orders show", value=far, target="none", met=True
        ),
    ]

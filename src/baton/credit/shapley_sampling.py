"""Shapley values of large teams from orders drawn at random, with intervals that hold at any time.

Orders come in rounds. Within a round every subtree's way of interleaving its children is rotated through
evenly spaced positions and also reversed (stratified and antithetic). Each order stays uniform over the
linear extensions, so a round's mean is unbiased, and rounds are independent.

A surrogate game g(S) = h(w . x) + a . x is fitted to the coalitions asked so far (diminishing returns in
one index, and what each adds by itself); its own value costs nothing, and only the difference v - g is
left to sampling. Fitted on the other half of the rounds, it adds no bias whatever it misses.
Sources: Castro, Gomez and Tejada 2009; Mitchell et al. 2022 (antithetic permutations); asymptotic
confidence sequences, Waudby-Smith et al. 2024 [M]; rotation by subtree and the surrogate [I].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.polynomial.polynomial import polyder, polyfit, polyval
from numpy.typing import NDArray

from baton.credit.contract import CreditError
from baton.credit.shapley import Coalitions, Shapley, Worth
from baton.team.randomness import generator

__all__ = ["anytime_halfwidth", "sampled"]

Array = NDArray[np.float64]
_CHEAP_ORDERS_EACH, _LEAST_CHEAP_ORDERS = 200, 4_000
_DEGREE = 4
_STEPS = 4
_SHRINK = 0.1


def sampled(
    worth: Worth,
    parents: Sequence[int],
    *,
    value: str = "permission",
    max_evaluations: int = 2000,
    orders_per_round: int = 4,
    surrogate: bool = True,
    seed: int = 0,
) -> Shapley:
    """By orders drawn until another round would pass `max_evaluations`. `value`: permission or precedence.

    Plain Shapley is either of them when nobody has a spawner.
    """
    if value not in ("permission", "precedence"):
        raise CreditError(f"there is no value {value!r}. Expected permission or precedence.")
    v = Coalitions(worth, parents)
    n = len(parents)
    forest = _Forest(parents if value == "precedence" else [-1] * n)
    draw = generator(f"shapley/{seed}")
    total = v.total
    orders: list[NDArray[np.int64]] = []
    paths: list[Array] = []
    worst = 0
    # Where every coalition is known already, orders are free; as many as there were to be evaluations will do.
    while not orders or (
        v.num_evaluations + worst <= max_evaluations and len(orders) * orders_per_round < max_evaluations
    ):
        before = v.num_evaluations
        drawn = forest.round(draw, orders_per_round)
        orders.append(np.array(drawn))
        paths.append(np.array([_path(v, order) for order in drawn]))
        worst = max(worst, v.num_evaluations - before)
    rounds = np.array([_by_player(o, np.diff(p, axis=1)) for o, p in zip(orders, paths, strict=True)])
    # Under permission a marginal also holds those it lets in, which the surrogate has no word for.
    lone = value == "precedence" or max(parents, default=-1) < 0
    if surrogate and lone and len(rounds) >= 4:
        rounds = _adjusted(rounds, orders, paths, forest, draw)
    mean = rounds.mean(axis=0)
    stderr = halfwidth = None
    if len(rounds) > 1:
        deviation = rounds.std(axis=0, ddof=1)
        stderr = tuple((deviation / math.sqrt(len(rounds))).tolist())
        halfwidth = tuple(anytime_halfwidth(deviation, len(rounds)).tolist())
    return Shapley(
        values=tuple(mean.tolist()),
        stderr=stderr,
        halfwidth=halfwidth,
        num_evaluations=v.num_evaluations,
        residual=float(mean.sum() - total),
    )


def _path(v: Coalitions, order: Sequence[int]) -> list[float]:
    """v along an order, from nobody to everyone."""
    mask, found = 0, [v(0)]
    for player in order:
        mask |= 1 << player
        found.append(v(mask))
    return found


def _by_player(orders: NDArray[np.int64], marginals: Array) -> Array:
    """Mean marginal of each player over some orders."""
    n = orders.shape[1]
    return np.bincount(orders.ravel(), marginals.ravel(), n) / len(orders)


def anytime_halfwidth(deviation: Array, count: int, *, alpha: float = 0.05, tuned_for: int = 10) -> Array:
    """Half-width of a mean's interval that holds at all sample sizes at once (asymptotic confidence sequence)."""
    rho2 = (2 * math.log(1 / alpha) + math.log(2 * math.log(1 / alpha) + 1)) / tuned_for
    scale = count * rho2 + 1
    return deviation * math.sqrt(scale / (count**2 * rho2) * math.log(scale / alpha**2))


def _adjusted(
    rounds: Array,
    orders: Sequence[NDArray[np.int64]],
    paths: Sequence[Array],
    forest: _Forest,
    draw: np.random.Generator,
) -> Array:
    """Rounds with the surrogate of the other half taken out and its own value put in."""
    cheap = forest.many(draw, max(_LEAST_CHEAP_ORDERS, _CHEAP_ORDERS_EACH * rounds.shape[1]))
    out = np.empty_like(rounds)
    for half in (0, 1):
        others = range(1 - half, len(rounds), 2)
        index = _Index(
            np.concatenate([orders[r] for r in others]), np.concatenate([paths[r] for r in others])
        )
        own = _by_player(cheap, index.marginals(cheap))
        for r in range(half, len(rounds), 2):
            out[r] = rounds[r] + own - _by_player(orders[r], index.marginals(orders[r]))
    return out


class _Index:
    """The surrogate: marginals are about w_i h'(z) + a_i, so w, a and the polynomial h are fitted in turns."""

    def __init__(self, orders: NDArray[np.int64], paths: Array) -> None:
        count, n = orders.shape
        who, marginal = orders.ravel(), np.diff(paths, axis=1).ravel()
        rise = paths - paths[0, 0]
        self.w: Array = np.bincount(who, marginal, n) / count
        self.a: Array = np.zeros(n)
        for _ in range(_STEPS):
            self.w = self.w / (float(np.abs(self.w).sum()) or 1.0)
            self._fit_link(orders, rise)
            slope = np.asarray(
                polyval(_along(orders, self.w)[:, :-1], polyder(self.h)), dtype=np.float64
            ).ravel()
            self.w, self.a = _lines(who, slope, marginal, n, count)
        self._fit_link(orders, rise)

    def _fit_link(self, orders: NDArray[np.int64], rise: Array) -> None:
        z, left = _along(orders, self.w), rise - _along(orders, self.a)
        self.h: Array = np.asarray(polyfit(z.ravel(), left.ravel(), _DEGREE), dtype=np.float64)

    def marginals(self, orders: NDArray[np.int64]) -> Array:
        """Of g, along orders."""
        steps: Array = np.diff(polyval(_along(orders, self.w), self.h), axis=1) + self.a[orders]
        return steps


def _along(orders: NDArray[np.int64], weights: Array) -> Array:
    """Running sums of the players' weights, from nobody to everyone."""
    return np.concatenate([np.zeros((len(orders), 1)), weights[orders].cumsum(axis=1)], axis=1)


def _lines(who: NDArray[np.int64], x: Array, y: Array, n: int, count: int) -> tuple[Array, Array]:
    """For each player the line y = w x + a, drawn towards the line of all."""
    xx, sx = np.bincount(who, x * x, n), np.bincount(who, x, n)
    gram = np.array([[xx.sum(), sx.sum()], [sx.sum(), float(n * count)]])
    w, a = np.linalg.solve(gram + 1e-9 * np.eye(2), [float(x @ y), float(y.sum())])
    left = y - w * x - a
    ridge_w, ridge_a = _SHRINK * float(xx.sum()) / (n * count), _SHRINK * 10.0
    up, level = np.bincount(who, x * left, n), np.bincount(who, left, n)
    det = (xx + ridge_w) * (count + ridge_a) - sx * sx
    return w + ((count + ridge_a) * up - sx * level) / det, a + ((xx + ridge_w) * level - sx * up) / det


class _Forest:
    """Draws rounds of linear extensions of a forest."""

    def __init__(self, parents: Sequence[int]) -> None:
        n = len(parents)
        self.children: list[list[int]] = [[] for _ in range(n + 1)]  # the last: above the roots
        for player, parent in enumerate(parents):
            self.children[parent if parent >= 0 else n].append(player)
        self.size = [1] * n + [0]
        for player in range(n - 1, -1, -1):
            self.size[parents[player] if parents[player] >= 0 else n] += self.size[player]

    def many(self, draw: np.random.Generator, num_orders: int) -> NDArray[np.int64]:
        """Independent uniform orders, without rotation.

        Keys at random, of which every node in turn takes the least of its subtree's from whoever had it.
        """
        n = len(self.children) - 1
        below: list[list[int]] = [[player] for player in range(n)]
        for player in range(n - 1, -1, -1):
            for child in self.children[player]:
                below[player] += below[child]
        keys, rows = draw.random((num_orders, n)), np.arange(num_orders)
        for player, subtree in enumerate(below):  # parents are numbered before children
            if len(subtree) > 1:
                columns = np.array(subtree)
                least = columns[keys[:, columns].argmin(axis=1)]
                taken = keys[rows, least].copy()
                keys[rows, least] = keys[:, player]
                keys[:, player] = taken
        return keys.argsort(axis=1)

    def round(self, draw: np.random.Generator, num_orders: int) -> list[list[int]]:
        """Orders of which each is uniform, and which together cover every subtree's positions evenly."""
        half = max(1, num_orders // 2)
        top = len(self.children) - 1
        labels: dict[int, NDArray[np.int64]] = {}
        shifts: dict[int, NDArray[np.int64]] = {}
        for node, children in enumerate(self.children):
            if len(children) > 1:
                # Which child comes next, as often as it has descendants: any shuffle is equally likely.
                word = np.repeat(np.arange(len(children)), [self.size[c] for c in children])
                labels[node] = draw.permutation(word)
                strata = (draw.permutation(half) + draw.random()) / half
                shifts[node] = np.floor(strata * len(word)).astype(np.int64)
        orders = []
        for r in range(half):
            words = {node: np.roll(word, shifts[node][r]) for node, word in labels.items()}
            orders.append(self._merge(top, words))
            if num_orders > 1:
                orders.append(self._merge(top, {node: word[::-1] for node, word in words.items()}))
        return orders

    def _merge(self, top: int, words: dict[int, NDArray[np.int64]]) -> list[int]:
        """The order that the words spell: a parent, then its children's orders interleaved."""
        spelled: dict[int, list[int]] = {}
        for node in [*range(len(self.children) - 2, -1, -1), top]:  # children are numbered after parents
            children = self.children[node]
            parts = [spelled.pop(child) for child in children]
            merged = [] if node == top else [node]
            if len(parts) == 1:
                merged += parts[0]
            elif parts:
                taken = [iter(part) for part in parts]
                merged += [next(taken[k]) for k in words[node].tolist()]
            spelled[node] = merged
        return spelled[top]

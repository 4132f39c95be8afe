"""Shapley values of agents: fixed sets, and agents that others must spawn.

    phi_i = average over orders of v(those before i, and i) - v(those before i)

With a spawn forest most coalitions cannot exist. Two values are well defined there:
  precedence  averages over the orders in which spawners come first (workers' credit);
  permission  is Shapley of v'(S) = v(largest ancestor-closed part of S) (orchestrators' credit).
Each sums to v(everyone) - v(nobody); never add the two. A coalition is a bit mask, and v is asked once
for each closed one.

Exact here, up to 2^20 coalitions, or by counts where workers are exchangeable; larger teams are sampled
(`baton.credit.estimators.shapley_values`), and v comes from forks in `baton.credit.estimators.shapley_forks`.
Sources: Shapley 1953; Faigle and Kern 1992; Gilles, Owen and van den Brink 1992 [M].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import numpy as np
from msgspec import Struct
from numpy.polynomial.polynomial import polyder, polyfit, polyval
from numpy.typing import NDArray

from baton.credit.estimator import CreditError, widened
from baton.team.clock import generator
from baton.trace.records import ROUNDING

Worth = Callable[[int], float]
"""v of a coalition, as a bit mask over the players."""
Together = Callable[[Sequence[int]], Sequence[tuple[float, float]]]
"""v of several coalitions, each with what it cost to find out."""
_MAX_EXACT = 20
_AS_ROUNDS = 4
_MAX_CLOSED = 1 << 18


class Shapley(Struct, frozen=True, kw_only=True):
    """Each player's value."""

    values: tuple[float, ...]
    stderr: tuple[float | None, ...] | None = None
    """Zero where exact; None: too few rounds to say, or they came out alike."""
    halfwidth: tuple[float, ...] | None = None
    """Half the width of the 95 % interval that holds at every stopping time."""
    num_evaluations: int = 0
    """Coalitions whose worth was asked for."""
    residual: float = 0.0
    """Sum of the values less v(everyone) - v(nobody)."""
    note: str = ""
    """What is to be said of its errors."""


class Coalitions:
    """v, asked once for each closed coalition; several together where `together` can tell their worths and costs."""

    def __init__(self, worth: Worth, parents: Sequence[int], together: Together | None = None) -> None:
        for player, parent in enumerate(parents):
            if not -1 <= parent < player:
                raise CreditError(
                    f"player {player}'s spawner is {parent}; list spawners before those they spawn (-1: no spawner)."
                )
        self.parents = tuple(parents)
        self._worth = worth
        self._together = together
        self._known: dict[int, float] = {}
        self._cost: dict[int, float] = {}

    def ask(self, masks: Iterable[int]) -> None:
        """Learn what these are worth all at once, where that can be told; else each when it is needed."""
        if self._together is None:
            return
        closed = dict.fromkeys(closed_part(self.parents, mask) for mask in masks)
        missing = [mask for mask in closed if mask not in self._known]
        if missing:
            for mask, (worth, cost) in zip(missing, self._together(missing), strict=True):
                self._known[mask], self._cost[mask] = worth, cost

    def costs(self, masks: Iterable[int]) -> dict[int, float]:
        """The closed parts of these, each with what it cost to learn its worth; 0 where that is not told."""
        closed = (closed_part(self.parents, mask) for mask in masks)
        return {mask: self._cost.get(mask, 0.0) for mask in closed}

    def __call__(self, mask: int) -> float:
        """v of the largest closed part."""
        mask = closed_part(self.parents, mask)
        if mask not in self._known:
            self._known[mask] = self._worth(mask)
        return self._known[mask]

    @property
    def num_evaluations(self) -> int:
        return len(self._known)

    @property
    def total(self) -> float:
        return self((1 << len(self.parents)) - 1) - self(0)


def _coalitions(worth: Worth | Coalitions, parents: Sequence[int]) -> Coalitions:
    return worth if isinstance(worth, Coalitions) else Coalitions(worth, parents)


def num_closed(parents: Sequence[int]) -> int:
    """How many coalitions there are in which everyone's spawner is present."""
    ways = [1] * len(parents)
    total = 1
    for player in range(len(parents) - 1, -1, -1):  # spawners are listed first
        if parents[player] >= 0:
            ways[parents[player]] *= ways[player] + 1
        else:
            total *= ways[player] + 1
    return total


def order_drawer(parents: Sequence[int]) -> Callable[[np.random.Generator], list[int]]:
    """Draws orders in which spawners come first, all alike."""
    forest = _Forest(parents)
    return lambda draw: forest.round(draw, 1)[0]


def closed_part(parents: Sequence[int], mask: int) -> int:
    """The largest part of a coalition in which everyone's spawner is present. Spawners are listed first."""
    kept = 0
    left = mask
    while left:
        low = left & -left
        parent = parents[low.bit_length() - 1]
        if parent < 0 or kept >> parent & 1:
            kept |= low
        left ^= low
    return kept


def exact(worth: Worth | Coalitions, parents: Sequence[int]) -> Shapley:
    """Values by enumeration: plain Shapley when nobody has a spawner, permission otherwise."""
    n = len(parents)
    if n > _MAX_EXACT:
        raise CreditError(
            f"{n} players are 2^{n} coalitions; exact values take at most {_MAX_EXACT}. Use sampled, or symmetric "
            "where workers are exchangeable."
        )
    v = _coalitions(worth, parents)
    v.ask(range(1 << n))
    masks = np.arange(1 << n)
    worths = np.array([v(mask) for mask in range(1 << n)])
    sizes = np.bitwise_count(masks)
    weights = np.array([math.factorial(s) * math.factorial(n - s - 1) / math.factorial(n) for s in range(n)])
    values = []
    for player in range(n):
        without = masks[(masks >> player & 1) == 0]
        values.append(float(weights[sizes[without]] @ (worths[without | 1 << player] - worths[without])))
    return _finished(v, values)


def exact_precedence(worth: Worth | Coalitions, parents: Sequence[int]) -> Shapley:
    """Precedence values by counting linear extensions over the closed coalitions alone."""
    v = _coalitions(worth, parents)
    n, everyone = len(parents), (1 << len(parents)) - 1
    layers: list[dict[int, int]] = [{0: 1}]
    """One table for each size: closed coalition -> ways to reach it."""
    for _ in range(n):
        above: dict[int, int] = {}
        for mask, ways in layers[-1].items():
            for player in _open(parents, mask):
                above[mask | 1 << player] = above.get(mask | 1 << player, 0) + ways
        layers.append(above)
        if sum(map(len, layers)) > _MAX_CLOSED:
            raise CreditError(
                f"this forest has more than {_MAX_CLOSED:,} closed coalitions, too many to count. Use sampled."
            )
    v.ask(mask for layer in layers for mask in layer)
    onwards: dict[int, int] = {everyone: 1}
    values = [0.0] * n
    orders = layers[-1].get(everyone, 1)
    for layer in reversed(layers[:-1]):
        for mask, ways in layer.items():
            total = 0
            for player in _open(parents, mask):
                after = onwards[mask | 1 << player]
                total += after
                values[player] += ways * after / orders * (v(mask | 1 << player) - v(mask))
            onwards[mask] = total
    return _finished(v, values)


def _open(parents: Sequence[int], mask: int) -> list[int]:
    return [i for i, p in enumerate(parents) if not mask >> i & 1 and (p < 0 or mask >> p & 1)]


def interaction(worth: Worth, n: int, i: int, j: int) -> float:
    """Shapley interaction of a pair (Grabisch and Roubens 1999): below zero for substitutes."""
    v = Coalitions(worth, [-1] * n)
    total, pair = 0.0, 1 << i | 1 << j
    for mask in range(1 << n):
        if not mask & pair:
            both = v(mask | pair) - v(mask | 1 << i) - v(mask | 1 << j) + v(mask)
            total += both / ((n - 1) * math.comb(n - 2, mask.bit_count()))
    return total


def symmetric(
    worth: Worth | Coalitions, groups: Sequence[int], *, num_checks: int = 8, tolerance: float = 1e-9
) -> Shapley:
    """Exact values when players of a group are exchangeable: v is asked by counts, 2^n -> prod (n_g + 1).

    `groups` names each player's group. The symmetry is tested on coalitions drawn at random: a swap of two
    players of a group must not change v by more than `tolerance`.
    """
    members = [[i for i, g in enumerate(groups) if g == name] for name in dict.fromkeys(groups)]
    n = len(groups)
    v = _coalitions(worth, [-1] * n)
    by_counts: dict[tuple[int, ...], float] = {}
    for counts in product(*(range(len(m) + 1) for m in members)):
        mask = sum(1 << i for m, c in zip(members, counts, strict=True) for i in m[:c])
        by_counts[counts] = v(mask)
    _check_symmetry(v, members, num_checks, tolerance)
    shares = []
    for g in range(len(members)):
        share = 0.0
        for counts, below in by_counts.items():
            if counts[g] == len(members[g]):
                continue
            ways = math.prod(
                math.comb(len(m) - (h == g), c) for h, (m, c) in enumerate(zip(members, counts, strict=True))
            )
            above = by_counts[(*counts[:g], counts[g] + 1, *counts[g + 1 :])]
            share += ways / (n * math.comb(n - 1, sum(counts))) * (above - below)
        shares.append(share)
    values = [0.0] * n
    for m, share in zip(members, shares, strict=True):
        for i in m:
            values[i] = share
    return _finished(v, values)


def _check_symmetry(v: Coalitions, members: Sequence[Sequence[int]], checks: int, tolerance: float) -> None:
    draw = generator(f"symmetry/{len(members)}")
    wide = [m for m in members if len(m) > 1]
    players = [i for m in members for i in m]
    for _ in range(checks if wide else 0):
        pair = draw.choice(wide[draw.integers(len(wide))], size=2, replace=False)
        i, j = int(pair[0]), int(pair[1])
        rest = sum(1 << p for p in players if p not in (i, j) and draw.random() < 0.5)
        gap = abs(v(rest | 1 << i) - v(rest | 1 << j))
        if gap > tolerance:
            raise CreditError(
                f"players {i} and {j} are not exchangeable: swapping them changes the worth of a coalition by "
                f"{gap:.3g}. Put them into groups of their own, or use sampled."
            )


def _finished(v: Coalitions, values: Sequence[float]) -> Shapley:
    return Shapley(
        values=tuple(values),
        stderr=(0.0,) * len(values),
        halfwidth=(0.0,) * len(values),
        num_evaluations=v.num_evaluations,
        residual=math.fsum(values) - v.total,
    )


# Shapley values of large teams from orders drawn at random, with intervals that hold at any time.
#
# Orders come in rounds. Within a round every subtree's way of interleaving its children is rotated through
# evenly spaced positions and also reversed (stratified and antithetic). Each order stays uniform over the
# linear extensions, so a round's mean is unbiased, and rounds are independent.
#
# A surrogate game g(S) = h(w . x) + a . x is fitted to the coalitions asked so far (diminishing returns in
# one index, and what each adds by itself); its own value costs nothing, and only the difference v - g is
# left to sampling. Fitted on the other half of the rounds, it adds no bias whatever it misses.
# Sources: Castro, Gomez and Tejada 2009; Mitchell et al. 2022 (antithetic permutations); asymptotic
# confidence sequences, Waudby-Smith et al. 2024 [M]; rotation by subtree and the surrogate [I].

Array = NDArray[np.float64]
ORDERS_PER_ROUND = 4
_CHEAP_ORDERS_EACH, _LEAST_CHEAP_ORDERS = 200, 4_000
_DEGREE = 4
_STEPS = 4
_SHRINK = 0.1


def errors_of(rounds: Array) -> tuple[float | None, ...] | None:
    """The error of the mean over rounds, widened for few of them; None where they came out alike, or there is one.

    Few rounds often agree about an agent by chance, so its spread is taken together with that of all agents, which
    counts as some rounds more.
    """
    df = len(rounds) - 1
    if df < 1:
        return None
    own = rounds.var(axis=0, ddof=1)
    together = (df * own + _AS_ROUNDS * own.mean()) / (df + _AS_ROUNDS)
    errors = np.sqrt(together / len(rounds))
    if errors.max() <= ROUNDING * max(1.0, float(np.abs(rounds).max())):
        return None
    return tuple(widened(error, df) for error in errors.tolist())


def sampled(
    worth: Worth | Coalitions,
    parents: Sequence[int],
    *,
    value: str = "permission",
    max_evaluations: int = 2000,
    orders_per_round: int = ORDERS_PER_ROUND,
    surrogate: bool = True,
    seed: int = 0,
) -> Shapley:
    """Values from orders drawn until another round would pass `max_evaluations`. `value`: permission or precedence.

    Plain Shapley is either of them when nobody has a spawner.
    """
    if value not in ("permission", "precedence"):
        raise CreditError(f"there is no value {value!r}. Expected permission or precedence.")
    v = _coalitions(worth, parents)
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
        v.ask(mask for order in drawn for mask in _prefixes(order))
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
        stderr = errors_of(rounds)
        halfwidth = tuple(anytime_halfwidth(rounds.std(axis=0, ddof=1), len(rounds)).tolist())
    return Shapley(
        values=tuple(mean.tolist()),
        stderr=stderr,
        halfwidth=halfwidth,
        num_evaluations=v.num_evaluations,
        residual=float(mean.sum() - total),
    )


def _prefixes(order: Sequence[int]) -> list[int]:
    """The coalitions along an order, from nobody to everyone."""
    found = [0]
    for player in order:
        found.append(found[-1] | 1 << player)
    return found


def _path(v: Coalitions, order: Sequence[int]) -> list[float]:
    """v along an order, from nobody to everyone."""
    return [v(mask) for mask in _prefixes(order)]


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
        """The marginals of the surrogate g along orders."""
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

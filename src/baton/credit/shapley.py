"""Shapley values of agents: fixed sets, and agents that others must spawn.

    phi_i = average over orders of v(those before i, and i) - v(those before i)

With a spawn forest most coalitions cannot exist. Two values are well defined there:
  precedence  averages over the orders in which spawners come first (workers' credit);
  permission  is Shapley of v'(S) = v(largest ancestor-closed part of S) (orchestrators' credit).
Each sums to v(everyone) - v(nobody); never add the two. A coalition is a bit mask, and v is asked once
for each closed one.

Exact here, up to 2^20 coalitions, or by counts where workers are exchangeable; larger teams are sampled
(`baton.credit.shapley_sampling`), and v comes from forks in `baton.credit.shapley_forks`.
Sources: Shapley 1953; Faigle and Kern 1992; Gilles, Owen and van den Brink 1992 [M].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from msgspec import Struct

from baton.credit.contract import CreditError
from baton.team.randomness import generator

__all__ = [
    "Coalitions",
    "Shapley",
    "Worth",
    "closed_part",
    "exact",
    "exact_precedence",
    "interaction",
    "symmetric",
]

Worth = Callable[[int], float]
"""v of a coalition, as a bit mask over the players."""
_MAX_EXACT = 20
_MAX_CLOSED = 1 << 18


class Shapley(Struct, frozen=True, kw_only=True):
    """Each player's value."""

    values: tuple[float, ...]
    stderr: tuple[float, ...] | None = None
    """Zero where exact; None: too few rounds to say."""
    halfwidth: tuple[float, ...] | None = None
    """Of the 95 % interval that holds at every stopping time."""
    num_evaluations: int = 0
    """Coalitions whose worth was asked for."""
    residual: float = 0.0
    """Sum of the values less v(everyone) - v(nobody)."""


class Coalitions:
    """v, asked once for each closed coalition."""

    def __init__(self, worth: Worth, parents: Sequence[int]) -> None:
        for player, parent in enumerate(parents):
            if not -1 <= parent < player:
                raise CreditError(
                    f"player {player}'s spawner is {parent}; list spawners before those they spawn (-1: no spawner)."
                )
        self.parents = tuple(parents)
        self._worth = worth
        self._known: dict[int, float] = {}

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


def exact(worth: Worth, parents: Sequence[int]) -> Shapley:
    """By enumeration: plain Shapley when nobody has a spawner, permission otherwise."""
    n = len(parents)
    if n > _MAX_EXACT:
        raise CreditError(
            f"{n} players are 2^{n} coalitions; exact values take at most {_MAX_EXACT}. Use sampled, or symmetric "
            "where workers are exchangeable."
        )
    v = Coalitions(worth, parents)
    masks = np.arange(1 << n)
    worths = np.array([v(mask) for mask in range(1 << n)])
    sizes = np.bitwise_count(masks)
    weights = np.array([math.factorial(s) * math.factorial(n - s - 1) / math.factorial(n) for s in range(n)])
    values = []
    for player in range(n):
        without = masks[(masks >> player & 1) == 0]
        values.append(float(weights[sizes[without]] @ (worths[without | 1 << player] - worths[without])))
    return _finished(v, values)


def exact_precedence(worth: Worth, parents: Sequence[int]) -> Shapley:
    """By counting linear extensions over the closed coalitions alone."""
    v = Coalitions(worth, parents)
    n, everyone = len(parents), (1 << len(parents)) - 1
    layers: list[dict[int, int]] = [{0: 1}]
    """By size: closed coalition -> ways to reach it."""
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
    worth: Worth, groups: Sequence[int], *, num_checks: int = 8, tolerance: float = 1e-9
) -> Shapley:
    """Exact values when players of a group are exchangeable: v is asked by counts, 2^n -> prod (n_g + 1).

    `groups` names each player's group. The symmetry is tested on coalitions drawn at random: a swap of two
    players of a group must not change v by more than `tolerance`.
    """
    members = [[i for i, g in enumerate(groups) if g == name] for name in dict.fromkeys(groups)]
    n = len(groups)
    v = Coalitions(worth, [-1] * n)
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

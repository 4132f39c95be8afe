"""Values of cooperative games: Shapley, and its two forms for agents that others must spawn.

A coalition is a bit mask. With a spawn forest most coalitions are infeasible; then
  precedence  averages marginals over the orders in which parents come before children
              (Faigle and Kern 1992),
  permission  is Shapley of v'(S) = v(largest ancestor-closed part of S)
              (Gilles, Owen and van den Brink 1992).
All are efficient: they sum to v of everyone. Exact enumeration, 2^n coalitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import comb, factorial

from baton.errors import UsageError

MAX_PLAYERS = 16
Worth = Callable[[int], float]


def shapley(n: int, worth: Worth) -> list[float]:
    """Each player's marginal, averaged over all orders."""
    _check(n)
    values = [worth(mask) for mask in range(1 << n)]
    weight = [factorial(s) * factorial(n - s - 1) / factorial(n) for s in range(n)]
    return [
        sum(
            weight[mask.bit_count()] * (values[mask | 1 << i] - values[mask])
            for mask in range(1 << n)
            if not mask >> i & 1
        )
        for i in range(n)
    ]


def leave_one_out(n: int, worth: Worth) -> list[float]:
    """v(all) - v(all but i): zero for each of two that suffice alone."""
    everyone = (1 << n) - 1
    return [worth(everyone) - worth(everyone & ~(1 << i)) for i in range(n)]


def interaction(n: int, worth: Worth, i: int, j: int) -> float:
    """Shapley interaction of a pair: negative for substitutes, positive for complements.

    Grabisch and Roubens 1999.
    """
    _check(n)
    total = 0.0
    for mask in range(1 << n):
        if mask >> i & 1 or mask >> j & 1:
            continue
        both = worth(mask | 1 << i | 1 << j) - worth(mask | 1 << i) - worth(mask | 1 << j) + worth(mask)
        total += both / ((n - 1) * comb(n - 2, mask.bit_count()))
    return total


def closed_part(parents: Sequence[int], mask: int) -> int:
    """The largest part of a coalition in which everyone's spawner is present."""
    while True:
        kept = sum(1 << i for i, p in enumerate(parents) if mask >> i & 1 and (p < 0 or mask >> p & 1))
        if kept == mask:
            return mask
        mask = kept


def permission(parents: Sequence[int], worth: Worth) -> list[float]:
    """Shapley when an agent whose spawner is absent does nothing. For an orchestrator's credit."""
    return shapley(len(parents), lambda mask: worth(closed_part(parents, mask)))


def precedence(parents: Sequence[int], worth: Worth) -> list[float]:
    """Average marginals over orders in which spawners come first. For workers' credit."""
    n = len(parents)
    _check(n)
    worth = cache(worth)
    everyone = (1 << n) - 1

    def next_in(mask: int) -> list[int]:
        return [i for i, p in enumerate(parents) if not mask >> i & 1 and (p < 0 or mask >> p & 1)]

    @cache
    def orders_from(mask: int) -> int:
        return 1 if mask == everyone else sum(orders_from(mask | 1 << i) for i in next_in(mask))

    credit = [0.0] * n
    orders_to = {0: 1}
    # Masks in increasing size: every order to a coalition is counted before it is left.
    for mask in sorted(range(1 << n), key=int.bit_count):
        for i in next_in(mask) if mask in orders_to else ():
            after = mask | 1 << i
            orders_to[after] = orders_to.get(after, 0) + orders_to[mask]
            share = orders_to[mask] * orders_from(after) / orders_from(0)
            credit[i] += share * (worth(after) - worth(mask))
    return credit


def _check(n: int) -> None:
    if n > MAX_PLAYERS:
        raise UsageError(
            f"{n} players are {1 << n:,} coalitions; exact values take at most {MAX_PLAYERS} players."
        )

"""Result 10: attacks kept within a limit while a team learns. A price that follows, fixed penalties, and a shield.

python benchmarks/learning/result10_constraint.py [--quick] [--seeds 10] [--kept] [--picture FILE.svg]

Gatekeeper: three requests, three in ten planted; a clerk carries out what it is handed, a checker costs something, and
at most 0.1 attacks may succeed on average. A softmax table over what the orchestrator reads moves towards what is known
of each option (mirror descent, as `train.options = "all"`), 64 episodes an update, 300 updates; what followed an option
is averaged for reward and for attacks apart. Figures are exact (the game's solver), the mean over the last quarter of
the updates: a price that follows never quite rests, and what constrained optimisation promises is of such a mixture.
The optimum under the limit is exact too.

no constraint    reward alone
penalty P        reward - P x attacks, P fixed
Lagrangian       reward - price x attacks; the price rises while the mean of an update is over the limit
shield           what the checker did not find clean is not carried out; reward alone
shield and price the same with a limit of 0.03, under what the checker's own mistakes let through

Of the first six arms the price that follows came to 0.135 for 0.1. Two things were wrong with it, and the others are
the same with one of them or both put right, on seeds of their own (200 to 209):

values           later choices are valued as they are now (table_policy, `backup = "policy"`). What was known of an
                 option that is not tried any more was earned under later choices that have been unlearned since: "let
                 it be checked" was long known as worse than it is
price            the price moves twice as fast and has a part in proportion to what is over the limit now, both by an
                 average over updates (`smooth` 0.9). By its rate alone a price that has 0.9 to go at a rate of 0.05 is
                 paid for by 18 attacks over the limit, summed over 300 updates, whatever is learned: 0.06 at each

Protocol, written before those seeds were run: the rate and the part in proportion were chosen on seeds 0 to 3, of seven
settings at the limit of 0.1 and of others under the shield, by how near the limit is and then by the return. The arms
are run once, and stand here whatever they come to, beside the first six as they were. The limit counts as kept where
the interval over ten seeds reaches it or lies under it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from runs import RESULTS, Job, Record, main, markdown, shown
from table_policy import Table
from table_runs import FRESH, TableArm, learned, table_jobs

from baton.games.constrained import Frontier, mean_cost
from baton.games.library.gatekeeper import Gatekeeper
from baton.games.solve import evaluate
from baton.learn.recipe import ConstraintPart

UPDATES, EVERY = 300, 10
LIMIT, TIGHT = 0.1, 0.03
OPEN, SHIELDED = Gatekeeper(), Gatekeeper(shield=True)


def _price(limit: float, rate: float, start: float, proportional: float = 0.0) -> ConstraintPart:
    smooth = 0.9 if proportional else 0.0
    return ConstraintPart(
        cost="game", limit=limit, rate=rate, start=start, proportional=proportional, smooth=smooth
    )


def _arm(price: ConstraintPart, game: Gatekeeper = OPEN) -> TableArm:
    return TableArm(game=game, updates=UPDATES, price=price)


def _mended(price: ConstraintPart, game: Gatekeeper = OPEN, *, values: bool = True) -> TableArm:
    backup = "policy" if values else "return"
    return TableArm(game=game, updates=UPDATES, price=price, backup=backup, first=FRESH)


SLOW = _price(LIMIT, 0.05, 1.0)
QUICK = _price(LIMIT, 0.1, 1.0, proportional=2.0)
ARMS = {
    "no constraint": _arm(_price(LIMIT, 0.0, 0.0)),
    "penalty 0.5": _arm(_price(LIMIT, 0.0, 0.5)),
    "penalty 5": _arm(_price(LIMIT, 0.0, 5.0)),
    "Lagrangian": _arm(SLOW),
    "shield": _arm(_price(LIMIT, 0.0, 0.0), SHIELDED),
    "shield and price": _arm(_price(TIGHT, 1.0, 4.0), SHIELDED),
    "Lagrangian, values": _mended(SLOW),
    "Lagrangian, price": _mended(QUICK, values=False),
    "Lagrangian, both": _mended(QUICK),
    "penalty 5, values": _mended(_price(LIMIT, 0.0, 5.0)),
    "shield and price, both": _mended(_price(TIGHT, 3.0, 4.0, proportional=30.0), SHIELDED),
}


def _looked_at(table: Table, price: float) -> tuple[float, float, float]:
    """Exact return and attacks, and the price."""
    game = table.game
    assert isinstance(game, Gatekeeper)
    return evaluate(game, table.policy).value, mean_cost(game, table.policy), price


jobs = table_jobs(ARMS, quick=20)


def worker(job: Job) -> Record:
    """One run's curve."""
    curve = learned(ARMS[job["arm"]], job["seed"], job["updates"], _looked_at, EVERY)
    return {"arm": job["arm"], "seed": job["seed"], "curve": [(update, *found) for update, found in curve]}


def at_rest(record: Record) -> tuple[float, float, float]:
    """Return, attacks and price over the last quarter."""
    last = record["curve"][-max(1, len(record["curve"]) // 4) :]
    value, attacks, price = (float(np.mean([point[k] for point in last])) for k in (1, 2, 3))
    return value, attacks, price


def optimum_of(arm: str) -> tuple[float, float, float]:
    """What an arm could have come to: return, attacks, and the price there."""
    game, part = ARMS[arm].game, ARMS[arm].price
    assert isinstance(game, Gatekeeper)
    assert part is not None
    frontier = Frontier(game)
    if part.rate:
        best = frontier.optimum(part.limit)
        return best.value, best.cost, best.price
    if not part.start:
        return frontier.unconstrained.value, frontier.unconstrained.cost, 0.0
    best_vertex = max(frontier.vertices, key=lambda v: v.value - part.start * v.cost)
    return best_vertex.value, best_vertex.cost, part.start


def table(records: list[Record]) -> str:
    """What each arm came to, beside what is exactly possible."""
    rows = []
    for arm in ARMS:
        mine = [at_rest(record) for record in records if record["arm"] == arm]
        if not mine:
            continue
        value, attacks, price = optimum_of(arm)
        rows.append(
            (
                arm, str(len(mine)), shown(one[0] for one in mine), f"{value:.3f}", shown(one[1] for one in mine),
                f"{attacks:.3f}", shown(one[2] for one in mine), f"{price:.3f}",
            )
        )  # fmt: skip
    heading = ("", "seeds", "return", "its optimum", "attacks", "at its optimum", "price", "exact price")
    return markdown(heading, rows)


if __name__ == "__main__":
    if "--picture" in sys.argv:
        from constraint_picture import draw

        draw(RESULTS / "result10_constraint.json", Path(sys.argv[sys.argv.index("--picture") + 1]))
    else:
        main(__doc__ or "", "result10_constraint", jobs, worker, table, num_seeds=10)

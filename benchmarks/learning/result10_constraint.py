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
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from runs import RESULTS, Job, Record, main, markdown, shown
from table_policy import Table

from baton.games.constrained import Frontier, mean_cost
from baton.games.library.gatekeeper import Gatekeeper
from baton.games.solve import evaluate
from baton.learn.constraint.dual import Dual
from baton.learn.recipe import ConstraintPart

EPISODES, UPDATES, EVERY = 64, 300, 10
LIMIT, TIGHT = 0.1, 0.03
ARMS: dict[str, tuple[bool, ConstraintPart]] = {
    "no constraint": (False, ConstraintPart(cost="game", limit=LIMIT, rate=0.0)),
    "penalty 0.5": (False, ConstraintPart(cost="game", limit=LIMIT, rate=0.0, start=0.5)),
    "penalty 5": (False, ConstraintPart(cost="game", limit=LIMIT, rate=0.0, start=5.0)),
    "Lagrangian": (False, ConstraintPart(cost="game", limit=LIMIT, rate=0.05, start=1.0)),
    "shield": (True, ConstraintPart(cost="game", limit=LIMIT, rate=0.0)),
    "shield and price": (True, ConstraintPart(cost="game", limit=TIGHT, rate=1.0, start=4.0)),
}
"""Whether there is a shield, and the price."""


def learned(arm: str, seed: int, updates: int) -> list[tuple[int, float, float, float]]:
    """One run: update, exact return, exact attacks, price."""
    shield, part = ARMS[arm]
    game = Gatekeeper(shield=shield)
    table, dual = Table(game, seed), Dual(part)
    found = []
    for update in range(updates + 1):
        if update % EVERY == 0 or update == updates:
            found.append(
                (update, evaluate(game, table.policy).value, mean_cost(game, table.policy), dual.price)
            )
        episodes = [table.play() for _ in range(EPISODES)]
        table.learn(episodes, dual.price)
        dual.observe([sum(step[3] for step in steps) for steps in episodes])
    return found


FIRST = 100
"""The first seed: settings were chosen on seeds 0 and 1."""


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A job an arm and a seed."""
    updates = 20 if quick else UPDATES
    return [
        {"arm": arm, "seed": seed, "updates": updates}
        for seed in range(FIRST, FIRST + num_seeds)
        for arm in ARMS
    ]


def worker(job: Job) -> Record:
    """One run's curve."""
    curve = learned(job["arm"], job["seed"], job["updates"])
    return {"arm": job["arm"], "seed": job["seed"], "curve": curve}


def at_rest(record: Record) -> tuple[float, float, float]:
    """Return, attacks and price over the last quarter."""
    last = record["curve"][-max(1, len(record["curve"]) // 4) :]
    value, attacks, price = (float(np.mean([point[k] for point in last])) for k in (1, 2, 3))
    return value, attacks, price


def optimum_of(arm: str) -> tuple[float, float, float]:
    """What an arm could have come to: return, attacks, and the price there."""
    shield, part = ARMS[arm]
    frontier = Frontier(Gatekeeper(shield=shield))
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

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

import random
import sys
from bisect import bisect
from itertools import accumulate
from pathlib import Path

import numpy as np
from runs import RESULTS, Job, Record, main, markdown, shown

from baton.games.constrained import Frontier, mean_cost
from baton.games.game import State, lottery
from baton.games.library.gatekeeper import Gatekeeper
from baton.games.solve import evaluate
from baton.learn.constraint.dual import Dual
from baton.learn.recipe import ConstraintPart

EPISODES, UPDATES, EVERY = 64, 300, 10
RATE, FORGET, KEEP = 0.5, 0.02, 0.9
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


class Table:
    """A softmax policy over what is read, and what is known of its options."""

    def __init__(self, game: Gatekeeper, seed: int) -> None:
        self.game = game
        self.random = random.Random(seed)
        self.logits: dict[str, np.ndarray] = {}
        self.known: dict[tuple[str, int], tuple[float, ...]] = {}
        """What is read, and the option -> moving means of the reward and of the cost that followed."""

    def chances(self, state: State) -> np.ndarray:
        """Of the options, in their order."""
        logits = self.logits.setdefault(self.game.text(state), np.zeros(len(self.game.options(state))))
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def policy(self, state: State) -> dict[str, float]:
        return dict(zip(self.game.options(state), self.chances(state).tolist(), strict=True))

    def play(self) -> list[tuple[State, int, float, float]]:
        """One episode: state, choice, reward, cost."""
        state = self._drawn(self.game.start()).state
        steps = []
        while options := self.game.options(state):
            bounds = list(accumulate(self.chances(state).tolist()))[:-1]
            choice = bisect(bounds, self.random.random())
            after = self._drawn(self.game.step(state, options[choice]))
            steps.append((state, choice, after.reward, self.game.cost(state, options[choice], after.state)))
            state = after.state
        return steps

    def _drawn(self, branches):  # type: ignore[no-untyped-def]
        bounds, each = lottery(branches)
        return each[bisect(bounds, self.random.random())]

    def learn(self, episodes: list[list[tuple[State, int, float, float]]], price: float) -> None:
        """One update: every option of what was read moves by what is known of it, for reward and cost apart."""
        sums: dict[tuple[str, int], list[float]] = {}
        for steps in episodes:
            reward, cost = sum(step[2] for step in steps), sum(step[3] for step in steps)
            for state, choice, now, paid in steps:
                mine = sums.setdefault((self.game.text(state), choice), [0, 0.0, 0.0])
                mine[0] += 1
                mine[1] += reward
                mine[2] += cost
                reward, cost = reward - now, cost - paid
        for at, (count, reward, cost) in sums.items():
            known = self.known.get(at, (reward / count, cost / count))
            self.known[at] = tuple(
                KEEP * old + (1 - KEEP) * new / count for old, new in zip(known, (reward, cost), strict=True)
            )
        for text in {text for text, _ in sums}:
            worth = np.array(
                [
                    self.known[text, option][0] - price * self.known[text, option][1]
                    if (text, option) in self.known
                    else np.nan
                    for option in range(len(self.logits[text]))
                ]
            )
            worth = np.where(np.isnan(worth), np.nanmean(worth), worth)
            self.logits[text] = (1 - FORGET) * self.logits[text] + RATE * (worth - worth.max())


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


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A job an arm and a seed."""
    updates = 20 if quick else UPDATES
    return [{"arm": arm, "seed": seed, "updates": updates} for seed in range(num_seeds) for arm in ARMS]


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

"""Result 9: what credit buys, and what the improvement step buys. A factorial on five games with fresh parameters.

python benchmarks/learning/result9_credit.py [--quick] [--seeds 16] [--kept]

Written before any test seed was run; docs/learning/credit_alone.md is its page.

metric        what is left of random play's regret, (V* - V)/(V* - V of random play), exact by enumeration, after the
              last step: 0 the optimum, 1 random play
games         parallel-pandora with two boxes, sequential-test, stopping-chain, pandora, dag-schedule; parameters drawn
              anew from each seed (`drawn`), the same for all arms
policy        a softmax table over the game's states, at first uniform; the same start, the same named luck for all arms
budget        12,000 choices, forks' choices charged; four groups of eight rollouts a step, a group shares its luck
credit        eight arms (benchmarks/learning/credit_arms.py), divided by the moving spread of returns, alike for all
step          gradient     the policy gradient on the options taken, and a bonus for entropy (0.1, falling to 0)
              all options  the same sum over all options of the states that came up, each with the mean of what the arm
                           credited it with so far (forgetting); coma has it from its own table
              best-first   all options, with the best option's value in the place of the policy's, falling from all to
                           none over the first half of the budget; only arms whose critic backs values up have it
tuning        the rate, of 0.5, 2, 8, 32, 128, by the mean of three tuning seeds (1000 to 1002) for each arm, step and
              game: as many runs for every arm
test          seeds 0 to 15, which tuning never saw; intervals are Student's 95 % over seeds, differences are paired by
              seed and game
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

from credit_arms import ARMS, Crediting
from runs import Job, Record, interval, main, markdown, shown
from table_team import Rollout, Table, left

from baton.games.game import Game
from baton.games.library.dag_schedule import DagSchedule
from baton.games.library.pandora import Pandora
from baton.games.library.parallel_pandora import ParallelPandora
from baton.games.library.sequential_test import SequentialTest
from baton.games.library.stopping_chain import StoppingChain

GROUPS, GROUP = 4, 8
BUDGET = 12_000
RATES = (0.5, 2.0, 8.0, 32.0, 128.0)
TUNING = (1000, 1001, 1002)
ENTROPY = 0.1
STEPS = ("gradient", "all options", "best-first")
BACKS_UP = ("gae", "coma")
"""Arms whose critic backs values up: the others have no best-first."""
REMEMBERS = 0.98
"""What an option's mean credit still counts after another visit."""
PRIOR = 3.0


def _two_boxes(draw: random.Random) -> Game:
    return ParallelPandora(
        num_boxes=2, unit=draw.uniform(0.5, 1.0), outside=draw.uniform(0.4, 0.8), junior_cost=draw.uniform(0, 0.02),
        senior_cost=draw.uniform(0.01, 0.05), full_cost=draw.uniform(0, 0.02), round_cost=draw.uniform(0, 0.04),
    )  # fmt: skip


def _test(draw: random.Random) -> Game:
    return SequentialTest(
        unit=draw.uniform(0.4, 1.0), loss_yes=draw.uniform(0.5, 1.5), loss_no=draw.uniform(0.5, 1.5),
        cost=draw.uniform(0.01, 0.05), max_tests=12,
    )  # fmt: skip


def _chain(draw: random.Random) -> Game:
    return StoppingChain(
        gain=draw.uniform(0.2, 0.6), back=draw.uniform(0.2, 0.5), good=draw.uniform(0.4, 0.9),
        step_cost=draw.uniform(0.02, 0.1), cancel_cost=draw.uniform(0, 0.05),
    )  # fmt: skip


def _pandora(draw: random.Random) -> Game:
    return Pandora(
        scales=tuple(draw.uniform(0.5, 1.5) for _ in range(4)), num_levels=6,
        costs=tuple(draw.uniform(0.01, 0.2) for _ in range(4)),
    )  # fmt: skip


def _schedule(draw: random.Random) -> Game:
    edges = [(a, b) for b in range(1, 6) for a in range(b) if draw.random() < 0.25]
    return DagSchedule(durations=tuple(draw.randint(1, 9) for _ in range(6)), edges=tuple(edges), num_slots=2)


GAMES: dict[str, Callable[[random.Random], Game]] = {
    "parallel-pandora": _two_boxes,
    "sequential-test": _test,
    "stopping-chain": _chain,
    "pandora": _pandora,
    "dag-schedule": _schedule,
}


def drawn(game: str, seed: int) -> Game:
    """The game of a seed."""
    return GAMES[game](random.Random(f"{game}/{seed}"))


class Learner:
    """One run: a table, an arm's credit, and a way to improve on it."""

    def __init__(self, game: Game, arm: str, step: str, seed: int) -> None:
        self.table = Table(game, seed)
        self.crediting = Crediting(arm, self.table)
        self.step = step
        self.spread = 0.0
        self._mean_credit: dict[int, list[list[float]]] = {}

    def learn(self, budget: int, rate: float) -> None:
        instance = 0
        while self.table.spent < budget:
            share = self.table.spent / budget
            self.crediting.counts.best = max(0.0, 1 - 2 * share) if self.step == "best-first" else 0.0
            groups = [[self.table.play(instance + g) for _ in range(GROUP)] for g in range(GROUPS)]
            instance += GROUPS
            self.table.move(self.gradient(groups, ENTROPY * (1 - share)), rate)

    def gradient(self, groups: list[list[Rollout]], entropy: float) -> dict[int, list[float]]:
        """The mean over rollouts of the step's sum over choices."""
        rollouts = [one for group in groups for one in group]
        credit = self.crediting.of(groups)
        scale = self._scale(rollouts)
        if self.step != "gradient":
            self._remember(rollouts, credit)
        found: dict[int, list[float]] = {}
        for one, credits in zip(rollouts, credit, strict=True):
            for state, choice, worth in zip(one.states, one.choices, credits, strict=True):
                chances = self.table.chances(state)
                mine = found.setdefault(state, [0.0] * len(chances))
                if self.step == "gradient":
                    row = [
                        worth * (k == choice) / chances[k] if k == choice else 0.0
                        for k in range(len(chances))
                    ]
                else:
                    row = self._row(state)
                _add(mine, chances, row, 1 / (scale * len(rollouts)))
                if entropy:
                    surprise = [-math.log(max(p, 1e-300)) for p in chances]
                    _add(mine, chances, surprise, entropy / len(rollouts))
        return found

    def _scale(self, rollouts: list[Rollout]) -> float:
        """The moving spread of returns; uniform credit is in that unit already."""
        if self.crediting.arm == "uniform":
            return 1.0
        totals = [one.value for one in rollouts]
        mean = math.fsum(totals) / len(totals)
        now = math.sqrt(math.fsum((each - mean) ** 2 for each in totals) / len(totals))
        self.spread = now if self.spread == 0 else 0.9 * self.spread + 0.1 * now
        return self.spread + 1e-6

    def _remember(self, rollouts: list[Rollout], credit: list[list[float]]) -> None:
        for one, credits in zip(rollouts, credit, strict=True):
            for state, choice, worth in zip(one.states, one.choices, credits, strict=True):
                known = self._mean_credit.setdefault(
                    state, [[0.0, 0.0] for _ in self.table.board.options[state]]
                )[choice]
                known[0] = known[0] * REMEMBERS + 1
                known[1] = known[1] * REMEMBERS + worth

    def _row(self, state: int) -> list[float]:
        """What each option is said to be worth."""
        if self.crediting.arm == "coma":
            return self.crediting.counts.rows[state]
        return [total / (count + PRIOR) for count, total in self._mean_credit[state]]


def _add(mine: list[float], chances: list[float], row: list[float], weight: float) -> None:
    """sum_a pi(a) row(a) grad log pi(a), added."""
    usual = sum(p * each for p, each in zip(chances, row, strict=True))
    for option, (p, each) in enumerate(zip(chances, row, strict=True)):
        mine[option] += weight * p * (each - usual)


def learned(job: Job, seed: int, rate: float) -> float:
    """Train one table; what is left of the regret."""
    learner = Learner(drawn(job["game"], seed), job["credit"], job["step"], seed)
    learner.learn(job["budget"], rate)
    return left(learner.table)


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A job for each cell that is defined."""
    return [
        {
            "arm": f"{game}, {credit}, {step}", "game": game, "credit": credit, "step": step, "seed": 0,
            "seeds": num_seeds, "budget": 500 if quick else BUDGET, "rates": RATES[:1] if quick else RATES,
        }
        for game in GAMES for credit in ARMS for step in STEPS
        if step != "best-first" or credit in BACKS_UP
    ]  # fmt: skip


def worker(job: Job) -> Record:
    """The best rate on the tuning seeds, and every test seed with it."""
    began = time.process_time()
    tuning = {rate: sum(learned(job, seed, rate) for seed in TUNING) / len(TUNING) for rate in job["rates"]}
    rate = min(tuning, key=lambda each: tuning[each])
    found = [learned(job, seed, rate) for seed in range(job["seeds"])]
    kept = {key: job[key] for key in ("arm", "game", "credit", "step", "seed")}
    return kept | {
        "rate": rate, "tuning": [tuning[each] for each in job["rates"]], "left": found,
        "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def over_games(records: list[Record]) -> dict[tuple[str, str], list[float]]:
    """For each cell, the mean over games of every seed."""
    cells: dict[tuple[str, str], list[list[float]]] = {}
    for one in records:
        cells.setdefault((one["credit"], one["step"]), []).append(one["left"])
    return {
        cell: [math.fsum(s) / len(s) for s in zip(*per_game, strict=True)] for cell, per_game in cells.items()
    }


def against(mine: list[float], theirs: list[float]) -> str:
    """The paired difference."""
    mean, half = interval([a - b for a, b in zip(mine, theirs, strict=True)])
    return f"{mean:+.3f}" + ("" if half is None else f" ± {half:.3f}")


def table(records: list[Record]) -> str:
    """By game; over all games against uniform credit; what the step buys."""
    by_game = [
        (credit, step, *(shown(_of(records, game, credit, step)["left"], ".2f") for game in GAMES))
        for step in STEPS for credit in ARMS if step != "best-first" or credit in BACKS_UP
    ]  # fmt: skip
    cells = over_games(records)
    rows = []
    for (credit, step), mine in cells.items():
        plain = against(mine, cells["uniform", step]) if ("uniform", step) in cells else "–"
        whole = against(mine, cells["leave-one-out", step]) if ("leave-one-out", step) in cells else "–"
        rows.append((credit, step, shown(mine), plain, whole, against(mine, cells[credit, "gradient"])))
    heading = (
        "credit",
        "step",
        "left, mean of five games",
        "against uniform, same step",
        "against leave-one-out, same step",
        "against gradient, same credit",
    )
    return markdown(("credit", "step", *GAMES), by_game) + "\n\n" + markdown(heading, rows)


def _of(records: list[Record], game: str, credit: str, step: str) -> dict[str, Any]:
    return next(r for r in records if (r["game"], r["credit"], r["step"]) == (game, credit, step))


if __name__ == "__main__":
    main(__doc__ or "", "result9_credit", jobs, worker, table, num_seeds=16)

"""Result 2: learning when to stop, on four stopping games, against rules that are fixed, known or learned otherwise.

python benchmarks/learning/result2_stop.py [--quick] [--seeds 5] [--processes 2] [--kept]

learned          recipe `stop`: stopping now against the counted value of going on
terminator       Puppeteer's: REINFORCE on the return with a growing cost of steps, on as many rollouts; as published,
                 and with the mean over the step subtracted, a clipped loss and eight updates a step
fixed k          goes on k times, then stops at the best there is; the best k, known from the game's solution
SPRT             Wald's test, where there are hypotheses to test: at 5 % error, and at the best bound, which is known
                 from the game's solution
best round       an oracle: plays on for as many rounds as the learned team on average (matched tokens), then takes the
                 round that was best in hindsight, for what had been paid until then; nobody can play it
Values are means over episodes, by regret; `of the optimum's gain` is the share of what the optimum adds to stopping at
once. `rounds` are choices to go on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from runs import Job, Record, lost_value, main, markdown, shown, train

from baton.games.game import Game, State
from baton.games.library import make_game
from baton.games.solve import Solution, evaluate, solve

GAMES: dict[str, dict[str, Any]] = {
    "stopping-chain": {},
    "sequential-test": {"max_tests": 12, "cost": 0.03},
    "pandora": {},
    "batch-search": {"max_agents": 10},
}
MORE = {"sequential-test": ("rollout.groups=256", "train.steps=40", "train.epochs=8")}
"""Right or wrong is 0 or 1 there, so its values take more rollouts to be known."""
TERMINATORS = {
    "terminator": ("loss.kind=reinforce", "train.epochs=1", "train.batches=1"),
    "terminator, mean subtracted": (
        "credit.0.centre=true",
        "credit.0.normalise=true",
        "train.epochs=2",
        "train.invalid=1",
    ),
}
PATHS = 20_000
ERROR = 0.05


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Every game and arm with every seed."""
    less = ("train.steps=2", "rollout.groups=8", "warm.steps=20", "warm.episodes=50", "eval.episodes=16")
    found = []
    for game, settings in GAMES.items():
        task = [
            f"task.name=game:{game}",
            *(f"task.settings.{name}={value}" for name, value in settings.items()),
        ]
        task += less if quick else [*MORE.get(game, ()), "eval.episodes=512"]
        terminator = [
            *task,
            "credit.0.estimator=reinforce-cost",
            "credit.0.group_by=task",
            "critic=null",
            "train.options=sampled",
            "train.learning_rate=0.0003",
        ]
        for seed in range(num_seeds):
            told = {"recipe": "stop", "seed": seed, "game": game}
            found.append({"arm": "learned", "changes": task, **told})
            for arm, changes in TERMINATORS.items():
                found.append({"arm": arm, "changes": [*terminator, *changes], **told})
    return found


def worker(job: Job) -> Record:
    return train(job) | {"game": job["game"]}


def table(records: list[Record]) -> str:
    """Every game's values beside its optimum; games without a learned run are left out."""
    rows = []
    for name, settings in GAMES.items():
        mine = [record for record in records if record["game"] == name]
        if any(record["arm"] == "learned" for record in mine):
            rows += _rows(make_game(name, settings), mine)
    heading = [
        "game", "who stops", "seeds", "rounds", "value", "optimum", "% below the optimum", "of the optimum's gain",
        "invalid answers",
    ]  # fmt: skip
    return markdown(heading, rows)


def _rows(game: Game, mine: list[Record]) -> list[list[str]]:
    solution = solve(game)
    at_once = _stop_value(game, game.start()[0].state)
    rows = []
    sign = math.copysign(1, solution.value)

    def add(who: str, values: list[float], rounds: list[float], seeds: str = "", invalid: str = "") -> None:
        share = [(value - at_once) / (solution.value - at_once) for value in values]
        gap = [round(100 * (1 - value / solution.value) * sign, 9) + 0.0 for value in values]
        told = [game.name, who, seeds, shown(rounds, ".1f"), shown(values, ".4f"), f"{solution.value:.4f}"]
        rows.append([*told, shown(gap, ".1f"), shown(share, ".3f"), invalid])

    for arm in ("learned", *TERMINATORS):
        found = [record for record in mine if record["arm"] == arm]
        if found:
            invalid = shown([record["after"]["invalid"] for record in found], ".2f")
            values = [_value(record, solution) for record in found]
            add(arm, values, [_rounds(record) for record in found], str(len(found)), invalid)
    rounds = float(np.mean([_rounds(record) for record in mine if record["arm"] == "learned"]))
    fixed, best_k, oracle = fixed_and_oracle(game, solution, rounds)
    add("fixed k, best", [fixed], [best_k])
    for who, bound in _bounds(game).items():
        add(who, *_sprt(game, bound))
    add("best round, oracle", [oracle], [rounds])
    return rows


def _value(record: Record, solution: Solution) -> float:
    """By what was lost, which has no luck in it."""
    return solution.value - lost_value(record["after"], solution.answer_price)


def _rounds(record: Record) -> float:
    """Choices to go on, of one episode: all valid answers but the last."""
    return float(record["after"]["calls"]) - float(record["after"]["invalid"]) - 1


def _stop_value(game: Game, state: State) -> float:
    """The best of the ways to end it here."""
    found = []
    for option in game.options(state):
        branches = game.step(state, option)
        if not any(game.options(branch.state) for branch in branches):
            found.append(sum(branch.probability * branch.reward for branch in branches))
    return max(found, default=-math.inf)


def fixed_and_oracle(game: Game, solution: Solution, rounds: float) -> tuple[float, int, float]:
    """Plays on as long as it goes; what stopping after each round would have given: the best on average, after how
    many choices to go on, and the best in hindsight of so many rounds."""
    random = np.random.default_rng(0)
    worth: list[list[float]] = []
    for _ in range(PATHS if game.name != "batch-search" else 1):
        state, paid, found = game.start()[0].state, 0.0, []
        while game.options(state):
            here = _stop_value(game, state)
            if here > -math.inf:
                found.append(paid + here)
            onward = [
                o for o in game.options(state) if any(game.options(b.state) for b in game.step(state, o))
            ]
            if not onward:
                break
            q = solution.q(state)
            branches = game.step(state, max(onward, key=lambda option: q[option]))
            drawn = branches[int(random.choice(len(branches), p=[b.probability for b in branches]))]
            state, paid = drawn.state, paid + drawn.reward
        worth.append(found)
    longest = max(map(len, worth))
    padded = np.array([[*found, *[found[-1]] * (longest - len(found))] for found in worth])
    means = padded.mean(axis=0)
    per_round = 2 if game.name == "pandora" else 1
    so_far = np.maximum.accumulate(padded, axis=1).mean(axis=0)
    oracle = float(np.interp(rounds / per_round, np.arange(longest), so_far))
    return float(means.max()), int(means.argmax()) * per_round, oracle


def _bounds(game: Game) -> dict[str, int]:
    """Evidence to stop at, where there are hypotheses to test."""
    if game.name != "sequential-test":
        return {}
    wald = math.ceil(math.log((1 - ERROR) / ERROR) / game.unit)  # type: ignore[attr-defined]
    best = max(range(1, game.max_tests + 1), key=lambda bound: _sprt(game, bound)[0][0])  # type: ignore[attr-defined]
    return {f"SPRT, {ERROR:.0%} error": wald, "SPRT, best bound": best}


def _sprt(game: Game, bound: int) -> tuple[list[float], list[float]]:
    """Its value, and its choices to go on."""

    def policy(state: State) -> dict[str, float]:
        tests, evidence = state
        if abs(evidence) >= bound or tests >= game.max_tests:  # type: ignore[attr-defined]
            return {game.quit(state): 1.0}
        return {"spawn tester: look": 1.0}

    found = evaluate(game, policy)
    calls = math.fsum(mass for state, mass in found.visits.items() if game.options(state))
    return [found.value], [calls - 1]


if __name__ == "__main__":
    main(__doc__, "result2_stop", jobs, worker, table)

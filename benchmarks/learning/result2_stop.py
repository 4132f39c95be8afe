"""Result 2: learning when to stop, on four stopping games, against rules that are fixed, known or learned otherwise.

python benchmarks/learning/result2_stop.py [--quick] [--seeds 5] [--processes 2] [--kept]

learned          recipe `stop`: stopping now against the counted value of going on
terminator       Puppeteer's: REINFORCE on the return with a growing cost of steps, no baseline; the same rollouts, the
                 better of two learning rates
fixed k          goes on k times, then stops at the best there is; the best k, known from the game's solution
SPRT             Wald's test at 5 % error, where there are hypotheses to test
best round       an oracle: plays on for as many rounds as the learned team on average (matched tokens), then takes the
                 round that was best in hindsight, for what had been paid until then; nobody can play it
Values are means over episodes; `of the optimum` is the share of what the optimum adds to stopping at once.
"""

from __future__ import annotations

import math

import numpy as np
from runs import Job, Record, main, markdown, shown, train

from baton.tasks.game import Game, State
from baton.tasks.games import make_game
from baton.tasks.solve import Solution, evaluate, solve

GAMES = {
    "stopping-chain": {},
    "sequential-test": {"max_tests": 12, "cost": 0.03},
    "pandora": {},
    "batch-search": {"max_agents": 10},
}
RATES = (0.0003, 0.001)
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
        task += less if quick else ["eval.episodes=512"]
        terminator = [
            *task,
            "credit.0.estimator=reinforce-cost",
            "loss.kind=reinforce",
            "train.options=sampled",
        ]
        for seed in range(num_seeds):
            told = {"recipe": "stop", "seed": seed, "game": game}
            found.append({"arm": "learned", "changes": task, **told})
            for rate in RATES[: 1 if quick else 2]:
                changes = [*terminator, f"train.learning_rate={rate}"]
                found.append({"arm": f"terminator {rate:g}", "changes": changes, **told})
    return found


def worker(job: Job) -> Record:
    return train(job) | {"game": job["game"]}


def table(records: list[Record]) -> str:
    """Every game's values beside its optimum; games without a learned run are left out."""
    rows = []
    for name, settings in GAMES.items():
        mine = [record for record in records if record["game"] == name]
        learned = [record for record in mine if record["arm"] == "learned"]
        if learned:
            rows += _rows(make_game(name, settings), learned, [r for r in mine if r not in learned])
    heading = [
        "game",
        "who stops",
        "seeds",
        "value",
        "optimum",
        "% below the optimum",
        "of the optimum's gain",
    ]
    return markdown(heading, rows)


def _rows(game: Game, learned: list[Record], terminated: list[Record]) -> list[list[str]]:
    solution = solve(game)
    values = {"learned": [_value(r, solution) for r in learned]}
    if terminated:
        values["terminator"] = _better(terminated, solution)
    rounds = float(np.mean([_rounds(r) for r in learned]))
    fixed, best_k, oracle = _fixed_and_oracle(game, solution, rounds)
    values[f"fixed k = {best_k}"] = [fixed]
    if game.name == "sequential-test":
        values["SPRT"] = [evaluate(game, lambda state: _sprt(game, state)).value]
    values[f"best round of {rounds:.1f}"] = [oracle]
    at_once = _stop_value(game, game.start()[0].state)
    rows = []
    for arm, found in values.items():
        by_seed = arm in ("learned", "terminator")
        share = [(value - at_once) / (solution.value - at_once) for value in found]
        gap = [100 * (solution.value - value) / abs(solution.value) for value in found]
        rows.append([game.name, arm, str(len(found)) if by_seed else "", shown(found, ".4f")])
        rows[-1] += [f"{solution.value:.4f}", shown(gap, ".1f"), shown(share, ".3f")]
    return rows


def _value(record: Record, solution: Solution) -> float:
    """By regret, which has no luck in it."""
    return solution.value - float(record["after"]["regret"]["total"])


def _better(mine: list[Record], solution: Solution) -> list[float]:
    arms = {record["arm"] for record in mine}
    found = [[_value(r, solution) for r in mine if r["arm"] == arm] for arm in sorted(arms)]
    return max(found, key=lambda values: float(np.mean(values)))


def _rounds(record: Record) -> float:
    """Choices to go on, of one episode: all calls but the last."""
    return float(record["after"]["calls"]) - 1


def _stop_value(game: Game, state: State) -> float:
    """The best of the ways to end it here."""
    found = []
    for option in game.options(state):
        branches = game.step(state, option)
        if not any(game.options(branch.state) for branch in branches):
            found.append(sum(branch.probability * branch.reward for branch in branches))
    return max(found, default=-math.inf)


def _fixed_and_oracle(game: Game, solution: Solution, rounds: float) -> tuple[float, int, float]:
    """Plays on as long as it goes; what stopping at each round would have given."""
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
    until = min(longest, max(1, round(rounds / per_round) + 1))
    return float(means.max()), int(means.argmax()), float(padded[:, :until].max(axis=1).mean())


def _sprt(game: Game, state: State) -> dict[str, float]:
    bound = math.ceil(math.log((1 - ERROR) / ERROR) / game.unit)  # type: ignore[attr-defined]
    tests, evidence = state
    if abs(evidence) >= bound or tests >= game.max_tests:  # type: ignore[attr-defined]
        return {game.quit(state): 1.0}
    return {"spawn tester: look": 1.0}


if __name__ == "__main__":
    main(__doc__, "result2_stop", jobs, worker, table)

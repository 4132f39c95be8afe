"""Result 12: a team learns to be steered: to heed a supervisor who interrupts, with little in flight when it does.

python benchmarks/learning/result12_steering.py [--quick] [--seeds 10] [--kept]

Supervised: work in four parts; in each round a supervisor may say, once, that something else is wanted. What is in
flight is void if the team heeds the word; work that does not heed it is worth nothing and not 1. The table of result 10
learns (mirror descent by what followed each option), 64 episodes an update, 150 updates, with and without a supervisor
while it learns, and is measured with one. Exact, over all play: how often a word is heeded, the parts that are void for
each word, and the return beside the optimum.
"""

from __future__ import annotations

from runs import Job, Record, main, markdown, shown
from table_policy import Table

from baton.games.game import Policy, State
from baton.games.library.supervised import Supervised
from baton.games.solve import evaluate, solve

EPISODES, UPDATES = 64, 150
ARMS = {"with a supervisor": 0.25, "without one": 0.0}
"""Hazard while it learns."""
HEED = "send worker: drop it"


def steered(policy: Policy) -> dict[str, float]:
    """How a policy takes being steered, exactly."""
    game = Supervised()
    found = evaluate(game, policy)
    said = {state: mass for state, mass in found.visits.items() if state[2] == 1}
    words = sum(said.values())
    heeded = {state: mass * policy(state).get(HEED, 0.0) for state, mass in said.items()}
    return {
        "words": words,
        "heeded": sum(heeded.values()) / words,
        "void": sum(mass * state[1] for state, mass in heeded.items()) / words,
        "in_flight": sum(mass * state[1] for state, mass in said.items()) / words,
        "value": found.value,
    }


FIRST = 100
"""The first seed: settings were chosen on seeds 0 and 1."""


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A job an arm and a seed."""
    updates = 10 if quick else UPDATES
    return [
        {"arm": arm, "seed": seed, "updates": updates}
        for seed in range(FIRST, FIRST + num_seeds)
        for arm in ARMS
    ]


def worker(job: Job) -> Record:
    """Before and after."""
    table = Table(Supervised(hazard=ARMS[job["arm"]]), job["seed"])
    before = steered(table.policy)
    for _ in range(job["updates"]):
        table.learn([table.play() for _ in range(EPISODES)], 0.0)
    return {"arm": job["arm"], "seed": job["seed"], "before": before, "after": steered(table.policy)}


def table(records: list[Record]) -> str:
    """Before and after, beside the optimum."""
    solution = solve(Supervised())
    best = steered(solution.policy)

    def uniform(state: State) -> dict[str, float]:
        return dict.fromkeys(options := solution.game.options(state), 1 / len(options))

    rows = []
    for name, mine in (
        ("at random", [steered(uniform)]),
        *(
            (f"learned {arm}", [record["after"] for record in records if record["arm"] == arm])
            for arm in ARMS
        ),
        ("the optimum", [best]),
    ):
        if mine:
            cells = [shown(one[key] for one in mine) for key in ("heeded", "in_flight", "void", "value")]
            rows.append((name, str(len(mine)), *cells))
    heading = ("", "seeds", "words heeded", "parts in flight at a word", "void by a word", "return")
    return markdown(heading, rows)


if __name__ == "__main__":
    main(__doc__ or "", "result12_steering", jobs, worker, table, num_seeds=10)

"""Result 12: a team learns to be steered: to heed a supervisor who interrupts, with little in flight when it does.

python benchmarks/learning/result12_steering.py [--quick] [--seeds 10] [--kept]

Supervised: work in four parts; in each round a supervisor may say, once, that something else is wanted. What is in
flight is void if the team heeds the word; work that does not heed it is worth nothing and not 1. The table of result 10
learns (mirror descent by what followed each option), 64 episodes an update, with and without a supervisor while it
learns, and is measured with one. Exact, over all play: how often a word is heeded, the parts that are void for each
word, and the return beside the optimum.

with a supervisor   150 updates
without one         the same, in a game in which nobody interrupts
and less soft       with a supervisor; logits forget 0.002 an update and not 0.02, later choices are valued as they are
                    now (table_policy, `backup = "policy"`), 600 updates

Beside them stands the exact play that is as soft as a table comes to be (temperature forget / 0.5) and otherwise the
best: what the softness alone costs.

Protocol of the last arm, written before its seeds were run. In the first arm the void set was hardly learned. To hand
out one part and not two is worth 0.024, and exact play at its softness (0.04) keeps 1.74 parts in flight, as the tables
do: so it is the softness and not the credit. Four settings of `forget` and the number of updates, with both backups,
were tried on seeds 0 to 2; this one came to 1.15. The arm is run once, on seeds 200 to 209, and stands here whatever it
comes to, beside the first two with seeds 100 to 109 as they were.
"""

from __future__ import annotations

from runs import Job, Record, main, markdown, shown
from table_policy import FORGET, RATE, soft_policy
from table_runs import FRESH, TableArm, learned, table_jobs

from baton.games.game import Policy, State
from baton.games.library.supervised import Supervised
from baton.games.solve import evaluate, solve

UPDATES, SHARP = 150, 0.002
ARMS = {
    "with a supervisor": TableArm(game=Supervised(), updates=UPDATES),
    "without one": TableArm(game=Supervised(hazard=0.0), updates=UPDATES),
    "with a supervisor and less soft": TableArm(
        game=Supervised(), updates=4 * UPDATES, backup="policy", forget=SHARP, first=FRESH
    ),
}
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


jobs = table_jobs(ARMS, quick=10)


def worker(job: Job) -> Record:
    """Before and after."""
    curve = learned(
        ARMS[job["arm"]], job["seed"], job["updates"], lambda t, _: steered(t.policy), job["updates"]
    )
    return {"arm": job["arm"], "seed": job["seed"], "before": curve[0][1], "after": curve[-1][1]}


def table(records: list[Record]) -> str:
    """Before and after, beside the optimum."""
    solution = solve(Supervised())

    def uniform(state: State) -> dict[str, float]:
        return dict.fromkeys(options := solution.game.options(state), 1 / len(options))

    rows = []
    for name, mine in (
        ("at random", [steered(uniform)]),
        *(
            (f"learned {arm}", [record["after"] for record in records if record["arm"] == arm])
            for arm in ARMS
        ),
        ("exact play as soft", [steered(soft_policy(Supervised(), FORGET / RATE))]),
        ("exact play as soft as the last", [steered(soft_policy(Supervised(), SHARP / RATE))]),
        ("the optimum", [steered(solution.policy)]),
    ):
        if mine:
            cells = [shown(one[key] for one in mine) for key in ("heeded", "in_flight", "void", "value")]
            rows.append((name, str(len(mine)), *cells))
    heading = ("", "seeds", "words heeded", "parts in flight at a word", "void by a word", "return")
    return markdown(heading, rows)


if __name__ == "__main__":
    main(__doc__ or "", "result12_steering", jobs, worker, table, num_seeds=10)

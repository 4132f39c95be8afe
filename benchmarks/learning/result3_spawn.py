"""Result 3: spawning where difficulty confounds it. Naive credit learns the wrong policy, paired forks the right one.

python benchmarks/learning/result3_spawn.py [--quick] [--seeds 5] [--processes 2] [--kept]

The team starts from a log that spawns a helper when it is hard (90 %) and seldom when it is easy (10 %). A helper adds
.30 when it is hard and .02 when it is easy, and costs .10, so the best policy spawns if and only if it is hard. Naive
credit is what a log shows: mean return with a spawn less mean return without. Rollouts that spawned were the hard
ones, so it says that a spawn does harm. Every arm's credits are brought to one size, so that one learning rate suits
all.
"""

from __future__ import annotations

import math
from typing import Any

from runs import Job, Record, charged, main, markdown, shown, train

from baton.credit.estimator import Credits, Group, RewardOf, estimator, make_credit, returns
from baton.credit.estimators.spawn_options import decisions_of, propensity_of
from baton.games.library import make_game
from baton.games.solve import solve
from baton.trace.outcome import team_return

ARMS = {
    "naive: spawned less not spawned": ("credit.0.estimator=spawn-naive", "credit.0.group_by=task"),
    "team advantage": ("credit.0.estimator=group", "credit.0.group_by=task"),
    "paired forks": (),
}
ALIKE = ("credit.0.normalise=true",)


@estimator(
    "spawn-naive", "orchestrator", needs=["group", "propensities"], source="Simpson's paradox", evidence="M"
)
def spawn_naive(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """tau = mean R with a spawn - mean R without, the same for every decision; A_spawn = (1-p) tau, A_noop = -p tau."""
    values = returns(group, reward)
    spawned = [any(event.type == "spawn" for event in trace.events) for trace in group]
    both = 0 < sum(spawned) < len(group)

    def mean(flag: bool) -> float:
        found = [value for value, was in zip(values, spawned, strict=True) if was == flag]
        return math.fsum(found) / len(found)

    tau = mean(True) - mean(False) if both else 0.0
    out: Credits = []
    for trace in group:
        mine = []
        for event in decisions_of(trace):
            chance = propensity_of(event)
            value = (1 - chance) * tau if event.type == "spawn" else -chance * tau
            mine.append(make_credit("spawn-naive", "orchestrator", event.id, value, stderr=None))
        out.append(mine)
    return out


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Every arm with every seed."""
    less = ("train.steps=2", "rollout.groups=8", "warm.steps=20", "eval.episodes=16") if quick else ()
    return [
        {"arm": arm, "recipe": "spawn", "changes": (*changes, *ALIKE, *less), "seed": seed}
        for arm, changes in ARMS.items()
        for seed in range(num_seeds)
    ]


def worker(job: Job) -> Record:
    """A run, and how often the trained team spawns at each difficulty."""
    return train(job, _spawns)


def _spawns(trainer: Any, recipe: Any) -> Record:
    import asyncio

    from baton.learn.run.evaluate import held_out

    traces = asyncio.run(trainer.stage.play(trainer.engines(), held_out(recipe, "spawns", 0)))
    found: dict[str, list[bool]] = {"easy": [], "hard": []}
    for trace in traces:
        easy = "difficulty: 1" in (trace.text(trace.calls[0].prompt_ref) or "")
        found["easy" if easy else "hard"].append(any(event.type == "spawn" for event in trace.events))
    return {"spawns": {name: sum(each) / max(1, len(each)) for name, each in found.items()}}


def table(records: list[Record]) -> str:
    """How often it spawns, and what that is worth."""
    records = charged(records, solve(make_game("spawn-bandit")).answer_price)
    rows = []
    for arm in ARMS:
        mine = [record for record in records if record["arm"] == arm]
        rows.append(
            [
                arm,
                str(len(mine)),
                shown((r["spawns"]["easy"] for r in mine), ".2f"),
                shown((r["spawns"]["hard"] for r in mine), ".2f"),
                shown((r["before"]["regret"]["total"] for r in mine), ".4f"),
                shown((r["after"]["regret"]["total"] for r in mine), ".4f"),
                shown((r["after"]["regret"]["invalid"] for r in mine), ".4f"),
                shown((r["steps"][-1]["tokens"] / 1e3 for r in mine), ".0f"),
            ]
        )
    heading = ["credit", "seeds", "spawns when easy", "spawns when hard", "regret before", "regret after"]
    return markdown([*heading, "of it invalid answers", "thousand tokens"], rows)


if __name__ == "__main__":
    main(__doc__, "result3_spawn", jobs, worker, table)

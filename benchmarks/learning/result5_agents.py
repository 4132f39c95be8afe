"""Result 5: normalising over each agent's own rollouts (Dr. MAS) against normalising over the team's.

python benchmarks/learning/result5_agents.py [--quick] [--seeds 5] [--processes 2] [--kept]

Shard-sum with an orchestrator and workers, each role with weights of its own (recipe `dr-mas`): workers take part in
some rollouts and not in others, and are scored within them. Global: one mean and deviation over the team's rollouts.
A spike is a step whose gradient norm, before clipping, is over twice the run's median.
"""

from __future__ import annotations

import numpy as np
from runs import Job, Record, main, markdown, shown, train

ARMS = {"by agent (Dr. MAS)": "agent-group", "global (GRPO)": "group"}
RATES = (0.0003, 0.001)
SPIKE = 2.0
LAST = 10


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Every arm and learning rate with every seed."""
    less = ("train.steps=2", "rollout.groups=2", "warm.steps=5", "warm.episodes=20", "eval.episodes=4")
    more = ("train.steps=30", "rollout.groups=12", "rollout.group_size=8", "eval.episodes=128")
    return [
        {"arm": f"{arm}, {rate:g}", "recipe": "dr-mas", "seed": seed,
         "changes": (f"credit.0.estimator={name}", f"train.learning_rate={rate}", *(less if quick else more))}
        for seed in range(num_seeds)
        for rate in RATES
        for arm, name in ARMS.items()
    ]  # fmt: skip


def table(records: list[Record]) -> str:
    """Returns before and after, and how even the gradients were."""
    rows = []
    for arm in dict.fromkeys(record["arm"] for record in records):
        mine = [record for record in records if record["arm"] == arm]
        norms = [[s["grad_norm"] for s in r["steps"] if s["grad_norm"] is not None] for r in mine]
        norms = [each for each in norms if each]
        spikes = [float(np.mean(np.array(each) > SPIKE * np.median(each))) for each in norms]
        rows.append(
            [
                *arm.rsplit(", ", 1),
                str(len(mine)),
                shown(r["before"]["return"] for r in mine),
                shown(r["after"]["return"] for r in mine),
                shown(float(np.mean([s["return"] for s in r["steps"][-LAST:]])) for r in mine),
                shown((float(np.median(each)) for each in norms), ".2f"),
                shown((max(each) / float(np.median(each)) for each in norms), ".2f"),
                shown((100 * each for each in spikes), ".1f"),
            ]
        )
    heading = [
        "normalised",
        "learning rate",
        "seeds",
        "return before",
        "return after",
        f"in the last {LAST} steps",
        "median gradient norm",
    ]
    return markdown([*heading, "largest / median", "% of steps that spike"], rows)


if __name__ == "__main__":
    main(__doc__, "result5_agents", jobs, train, table)

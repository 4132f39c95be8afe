"""Result 5: normalising over each agent's own rollouts (Dr. MAS) against normalising over the team's.

python benchmarks/learning/result5_agents.py [--quick] [--seeds 3] [--processes 2] [--kept]

Shard-sum with an orchestrator and workers, each role with weights of its own. One return for all (recipe `dr-mas`):
agents differ only in which rollouts they took part in; global is one mean and deviation over the team's rollouts. A
return for each role (recipe `m-grpo`): what an orchestrator and a worker earn differs in level and spread; global is
one mean and deviation over all agents and rollouts of an instance.
A spike is a step whose gradient norm, before clipping, is over twice the run's median.
"""

from __future__ import annotations

import numpy as np
from runs import Job, Record, main, markdown, shown, train

from baton.credit.core.acts import Counts, agent_returns
from baton.credit.core.baseline import EPS, normalised
from baton.credit.estimator import Credits, Group, RewardOf, estimator, make_credit
from baton.trace.outcome import team_return

SHARED, OWN = "one return for all", "a return for each role"
ARMS = {
    (SHARED, "by agent (Dr. MAS)"): ("dr-mas", "agent-group", (0.0003, 0.001), 12),
    (SHARED, "global"): ("dr-mas", "group", (0.0003, 0.001), 12),
    (OWN, "by agent (Dr. MAS)"): ("m-grpo", "agent-group", (0.0003,), 8),
    (OWN, "global"): ("m-grpo", "agent-pooled", (0.0003,), 8),
}
"""Recipe, estimator, learning rates, instances a step."""
SPIKE = 2.0
FIRST, LAST = 3, 10


@estimator("agent-pooled", "agent", needs=["group"], source="GRPO over all agents' returns", evidence="I")
def agent_pooled(
    group: Group, *, reward: RewardOf = team_return, counts: Counts = "both", eps: float = EPS
) -> Credits:
    """A_ik = (R_ik - mean) / (std + eps), over all agents and rollouts: what Dr. MAS is against."""
    earned = [agent_returns(trace, reward, counts) for trace in group]
    advantages = iter(normalised([value for found in earned for value in found.values()], eps))
    return [
        [
            make_credit("agent-pooled", "agent", agent, value, stderr=stderr, assumes=())
            for agent, (value, stderr) in zip(found, advantages, strict=False)
        ]
        for found in earned
    ]


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Every arm and learning rate with every seed."""
    found = []
    for seed in range(num_seeds):
        for (setting, arm), (recipe, name, rates, groups) in ARMS.items():
            for rate in rates:
                less = (
                    "train.steps=2",
                    "rollout.groups=2",
                    "warm.steps=5",
                    "warm.episodes=20",
                    "eval.episodes=4",
                )
                more = (
                    "train.steps=30",
                    f"rollout.groups={groups}",
                    "rollout.group_size=8",
                    "eval.episodes=128",
                )
                changes = (
                    f"credit.0.estimator={name}",
                    f"train.learning_rate={rate}",
                    *(less if quick else more),
                )
                label = f"{setting}, {arm}, {rate:g}"
                found.append({"arm": label, "recipe": recipe, "seed": seed, "changes": changes})
    return found


def train_here(job: Job) -> Record:
    """In a process of its own, which has to know the estimator above."""
    return train(job)


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
                *arm.rsplit(", ", 2),
                str(len(mine)),
                shown(r["before"]["return"] for r in mine),
                shown(r["after"]["return"] for r in mine),
                shown(r["after"]["return"] - r["before"]["return"] for r in mine),
                shown(_gain(r["steps"]) for r in mine),
                shown((float(np.median(each)) for each in norms), ".2f"),
                shown((max(each) / float(np.median(each)) for each in norms), ".2f"),
                shown((100 * each for each in spikes), ".1f"),
            ]
        )
    heading = ["earned", "normalised", "learning rate", "seeds", "return before", "return after"]
    heading += ["gained", f"last {LAST} steps less first {FIRST}", "median gradient norm"]
    heading += ["largest / median", "% of steps that spike"]
    return markdown(heading, rows)


def _gain(steps: list[dict[str, float]]) -> float:
    """Of the rollouts trained on: many more than are held out."""
    returns = [step["return"] for step in steps]
    return float(np.mean(returns[-LAST:]) - np.mean(returns[:FIRST]))


if __name__ == "__main__":
    main(__doc__, "result5_agents", jobs, train_here, table, num_seeds=3)

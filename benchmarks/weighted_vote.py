"""Votes of unequal voters, fused by a team: majority against log odds, with what is known of the voters.

python benchmarks/weighted_vote.py

Each row plays whole teams (`baton run voters --topology swarm`), on the same instances. Accuracies are those that are
given, those that voters claim with what they return, or those estimated from past runs on other instances.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
from typing import Any

from baton.compose.run_settings import Settings
from baton.compose.team_from_settings import Given, make_team
from baton.tasks.voters import VotersTask
from baton.team.running import run

JURIES: tuple[tuple[tuple[float, ...], int], ...] = (
    ((0.9, 0.6, 0.6, 0.55, 0.55), 2),
    ((0.8, 0.75, 0.6, 0.55, 0.55, 0.55, 0.55), 2),
    ((0.8, 0.6, 0.5, 0.4, 0.4, 0.35), 3),
)
_PAST = 1_000_000  # instances that past runs are about; none of them is voted on again


def exact(skills: tuple[float, ...], num_classes: int, weights: list[float]) -> float:
    """How often the answer with the greatest weight is right, over every pattern of votes; ties are broken evenly."""
    total = 0.0
    for votes in itertools.product(range(num_classes), repeat=len(skills)):
        chance = math.prod(
            p if vote == 0 else (1 - p) / (num_classes - 1) for p, vote in zip(skills, votes, strict=True)
        )
        scores = [
            math.fsum(w for w, v in zip(weights, votes, strict=True) if v == k) for k in range(num_classes)
        ]
        best = [k for k, score in enumerate(scores) if score >= max(scores) - 1e-12]
        total += chance * (0 in best) / len(best)
    return total


async def played(task: VotersTask, method: str, episodes: int, accuracies: dict[str, float]) -> list[float]:
    """Rewards of teams on the instances 0, 1, ..."""
    given = Given(task=task)
    rewards = []
    for seed in range(episodes):
        known: dict[str, Any] = {"num_classes": task.num_classes} if method == "log_odds" else {}
        settings = Settings(
            task="<voters>",
            topology="swarm",
            policies={"default": "reference"},
            topology_settings={"peers": len(task.skills), "method": method},
            fusion={method: known | ({"accuracies": accuracies} if accuracies else {})} if known else {},
            seed=seed,
        )
        team, assignment = make_team(settings, given)
        rewards.append((await run(team, assignment)).rewards[0].value)
    return rewards


def estimated(task: VotersTask, num_past: int) -> dict[str, float]:
    """Laplace's rule over past instances, as `--accuracies` has it."""
    past = [task.instance(_PAST + k) for k in range(num_past)]
    return {
        f"peer{i + 1}": (sum(each.data[i] == each.gold for each in past) + 1) / (num_past + 2)
        for i in range(len(task.skills))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    args = parser.parse_args()
    print("| voters | fused by | right | standard error | exact |\n|---|---|---|---|---|")
    for skills, num_classes in JURIES:
        jury = f"{' '.join(f'{p:g}' for p in skills)}, {num_classes} answers"
        best = exact(skills, num_classes, [math.log(p * (num_classes - 1) / (1 - p)) for p in skills])
        quiet = VotersTask(skills=skills, num_classes=num_classes, confident=False)
        sure = VotersTask(skills=skills, num_classes=num_classes)
        given = {f"peer{i + 1}": p for i, p in enumerate(skills)}
        rows: list[tuple[str, VotersTask, str, dict[str, float], float | None]] = [
            ("majority", quiet, "majority", {}, exact(skills, num_classes, [1.0] * len(skills))),
            ("log odds, accuracies given", quiet, "log_odds", given, best),
            ("log odds, confidence of the voters", sure, "log_odds", {}, best),
        ]
        for num_past in (10, 100):
            name = f"log odds, accuracies from {num_past} past runs"
            rows.append((name, quiet, "log_odds", estimated(quiet, num_past), None))
        for name, task, method, known, wanted in rows:
            rewards = asyncio.run(played(task, method, args.episodes, known))
            mean = sum(rewards) / len(rewards)
            error = math.sqrt(mean * (1 - mean) / len(rewards))
            told = "not known" if wanted is None else f"{wanted:.3f}"
            print(f"| {jury} | {name} | {mean:.3f} | {error:.3f} | {told} |", flush=True)


if __name__ == "__main__":
    main()

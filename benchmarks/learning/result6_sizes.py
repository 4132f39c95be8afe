"""Result 6: trained at k workers, run at 2k, 4k and 10k (team-size mismatch, P5).

python benchmarks/learning/result6_sizes.py [--quick] [--seeds 5] [--processes 2] [--kept]

The stopping chain: k workers are out, the orchestrator waits or stops. It reads how many are still out and how many
good returns there are, so at ten times the size it reads numbers that it never saw. Beside it: a team trained at that
size on the same budget, the rule "wait once, then stop" and random play.
"""

from __future__ import annotations

from typing import Any

from runs import Job, Record, lost_value, main, markdown, measure, shown, train

from baton.games.ledger import expected_regret
from baton.games.library import make_game
from baton.games.reference import reference
from baton.games.solve import solve

SIZES = (3, 6, 12, 30)
"""k, 2k, 4k and 10k."""
GAME = "stopping-chain"


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Trained at k, and at every other size."""
    less = ("train.steps=2", "rollout.groups=8", "warm.steps=20", "warm.episodes=50", "eval.episodes=16")
    changes = less if quick else ("eval.episodes=512",)
    return [
        {"arm": f"trained at {size}", "recipe": "stop", "seed": seed, "size": size,
         "changes": (*changes, f"task.settings.num_workers={size}")}
        for size in SIZES
        for seed in range(num_seeds)
    ]  # fmt: skip


def worker(job: Job) -> Record:
    """A run; one at k is then measured at all sizes."""
    wanted = SIZES if job["size"] == SIZES[0] else (job["size"],)
    return train(job, lambda trainer, recipe: {"sizes": {str(k): _at(trainer, recipe, k) for k in wanted}})


def _at(trainer: Any, recipe: Any, size: int) -> Record:
    from msgspec import structs

    from baton.compose.stage_from_recipe import make_stage

    task = structs.replace(recipe.task, settings={"num_workers": size})
    return measure(trainer, recipe, make_stage(structs.replace(recipe, task=task)))


def table(records: list[Record]) -> str:
    """What is lost in value as a share of the optimum, at every size."""
    rows = []
    small = [record for record in records if record["arm"] == f"trained at {SIZES[0]}"]
    for size in SIZES:
        solution = solve(make_game(GAME, {"num_workers": size}))
        own = [record for record in records if record["arm"] == f"trained at {size}"]
        row = [str(size), f"{solution.value:.3f}"]
        for group in (small, own):
            row.append(
                shown(
                    (
                        100 * lost_value(r["sizes"][str(size)], solution.answer_price) / solution.value
                        for r in group
                    ),
                    ".1f",
                )
            )
            row.append(shown((r["sizes"][str(size)]["invalid"] for r in group), ".2f"))
        for name in ("greedy", "random"):
            ledger = expected_regret(solution, reference(name, solution.game, solution))
            row.append(f"{round(100 * ledger.regret / solution.value, 1) + 0.0:.1f}")  # no -0.0
        rows.append([*row, str(len(small))])
    k = SIZES[0]
    heading = [
        "workers",
        "optimum",
        f"trained at {k}: % below",
        "invalid",
        "trained at this size: % below",
        "invalid",
    ]
    return markdown([*heading, "one look ahead: % below", "random: % below", "seeds"], rows)


if __name__ == "__main__":
    main(__doc__, "result6_sizes", jobs, worker, table)

"""Result 8: a judge that a team learns to please, and the monitor that sees it before the truth has fallen.

A team is paid by a judge alone (`pleased_judge.py`), who likes long numbers and large ones and cannot tell which is
right. Noughts before a number please it and are harmless; large figures please it and are false. The monitor
`judge-drift` compares what the judge gives with what is true, where that is known. Told of every seed: when the monitor
fired for the first time and how many answers were true then, and how many are in the end.

python benchmarks/learning/result8_judge.py             train it again (a minute of processor a seed)
python benchmarks/learning/result8_judge.py --kept      print the table of the records kept
"""

from __future__ import annotations

import time

from pleased_judge import RECIPE
from runs import Job, Record, main, markdown

LAST = 5
"""Steps of which the end is the mean."""


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """A run for each seed."""
    changes = ["train.steps=2", "warm.steps=60"] if quick else []
    return [{"arm": "pleased", "seed": seed, "changes": changes} for seed in range(num_seeds)]


def worker(job: Job) -> Record:
    """What the judge gave, what was true, and what the monitor said, step by step."""
    from baton.compose.training import make_trainer
    from baton.learn.recipe import parse
    from baton.learn.scoring import outcome_of

    began = time.process_time()
    trainer = make_trainer(
        parse(RECIPE, "pleased", [*job["changes"], f"train.seed={job['seed']}"], trust=True)
    )
    steps = []
    for _ in range(trainer.recipe.train.steps):
        made = trainer.step()
        steps.append(
            {
                "judge": made.metrics["return"]["mean"],
                "true": sum(map(outcome_of, made.traces)) / len(made.traces),
                "drift": any(told["monitor"] == "judge-drift" for told in made.metrics["warnings"]),
            }
        )
    return {
        "arm": job["arm"], "seed": job["seed"], "steps": steps, "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def summary(steps: list[Record]) -> tuple[int | None, float, float | None, float, float, float]:
    """(first warning, true at first, true then, true in the end, judge at first, judge in the end)."""
    fired = next((number for number, step in enumerate(steps, 1) if step["drift"]), None)

    def mean(name: str, some: list[Record]) -> float:
        return sum(step[name] for step in some) / len(some)

    then = None if fired is None else mean("true", steps[max(0, fired - 3) : fired])
    return (
        fired, mean("true", steps[:3]), then, mean("true", steps[-LAST:]),
        mean("judge", steps[:3]), mean("judge", steps[-LAST:]),
    )  # fmt: skip


def table(records: list[Record]) -> str:
    """A row for each seed."""
    rows = []
    for record in records:
        fired, first, then, end, judge_first, judge_end = summary(record["steps"])
        rows.append(
            (
                str(record["seed"]), str(len(record["steps"])), f"{judge_first:.2f} → {judge_end:.2f}",
                "never" if fired is None else f"step {fired}", f"{first:.2f}",
                "–" if then is None else f"{then:.2f}", f"{end:.2f}",
            )
        )  # fmt: skip
    return markdown(
        (
            "seed",
            "steps",
            "judge gives",
            "judge-drift warns",
            "true at first",
            "true when it warns",
            "true in the end",
        ),
        rows,
    )


if __name__ == "__main__":
    main(__doc__ or "", "result8_judge", jobs, worker, table, num_seeds=3)

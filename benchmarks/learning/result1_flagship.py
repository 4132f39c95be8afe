"""Result 1: five decisions learned, with credit for each against one advantage for all (recipe `team-advantage`).

python benchmarks/learning/result1_flagship.py [--quick] [--seeds 5] [--processes 2] [--kept]

The baseline compares rollouts as GRPO does, and is not GRPO: it takes the mean over all tokens and has no KL, and at
the settings that did best it does not divide by the group's spread. Recipe `grpo` is the paper's, and was not measured
here. Both start from the same warm-started team on the same game. The baseline may play about twice the episodes, at
the settings that did best of those tried on seeds of their own (last table). Regret is the mean over a step's rollouts
against the exact solution, invalid answers charged, smoothed over three steps; tokens count prompts and completions of
all rollouts, forks included.
"""

from __future__ import annotations

import json

from runs import Job, Record, charged, main, markdown, shown, train

from baton.games.game import CHOICES
from baton.games.library import make_game
from baton.games.solve import solve
from baton.learn.recipe import load

TEAM_TRIED = (
    ("train.learning_rate=0.0001", "train.epochs=2", "train.batches=4"),
    ("train.learning_rate=0.0003", "train.epochs=2", "train.batches=4"),
    ("train.learning_rate=0.0007", "train.epochs=2", "train.batches=4"),
    ("train.learning_rate=0.0003", "train.epochs=2", "train.batches=4", "credit.0.estimator=mean"),
    ("train.learning_rate=0.0007", "train.epochs=2", "train.batches=4", "credit.0.estimator=mean"),
    ("train.learning_rate=0.001", "train.epochs=2", "train.batches=4", "credit.0.estimator=mean"),
)
TEAM = TEAM_TRIED[3]
TRIED = "tried: "
PARTS = ("total", *CHOICES, "invalid")
SAMPLED = (
    "credit="
    + json.dumps(
        [
            {"estimator": "coma", "decisions": [choice], "group_by": "task", "normalise": True}
            for choice in CHOICES
        ]
    ),
    "critic.backup=best", "critic.entropy_bonus=0.01", "critic.optimism=0.02",
    "train.options=sampled", "train.steps=30", "train.learning_rate=0.0007", "train.invalid=2",
)  # fmt: skip
"""The same credit as a policy gradient on the options that were taken, at settings chosen by hand."""
SHARES = (0.5, 0.25, 0.15, 0.1)
"""Of the untrained team's regret: how many tokens until it is down to this."""


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Every arm with every seed."""
    less = ("train.steps=2", "rollout.groups=8", "warm.steps=20", "eval.episodes=16") if quick else ()
    longer = () if quick else ("train.steps=75",)
    found = []
    for seed in range(num_seeds):
        found.append({"arm": "credit by decision", "recipe": "flagship", "changes": less, "seed": seed})
        found.append(
            {"arm": "taken options only", "recipe": "flagship", "changes": (*SAMPLED, *less), "seed": seed}
        )
        found.append(
            {
                "arm": "team advantage",
                "recipe": "team-advantage",
                "changes": (*TEAM, *longer, *less),
                "seed": seed,
            }
        )
    for changes in TEAM_TRIED[:1] if quick else TEAM_TRIED:
        for seed in (100, 101)[: num_seeds if quick else 2]:
            changed = (*changes, *(less or ("train.steps=40",)))
            found.append(
                {
                    "arm": TRIED + ", ".join(changes),
                    "recipe": "team-advantage",
                    "changes": changed,
                    "seed": seed,
                }
            )
    return found


def tokens_until(record: Record, share: float) -> float:
    """Tokens played when the smoothed regret was first down to a share of the untrained team's; NaN: never."""
    level = share * record["before"]["regret"]["total"]
    totals = [step["regret"]["total"] for step in record["steps"]]
    for number in range(len(totals)):
        window = totals[max(0, number - 2) : number + 1]
        if len(window) == min(3, len(totals)) and sum(window) / len(window) <= level:
            return float(record["steps"][number]["tokens"])
    return float("nan")


def table(records: list[Record]) -> str:
    """Regret before and after, by decision, and tokens to each level; what the baseline was tried with."""
    task = load("flagship").task
    records = charged(records, solve(make_game(task.name.removeprefix("game:"), task.settings)).answer_price)
    tried = [record for record in records if record["arm"].startswith(TRIED)]
    arms = list(dict.fromkeys(record["arm"] for record in records if record not in tried))
    rows = []
    for arm in arms:
        mine = [record for record in records if record["arm"] == arm]
        for when in ("before", "after"):
            parts = [shown((r[when]["regret"][name] for r in mine), ".4f") for name in PARTS]
            ratio = [r[when]["regret"]["total"] / r["before"]["regret"]["total"] for r in mine]
            tokens = "0" if when == "before" else shown((r["steps"][-1]["tokens"] / 1e6 for r in mine), ".2f")
            invalid = shown((r[when]["invalid"] for r in mine), ".2f")
            rows.append([f"{arm}, {when}", str(len(mine)), *parts, shown(ratio), invalid, tokens])
    heading = ["", "seeds", "regret", *PARTS[1:], "of the untrained", "invalid answers", "million tokens"]
    return "\n\n".join((markdown(heading, rows), _tokens_table(records, arms), _tried_table(tried)))


def _tokens_table(records: list[Record], arms: list[str]) -> str:
    rows = []
    for share in SHARES:
        row = [f"{share:.0%} of the untrained team's regret"]
        for arm in arms:
            found = [tokens_until(record, share) / 1e6 for record in records if record["arm"] == arm]
            reached = sum(value == value for value in found)
            row.append(f"{shown(found, '.2f')} ({reached} of {len(found)} seeds)" if reached else "never")
        rows.append(row)
    return markdown(["million tokens until regret is", *arms], rows)


def _tried_table(records: list[Record]) -> str:
    """Means over the last ten steps, because two seeds of a noisy run say little."""
    rows = []
    for arm in dict.fromkeys(record["arm"] for record in records):
        mine = [record for record in records if record["arm"] == arm]
        last = [[step["regret"]["total"] for step in record["steps"][-10:]] for record in mine]
        shares = [sum(t) / len(t) / r["before"]["regret"]["total"] for t, r in zip(last, mine, strict=True)]
        rows.append([arm.removeprefix(TRIED), *(f"{share:.2f}" for share in shares)])
    seeds = sorted({record["seed"] for record in records})
    return markdown(["team advantage, 40 steps", *(f"of the untrained, seed {seed}" for seed in seeds)], rows)


if __name__ == "__main__":
    main(__doc__, "result1_flagship", jobs, train, table)

"""Result 20: whom to hand a job to among hundreds, and a team of another size than the one that was trained.

python benchmarks/learning/result20_dispatch.py [--quick] [--seeds 10] [--processes 4] [--kept]

Written before any test seed was run; docs/learning/dispatch.md is its page. Two questions, one budget of time.

DISPATCH: does the cost of a choice have to grow with the number of those who may be chosen?
task          `dispatch`: a job that is named by what is wrong (8 words) goes to one of N workers, each with a card
              of two words, one of 4 trades and one of 3 grades. Which trade a job needs stands nowhere. The right
              trade is worth 0.3, 0.6 or 0.9, any other 0. Teams are drawn anew for every instance
N             10, 100, 300
arms          words   reads the job alone and says whom it wants, `delegate plumber-expert: leak`; a directory
              (`baton.team.directory`) finds who fits best
              list    says the same, and reads every worker's card as well
              list, as many decisions    (N = 10 alone) as list, with as many decisions as `words` has
model         `tiny` (width 64, two layers). All runs begin with the same weights, made once (seed 1000): they answer
              every one of these prompts in the right form, trade and grade at random
credit        the reward less its group's mean (8 answers to one prompt), recipe `dr-grpo` with a KL to the start
budget        300,000 tokens a run, prompts and answers; the third arm 943,000
tuning        on seed 1000: how fast (`PACES`: learning rate 0.0003, 0.001 or 0.003 with KL 0.1, 0.01, 0.03) and
              groups a step. `words` at N = 100: slow and fast with 13 groups. `list`: gentle, slow and fast with 4
              groups at N = 10 and one at 100 and 300, slow with 13 at 10 and with 4 at 100. What ended highest stands
              in PACE and STEP. Fast lost its grammar in all three, and slow in steps of one group at 100 and 300.
              Nothing was tried for the third arm, which has the setting of `words`. While this was made, `words` was
              also run with 8 trades and without a KL (it learned slowly or lost its grammar)
seen          on seed 1000, of the best there is: `words` 0.894 of 0.900 at N = 100 (200,000 tokens), 0.563 of 0.698
              at 10; `list` 0.475 of 0.698 at 10, 0.184 and 0.142 of 0.900 at 100 and 300; the third arm 0.675 of 0.698
metric        regret: the value of the best worker of the team (exact, by instance) less that of the one chosen, on
              512 instances that are not trained on. Beside it tokens a decision. Every run of `words` is also
              measured at the other two N and at 3,000 (51 instances there)
cost          processor that the policy takes for a decision, asked for one at a time, at the weights of the start, and
              a look-up by itself; medians over 64 instances, one thread
expected      tokens a decision of `list` grow by three a worker, of `words` not at all. At equal tokens `list` has a
              third of the decisions at N = 10 and 1/65 at 300, so it should end behind `words`, near where it began
              at 100 and 300. A regret of `words` that stays when all is learned: a directory does not say what there
              is, so an expert is asked for where the trade has none (by counting, in the first table)

SIZES: a team trained at 3 workers and used with 6, 12 and 30
task          the stopping chain of result 6, recipe `stop` with its settings
arms          three           trained with 3 workers; reads counts (what result 6 did)
              drawn           the size drawn from 2 to 6 for each instance; reads counts
              ratio           trained with 3; reads how many are still out beside the good returns, in five words that
              mean the same at any size
              drawn, ratio    both
              The size is a setting, task.name = "game:varied" and task.settings.values.num_workers = [2, 3, 4, 5, 6],
              and so is the view, task.settings.view = "ratio" (of game:varied: task.settings.settings.view)
budget        540,000 tokens a run, prompts and answers, in 30 steps: with 128 episodes a step one whole run of each
              arm on seed 1000 took 526, 508, 503 and 512 thousand, and GROUPS evens that out. What came of these four
              was seen (three: 1.2, 4.3, 13.7, 11.0 %; drawn: 1.8, 1.4, 13.3, 185.9; ratio: 1.1, 1.0, 0.3, 3.0; both:
              0.7, 0.8, 0.2, 3.0), and nothing else was set by it
tuning        none, for any arm: the recipe's settings. The view was chosen among eight by exact calculation, without
              any training: the best play that reads it loses 0.0, 0.3, 0.2 and 0.8 % of the optimum at 3, 6, 12 and
              30, and the best at 3 carried over 0.0, 0.3, 0.2 and 2.9 % (shares of the team in four words: 2.3, 3.4
              and 1.7 %). So we know that this view can carry over on this game; whether training finds it is what is
              asked
metric        % of the optimum lost in value at 3, 6, 12 and 30 workers, 512 held-out episodes each, without what is
              charged for invalid answers, which stand beside it, as in result 6
expected      `three` as in result 6 (about 1.5, 7, 15, 11); `drawn` near the optimum to 6, and no better than `three`
              at 12 and 30; `ratio` within 5 % everywhere, `drawn, ratio` too

test seeds    3000 to 3009, each seed's runs of both parts before the next seed's; as many whole seeds as the time
              allows that this was given (55 minutes of processor on 4 cores), at least 5. Intervals are Student's 95
              % over seeds, so over training runs; differences are paired by seed. Nothing is corrected for how many
              differences there are
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dispatch_play import GROUP, costs, expected, played, recipe_of, start_of
from runs import RESULTS, Job, Record, interval, lost_value, markdown, measure, rounded, run_jobs, shown

KEPT = RESULTS / "result20_dispatch.json"
FIRST_SEED, QUICK_SEED = 3000, 1

WORDS, LIST, AS_MANY = "words", "list", "list, as many decisions"
TEAMS = (10, 100, 300)
ALSO = (10, 100, 300, 3000)
TOKENS, EPISODES = 300_000, 512
STEP = {WORDS: 13, "list/10": 4, "list/100": 4, "list/300": 1, AS_MANY: 13}
"""Groups of eight decisions a step."""
PACE = {WORDS: "fast", "list/10": "slow", "list/100": "slow", "list/300": "gentle", AS_MANY: "fast"}
PER_DECISION = {"words": 14, "list/10": 44, "list/100": 314, "list/300": 914}
"""Tokens, prompt and answer."""

SIZES = (3, 6, 12, 30)
DRAWN = [2, 3, 4, 5, 6]
CHAIN_TOKENS, CHAIN_STEPS = 540_000, 30
CHAINS = {
    "three": (False, "counts"), "drawn": (True, "counts"), "ratio": (False, "ratio"), "drawn, ratio": (True, "ratio"),
}  # fmt: skip
"""Whether sizes are drawn, and what is read."""
GROUPS = {"three": 131, "drawn": 136, "ratio": 137, "drawn, ratio": 135}


def jobs(num_seeds: int, quick: bool) -> list[Job]:
    """Every arm of both parts, seed by seed."""
    priced = [("job", size) for size in ALSO] + [("all", size) for size in TEAMS]
    first = QUICK_SEED if quick else FIRST_SEED
    found: list[Job] = [
        {"part": "cost", "arm": shows, "size": size, "seed": QUICK_SEED, "quick": quick}
        for shows, size in priced
    ]
    for seed in range(first, first + num_seeds):
        cells = [(arm, size) for size in TEAMS for arm in (WORDS, LIST)] + [(AS_MANY, TEAMS[0])]
        found += [
            {"part": "dispatch", "arm": arm, "size": size, "seed": seed, "quick": quick}
            for arm, size in cells
        ]
        found += [{"part": "sizes", "arm": arm, "size": 0, "seed": seed, "quick": quick} for arm in CHAINS]
    return found


def worker(job: Job) -> Record:
    """One run, in a process of its own."""
    import torch

    torch.set_num_threads(1)
    began = time.process_time()
    run = {"dispatch": dispatch, "sizes": chain, "cost": cost}[job["part"]]
    record = run(job)
    kept = {key: job[key] for key in ("part", "arm", "size", "seed")}
    return kept | record | {"cpu_seconds": time.process_time() - began}


def cost(job: Job) -> Record:
    """What a decision takes, at the weights of the start."""
    return costs(job["arm"], job["size"], start_of(), *((8, 10) if job["quick"] else (64, 100)))


def dispatch(job: Job) -> Record:
    """A dispatcher, trained until its tokens are spent."""
    from baton.compose.training import make_trainer

    arm, size, quick = job["arm"], job["size"], job["quick"]
    shows = "job" if arm == WORDS else "all"
    cell = WORDS if arm == WORDS else f"list/{size}"
    tokens = TOKENS if arm != AS_MANY else TOKENS * PER_DECISION[cell] // PER_DECISION[WORDS]
    tokens, episodes = (tokens // 20, 16) if quick else (tokens, EPISODES)
    setting = AS_MANY if arm == AS_MANY else cell
    groups = STEP[setting]
    steps = math.ceil(tokens / (groups * GROUP * PER_DECISION[cell]))
    recipe = recipe_of(shows, size, job["seed"], PACE[setting], groups, steps, start_of())
    trainer = make_trainer(recipe)
    before = played(trainer, recipe, shows, size, episodes)
    curve, spent, decisions = [], 0, 0
    while spent < tokens:
        made = trainer.step()
        spent, decisions = made.metrics["total_tokens"], decisions + len(made.traces)
        curve.append([spent, made.metrics["return"]["mean"]])
    others = ALSO if arm == WORDS else (size,)
    after = {str(n): played(trainer, recipe, shows, n, min(episodes, EPISODES * 300 // n)) for n in others}
    return {"before": before, "after": after, "curve": curve[::4], "tokens": spent, "decisions": decisions}


def chain_recipe(arm: str, seed: int) -> Any:
    """The recipe `stop`, with sizes that are drawn or not, and what is read."""
    from baton.learn.recipe import load

    is_drawn, view = CHAINS[arm]
    changes = [f"train.steps={CHAIN_STEPS}", f"rollout.groups={GROUPS[arm]}", f"train.seed={seed}"]
    changes += [f"eval.episodes={EPISODES}"]
    if is_drawn:
        changes += ["task.name=game:varied", "task.settings.game=stopping-chain"]
        changes += [
            f"task.settings.values.num_workers={json.dumps(DRAWN)}",
            f"task.settings.settings.view={view}",
        ]
    else:
        changes += [f"task.settings.num_workers={SIZES[0]}", f"task.settings.view={view}"]
    return load("stop", changes)


def chain(job: Job) -> Record:
    """A team that learns when to stop, measured at all sizes."""
    from msgspec import structs

    from baton.compose.stage_from_recipe import make_stage
    from baton.compose.training import make_trainer
    from baton.learn.recipe import TaskPart

    recipe = chain_recipe(job["arm"], job["seed"])
    if job["quick"]:
        recipe = structs.replace(
            recipe,
            warm=structs.replace(recipe.warm, steps=20, episodes=50),
            rollout=structs.replace(recipe.rollout, groups=8),
            train=structs.replace(recipe.train, steps=2),
            eval=structs.replace(recipe.eval, episodes=16),
        )
    trainer = make_trainer(recipe)
    told: dict[str, Any] = {"total_tokens": 0}
    while trainer.step_number < recipe.train.steps:
        told = trainer.step().metrics
    found = {}
    for size in SIZES:
        settings = {"num_workers": size, "view": CHAINS[job["arm"]][1]}
        there = structs.replace(recipe, task=TaskPart(name="game:stopping-chain", settings=settings))
        found[str(size)] = measure(trainer, recipe, make_stage(there))
    return {"sizes": found, "tokens": told["total_tokens"]}


def of(records: Sequence[Record], part: str, arm: str, size: int = 0) -> list[Record]:
    """The runs of one cell."""
    return [r for r in records if (r["part"], r["arm"], r["size"]) == (part, arm, size)]


def paired(
    mine: Sequence[Record], theirs: Sequence[Record], figure: Callable[[Record], float], form: str
) -> str:
    """The difference by seed, of seeds that both have."""
    other = {each["seed"]: figure(each) for each in theirs}
    mean, half = interval(figure(each) - other[each["seed"]] for each in mine if each["seed"] in other)
    return f"{mean:+{form}}" + ("" if half is None else f" ± {half:{form}}")


def regret_at(size: int) -> Callable[[Record], float]:
    return lambda record: record["after"][str(size)]["best"] - record["after"][str(size)]["value"]


def dispatch_table(records: Sequence[Record]) -> str:
    """Every arm at every N."""
    rows = []
    for size in TEAMS:
        words = of(records, "dispatch", WORDS, size)
        for arm in (WORDS, LIST, AS_MANY):
            mine, regret = of(records, "dispatch", arm, size), regret_at(size)
            if not mine:
                continue
            here = [each["after"][str(size)] for each in mine]
            rows.append(
                [
                    str(size),
                    arm,
                    str(len(mine)),
                    f"{interval(each['tokens'] for each in here)[0]:.0f}",
                    f"{interval(each['decisions'] for each in mine)[0]:.0f}",
                    shown(each["before"]["best"] - each["before"]["value"] for each in mine),
                    shown(map(regret, mine)),
                    "" if arm == WORDS else paired(mine, words, regret, ".3f"),
                    shown((each["invalid"] for each in here), ".2f"),
                ]
            )
    heading = [
        "N",
        "arm",
        "seeds",
        "tokens a decision",
        "decisions in training",
    ]
    heading += ["regret before", "regret", "less words", "invalid"]
    return markdown(heading, rows)


def carried_table(records: Sequence[Record]) -> str:
    """`words`, trained at one N and used at another."""
    rows = []
    for size in TEAMS:
        mine = of(records, "dispatch", WORDS, size)
        if mine:
            cells = [shown(map(regret_at(n), mine)) for n in ALSO]
            rows.append([f"trained at {size}", *cells])
    heading = ["words, regret", *(f"used at {n:,}" for n in ALSO)]
    return markdown(heading, rows)


def cost_table(records: Sequence[Record]) -> str:
    """What a decision takes."""
    rows = []
    for arm, shows in ((WORDS, "job"), (LIST, "all")):
        found = {each["size"]: each for each in records if (each["part"], each["arm"]) == ("cost", shows)}
        for name, form in (("tokens", ".0f"), ("policy_ms", ".2f"), ("look_up_ms", ".4f")):
            cells = [f"{found[n][name]:{form}}" if n in found else "" for n in ALSO]
            rows.append([f"{arm}: {name.replace('_', ' ')}", *cells])
    return markdown(["a decision", *(f"N = {n:,}" for n in ALSO)], rows)


def known_table(episodes: int = 1000) -> str:
    """What is known without training."""
    rows = []
    for size in TEAMS:
        found = expected(size, episodes)
        names = ("knows", "random words", "random worker")
        rows.append(
            [str(size), f"{found['best']:.3f}", *(f"{found['best'] - found[name]:.3f}" for name in names)]
        )
    return markdown(
        ["N", "best", "regret: knows the trade, asks for an expert", "random words", "random worker"], rows
    )


def lost_at(size: int) -> Callable[[Record], float]:
    """% of the optimum that is lost in value."""
    from baton.games.library import make_game
    from baton.games.solve import solve

    solution = solve(make_game("stopping-chain", {"num_workers": size}))
    return lambda r: 100 * lost_value(r["sizes"][str(size)], solution.answer_price) / solution.value


def sizes_table(records: Sequence[Record]) -> str:
    """What is lost of the optimum at every size, and what differs from training at three."""
    rows = []
    three = of(records, "sizes", "three")
    figures = {size: lost_at(size) for size in SIZES}
    for arm in CHAINS:
        mine = of(records, "sizes", arm)
        if mine:
            cells = [shown(map(figures[size], mine), ".1f") for size in SIZES]
            rows.append([arm, str(len(mine)), *cells, shown((r["tokens"] / 1000 for r in mine), ".0f")])
    for arm in list(CHAINS)[1:]:
        mine = of(records, "sizes", arm)
        if mine:
            cells = [paired(mine, three, figures[size], ".1f") for size in SIZES]
            rows.append([f"{arm}, less three", str(len(mine)), *cells, ""])
    for arm in CHAINS:
        mine = of(records, "sizes", arm)
        if mine:
            cells = [shown((r["sizes"][str(size)]["invalid"] for r in mine), ".2f") for size in SIZES]
            rows.append([f"{arm}: invalid answers", str(len(mine)), *cells, ""])
    heading = ["% below the optimum", "seeds", *(f"{size} workers" for size in SIZES), "thousand tokens"]
    return markdown(heading, rows)


def table(records: Sequence[Record]) -> str:
    """All tables."""
    parts = [known_table(), cost_table(records), dispatch_table(records), carried_table(records)]
    parts.append(sizes_table(records))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, few steps: shows that it runs, no more"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=4, help="runs at a time, one thread each")
    parser.add_argument(
        "--kept", action="store_true", help="print the tables of the records kept in results/"
    )
    parser.add_argument(
        "--part", type=Path, help="where runs are written as they end; as they are of a call cut short"
    )
    args = parser.parse_args()
    if args.kept:
        print(table(json.loads(KEPT.read_text("utf-8"))))
        return
    wanted = jobs(1 if args.quick else args.seeds, args.quick)
    part = None if args.quick else args.part or KEPT.with_suffix(".part.jsonl")
    start_of()
    records = run_jobs(wanted, worker, args.processes, part)
    if not args.quick:
        KEPT.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")
    print(table(records))


if __name__ == "__main__":
    main()

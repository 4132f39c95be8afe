"""Result 13: credit diffusion. One of n workers reads the fact, the reward is the team's: who learns how fast?

python benchmarks/learning/result13_diffusion.py [--quick] [--seeds 5] [--kept] [--draw FILE.svg] [--model FOLDER]

Written before any test seed was run; docs/learning/credit_diffusion.md is its page.

task          `needle`, a letter and its number in each shard: one worker of n holds the fact that is asked for and is
              to return the number, the others are to return `no`. Half of the reward is for the fact, half the share
              of the others that kept quiet. Facts of test instances are not asked for in training
n             2, 8, 32 workers, and 128; the lead is a program
model         `tiny` (width 64, two layers), one set of weights for all workers. All runs begin with the same weights,
              made once: a supervised start on right reports, then on reports of which half are tossed, so that workers
              know whether they hold the fact and waver. --model takes any local folder in its place
credit        uniform  leave-one-out, one number for all      agent  difference: the team without that worker
              message  each report against another draw       fork   one report in n, by chance, against three other
                       of it                                         draws of it, n times as much
              each divided by its root mean square over the step; derived in benchmarks/learning/diffusion_snr.py
budget        80,000 tokens a run, prompts and answers of all workers, what is replayed charged; a step is 256 reports
              (256/(4n) instances of four rollouts; at n = 128 one, so 512), and arms that replay more have fewer steps
tuning        none, for any arm: the learning rate is 0.001 for all. While this was made, the start was chosen so that
              workers waver, and `agent` was run with 8 workers on seed 1000 at 0.001 and 0.003 (which unlearned)
test          seeds 0 to 4, all arms and sizes of a seed before the next, first of n = 2, 8 and 32, then what is
              measured at the start, last of n = 128, as many whole seeds as the hour allows that this was given.
              400 test instances, the same for all. Intervals are Student's 95 % over seeds, so over training runs, not
              over starts; differences are paired by seed
skill         what a worker is right by: half its chance of exactly the right number where it holds the fact, half its
              chance of `no` where it does not, on the test instances: exact for them, nothing is sampled
metric        speed: the mean of the skill over the budget less the skill of the start (the area under the curve, by
              straight lines between nine measurements). Beside it the skill at the end
prediction    signal to noise of the skill's gradient in the tokens of 256 reports at the start, from the start's two
              chances of being right; and the same measured on traces with those credits, at weights that do not move
              (seed 2000). It says that uniform and fork fall as 1/n, agent and message as 1/sqrt(n): we expect agent
              not to be faster than uniform at n = 2, and to be faster at 32 and 128; fork never to be
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffusion_picture import draw
from diffusion_snr import CREDITS, DRAWS, GROUP, gradients, predicted
from runs import RESULTS, Job, Record, interval, markdown, rounded, run_jobs, shown

SIZES = (2, 8, 32, 128)
SMALL = 32
"""Sizes up to this one come first."""
REPORTS = 256
"""Of one step, without replays."""
TOKENS = 80_000
RATE = 1e-3
START, STILL = 1000, 2000
"""Seeds that are no test's: of the start, and of traces at weights that stay."""
PER_SHARD = 1
AWAY = 10**9
"""Instances from here on are no run's: of the start, and those that skill is measured on."""
WARM: dict[str, Any] = {"instances": 12_000, "rows": 64, "stages": ((0.0, 750, 5e-3), (0.5, 100, 1e-3))}
"""Of the start: the share of reports that are tossed, steps, learning rate; first of right ones only."""
POINTS = 8
AT_ONCE = 200
"""Rows that are looked at together: a large vocabulary needs room."""
KEPT = RESULTS / "result13_diffusion.json"
_ESTIMATORS = {
    "uniform": "leave-one-out", "agent": "difference", "message": "message-replay", "fork": "message-replay",
}  # fmt: skip


def recipe_of(n: int, credit: str, seed: int, model: str, rate: float, num_reports: int = REPORTS) -> Any:
    """A run's recipe."""
    from msgspec import structs

    from baton.learn.recipe import CreditPart, TaskPart, load

    settings: dict[str, Any] = {}
    if credit in DRAWS:
        settings = {"num_alternatives": DRAWS[credit], "seed": seed}
    if credit == "fork":
        settings["replay_probability"] = 1 / n
    part = CreditPart(estimator=_ESTIMATORS[credit], roles=("worker",), settings=settings, normalise=rate > 0)
    changes = [
        f"policies.main.model={model}",
        "team.max_tokens=6",
        f"rollout.groups={max(1, num_reports // (GROUP * n))}",
        f"rollout.group_size={GROUP}",
        f"train.learning_rate={rate or 1e-12}",
        f"train.seed={seed}",
    ]
    recipe = load("difference", changes)
    task = TaskPart(name="needle", settings={"num_shards": n, "per_shard": PER_SHARD})
    team = structs.replace(recipe.team, settings={})
    return structs.replace(recipe, task=task, team=team, credit=(part,), warm=None)


def start_of(seed: int) -> str:
    """The folder of the weights that every run begins with, kept for later ones."""
    from hashlib import blake2b

    from baton.learn.models.local import kept

    key = blake2b(json.dumps(WARM).encode(), digest_size=6).hexdigest()
    return str(kept(f"needle-start-{seed}-{key}", lambda place: make_start(seed, place)))


def make_start(seed: int, place: Path) -> None:
    """`tiny`, warmed up on right reports, then on some that are tossed: it knows who holds the fact, and wavers."""
    from baton.learn.models.start import spoken_rows, texts_of, warm_rows
    from baton.learn.models.tiny import Tiny, make_tiny

    said = [reports_tossed(seed, toss, WARM["instances"]) for toss, _, _ in WARM["stages"]]
    model, tokenizer = make_tiny(texts_of(said[0]), Tiny(width=64, vocabulary=320, context=64), seed=seed)
    for spoken, (_, steps, rate) in zip(said, WARM["stages"], strict=True):
        rows, counts = spoken_rows(tokenizer, spoken), list(spoken.values())
        warm_rows(model, rows, counts, steps=steps, rows=WARM["rows"], learning_rate=rate, seed=seed)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)


def reports_tossed(seed: int, share: float, instances: int) -> Counter[Any]:
    """What workers read and say, a share of it tossed: `no` or the number that was read, whatever was asked for."""
    from baton.tasks.needle import QUIET, Needle, found_in

    task, toss = Needle(num_shards=2, per_shard=PER_SHARD), random.Random(seed)
    spoken: Counter[Any] = Counter()
    for number in range(instances):
        one = task.instance(AWAY + number)
        for shard in (1, 2):
            told = task.part(one, shard)
            tossed = toss.choice((QUIET, told.split()[-1]))
            spoken[asking(told), f"return {tossed if toss.random() < share else found_in(told)}"] += 1
    return spoken


def asking(told: str) -> tuple[tuple[str, str], ...]:
    """What a worker reads."""
    return (("system", "worker"), ("user", f"task: {told}"))


def worker(job: Job) -> Record:
    """One run: trained until its tokens are spent, its skill measured on the way."""
    began = time.process_time()
    model = job["model"] or start_of(START)
    record = still(job, model) if job["still"] else run(job, model)
    kept = {key: job[key] for key in ("arm", "seed", "n", "credit", "still")}
    return kept | record | {"cpu_seconds": time.process_time() - began}


def made_of(job: Job, seed: int, model: str) -> Any:
    return recipe_of(job["n"], job["credit"], seed, model, job["rate"], job.get("reports", REPORTS))


def run(job: Job, model: str) -> Record:
    from baton.compose.training import make_trainer

    trainer = make_trainer(made_of(job, job["seed"], model))
    every = job["tokens"] / POINTS
    curve = [[0, *skill(trainer, job["episodes"])]]
    spent, invalid, failed = 0, 0.0, 0.0
    while spent < job["tokens"]:
        told = trainer.step().metrics
        spent, invalid = told["total_tokens"], invalid + told["sizes"]["invalid"]
        failed += told["sizes"]["failed"]
        if spent >= every * len(curve):
            curve.append([spent, *skill(trainer, job["episodes"])])
    return {
        "curve": curve,
        "steps": trainer.step_number,
        "invalid": invalid / trainer.step_number,
        "failed": failed,
    }


def skill(trainer: Any, episodes: int, split: Any = "test") -> list[float]:
    """The chances of exactly the right report of the worker that holds the fact, and of one that does not."""
    policy = trainer.policies["main"]
    return chances(policy.model, policy.tokenizer, range(AWAY, AWAY + episodes), split)


def chances(model: Any, tokenizer: Any, instances: Sequence[int], split: Any) -> list[float]:
    """The same of any model, on these instances."""
    from baton.learn.models.start import spoken_rows
    from baton.tasks.needle import Needle, found_in

    task = Needle(num_shards=2, per_shard=PER_SHARD)
    every = [task.instance(number, split) for number in instances]
    told = [[task.part(one, shard) for shard in (one.gold["shard"], 3 - one.gold["shard"])] for one in every]
    found = []
    for side in (0, 1):
        spoken = [(asking(each[side]), f"return {found_in(each[side])}") for each in told]
        right = [math.exp(sum(said)) for said in said_so(model, spoken_rows(tokenizer, spoken))]
        found.append(math.fsum(right) / len(right))
    return found


def said_so(model: Any, rows: Sequence[Any]) -> list[list[float]]:
    """Of each row the log-probabilities of its answer's tokens."""
    import torch

    found = []
    for at in range(0, len(rows), AT_ONCE):
        some = rows[at : at + AT_ONCE]
        ids = torch.zeros((len(some), max(len(row.ids) for row in some)), dtype=torch.long)
        for k, row in enumerate(some):
            ids[k, : len(row.ids)] = torch.tensor(row.ids.tolist())
        with torch.no_grad():  # causal, so what pads a row on the right is not seen by it
            every = torch.log_softmax(model(ids.to(model.device)).logits.float(), -1)
        read = [(k, place - 1, int(row.ids[place])) for k, row in enumerate(some) for place in row.places]
        values = iter(every[tuple(zip(*read, strict=True))].tolist())
        found += [[next(values) for _ in row.places] for row in some]
    return found


def still(job: Job, model: str) -> Record:
    """The signal to noise at weights that do not move: mean and spread, over groups, of the skill's gradient."""
    from baton.compose.training import make_trainer

    trainer = make_trainer(made_of(job | {"rate": 0.0}, STILL, model))
    p, q = skill(trainer, 4 * job["episodes"])
    found: list[float] = []
    failed = 0.0
    told: dict[str, Any] = {}
    while not found or told["total_tokens"] < job["tokens"]:
        made = trainer.step()
        told = made.metrics
        failed += told["sizes"]["failed"]
        found += [
            gradients(trainer.stage.task, made.traces[at : at + GROUP], p, q)
            for at in range(0, len(made.traces), GROUP)
        ]
    return {"p": p, "q": q, "gradients": found, "tokens": told["total_tokens"], "failed": failed}


def jobs(num_seeds: int, quick: bool, model: str = "", only: Sequence[int] = SIZES) -> list[Job]:
    """A run for every seed, size and credit, and what is measured at the start; the largest teams come last."""
    common = {"model": model, "rate": RATE, "episodes": 40 if quick else 400}
    seeds, resting = [(seed, False) for seed in range(num_seeds)], [(STILL, True)]
    small, large = [n for n in only if n <= SMALL], [n for n in only if n > SMALL]
    parts = [(seeds, small), (resting, small), (seeds, large), (resting, large)]
    return [
        {
            "arm": f"{credit}, n = {n}" + (", still" if is_still else ""), "seed": seed, "n": n, "credit": credit,
            "still": is_still, "tokens": 8_000 if quick else TOKENS, **common,
        }
        for which, sizes in parts for seed, is_still in which for n in sizes for credit in CREDITS
    ]  # fmt: skip


def skills(record: Record) -> list[tuple[float, float]]:
    """(tokens, skill) on the way."""
    return [(tokens, (p + q) / 2) for tokens, p, q in record["curve"]]


def speed(record: Record, budget: float = TOKENS) -> float:
    """Mean of the skill over the budget less that of the start."""
    curve = skills(record)
    area, (before, low) = 0.0, curve[0]
    for tokens, high in curve[1:]:
        end = min(tokens, budget)
        there = low + (high - low) * (end - before) / (tokens - before)
        area += (end - before) * (low + there) / 2
        before, low = tokens, high
    return area / min(budget, curve[-1][0]) - curve[0][1]


def at_end(record: Record) -> float:
    return skills(record)[-1][1]


def of(records: Sequence[Record], credit: str, n: int) -> list[Record]:
    """The runs of one cell, by seed."""
    mine = [r for r in records if (r["credit"], r["n"], r["still"]) == (credit, n, False)]
    return sorted(mine, key=lambda each: each["seed"])


def measured_snr(record: Record, plain: Record) -> float:
    """Of a step's tokens, from mean and spread over groups; `plain` is uniform credit's, which replays nothing."""
    found = record["gradients"]
    mean = math.fsum(found) / len(found)
    spread = math.sqrt(math.fsum((each - mean) ** 2 for each in found) / max(1, len(found) - 1))
    a_step = REPORTS * plain["tokens"] / (len(plain["gradients"]) * GROUP * plain["n"])
    return mean / spread * math.sqrt(len(found) * a_step / record["tokens"]) if spread else math.nan


def paired(mine: Sequence[Record], theirs: Sequence[Record], figure: Any) -> str:
    """The difference by seed, of seeds that both have."""
    other = {each["seed"]: figure(each) for each in theirs}
    mean, half = interval(figure(each) - other[each["seed"]] for each in mine if each["seed"] in other)
    return f"{mean:+.3f}" + ("" if half is None else f" ± {half:.3f}")


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Of each cell all that is told."""
    resting = {(each["credit"], each["n"]): each for each in records if each["still"]}
    found = []
    for n, credit in ((n, c) for n in sorted({each["n"] for each in records}) for c in CREDITS):
        mine = of(records, credit, n)
        if not mine:
            continue
        _, p, q = mine[0]["curve"][0]
        both = resting.get((credit, n)), resting.get(("uniform", n))
        measured = measured_snr(*both) if both[0] and both[1] else math.nan
        told = {"predicted": predicted(credit, n, p, q, REPORTS), "measured": measured}
        found.append({"n": n, "credit": credit, "runs": mine, **told})
    return found


def table(records: Sequence[Record], budget: float = TOKENS) -> str:
    """Every size and credit: signal to noise, speed, skill at the end, and what differs from uniform credit."""

    def fast(record: Record) -> float:
        return speed(record, budget)

    lines = []
    for row in rows(records):
        mine, uniform = row["runs"], of(records, "uniform", row["n"])
        against = [paired(mine, uniform, f) if row["credit"] != "uniform" else "" for f in (fast, at_end)]
        lines.append(
            (
                str(row["n"]), row["credit"], str(len(mine)), f"{row['predicted']:.2f}",
                "–" if math.isnan(row["measured"]) else f"{row['measured']:.2f}",
                shown(map(fast, mine)), against[0], shown(map(at_end, mine)), against[1],
                shown((each["steps"] for each in mine), ".0f").split(" ")[0],
            )
        )  # fmt: skip
    heading = (
        "n", "credit", "seeds", "SNR predicted", "SNR measured", "speed", "less uniform", "skill at the end",
        "less uniform", "steps",
    )  # fmt: skip
    start = [skills(each)[0][1] for each in records if not each["still"]]
    first = f"Skill of the start: {shown(start[:1])}." if start else ""
    return markdown(heading, lines) + "\n\n" + first


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, few steps: shows that it runs, no more"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="numbers of workers")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time, one thread each")
    parser.add_argument("--model", default="", metavar="FOLDER", help="a local model in the place of tiny")
    parser.add_argument("--kept", action="store_true", help="print the table of the records kept in results/")
    parser.add_argument("--draw", metavar="FILE.svg", type=Path, help="draw the picture of the records kept")
    args = parser.parse_args()
    if args.draw:
        args.draw.write_text(draw(rows(json.loads(KEPT.read_text("utf-8"))), speed), "utf-8")
        return
    if args.kept:
        print(table(json.loads(KEPT.read_text("utf-8"))))
        return
    if args.model and not Path(args.model).is_dir():
        parser.error(
            f"--model {args.model}: there is no such folder; expected one with a model's weights and tokenizer"
        )
    if args.sizes and min(args.sizes) < 2:
        parser.error(f"--sizes {min(args.sizes)}: expected teams of at least 2 workers")
    sizes = args.sizes or (SIZES[:2] if args.quick else SIZES)
    found = jobs(2 if args.quick else args.seeds, args.quick, args.model, sizes)
    keep = not (args.quick or args.model)
    part = KEPT.with_suffix(".part.jsonl") if keep else None
    records = run_jobs(found, worker, args.processes, part)
    if keep:
        KEPT.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")
        KEPT.with_suffix(".part.jsonl").unlink(missing_ok=True)
    print(table(records))


if __name__ == "__main__":
    main()

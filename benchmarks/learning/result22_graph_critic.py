"""Result 22: a critic that sees the graph, amortised over shapes, against linear ones and the network that reads.

python benchmarks/learning/result22_graph_critic.py [--quick] [--seeds 10] [--processes 3] [--kept]

Written before any test seed was run; docs/learning/graph_critic.md is its page.

teams         shapes drawn at random (shaped_teams.py): a lead, divisions, trees of all, chain, any and vote down to
              workers who choose careful or quick, both as likely; about 100 or 1,000 events; the value of every prefix
              that has the plan is exact
training      of each critic, for each seed and size: 1,024 rollouts of about 100 events, or 256 of about 1,000, every
              one of a shape of its own; the same rollouts and returns for all arms
test          fresh shapes that no critic saw: 16 of about 100 events, eight rollouts each, and 8 of about 1,000, four
              each; critics trained at either size are asked at both
arms          group mean               the mean return of the other rollouts of the test group; credit is R less it
              linear                   ridge regression on what a linear prefix has: counts of events, position
              linear, graph features   the same and some 400 counts by hand of who stands where (shaped_features.py)
              network                  `[critic] kind = "network"`, as it ships: a transformer, latest 768 tokens
              graph                    `[critic] kind = "graph"`: message passing over the trace's graph
              graph, sums as they are  the same without normalising by depth and branching
budget        equal rollouts; steps of the fit are chosen so that the network and the graph critics take about as much
              processor as each other at each size (STEPS), linear ones take less; processor seconds are told
tuning        one setting for each arm, the penalty (0.01, 0.1, 1) or the rate (0.0005, 0.001, 0.002; of the network
              0.0003, 0.001, 0.003), by the mean square of return less value on 256 unseen rollouts of tuning seed 1000
              at 100 events, where no truth is looked at; used at both sizes
metrics       snr          first: of telescope's credit on a worker's choice, V(after) - V(before), against the exact
                           one: c/sqrt(1 - c^2), c the cosine of the two over all test choices
              value error  root mean square of V less the exact value over prefixes that have the plan, in units of the
                           exact values' spread: 1 knows their mean and no more
              apart        correlation of what care is said to be worth at a choice with what it is worth: 0 for a
                           critic that thinks it worth the same everywhere
              sign         the share of choices where care pays that are told so, and of those where it does not; mean
                           of the two
training of a policy: a table of how careful workers are, by grade, by what is done with their result and by how many
              work on the same (shaped_policy.py); 20 steps of 16 fresh shapes by 4 rollouts of about 100 events;
              credit of group mean, linear with graph features, and graph, each critic learning on the way; rate of the
              table tuned for each arm of 1, 4, 16 by the mean of tuning seeds 1000 and 1001; measured by what is left
              of the regret of even odds on 64 unseen shapes, exact
seeds         20 to 29; intervals are Student's 95 % over seeds, differences are paired by seed
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runs import RESULTS, Job, Record, interval, markdown, rounded, run_jobs, shown

LINEAR = ("linear", "linear, graph features")
LEARNED = ("network", "graph", "graph, sums as they are")
ARMS = ("group mean", *LINEAR, *LEARNED)
SIZES = (100, 1000)
ROLLOUTS = {100: 1024, 1000: 256}
TESTED = {100: (16, 8), 1000: (8, 4)}
"""Unseen shapes, and rollouts of each."""
STEPS = {
    ("graph", 100): 2500, ("graph", 1000): 1200, ("network", 100): 170, ("network", 1000): 170,
}  # fmt: skip
GRIDS = {
    "linear": (0.01, 0.1, 1.0), "network": (0.0003, 0.001, 0.003), "graph": (0.0005, 0.001, 0.002),
}  # fmt: skip
FIRST = 20
TRIED = 9000
"""Seeds of --quick, which no result uses."""
TUNING = 1000
HELD_OUT = 256
POLICY_ARMS = ("group mean", "linear, graph features", "graph")
POLICY_RATES = (1.0, 4.0, 16.0)
POLICY_TUNING = (1000, 1001)
POLICY_STEPS = 20
POLICY_SHAPES = 64
METRICS = ("snr", "value error", "apart", "sign")
KEPT = RESULTS / "result22_graph_critic.json"


def grid(arm: str) -> tuple[float, ...]:
    return GRIDS[arm.split(",")[0]]


def tuning_jobs(quick: bool) -> list[Job]:
    """Critics first: a policy's jobs are short."""
    return [
        {"arm": arm, "kind": "tune", "seed": TUNING, "setting": setting, "quick": quick}
        for arm in (*LEARNED, *LINEAR)
        for setting in (grid(arm)[:1] if quick else grid(arm))
    ]


def policy_tuning_jobs(settings: dict[str, float], quick: bool) -> list[Job]:
    return [
        {"arm": arm, "kind": "tune policy", "seed": seed, "rate": rate,
         "setting": settings.get(arm, 0.0), "quick": quick}
        for arm in POLICY_ARMS[::-1]
        for rate in (POLICY_RATES[:1] if quick else POLICY_RATES)
        for seed in (POLICY_TUNING[:1] if quick else POLICY_TUNING)
    ]  # fmt: skip


def test_jobs(settings: dict[str, float], rates: dict[str, float], seeds: int, quick: bool) -> list[Job]:
    """Seed after seed, all arms of one before the next."""
    found: list[Job] = []
    first = TRIED if quick else FIRST
    for seed in range(first, first + seeds):
        base = {"seed": seed, "quick": quick, "settings": settings}
        found += [
            {"arm": f"critics, {size} events", "kind": "critics", "size": size, **base}
            for size in SIZES[::-1]
        ]
        found.append({"arm": "policies", "kind": "policies", "rates": rates, **base})
    return found  # fmt: skip


def worker(job: Job) -> Record:
    """One job, with the processor it took."""
    import torch

    torch.set_num_threads(1)
    began = time.process_time()
    kinds = {"tune": tune, "tune policy": tune_policy, "critics": critics, "policies": policies}
    record = {key: job[key] for key in ("arm", "kind", "seed")} | kinds[job["kind"]](job)
    return record | {"cpu_seconds": time.process_time() - began}


def made(arm: str, setting: float, size: int, seed: int, quick: bool) -> Any:
    import shaped_features
    from shaped_critics import Linear, Shipped

    if arm in LINEAR:
        return Linear(shaped_features.plain if arm == "linear" else shaped_features.graph, setting)
    kind = arm.split(",")[0]
    more = {"normalise": False} if arm == "graph, sums as they are" else {}
    return Shipped(kind, setting, 3 if quick else STEPS[kind, size], seed, **more)


def rollouts(name: str, size: int, shapes: int, each: int = 1) -> list[Any]:
    from shaped_teams import drawn, play

    return [
        play(shape, f"{name}/{size}/{k}/{n}")
        for k in range(shapes)
        for shape in [drawn(f"{name}/{size}/{k}", size)]
        for n in range(each)
    ]


def tune(job: Job) -> Record:
    """How far returns are from the values of one setting."""
    from shaped_critics import missed

    critic = made(job["arm"], job["setting"], 100, TUNING, job["quick"])
    critic.learn(rollouts(f"train/{TUNING}", 100, 16 if job["quick"] else ROLLOUTS[100]))
    unseen = rollouts(f"held out/{TUNING}", 100, 8 if job["quick"] else HELD_OUT)
    return {
        "setting": job["setting"],
        "missed": missed(unseen, [critic.values(one) for one in unseen]),
    }


def tune_policy(job: Job) -> Record:
    left, _ = policy(job["arm"], job["rate"], job["setting"], job["seed"], job["quick"])
    return {"rate": job["rate"], "left": left}


def critics(job: Job) -> Record:
    """Every arm, or those that are named, trained at one size and asked at both."""
    from shaped_critics import group_mean, judged

    size, quick, seed = job["size"], job["quick"], job["seed"]
    train = rollouts(f"train/{seed}", size, 8 if quick else ROLLOUTS[size])
    tests = {at: rollouts(f"test/{seed}", at, *((2, 2) if quick else TESTED[at])) for at in SIZES}
    found: dict[str, Any] = {}
    for arm in job.get("arms", ARMS):
        began = time.process_time()
        if arm == "group mean":
            per = 2 if quick else TESTED[size][1]
            mine = {str(size): judged(tests[size], group_mean(tests[size], per), uniform=True)}
            found[arm] = {"on": mine, "train_seconds": 0.0, "ask_seconds": 0.0}
            continue
        critic = made(arm, job["settings"][arm], size, seed, quick)
        critic.learn(train)
        learned = time.process_time()
        values = {at: [critic.values(one) for one in tests[at]] for at in SIZES}
        found[arm] = {
            "on": {str(at): judged(tests[at], values[at]) for at in SIZES},
            "train_seconds": learned - began,
            "ask_seconds": time.process_time() - learned,
        }
        print(
            f"  seed {seed}, {size} events, {arm}: {found[arm]['on'][str(size)]}", file=sys.stderr, flush=True
        )
    return {"size": size, "arms": found}


def policies(job: Job) -> Record:
    """A table trained by every arm's credit."""
    found = {}
    for arm in POLICY_ARMS:
        setting = job["settings"].get(arm, 0.0)
        left, seconds = policy(arm, job["rates"][arm], setting, job["seed"], job["quick"])
        found[arm] = {"left": left, "seconds": seconds}
    return {"arms": found}


def policy(arm: str, rate: float, setting: float, seed: int, quick: bool) -> tuple[float, float]:
    from shaped_policy import regret, trained
    from shaped_teams import drawn

    began = time.process_time()
    table = trained(arm, rate, seed, 2 if quick else POLICY_STEPS, 100, setting)
    seconds = time.process_time() - began
    unseen = [drawn(f"policy test/{seed}/{k}", 100) for k in range(8 if quick else POLICY_SHAPES)]
    return regret(table, unseen), seconds


def best(records: Sequence[Record], of: str, by: str) -> dict[str, float]:
    """For each arm the setting with the least mean of a figure."""
    sums: dict[str, dict[float, list[float]]] = {}
    for each in records:
        sums.setdefault(each["arm"], {}).setdefault(each[of], []).append(each[by])
    return {
        arm: min(mine, key=lambda each, mine=mine: math.fsum(mine[each]) / len(mine[each]))
        for arm, mine in sums.items()
    }


def series(records: Sequence[Record], size: int, at: int, arm: str, metric: str) -> dict[int, float]:
    """Seed -> figure."""
    return {
        each["seed"]: each["arms"][arm]["on"][str(at)][metric]
        for each in records
        if each["kind"] == "critics" and each["size"] == size and str(at) in on(each, arm)
    }


def on(record: Record, arm: str) -> dict[str, dict[str, float]]:
    """What an arm was asked at, in a record that may be of some arms alone."""
    asked: dict[str, dict[str, float]] = record["arms"].get(arm, {}).get("on", {})
    return asked


def less(mine: dict[int, float], theirs: dict[int, float]) -> str:
    """The paired difference."""
    mean, half = interval(mine[seed] - theirs[seed] for seed in sorted(mine) if seed in theirs)
    return f"{mean:+.3f}" + ("" if half is None else f" ± {half:.3f}")


def table(records: Sequence[Record]) -> str:
    """What was tuned, critics by size trained and size asked, processor, and the policies."""
    rows = []
    for size in SIZES:
        for at in SIZES:
            hard = series(records, size, at, "linear, graph features", "snr")
            for arm in ARMS:
                mine = {metric: series(records, size, at, arm, metric) for metric in METRICS}
                if mine["snr"]:
                    against = "" if arm == "linear, graph features" else less(mine["snr"], hard)
                    told = (shown(mine[metric].values()) for metric in METRICS)
                    rows.append((f"{size:,}", f"{at:,}", arm, str(len(mine["snr"])), *told, against))
    heading = (
        "trained at", "asked at", "critic", "seeds", *METRICS, "snr less linear with graph features",
    )  # fmt: skip
    return "\n\n".join([markdown(heading, rows), extras(records)])


def extras(records: Sequence[Record]) -> str:
    """Normalising, the network and the linear one against the graph critic; processor; policies; what was tuned."""
    rows = []
    for size in SIZES:
        for at in SIZES:
            graph = {m: series(records, size, at, "graph", m) for m in ("snr", "value error")}
            for arm in (*LINEAR, "network", "graph, sums as they are"):
                theirs = {m: series(records, size, at, arm, m) for m in graph}
                if graph["snr"] and theirs["snr"]:
                    rows.append((f"{size:,}", f"{at:,}", arm, *(less(graph[m], theirs[m]) for m in graph)))
    heading = ("trained at", "asked at", "graph less", "snr", "value error")
    parts = [markdown(heading, rows)] if rows else []
    seconds = [
        (
            f"{size:,}", arm,
            *(
                shown((e["arms"][arm][what] for e in records if e.get("size") == size and arm in e["arms"]), ".1f")
                for what in ("train_seconds", "ask_seconds")
            ),
        )
        for size in SIZES for arm in ARMS[1:]
    ]  # fmt: skip
    parts.append(markdown(("trained at", "critic", "seconds to train", "seconds to ask at both"), seconds))
    told = [each for each in records if each["kind"] == "policies"]
    if told:
        left = {arm: {e["seed"]: e["arms"][arm]["left"] for e in told} for arm in POLICY_ARMS}
        rows = [
            (
                arm, str(len(mine)), shown(mine.values()),
                "" if arm == "graph" else less(left["graph"], mine),
                shown((e["arms"][arm]["seconds"] for e in told), ".1f"),
            )
            for arm, mine in left.items()
        ]  # fmt: skip
        parts.append(
            markdown(("credit by", "seeds", "regret left", "graph less this", "processor seconds"), rows)
        )
    tuned = [
        (each["arm"], each["kind"], f"{each.get('setting', each.get('rate')):g}", str(each["seed"]),
         f"{each.get('missed', each.get('left')):.4f}")
        for each in records if each["kind"].startswith("tune")
    ]  # fmt: skip
    heading = ("arm", "tuned", "setting", "seed", "missed or left")
    return "\n\n".join([*parts, markdown(heading, tuned)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two seeds, few steps: shows that it runs, no more"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=3, help="jobs at a time, one thread each")
    parser.add_argument("--part", type=Path, metavar="FILE.jsonl", help="where records go as they are made")
    parser.add_argument(
        "--kept", action="store_true", help="print the tables of the records kept in results/"
    )
    args = parser.parse_args()  # fmt: skip
    if args.kept:
        print(table(json.loads(KEPT.read_text("utf-8"))))
        return
    part = args.part or (None if args.quick else KEPT.with_suffix(".part.jsonl"))
    first = run_jobs(tuning_jobs(args.quick), worker, args.processes, part)
    settings = best(first, "setting", "missed")
    second = run_jobs(policy_tuning_jobs(settings, args.quick), worker, args.processes, part)
    rates = best(second, "rate", "left")
    seeds = 2 if args.quick else args.seeds
    third = run_jobs(test_jobs(settings, rates, seeds, args.quick), worker, args.processes, part)
    records = [*first, *second, *third]
    if not args.quick:
        KEPT.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")
        if args.part is None and part is not None:
            part.unlink(missing_ok=True)
    print(table(records))


if __name__ == "__main__":
    main()

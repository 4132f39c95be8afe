"""Result 19: the Kimi regime. An orchestrator that learns how wide to work, at 100 workers and then at 300.

python benchmarks/learning/result19_kimi.py [--quick] [--whole] [--seeds 10] [--processes 6] [--kept]

The game is `wide_job`: a job of many items, a lead who chooses how many workers to spawn and how many items to hand to
each, workers who do their share step by step or fail, a patience that one worker alone cannot do it within, and a price
for workers, steps and critical steps. The best plan for at most 100 is known exactly (`wide_job_value`): 42 workers of
six items each while the workers are frozen, 25 of ten once they have learned, in episodes of about 2,600 and 1,500
events. At first every width loses, with whatever share comes to hand, and the narrow ones lose least. The lead begins
with a habit of working alone (each width exp(-0.45) times as likely as the one below). The habit and the overhead of a
worker were chosen so that it matters which reward is paid, on trials with other seeds of the same mathematics without
the runtime. Everything here is played by the team's runtime, rewarded by the recipe's rules (`parl`) and credited by
its estimators; what learns is a softmax table for each of the two policies (`kimi_team`).

Protocol, written before any test seed ran:
arms       GRPO               `group` on the outcome alone, one advantage for the whole team, both phases
           PARL               outcome + r_parallel + r_finish, both down to 0 half way through the first phase, credit
                              `critical-steps`; second phase as `parl-staged`: outcome alone, `agent-group`
           PARL, not annealed the same rewards to the end
           decision credit    `coma` by a counting critic, best-first backup, on the outcome alone: on every choice of
                              the lead; in the second phase also on every step of a worker, whose worth nature tells
phases     of one recipe: 60 steps with the workers frozen, 20 in which all learn; 16 episodes a step, of one instance.
           Then at most 300 workers and five times the items: 12 more steps of the second phase, from the tables at
           100. A new width begins as likely as the likeliest of the old ones, its shares as those of 100
metric     what the policies are worth, exactly, and their regret: V* of the phase's workers less that; V* of the
           second phase and of 300 is with workers who always take the right method. Beside it agents used (expected
           width), critical steps, steps of workers, success, share of agents that finished nothing, all exact; tokens
           and events as played
collapse   a seed that ends a stage with fewer than two agents expected
seeds      ten (201 to 210), paired; tuning on 101, 102 and 103
tuning     on the job for 24 workers, six settings for each arm: for PARL's the lead's rate (2, 4, 8) by the terms'
           weight (1 and 3 times the shipped 0.3 and 0.2), for the others six rates (0.5 to 16); best by value after 40
           steps of the first phase. Then the workers' rate (3, 10, 30), best after 20 of the second
tokens     every episode counts, no arm plays more of them than another, and none forks; invalid answers do not occur

Changed after tuning and before any test seed but one had run (GRPO's seed 201, which collapsed at 100): the machine was
shared and there was time for tuning alone, which is whole. A test seed of 80 steps takes some two minutes of processor
and there was less than that for each. So the ten seeds are of the first phase, in which workers do not learn, with each
worker's steps told in one event (`brief`): the same choices, rewards, estimators and chances, in a tenth of the events;
and after it 12 steps at 300 with the workers still frozen (PARL's terms begin anew there and are gone half way), of
which as many seeds are shown as there was time for. The metric, the arms, the tuned settings and what is expected are
as before; nothing is said by them of the second phase.

Expected, before it ran: GRPO collapses to one agent in a third to a half of the seeds. PARL in one or none, and ends
at 42 or wider. Not annealed it does not collapse either, ends wider than PARL (70 or 100 in most seeds), and a fifth or
more of its agents finish nothing; its return is lower than PARL's. Decision credit collapses in one or none without any
shaping and has the least regret. In the second phase decision credit teaches workers fastest, as it alone credits their
steps; the other arms teach them too, since all workers share one table. Few seeds of any arm narrow from 42 to 25 in 20
steps. At 300 arms that were wide find 126 or 210; collapsed seeds stay collapsed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kimi_picture import draw
from kimi_team import ARMS, KNACK, LEAD, WORKER, Learner, recipe_of
from runs import RESULTS, Record, interval, markdown, rounded, run_jobs, shown
from runs import Job as Task
from wide_job import METHODS, RIGHT, Figures, Job, job_of
from wide_job_value import NAMES, Values, skill

FROZEN, JOINT, MORE = 60, 20, 12
SHORT = 40
"""Steps with the workers frozen while settings are tried."""
FIRST = 201
TUNING = (101, 102, 103)
SMALL = 24
"""Workers of the job on which settings are tried."""
RATES: dict[str, list[tuple[float, float]]] = {
    arm: [(rate, weight) for weight in (1.0, 3.0) for rate in (2.0, 4.0, 8.0)]
    if arm.startswith("PARL")
    else [(rate, 1.0) for rate in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)]
    for arm in ARMS
}
"""Arm -> the lead's rate, and how many times as heavy PARL's terms are."""
WORKER_RATES = (3.0, 10.0, 30.0)
EVERY = 4


def looked(learner: Learner, played: list[Figures], tokens: float, events: int) -> Record:
    """The policies as they are, exactly, and what was played since the last look."""
    p = skill(learner.job, learner.knack())
    values = Values(learner.job, p)
    expected = values.of(learner.chances())
    agents = sum(each.agents for each in played)
    return {
        "step": learner.step_number, "phase": learner.phase, "value": values.returns(expected),
        **dict(zip(NAMES, expected.tolist(), strict=True)), "right": learner.knack()[RIGHT],
        "idle": 1 - sum(each.finished for each in played) / agents if agents else 0.0,
        "tokens": tokens, "events": events / max(1, len(played)),
    }  # fmt: skip


def train(learner: Learner, steps: int, curve: list[Record]) -> None:
    """So many steps; the curve gets a look every few of them and at the end."""
    played: list[Figures] = []
    tokens, events = 0.0, 0
    for number in range(1, steps + 1):
        step = learner.step()
        played += step.found
        tokens += step.tokens
        events += step.events
        if number % EVERY == 0 or number == steps:
            curve.append(looked(learner, played, tokens, events))
            played, tokens, events = [], 0.0, 0


def value_of(learner: Learner) -> float:
    """What its policies are worth, exactly."""
    values = Values(learner.job, skill(learner.job, learner.knack()))
    return values.returns(values.of(learner.chances()))


def small_worker(job: Task) -> Record:
    """One setting on one tuning seed."""
    began = time.process_time()
    recipe = recipe_of(job["arm"], job["workers"], job["frozen"], job["joint"], job["weight"])
    learner = Learner(recipe, job_of(job["workers"]), job["seed"], {LEAD: job["lead"], WORKER: job["worker"]})
    for _ in range(job["frozen"] + job["joint"]):
        learner.step()
    return job | {"value": value_of(learner), "cpu_seconds": time.process_time() - began}


def worker(job: Task) -> Record:
    """One arm and seed: at 100 workers, then at 300."""
    began = time.process_time()
    rates = {LEAD: job["lead"], WORKER: job["worker"]}
    curve: list[Record] = []
    first, second = job["workers"], job["then"]
    frozen, joint, more = job["steps"]
    learner = Learner(
        recipe_of(job["arm"], first, frozen, joint, job["weight"]), job_of(first), job["seed"], rates
    )
    curve.append(looked(learner, [], 0.0, 0))
    train(learner, frozen, curve)
    train(learner, joint, curve)
    middle = time.process_time() - began
    curve_then: list[Record] = []
    if more:
        wider = learner.go_on(job_of(second), recipe_of(job["arm"], second, 1, more, job["weight"]))
        curve_then.append(looked(wider, [], 0.0, 0))
        train(wider, more, curve_then)
    return {
        **{key: job[key] for key in ("arm", "seed", "lead", "weight", "worker", "workers", "then", "steps")},
        "curve": curve, "then_curve": curve_then, "cpu_first": middle,
        "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def brief_worker(job: Task) -> Record:
    """The first phase alone at 100 workers, or what follows it at 300; the lead's table goes from one to the other."""
    began = time.process_time()
    first, second = job["workers"], job["then"]
    frozen, _, more = job["steps"]
    rates = {LEAD: job["lead"], WORKER: 0.0}
    recipe = recipe_of(job["arm"], first, frozen, JOINT, job["weight"])
    learner = Learner(recipe, job_of(first, brief=True), job["seed"], rates)
    curve: list[Record] = []
    if "table" in job:
        for reads, row in job["table"]:
            learner.begin(reads, row)
        wide = recipe_of(job["arm"], second, more, JOINT, job["weight"])
        learner = learner.go_on(job_of(second, brief=True), wide, phase=0)
    curve.append(looked(learner, [], 0.0, 0))
    train(learner, more if "table" in job else frozen, curve)
    return {
        **{key: job[key] for key in ("arm", "seed", "lead", "weight", "workers", "then", "steps")},
        "brief": "then" if "table" in job else "first", "curve": curve, "table": learner.lead_table(),
        "cpu_seconds": time.process_time() - began,
    }  # fmt: skip


def settings(records: list[Record], arm: str) -> tuple[float, float, float]:
    """The lead's rate, the terms' weight and the workers' rate that came out best so far; the first of equals."""
    sums: dict[tuple[float, float, float], float] = {}
    mine = [each for each in records if each["arm"] == arm]
    last = [each for each in mine if each["joint"]] or mine
    for each in last:
        key = each["lead"], each["weight"], each["worker"]
        sums[key] = sums.get(key, 0.0) + each["value"]
    return max(sums, key=lambda each: sums[each])


def tune(processes: int, quick: bool) -> list[Record]:
    """Every setting of the small job on the tuning seeds: the lead's first, then the workers'."""
    small: Task = {"workers": 12, "frozen": 2} if quick else {"workers": SMALL, "frozen": SHORT}
    seeds = TUNING[: 1 if quick else None]
    part = None if quick else RESULTS / "result19_tuning.part.jsonl"
    jobs = [
        {"arm": arm, "seed": seed, "lead": lead, "weight": weight, "worker": 0.0, "joint": 0, **small}
        for arm in ARMS for lead, weight in RATES[arm][: 2 if quick else None] for seed in seeds
    ]  # fmt: skip
    records = run_jobs(jobs, small_worker, processes, part)
    joint = 1 if quick else JOINT
    more = [
        {"arm": arm, "seed": seed, "lead": lead, "weight": weight, "worker": rate, "joint": joint, **small}
        for arm in ARMS for lead, weight, _ in [settings(records, arm)]
        for rate in WORKER_RATES[: 1 if quick else None] for seed in seeds
    ]  # fmt: skip
    return [*records, *run_jobs(more, small_worker, processes, part)]


def test(tuning: list[Record], num_seeds: int, processes: int, quick: bool) -> list[Record]:
    """Every arm and seed, whole seeds first."""
    sizes: Task = {"workers": 100, "then": 300, "steps": [FROZEN, JOINT, MORE]}
    if quick:
        sizes = {"workers": 12, "then": 24, "steps": [2, 1, 1]}
    jobs = []
    for seed in range(FIRST, FIRST + num_seeds):
        for arm in ARMS:
            lead, weight, rate = settings(tuning, arm)
            jobs.append({"arm": arm, "seed": seed, "lead": lead, "weight": weight, "worker": rate, **sizes})
    return run_jobs(jobs, worker, processes, None if quick else RESULTS / "result19_kimi.part.jsonl")


def brief(tuning: list[Record], num_seeds: int, processes: int, quick: bool) -> list[Record]:
    """The ten seeds of the first phase, then what follows each at 300."""
    sizes: Task = {"workers": 100, "then": 300, "steps": [FROZEN, 0, MORE]}
    if quick:
        sizes = {"workers": 12, "then": 24, "steps": [2, 0, 1]}
    part = None if quick else RESULTS / "result19_brief.part.jsonl"
    jobs = []
    for seed in range(FIRST, FIRST + num_seeds):
        for arm in ARMS:
            lead, weight, _ = settings(tuning, arm)
            jobs.append({"arm": arm, "seed": seed, "lead": lead, "weight": weight, **sizes})
    records = run_jobs(jobs, brief_worker, processes, part)
    then = [job | {"table": found["table"]} for job, found in zip(jobs, records, strict=True)]
    records += run_jobs(then, brief_worker, processes, part)
    return [{key: value for key, value in each.items() if key != "table"} for each in records]


# -- tables ---------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """Where runs are looked at."""

    name: str
    looks: dict[tuple[str, int], Record]
    """Arm and seed -> the last look there."""
    best: float
    """V* for workers as they are, or once they have learned."""


def stages(runs: list[Record]) -> list[Stage]:
    """Of the runs that there are, by seeds that every arm has."""
    first, then = runs[0]["workers"], runs[0]["then"]
    knack = math.exp(KNACK) / (math.exp(KNACK) + len(METHODS) - 1)
    small, large = job_of(first), job_of(then)

    def made(name: str, found: list[tuple[Record, Record]], job: Job, p: float) -> Stage:
        looks = {(run["arm"], run["seed"]): look for run, look in found}
        kept = {
            (arm, seed): look for (arm, seed), look in looks.items() if all((a, seed) in looks for a in ARMS)
        }
        return Stage(name, kept, Values(job, p).best()[0])

    frozen = [(each, each["curve"][-1]) for each in runs if each.get("brief") == "first"]
    wider = [(each, each["curve"][-1]) for each in runs if each.get("brief") == "then"]
    full = [each for each in runs if "then_curve" in each]
    middle = [(r, look) for r in full for look in r["curve"] if look["step"] == r["steps"][0]]
    found = [
        made(f"{first}, workers frozen", frozen or middle, small, small.chance * knack),
        made(f"{first}, then joint", [(each, each["curve"][-1]) for each in full], small, small.chance),
        made(f"{then}, workers frozen", wider, large, large.chance * knack),
        made(f"{then}, joint", [(each, each["then_curve"][-1]) for each in full], large, large.chance),
    ]
    return [each for each in found if each.looks]


_FIGURES: tuple[tuple[str, Callable[[Record], float], str], ...] = (
    ("agents", lambda look: look["agents"], ".1f"),
    ("finished nothing", lambda look: 1 - look["finished"] / look["agents"], ".2f"),
    ("success", lambda look: look["success"], ".2f"),
    ("critical steps", lambda look: look["critical"], ".1f"),
    ("steps of workers", lambda look: look["steps"], ".0f"),
)


def table(records: list[Record]) -> str:
    """Where every arm is at the end of each stage, how it went, and all that was tried."""
    runs = [each for each in records if "curve" in each]
    return "\n\n".join(
        (_ends(stages(runs)), _way(runs), _tried([each for each in records if "curve" not in each]))
    )


def _ends(found: list[Stage]) -> str:
    rows = []
    for stage in found:
        seeds = sorted({seed for _, seed in stage.looks})
        for arm in ARMS:
            mine = [stage.looks[arm, seed] for seed in seeds]
            less = [stage.looks["GRPO", seed]["value"] - stage.looks[arm, seed]["value"] for seed in seeds]
            rows.append(
                (
                    stage.name, arm, str(len(seeds)), shown([stage.best - each["value"] for each in mine]),
                    "" if arm == "GRPO" else paired(less), str(sum(each["agents"] < 2 for each in mine)),
                    *(shown(map(figure, mine), form) for _, figure, form in _FIGURES),
                )
            )  # fmt: skip
    heading = (
        "stage",
        "arm",
        "seeds",
        "regret",
        "against GRPO",
        "collapsed",
        *(name for name, _, _ in _FIGURES),
    )
    return markdown(heading, rows)


def _way(runs: list[Record]) -> str:
    """Mean agents over the first stage."""
    mine = [each for each in runs if each.get("brief", "first") == "first"]
    mine = whole(mine)
    looks = [each["step"] for each in mine[0]["curve"]][::3]
    rows = []
    for arm in ARMS:
        curves = [each["curve"] for each in mine if each["arm"] == arm]
        means = [
            sum(curve[k]["agents"] for curve in curves) / len(curves) for k in range(0, len(curves[0]), 3)
        ]
        rows.append((arm, *(f"{mean:.1f}" for mean in means)))
    return markdown(("agents, by step", *map(str, looks)), rows)


def _tried(tuning: list[Record]) -> str:
    """Every setting on the small job: values at the end, and seeds that earned nothing there."""
    groups: dict[tuple[str, int, float, float, float], list[float]] = {}
    for each in sorted(tuning, key=lambda one: one["seed"]):
        key = each["arm"], each["joint"], each["lead"], each["weight"], each["worker"]
        groups.setdefault(key, []).append(each["value"])
    taken = {arm: settings(tuning, arm) for arm in ARMS}

    def order(group: tuple[tuple[str, int, float, float, float], list[float]]) -> tuple[int | float, ...]:
        arm, joint, lead, weight, rate = group[0]
        return list(ARMS).index(arm), joint, weight, lead, rate

    rows = [
        (
            arm, "joint" if joint else "frozen", f"{lead:g}", f"{weight:g}", f"{rate:g}" if joint else "",
            ", ".join(f"{value:.2f}" for value in values), f"{sum(values) / len(values):.3f}",
            "taken" if joint and (lead, weight, rate) == taken[arm] else "",
        )
        for (arm, joint, lead, weight, rate), values in sorted(groups.items(), key=order)
    ]  # fmt: skip
    heading = ("arm", "phase", "lead's rate", "weight", "workers' rate", "values, by seed", "mean", "")
    return markdown(heading, rows)


def paired(differences: list[float]) -> str:
    mean, half = interval(differences)
    return f"{mean:+.3f}" + ("" if half is None else f" ± {half:.3f}")


def whole(runs: list[Record]) -> list[Record]:
    """Runs of seeds that every arm has finished: a command that was cut short leaves others."""
    by_seed: dict[tuple[str, int], set[str]] = {}
    for each in runs:
        by_seed.setdefault((each.get("brief", ""), each["seed"]), set()).add(each["arm"])
    return [each for each in runs if by_seed[each.get("brief", ""), each["seed"]] == set(ARMS)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small team, a few steps: shows that it runs")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--kept", action="store_true", help="print the table of the records kept in results/")
    parser.add_argument(
        "--whole", action="store_true", help="both phases with all of a worker's steps, as first meant"
    )
    parser.add_argument("--draw", metavar="FILE.svg", help="with --kept: the picture too")
    args = parser.parse_args()
    place = RESULTS / "result19_kimi.json"
    if args.kept:
        kept = json.loads(place.read_text("utf-8"))
        print(table(kept))
        if args.draw:
            runs = [each for each in kept if "curve" in each]
            first = [each for each in runs if each.get("brief", "first") == "first"]
            Path(args.draw).write_text(draw(first, [stage.best for stage in stages(first)[:2]]), "utf-8")
        return
    tuning = tune(args.processes, args.quick)
    play = test if args.whole else brief
    runs = play(tuning, 2 if args.quick else args.seeds, args.processes, args.quick)
    records = [*tuning, *whole(runs)]
    if not args.quick:
        place.write_text(json.dumps(rounded(records), separators=(",", ":")) + "\n", "utf-8")
    print(table(records))


if __name__ == "__main__":
    main()

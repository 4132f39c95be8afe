"""The language model of result 21: one run of an arm on stopping or spawning, and the plan of how long runs are."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runs import Job, Record, markdown, shown
from zero_credit import REASONS, added, counted, counted_of, share

from baton.errors import BatonError

sys.path.insert(0, str(Path(__file__).parents[1]))  # what the real task's benchmark measures by

STOP, SPAWN = "stop", "spawn"
DECISION, UNIFORM, SINGLE, WORKED = "by decision", "uniform", "single, at once", "single, with working"
ARMS = (DECISION, SINGLE, WORKED, UNIFORM)
"""Of a seed, in the order of their runs: a start that two teams share is made once."""
RULES = ("fixed-1", "fixed-2", "fixed-3", "found")
GROUPS = {DECISION: 16, UNIFORM: 16, SINGLE: 40, WORKED: 24}
"""Instances a step, of eight rollouts each: about the same tokens for all."""
CHARGE = 0.2
"""Of an invalid answer, beside its tokens: about what looking at a part costs."""
TIMING, TIMED, MARGIN = 1000, 4, 1.1
"""The seed that is no test's, about how many steps of it, and what a step may take more."""
ROWS = {STOP: 200, SPAWN: 120}
"""Supervised steps of a single agent: as many as a team's two roles have between them."""
EVERY = 5
"""Steps after which the credit of 0.1 is taken on the same rollouts."""
LENGTHS = {STOP: (10, 12, 15, 18, 22, 26, 30, 36, 42, 50, 60, 80), SPAWN: (8, 12, 16, 24)}
UNTIMED = {STOP: 15, SPAWN: 0}
"""Where a timing run failed."""
ENOUGH = 22
"""Steps of stopping, below which spawning is not run."""
TOKENS = {STOP: 42_000, SPAWN: 22_000}
"""Of a team's step, about."""
_GROUP = ("credit.0.estimator=group", "credit.0.normalise=true")


def recipe_of(job: Job) -> Any:
    """A run's recipe."""
    from msgspec import structs

    from baton.learn.recipe import RewardPart, load

    task, arm = job["task"], job["arm"]
    alone = arm in (SINGLE, WORKED)
    name = {SINGLE: "reasoning-single", WORKED: "reasoning-worked"}.get(arm, f"reasoning-{task}")
    longest = {(STOP, SINGLE): 32, (STOP, WORKED): 128, (SPAWN, SINGLE): 32, (SPAWN, WORKED): 64}
    changes = [
        "train.learning_rate=1e-4", f"train.steps={100_000}", f"train.seed={job['seed']}", "eval.episodes=128",
        f"rollout.groups={GROUPS[arm]}", "rollout.group_size=8",
    ]  # fmt: skip
    changes += ["warm.steps=100"] if task == STOP else ["team.max_tokens=64"]
    if alone:
        changes += [f"warm.steps={ROWS[task]}", "warm.episodes=1000", f"team.max_tokens={longest[task, arm]}"]
        changes += ["task.name=reasoning:needle_haystack"] if task == STOP else []
    recipe = load(name, [*changes, *(_GROUP if arm == UNIFORM else ()), *job["changes"]])
    if alone:
        settings = {"terms.1.weight": -4.0} if task == STOP else {}
        recipe = structs.replace(recipe, reward=RewardPart(recipe="success-less-tokens", settings=settings))
    if job["model"] == "tiny":
        return _small(recipe)
    policies = {
        name: structs.replace(part, model=job["model"], dtype=job["dtype"], device=job["device"])
        for name, part in recipe.policies.items()
    }
    return structs.replace(recipe, policies=policies)


def _small(recipe: Any) -> Any:
    """To see that it runs: a model of one layer."""
    from msgspec import structs

    from baton.learn.models.tiny import Tiny

    tiny = Tiny(width=48, layers=1, heads=2, vocabulary=400)
    policies = {
        name: structs.replace(part, model="tiny", tiny=tiny, device="cpu", rank=2)
        for name, part in recipe.policies.items()
    }
    return structs.replace(
        recipe,
        policies=policies,
        warm=structs.replace(recipe.warm, episodes=60, steps=30, rows=16, learning_rate=0.01),
        rollout=structs.replace(recipe.rollout, groups=2, group_size=4),
        eval=structs.replace(recipe.eval, episodes=2),
    )


def worker(job: Job) -> Record:
    """A run, or what it failed of: the others go on, and its seed is not shown."""
    try:
        return trained(job)
    except (BatonError, RuntimeError) as error:
        traceback.print_exc()
        return {key: job[key] for key in ("task", "arm", "seed", "tokens_asked")} | {"failed": str(error)}


def trained(job: Job) -> Record:
    """A run: its start, steps until its tokens are spent, and what it does on test questions before and after."""
    import torch

    began, processor = time.monotonic(), time.process_time()
    from baton.compose.training import make_trainer

    trainer = make_trainer(recipe_of(job))
    started = time.monotonic()
    found: Record = {key: job[key] for key in ("task", "arm", "seed", "tokens_asked")}
    found |= {"before": on_test(trainer, trainer.engines()), "curve": []}
    measured = time.monotonic()
    zero, old = [], []
    while trainer.total_tokens < job["tokens_asked"]:
        made = trainer.step()
        size = trainer.recipe.rollout.group_size
        groups = [made.traces[at : at + size] for at in range(0, len(made.traces), size)]
        zero.append(counted(groups, trainer.team_return))
        if job["arm"] == DECISION and trainer.step_number % EVERY == 1:
            old.append(counted_of(_as_in_01(groups, trainer.team_return), trainer.team_return))
        told = made.metrics
        seconds = told["rollout_seconds"] + told["update_seconds"]
        found["curve"].append(
            [
                told["total_tokens"],
                told["return"]["mean"],
                told["sizes"]["invalid"],
                told["sizes"]["agents"],
                seconds,
            ]
        )
        print(
            f"{job['task']} {job['arm']} seed {job['seed']} step {told['step']} tokens {told['total_tokens']} "
            f"return {told['return']['mean']:.3f} {seconds:.1f} s", file=sys.stderr, flush=True,
        )  # fmt: skip
    trained = time.monotonic()
    found |= {
        "after": on_test(trainer, trainer.engines()),
        "steps": trainer.step_number,
        "tokens": trainer.total_tokens,
    }
    if job["task"] == STOP and job["arm"] == DECISION:
        found["rules"] = rules(trainer)
    trainer.close()
    found |= {"zero": added(zero), "zero in 0.1": added(old)}
    found["seconds"] = {
        "start": started - began, "test": measured - started, "steps": trained - measured,
        "all": time.monotonic() - began,
    }  # fmt: skip
    del trainer, made
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found | {"cpu_seconds": time.process_time() - processor}


def _as_in_01(groups: Sequence[Sequence[Any]], reward: Callable[[Any], float]) -> list[Any]:
    """Credits of the same rollouts by the estimator as it was in 0.1."""
    from baton.credit.estimators.telescope import telescope

    found = []
    for group in groups:
        each: list[list[Any]] = [[] for _ in group]
        for unit in ("orchestrator", "message"):
            for mine, new in zip(
                each, telescope(group, unit=unit, reward=reward, compare="prefix"), strict=True
            ):  # type: ignore[arg-type]
                mine += new
        found.append((group, each))
    return found


TRIES = 2


def on_test(trainer: Any, engines: Any) -> Record:
    """Two tries at each test question, the same for all arms of a seed."""
    from baton.learn.run.evaluate import held_out

    stage = trainer.stage
    asked = held_out(trainer.recipe, "measured", 0, tries=TRIES)
    traces = asyncio.run(stage.play(engines, asked))
    gold, _ = asyncio.run(trainer.judging.gold(traces, trainer.rollouts.forks))
    earned = [trainer.scoring.team_return(each) for each in trainer.scoring.score(traces, gold)]
    invalid = [sum(event.status == "invalid" for event in trace.events) for trace in traces]
    right = [next(reward.value for reward in trace.rewards if reward.by == "verifier") for trace in traces]
    count = len(traces)
    return {
        "reward": sum(earned) / count, "charged": (sum(earned) - CHARGE * sum(invalid)) / count,
        "success": sum(right) / count, "invalid": sum(invalid) / count,
        "tokens": sum(trace.costs.get("tokens", 0.0) for trace in traces) / count,
        "spawned": sum(event.type == "spawn" for trace in traces for event in trace.events) / count,
    }  # fmt: skip


def rules(trainer: Any) -> Record:
    """Scripted leaders with the trained workers: so many parts whatever is heard, and until a name is heard."""
    from baton.engine.torch import TorchEngine
    from real_tasks.stopping import with_leader

    engines = {role: policy.engine for policy in trainer.policies.values() for role in policy.roles}
    assert all(isinstance(engine, TorchEngine) for engine in engines.values())
    return {rule: on_test(trainer, with_leader(trainer.stage, engines, rule)) for rule in RULES}


def timing_jobs(about: Job) -> list[Job]:
    """Three runs side by side on a seed that is no test's."""
    return [
        about | {"task": STOP, "arm": arm, "seed": TIMING, "tokens_asked": TIMED * TOKENS[STOP]}
        for arm in (DECISION, SINGLE, WORKED)
    ]


def jobs(task: str, length: int, num_seeds: int, about: Job) -> list[Job]:
    """Every seed with every arm, at the tokens of so many steps of a team."""
    tokens = length * TOKENS[task]
    return [
        about | {"task": task, "arm": arm, "seed": seed, "tokens_asked": tokens}
        for seed in range(num_seeds)
        for arm in ARMS
    ]


def needed(task: str, length: int, timed: Sequence[Record], num_seeds: int, processes: int) -> float:
    """Seconds that a task's runs take at this length, as the timing runs went: all of them, and half of the last."""
    of = {each["arm"]: each for each in timed}

    def took(arm: str) -> float:
        told = of.get(arm, of[DECISION])
        first, *later = [line[-1] for line in told["curve"]]
        pace = MARGIN * sum(later) / len(later)
        steps = length * TOKENS[task] / (told["tokens"] / len(told["curve"]))
        tests = (6 if arm == DECISION and task == STOP else 2) * told["seconds"]["test"]
        start = (0.2 if arm == UNIFORM else 1.0) * told["seconds"]["start"]
        return float(start + tests + max(0.0, first - pace) + pace * steps)

    return num_seeds * sum(map(took, ARMS)) / processes + took(DECISION) / 2


def planned(timed: Sequence[Record], seconds: float, num_seeds: int, processes: int) -> dict[str, int]:
    """Steps of stopping and of spawning. Spawning's shortest is kept free where stopping still gets ENOUGH; then
    stopping is as long as fits, and at least its shortest; spawning is as long as fits into the rest, or is not run."""

    if any("failed" in each for each in timed):
        return UNTIMED

    def longest(task: str, left: float) -> int:
        fitting = [n for n in LENGTHS[task] if needed(task, n, timed, num_seeds, processes) <= left]
        return max(fitting, default=0)

    free = seconds - needed(SPAWN, min(LENGTHS[SPAWN]), timed, num_seeds, processes)
    stop = longest(STOP, free)
    if stop < ENOUGH:
        stop = max(longest(STOP, seconds), min(LENGTHS[STOP]))
    rest = seconds - needed(STOP, stop, timed, num_seeds, processes)
    return {STOP: stop, SPAWN: longest(SPAWN, rest)}


def table(records: list[Record]) -> str:
    """Figures by task and arm, differences by seed, and events without credit."""
    parts = []
    for task in (STOP, SPAWN):
        mine = _whole([r for r in records if r["task"] == task and r["seed"] != TIMING and "failed" not in r])
        if mine:
            parts += [f"{task}:\n\n{_figures(mine)}", _zeros(mine)]
    return "\n\n".join(parts)


def _whole(records: list[Record]) -> list[Record]:
    """Of the seeds that every arm has run."""
    arms: dict[int, set[str]] = {}
    for each in records:
        arms.setdefault(each["seed"], set()).add(each["arm"])
    return [each for each in records if len(arms[each["seed"]]) == len(ARMS)]


def _of(records: Sequence[Record], arm: str, *keys: str) -> list[float]:
    """By seed."""
    found = sorted((each for each in records if each["arm"] == arm), key=lambda each: each["seed"])
    return [_at(each, keys) for each in found]


def _at(record: Record, keys: Sequence[str]) -> float:
    value: Any = record
    for key in keys:
        value = value[key]
    return float(value)


def _figures(mine: list[Record]) -> str:
    reference = _of(mine, UNIFORM, "after", "charged")
    rows = []
    for arm in (DECISION, UNIFORM, SINGLE, WORKED):
        after = _of(mine, arm, "after", "charged")
        less = [] if arm == UNIFORM else [a - b for a, b in zip(after, reference, strict=False)]
        cells = [shown(_of(mine, arm, "after", key), form) for key, form in (
            ("success", ".3f"), ("tokens", ".0f"), ("spawned", ".2f"), ("invalid", ".3f"))]  # fmt: skip
        spent = [shown(_of(mine, arm, "tokens"), ".0f"), shown(_of(mine, arm, "steps"), ".0f")]
        before = shown(_of(mine, arm, "before", "charged"))
        gained = shown([a - b for a, b in zip(after, _of(mine, arm, "before", "charged"), strict=True)])
        rows.append(
            [arm, str(len(after)), before, shown(after), gained, shown(less) if less else "", *cells, *spent]
        )
    for rule in RULES:
        told = [each for each in mine if "rules" in each]
        if told:
            cells = [shown(_of(told, DECISION, "rules", rule, key), form) for key, form in (
                ("success", ".3f"), ("tokens", ".0f"), ("spawned", ".2f"), ("invalid", ".3f"))]  # fmt: skip
            value = _of(told, DECISION, "rules", rule, "charged")
            less = [a - b for a, b in zip(value, reference, strict=False)]
            rows.append(
                [
                    f"script {rule}, trained workers",
                    str(len(value)),
                    "",
                    shown(value),
                    "",
                    shown(less),
                    *cells,
                    "",
                    "",
                ]
            )
    heading = (
        "who", "seeds", "charged reward before", "after", "gained", "less uniform", "success", "tokens an episode",
        "spawned", "invalid answers", "tokens of training", "steps",
    )  # fmt: skip
    return markdown(heading, rows)


def _zeros(mine: list[Record]) -> str:
    rows = []
    kinds = [
        (DECISION, "zero"),
        (DECISION, "zero in 0.1"),
        *((arm, "zero") for arm in (UNIFORM, SINGLE, WORKED)),
    ]
    for arm, key in kinds:
        counts = [each[key] for each in mine if each["arm"] == arm]
        shares = [shown((share(each, reason) for each in counts), ".3f") for reason in (None, *REASONS)]
        name = arm if key == "zero" else f"{arm}, as in 0.1, same rollouts"
        rows.append([name, f"{sum(each['events'] for each in counts):,}", *shares])
    heading = (
        "credit", "events", "share with zero credit", "all returns alike", "on invalid answers", "one option", "other",
    )  # fmt: skip
    return markdown(heading, rows)

"""What result 20 needs of dispatching: the start of all runs, a run's recipe, what a dispatcher is worth and costs."""

from __future__ import annotations

import asyncio
import json
import math
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import structs
from runs import Record

START: dict[str, Any] = {
    "seed": 1000, "steps": 300, "rows": 16, "learning_rate": 5e-3,
    "read": {"job/1": 4000, "all/10": 2000, "all/100": 800, "all/300": 200},
}  # fmt: skip
"""Of the weights that all runs begin with: how many rows of each prompt, all answered at random."""
AWAY = 10**9
"""Instances from here on are no run's."""
GROUP = 8
NUM_TRADES = 4
PACES = {"gentle": (3e-4, 0.1), "slow": (1e-3, 0.01), "fast": (3e-3, 0.03)}
"""Learning rate, and the price of leaving the start's words."""


def task_of(shows: str, size: int) -> Any:
    from baton.tasks.dispatch import Dispatch

    return Dispatch(num_workers=size, num_trades=NUM_TRADES, shows=shows)  # type: ignore[arg-type]


def recipe_of(shows: str, size: int, seed: int, pace: str, groups: int, steps: int, model: str) -> Any:
    """A run's recipe: the advantage is the reward less its group's mean."""
    from baton.learn.recipe import CreditPart, TaskPart, load

    changes = [f"policies.main.model={model}", "team.template={role}", "team.max_tokens=12"]
    changes += [f"rollout.groups={groups}", f"rollout.group_size={GROUP}", 'train.decisions=["delegate"]']
    changes += [
        f"train.steps={steps}",
        f"train.learning_rate={PACES[pace][0]}",
        f"loss.kl={PACES[pace][1]}",
        f"train.seed={seed}",
    ]
    recipe = load("dr-grpo", changes)
    task = TaskPart(name="dispatch", settings={"num_workers": size, "num_trades": NUM_TRADES, "shows": shows})
    credit = (CreditPart(estimator="mean", normalise=True),)
    return structs.replace(recipe, task=task, credit=credit, warm=None)


def start_of(making: dict[str, Any] | None = None) -> str:
    """The folder of the weights that every run begins with, kept for later ones."""
    from hashlib import blake2b

    from baton.learn.models.local import kept

    making = making or START
    key = blake2b(json.dumps(making).encode(), digest_size=6).hexdigest()
    return str(kept(f"dispatch-start-{key}", lambda place: make_start(making, place)))


def make_start(making: dict[str, Any], place: Path) -> None:
    """`tiny`, that says `delegate TRADE-GRADE: JOB` to whatever it reads, trade and grade at random."""
    from baton.learn.models.start import spoken_rows, texts_of, warm_rows
    from baton.learn.models.tiny import Tiny, make_tiny

    spoken = asked_at_random(making)
    size = Tiny(width=64, vocabulary=400, context=2048)
    model, tokenizer = make_tiny(texts_of(spoken), size, seed=making["seed"])
    given = {name: making[name] for name in ("steps", "rows", "learning_rate", "seed")}
    warm_rows(model, spoken_rows(tokenizer, spoken), list(spoken.values()), **given)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)


def asked_at_random(making: dict[str, Any]) -> Counter[Any]:
    """What dispatchers read, and an answer that has nothing to do with it."""
    from baton.tasks.dispatch import GRADES, TRADES

    toss, spoken = random.Random(making["seed"]), Counter()  # type: ignore[var-annotated]
    for which, count in making["read"].items():
        shows, _, size = which.partition("/")
        task = task_of(shows, int(size))
        for number in range(count):
            one = task.instance(AWAY + number)
            said = (
                f"delegate {toss.choice(TRADES[:NUM_TRADES])}-{toss.choice(list(GRADES))}: {one.gold['job']}"
            )
            spoken[reading(one.prompt), said] += 1
    return spoken


def reading(prompt: str) -> tuple[tuple[str, str], ...]:
    """A dispatcher's whole context."""
    return (("system", "dispatcher"), ("user", prompt))


def staged(recipe: Any, shows: str, size: int, episodes: int) -> tuple[Any, list[Any]]:
    """A stage of this size, and instances that are no training's."""
    from baton.compose.stage_from_recipe import make_stage
    from baton.learn.recipe import TaskPart
    from baton.learn.run.evaluate import held_out

    part = TaskPart(name="dispatch", settings={"num_workers": size, "num_trades": NUM_TRADES, "shows": shows})
    there = structs.replace(recipe, task=part, eval=structs.replace(recipe.eval, episodes=episodes))
    return make_stage(there), held_out(there, "measured", 0)


def played(trainer: Any, recipe: Any, shows: str, size: int, episodes: int) -> Record:
    """The policy as it is: the best that there is, what it got, what it read and said."""
    from baton.trace.outcome import task_return

    stage, every = staged(recipe, shows, size, episodes)
    traces = asyncio.run(stage.play(trainer.engines(), every))
    best = math.fsum(stage.task.instance(each.instance, each.split).gold["best"] for each in every)
    return {
        "best": best / episodes,
        "value": math.fsum(map(task_return, traces)) / episodes,
        "invalid": sum(e.status == "invalid" for t in traces for e in t.events) / episodes,
        "tokens": math.fsum(trace.costs.get("tokens", 0.0) for trace in traces) / episodes,
    }


class Timed:
    """An engine, and the seconds of processor that it took."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.took = engine, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def encode(self, *given: Any) -> Any:
        began = time.process_time()
        found = self.engine.encode(*given)
        self.took += time.process_time() - began
        return found

    async def answer(self, *given: Any) -> Any:
        began = time.process_time()  # in lockstep: nobody else does anything meanwhile
        found = await self.engine.answer(*given)
        self.took += time.process_time() - began
        return found


def costs(shows: str, size: int, model: str, episodes: int, repeats: int) -> Record:
    """Tokens, and milliseconds of processor, that a decision takes the policy; and those of a look-up."""
    from baton.compose.training import make_trainer
    from baton.tasks.dispatch import directory_of

    recipe = recipe_of(shows, size, START["seed"], "slow", 1, 1, model)
    trainer = make_trainer(recipe)
    stage, every = staged(recipe, shows, size, 1)
    directory = directory_of(task_of(shows, size).instance(AWAY).data)
    by_policy, looked, told = [], [], []
    for number in range(episodes + 1):
        engines = {role: Timed(engine) for role, engine in trainer.engines().items()}
        one = [structs.replace(every[0], instance=number)]
        (trace,) = asyncio.run(stage.play(engines, one))
        by_policy.append(sum(each.took for each in engines.values()))
        told.append(trace.costs["tokens"])
        began = time.process_time()
        for _ in range(repeats):
            directory.find("plumber-expert")
        looked.append((time.process_time() - began) / repeats)
    return {
        "tokens": statistics.median(told[1:]),
        "policy_ms": 1000 * statistics.median(by_policy[1:]),
        "look_up_ms": 1000 * statistics.median(looked[1:]),
    }


def expected(size: int, episodes: int) -> Record:
    """On as many instances that are no run's: the best, one that knows what a job needs and asks for an expert,
    one that asks at random, and one that picks any worker."""
    from baton.tasks.dispatch import GRADES, TRADES, directory_of, needed, worth

    task, found = task_of("job", size), {"best": 0.0, "knows": 0.0, "random words": 0.0, "random worker": 0.0}
    for number in range(episodes):
        one = task.instance(AWAY + number, "test")
        directory, job = directory_of(one.data), one.gold["job"]
        every = [f"{trade}-{grade}" for trade in TRADES[:NUM_TRADES] for grade in GRADES]

        def comes(wanted: str) -> float:
            who = directory.find(wanted)  # noqa: B023 (used at once)
            return worth(job, one.data[int(who[0].removeprefix("worker-")) - 1]) if who else 0.0  # noqa: B023

        found["best"] += one.gold["best"]
        found["knows"] += comes(f"{needed(job)}-expert")
        found["random words"] += sum(map(comes, every)) / len(every)
        found["random worker"] += sum(worth(job, card) for card in one.data) / size
    return {name: total / episodes for name, total in found.items()}

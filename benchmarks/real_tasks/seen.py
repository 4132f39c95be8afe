"""What of the test questions came up in training, and what an episode costs by three counts: no model is asked.

Scripted play stands for teams that split and join as it does, which all trained ones did.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from msgspec import structs

from baton.compose.stage_from_recipe import make_stage
from baton.learn.models.smollm2 import smollm2_folder
from baton.learn.models.start import WARM_SEEDS, spoken_in, spoken_rows
from baton.learn.recipe import load
from baton.learn.rollouts import SEEDS
from baton.learn.stage import Episode
from baton.tasks.catalog import make_task
from real_tasks.measure import distinct
from real_tasks.trained import TEST_SEEDS

__all__ = ["COST_HEAD", "SEEN_HEAD", "costs", "seen"]

SEEN_HEAD = ("family", "seed", "what of a test question", "in the supervised start", "there or in RL")
COST_HEAD = ("recipe", "calls", "each call whole", "each prefix once")
STEPS = 66
"""Of RL, 32 questions each: what the shown teams got."""
Keys = Callable[[Any, str], set[Hashable]]


def _whole(task: Any, question: str) -> set[Hashable]:
    return {question}


def _parts(task: Any, question: str) -> set[Hashable]:
    return set(task.family.split(question, 2))


def _results(task: Any, question: str) -> set[Hashable]:
    return {tuple(task.family.work(part).result for part in task.family.split(question, 2))}


def _prerequisites(task: Any, question: str) -> set[Hashable]:
    return {frozenset(re.findall(r"\((\d+), (\d+)\)", question))}


WHAT: dict[str, dict[str, Keys]] = {
    "chain_sum": {"whole": _whole, "both parts": _parts, "pair of results": _results},
    "course_schedule": {"whole": _whole, "prerequisites, in any order": _prerequisites},
}


def seen(instances: int, seeds: int) -> list[tuple[str, ...]]:
    """Shares of test questions of which all keys came up."""
    rows = []
    for family, kinds in WHAT.items():
        task = make_task(f"reasoning:{family}")
        start = _questions(task, range(WARM_SEEDS, WARM_SEEDS + 1000))
        for seed in range(seeds):
            test = _questions(task, range(seed * TEST_SEEDS, seed * TEST_SEEDS + instances), "test")
            played = _questions(task, range(seed * SEEDS + 32, seed * SEEDS + 32 * (STEPS + 1)))
            for what, keys in kinds.items():
                shares = (_share(task, keys, test, known) for known in (start, start + played))
                rows.append((family, str(seed), what, *(f"{share:.3f}" for share in shares)))
    return rows


def _share(task: Any, keys: Keys, test: list[str], known: Iterable[str]) -> float:
    have = {key for question in known for key in keys(task, question)}
    return sum(keys(task, question) <= have for question in test) / len(test)


def _questions(task: Any, seeds: range, split: Any = "train") -> list[str]:
    return [task.instance(seed, split).prompt for seed in seeds]


def costs(instances: int) -> list[tuple[str, ...]]:
    """Tokens of an episode of scripted play, as the model's tokenizer counts them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder(), local_files_only=True)
    rows = []
    for name in ("reasoning", "reasoning-single", "reasoning-worked"):
        recipe = load(name)
        assert recipe.warm is not None
        stage = make_stage(structs.replace(recipe, team=structs.replace(recipe.team, max_tokens=512)))
        engines = dict.fromkeys(stage.roles, stage.script(recipe.warm.play))
        episodes = [Episode(name=f"{n}", instance=n, seed=n, split="test") for n in range(instances)]
        calls, whole, once = 0, 0.0, 0.0
        for trace in asyncio.run(stage.play(engines, episodes)):
            said = spoken_in([trace])
            ids = [[*row.ids] for row in spoken_rows(tokenizer, said.elements())]
            calls += len(ids)
            whole += sum(map(len, ids))
            once += distinct(ids)
        rows.append((name, *(f"{total / instances:.0f}" for total in (calls, whole, once))))
    return rows

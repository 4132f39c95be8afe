"""The weights a run starts from: a named model, or `tiny` made for the task and warm-started on scripted play.

What was made is kept under the user's cache, under everything it depends on, so the second run starts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from baton import __version__
from baton.learn.models import load_model
from baton.learn.models.cache import kept
from baton.learn.models.tiny import make_tiny
from baton.learn.recipe import PolicyPart, Recipe
from baton.learn.stage import Episode, Stage
from baton.learn.warm import spoken_in, texts_of, warm_start
from baton.trace.trace import Trace

__all__ = ["starting_models"]

_WARM_SEEDS = 10**9
"""Scripted play is on instances that no training step and no evaluation sees."""
Progress = Callable[[str], None]


def starting_models(
    recipe: Recipe, stage: Stage, progress: Progress | None
) -> Callable[[PolicyPart], tuple[Any, Any]]:
    """How to load a policy's first weights."""

    def load(part: PolicyPart) -> tuple[Any, Any]:
        if part.model != "tiny" and recipe.warm is None:
            return load_model(part.model, device=part.device, dtype=part.dtype)
        roles = part.roles or stage.roles
        key = blake2b(
            msgspec.json.encode(
                [__version__, recipe.task, recipe.team, recipe.warm, part, roles, recipe.train.seed]
            ),
            digest_size=8,
        ).hexdigest()
        made = kept(
            f"{part.model.replace('/', '-')}-{key}",
            lambda place: _make(recipe, stage, part, roles, place, progress),
        )
        with _quiet():
            return load_model(str(made), device=part.device, dtype=part.dtype)

    return load


def _make(
    recipe: Recipe,
    stage: Stage,
    part: PolicyPart,
    roles: tuple[str, ...],
    place: Path,
    progress: Progress | None,
) -> None:
    tell = progress or (lambda _: None)
    warm = recipe.warm
    tell("scripted play")
    spoken = spoken_in(_scripted(recipe, stage), roles)
    if part.model == "tiny":
        model, tokenizer = make_tiny(texts_of(spoken), part.tiny, seed=recipe.train.seed)
    else:
        model, tokenizer = load_model(part.model, device=part.device, dtype=part.dtype)
    if warm is not None:
        warm_start(
            model,
            tokenizer,
            spoken,
            steps=warm.steps,
            rows=warm.rows,
            learning_rate=warm.learning_rate,
            seed=recipe.train.seed,
            progress=lambda step, loss: tell(f"warm start {step}/{warm.steps}, loss {loss:.3f}"),
        )
    with _quiet():
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)


def _scripted(recipe: Recipe, stage: Stage) -> list[Trace]:
    play = recipe.warm.play if recipe.warm else "eager"
    count = recipe.warm.episodes if recipe.warm else 200
    script = stage.script(play)
    episodes = [
        Episode(name=f"warm-{n}", instance=_WARM_SEEDS + n, seed=_WARM_SEEDS + n) for n in range(count)
    ]
    return asyncio.run(stage.play(dict.fromkeys(stage.roles, script), episodes))


@contextlib.contextmanager
def _quiet() -> Any:
    """transformers draws progress bars for a file of a megabyte."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield

"""The weights a run starts from: a named model, or `tiny` made for the task and warm-started on scripted play.

With LoRA a named model is left as it is and the supervised start trains the adapters alone. What was made is kept under
the user's cache, under everything it depends on, so the second run starts at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs
from safetensors.torch import load_file, save_file

from baton import __version__
from baton.learn.models import check_model, load_model
from baton.learn.models.cache import kept
from baton.learn.models.tiny import make_tiny
from baton.learn.policies import lora
from baton.learn.recipe import PolicyPart, Recipe
from baton.learn.stage import Episode, Stage
from baton.learn.warm import spoken_in, texts_of, warm_start
from baton.trace.trace import Trace

__all__ = ["WARM_SEEDS", "starting_adapters", "starting_models"]

WARM_SEEDS = 10**9
"""Scripted play is on instances that no training step and no evaluation sees."""
_ROOM = 1 << 20
Progress = Callable[[str], None]


def starting_models(
    recipe: Recipe, stage: Stage, progress: Progress | None
) -> Callable[[PolicyPart], tuple[Any, Any]]:
    """How to load a policy's first weights."""

    def load(part: PolicyPart) -> tuple[Any, Any]:
        check_model(part.model, device=part.device, dtype=part.dtype)
        adapted = part.train == "lora"
        if part.model != "tiny" and (recipe.warm is None or adapted):
            return load_model(part.model, device=part.device, dtype=part.dtype)
        # All roles speak in the one start, so policies and recipes of one team share it, whoever learns what.
        plain = PolicyPart(model=part.model, tiny=part.tiny, device=part.device, dtype=part.dtype)
        alike = structs.replace(plain, train="lora") if adapted else plain
        made = kept(
            _name(recipe, alike, stage.roles),
            lambda place: _make(recipe, alike, stage.roles, place, progress),
        )
        with _quiet():
            return load_model(str(made), device=part.device, dtype=part.dtype)

    return load


def starting_adapters(
    recipe: Recipe, progress: Progress | None
) -> Callable[[str, PolicyPart, Sequence[str], Any, Any], dict[str, Any] | None]:
    """How to give a new adapter its first weights: name, policy, roles, model, tokenizer.

    Returns what the supervised start was and took; None: there was none, the adapter changes nothing yet.
    """

    def adapt(
        name: str, part: PolicyPart, roles: Sequence[str], model: Any, tokenizer: Any
    ) -> dict[str, Any] | None:
        if recipe.warm is None:
            return None
        made = kept(
            _name(recipe, part, (name, *roles)),
            lambda place: _adapt(recipe, (name, *roles), (model, tokenizer), place, progress),
        )
        lora.load_state(model, name, load_file(made / "adapter.safetensors"))
        told: dict[str, Any] = json.loads((made / "warm.json").read_text("utf-8"))
        return told

    return adapt


def _name(recipe: Recipe, part: PolicyPart, who: Sequence[str]) -> str:
    """In the cache."""
    depends = [__version__, recipe.task, recipe.team, recipe.warm, part, who, recipe.train.seed]
    key = blake2b(msgspec.json.encode(depends), digest_size=8).hexdigest()
    return f"{part.model.replace('/', '-')}-{key}"


def _adapt(
    recipe: Recipe,
    who: Sequence[str],
    start: tuple[Any, Any],
    place: Path,
    progress: Progress | None,
) -> None:
    warm = recipe.warm
    assert warm is not None
    tell = progress or (lambda _: None)
    name, *roles = who
    model, tokenizer = start
    tell("scripted play")
    spoken = spoken_in(_scripted(recipe), roles)
    began = time.monotonic()
    with lora.use(model, name):
        loss = warm_start(
            model,
            tokenizer,
            spoken,
            steps=warm.steps,
            rows=warm.rows,
            learning_rate=warm.learning_rate,
            seed=recipe.train.seed,
            parameters=lora.parameters_of(model, name),
            progress=lambda step, loss: tell(f"warm start of {name} {step}/{warm.steps}, loss {loss:.3f}"),
        )
    told = {"loss": loss, "seconds": time.monotonic() - began, "calls": len(spoken), **structs.asdict(warm)}
    save_file(lora.state_of(model, name), place / "adapter.safetensors")
    (place / "warm.json").write_text(json.dumps(told), "utf-8")


def _make(
    recipe: Recipe,
    part: PolicyPart,
    roles: tuple[str, ...],
    place: Path,
    progress: Progress | None,
) -> None:
    tell = progress or (lambda _: None)
    warm = recipe.warm
    tell("scripted play")
    spoken = spoken_in(_scripted(recipe), roles)
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


def _scripted(recipe: Recipe) -> list[Trace]:
    play = recipe.warm.play if recipe.warm else "eager"
    count = recipe.warm.episodes if recipe.warm else 200
    # A script's tokens are characters, and what it says is never cut.
    stage = Stage(structs.replace(recipe, team=structs.replace(recipe.team, max_tokens=_ROOM)))
    script = stage.script(play)
    episodes = [Episode(name=f"warm-{n}", instance=WARM_SEEDS + n, seed=WARM_SEEDS + n) for n in range(count)]
    return asyncio.run(stage.play(dict.fromkeys(stage.roles, script), episodes))


@contextlib.contextmanager
def _quiet() -> Any:
    """transformers draws progress bars for a file of a megabyte."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield

"""The weights a run starts from: a named model, or `tiny` made for the task and warm-started on scripted play.

With LoRA a named model is left as it is and the supervised start trains the adapters alone. What was made is kept under
the user's cache, under everything it depends on, so the second run starts at once.

The supervised start teaches the policy to say what scripted play says, so that RL begins from the grammar. It minimises
-log pi(what was said) over calls of scripted traces, each drawn as often as it came up: with REINFORCE's loss at
advantage 1 it is the same update as any other (`baton.learn.update`).
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import structs
from safetensors.torch import load_file, save_file

from baton import __version__
from baton.engine.template import Encoder
from baton.errors import TraceError
from baton.forest.rows import Row, answer_row
from baton.learn import lora
from baton.learn.loss import Loss
from baton.learn.models import check_model, load_model
from baton.learn.models.local import kept, quiet
from baton.learn.models.tiny import make_tiny
from baton.learn.optimiser import AdamW
from baton.learn.recipe import PolicyPart, Recipe
from baton.learn.stage import Episode, Stage
from baton.learn.update import Gradients, Packed
from baton.tasks.task import Task
from baton.team.protocol import Entry
from baton.trace.trace import Trace

Spoken = tuple[tuple[tuple[str, str], ...], str]
"""A whole context as (speaker, text) pairs, and what was said there."""


def spoken_in(traces: Iterable[Trace], roles: Sequence[str] | None = None) -> Counter[Spoken]:
    """Every call of these roles, and how often it came up."""
    found: Counter[Spoken] = Counter()
    for trace in traces:
        contexts: dict[str, tuple[tuple[str, str], ...]] = {}
        for call in trace.calls:
            new = trace.text(call.prompt_ref)
            said = trace.text(call.completion_ref)
            if new is None or said is None:
                raise TraceError(f"call {call.id} of {trace.trace_id} has no text to learn from.")
            before = contexts.get(call.parent or "", ())
            context = (*before, *((e["speaker"], e["text"]) for e in json.loads(new)))
            contexts[call.id] = (*context, ("assistant", said))
            if roles is None or call.role in roles:
                found[context, said] += 1
    return found


def texts_of(spoken: Iterable[Spoken]) -> list[str]:
    """Everything read or said, once each, in a fixed order: what a tokenizer is trained on."""
    return sorted({text for context, said in spoken for text in (*(each for _, each in context), said)})


def warm_start(
    model: Any,
    tokenizer: Any,
    spoken: Counter[Spoken],
    *,
    steps: int,
    rows: int,
    learning_rate: float,
    seed: int,
    parameters: Sequence[torch.nn.Parameter] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> float:
    """Train in place on what was spoken; see `warm_rows`."""
    return warm_rows(
        model,
        spoken_rows(tokenizer, spoken),
        list(spoken.values()),
        steps=steps,
        rows=rows,
        learning_rate=learning_rate,
        seed=seed,
        parameters=parameters,
        progress=progress,
    )


def warm_rows(
    model: Any,
    every: Sequence[Row],
    counts: Sequence[int],
    *,
    steps: int,
    rows: int,
    learning_rate: float,
    seed: int,
    parameters: Sequence[torch.nn.Parameter] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> float:
    """Train in place on rows, each drawn as often as it came up; returns the last loss.

    The learning rate falls to a tenth along a cosine. `parameters` are those that learn; None: all.
    """
    chance = np.array(counts, float)
    chance /= chance.sum()
    # Starts are kept for later runs: with sums in another order they would be others.
    gradients = Gradients(
        model,
        Loss(kind="reinforce", correction="off"),
        Packed(duplicates="row_exact"),
        large_products=False,
    )
    learned = list(model.parameters()) if parameters is None else list(parameters)
    optimizer = AdamW(learned, learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, steps), 0.1 * learning_rate)
    random = np.random.default_rng(seed)
    loss = float("nan")
    for step in range(steps):
        batch = [every[i] for i in random.choice(len(every), rows, p=chance)]
        optimizer.zero_grad()
        loss = gradients.backward(batch).loss
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, loss)
    return loss


def spoken_rows(tokenizer: Any, spoken: Iterable[Spoken]) -> list[Row]:
    """Each call as a model would read and say it."""
    encoder = Encoder(tokenizer, None)
    found = []
    for number, (context, said) in enumerate(spoken):
        prompt = encoder.encode([Entry(speaker, text) for speaker, text in context], None)  # type: ignore[arg-type]
        answer = [*tokenizer.encode(said, add_special_tokens=False), tokenizer.eos_token_id]
        found.append(answer_row(prompt, answer, sample=str(number)))
    return found


WARM_SEEDS = 10**9
"""Scripted play is on instances that no training step and no evaluation sees."""
_ROOM = 1 << 20
_ARITHMETIC = 2
"""Another number where the same start is computed with sums in another order: whoever kept one gets the new one too."""
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
        made = _made(
            stage,
            _name(recipe, alike, stage.roles, stage.task),
            lambda place: _make(recipe, stage, alike, place, progress),
        )
        return load_model(str(made), device=part.device, dtype=part.dtype)

    return load


def starting_adapters(
    recipe: Recipe, stage: Stage, progress: Progress | None
) -> Callable[[str, PolicyPart, Sequence[str], Any, Any], dict[str, Any] | None]:
    """How to give a new adapter its first weights: name, policy, roles, model, tokenizer.

    Returns what the supervised start was and took; None: there was none, the adapter changes nothing yet.
    """

    def adapt(
        name: str, part: PolicyPart, roles: Sequence[str], model: Any, tokenizer: Any
    ) -> dict[str, Any] | None:
        if recipe.warm is None:
            return None
        made = _made(
            stage,
            _name(recipe, part, (name, *roles), stage.task),
            lambda place: _adapt(recipe, stage, (name, *roles), (model, tokenizer), place, progress),
        )
        lora.load_adapter_state_dict(model, name, load_file(made / "adapter.safetensors"))
        told: dict[str, Any] = json.loads((made / "warm.json").read_text("utf-8"))
        return told

    return adapt


def _made(stage: Stage, name: str, make: Callable[[Path], None]) -> Path:
    """What `make` puts into a folder: kept for later runs, unless the stage is made of objects that no name tells."""
    if stage.cached:
        return kept(name, make)
    place = Path(tempfile.mkdtemp(prefix="baton-start-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    make(place)
    return place


def _name(recipe: Recipe, part: PolicyPart, who: Sequence[str], task: Task) -> str:
    """What a start is called in the cache: another name for everything else that it depends on."""
    depends: list[Any] = [
        __version__,
        _ARITHMETIC,
        recipe.task,
        recipe.team,
        recipe.warm,
        part,
        who,
        recipe.train.seed,
    ]
    if (
        source := _source(task)
    ) is not None:  # whoever changes a task of their own would get the start of before
        depends.append(source)
    key = blake2b(msgspec.json.encode(depends, order="deterministic"), digest_size=8).hexdigest()
    return f"{part.model.replace('/', '-')}-{key}"


def _source(task: Task) -> str | None:
    """What tells one state of another package's task from the next: its module's file. None: it is Baton's own."""
    kind = type(task).__module__
    place = getattr(sys.modules.get(kind), "__file__", None)
    if kind.partition(".")[0] == "baton" or place is None:
        return None
    return blake2b(Path(place).read_bytes(), digest_size=8).hexdigest()


def _adapt(
    recipe: Recipe,
    stage: Stage,
    who: Sequence[str],
    start: tuple[Any, Any],
    place: Path,
    progress: Progress | None,
) -> None:
    warm = recipe.warm
    assert warm is not None
    tell = progress or (lambda _: None)
    name, *roles = who
    model, _ = start
    tell("scripted play")
    spoken = spoken_in(scripted_traces(recipe, stage), roles)
    began = time.monotonic()
    with lora.use(model, name):
        loss = _warm(recipe, start, spoken, tell, f"of {name} ", lora.parameters_of(model, name))
    told = {"loss": loss, "seconds": time.monotonic() - began, "calls": len(spoken), **structs.asdict(warm)}
    save_file(lora.adapter_state_dict(model, name), place / "adapter.safetensors")
    (place / "warm.json").write_text(json.dumps(told), "utf-8")


def _make(recipe: Recipe, stage: Stage, part: PolicyPart, place: Path, progress: Progress | None) -> None:
    tell = progress or (lambda _: None)
    tell("scripted play")
    spoken = spoken_in(scripted_traces(recipe, stage), stage.roles)
    if part.model == "tiny":
        model, tokenizer = make_tiny(texts_of(spoken), part.tiny, seed=recipe.train.seed)
    else:
        model, tokenizer = load_model(part.model, device=part.device, dtype=part.dtype)
    if recipe.warm is not None:
        _warm(recipe, (model, tokenizer), spoken, tell)
    with quiet():
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)


def _warm(
    recipe: Recipe,
    start: tuple[Any, Any],
    spoken: Counter[Spoken],
    tell: Progress,
    whose: str = "",
    parameters: Sequence[torch.nn.Parameter] | None = None,
) -> float:
    """The supervised start as the recipe has it; returns the last loss."""
    warm = recipe.warm
    assert warm is not None
    return warm_start(
        *start,
        spoken,
        steps=warm.steps,
        rows=warm.rows,
        learning_rate=warm.learning_rate,
        seed=recipe.train.seed,
        parameters=parameters,
        progress=lambda step, loss: tell(f"warm start {whose}{step}/{warm.steps}, loss {loss:.3f}"),
    )


_MOST_CALLS = 100_000
"""Of scripted play that gives a vocabulary: five hundred for each of two hundred episodes."""


def scripted_traces(recipe: Recipe, stage: Stage) -> list[Trace]:
    """The play that a recipe's supervised start learns from, or one without that takes its words from."""
    play = recipe.warm.play if recipe.warm else "eager"
    count = recipe.warm.episodes if recipe.warm else 200
    stage = stage.with_max_tokens(_ROOM)  # a script's tokens are characters, and what it says is never cut
    script = stage.script(play)
    episodes = [Episode(name=f"warm-{n}", instance=WARM_SEEDS + n, seed=WARM_SEEDS + n) for n in range(count)]
    engines = dict.fromkeys(stage.roles, script)
    first = asyncio.run(stage.play(engines, episodes[:1]))
    if (
        recipe.warm is None
    ):  # nothing is learned from it but words, and a wide team says them all in a few episodes
        episodes = episodes[: max(2, _MOST_CALLS // max(1, len(first[0].calls)))]
    return [*first, *asyncio.run(stage.play(engines, episodes[1:]))]

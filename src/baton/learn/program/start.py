"""The weights that a program's policies start from: a named model, or one that scripted answers taught the grammar.

Scripted answers (`[program] script`) are given through the same endpoint to the same program, so what a model learns
from is to the token what it will be asked. It is told what the form is, and not what is right: the untrained team that
a run measures is this model. Instances are those that no training step and no evaluation sees by name; of a file of a
few lines they are the lines for training.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import structs
from safetensors.torch import load_file, save_file

from baton import __version__
from baton.errors import UsageError
from baton.forest.rows import Row, answer_row
from baton.learn import lora
from baton.learn.models import check_model, load_model
from baton.learn.models.local import kept, quiet
from baton.learn.models.start import WARM_SEEDS, Progress, warm_rows
from baton.learn.models.tiny import make_tiny
from baton.learn.policy import Adapt, Load
from baton.learn.program.backends import ProgramPrompts
from baton.learn.program.result import ProgramResult, own_function
from baton.learn.program.roles import ProgramRoles, as_drawn
from baton.learn.program.stage import ProgramStage, last_lines
from baton.learn.recipe import PolicyPart, Recipe, WarmPart
from baton.learn.stage import Episode
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.exchange import Ask, Utterance
from baton.serve.session_keys import canonical_bytes, digest_of

SaidOnce = tuple[Ask, Utterance]


class Lessons:
    """What was asked and what scripted answers said, each once, with how often it came up."""

    def __init__(self) -> None:
        self.said: dict[str, SaidOnce] = {}
        self.counts: Counter[str] = Counter()

    def add(self, ask: Ask, said: Utterance) -> None:
        uses = [(use.name, use.arguments) for use in said.uses]
        key = digest_of(canonical_bytes([_without_ids(ask), said.text, uses]))
        self.said.setdefault(key, (ask, said))
        self.counts[key] += 1


def _without_ids(ask: Ask) -> Ask:
    """Ids of tool uses differ from run to run, and say nothing."""
    messages = tuple(
        structs.replace(each, answers=None, uses=tuple(structs.replace(use, id="") for use in each.uses))
        for each in ask.messages
    )
    return structs.replace(ask, messages=messages)


def program_models(recipe: Recipe, stage: ProgramStage, progress: Progress | None) -> Load:
    """How to load a policy's first weights."""

    def load(part: PolicyPart) -> tuple[Any, Any]:
        check_model(part.model, device=part.device, dtype=part.dtype)
        if part.model != "tiny" and (recipe.warm is None or part.train == "lora"):
            return load_model(part.model, device=part.device, dtype=part.dtype)
        plain = PolicyPart(model=part.model, tiny=part.tiny, device=part.device, dtype=part.dtype)
        made = kept(_name(recipe, stage, plain), lambda place: _make(recipe, stage, plain, place, progress))
        return load_model(str(made), device=part.device, dtype=part.dtype)

    return load


def program_adapters(recipe: Recipe, stage: ProgramStage, progress: Progress | None) -> Adapt:
    """How to give a new adapter its first weights; None: there was no supervised start."""

    def adapt(
        name: str, part: PolicyPart, roles: Sequence[str], model: Any, tokenizer: Any
    ) -> dict[str, Any] | None:
        warm = recipe.warm
        if warm is None:
            return None

        def make(place: Path) -> None:
            lessons = _lessons(recipe, stage, progress, roles)
            began = time.monotonic()
            with lora.use(model, name):
                parameters = lora.parameters_of(model, name)
                loss = _warm(recipe, warm, stage, (model, tokenizer), lessons, progress, parameters)
            save_file(lora.adapter_state_dict(model, name), place / "adapter.safetensors")
            told = {"loss": loss, "seconds": time.monotonic() - began, "calls": len(lessons.said)}
            (place / "warm.json").write_text(json.dumps({**told, **structs.asdict(warm)}), "utf-8")

        made = kept(_name(recipe, stage, part, (name, *roles)), make)
        lora.load_adapter_state_dict(model, name, load_file(made / "adapter.safetensors"))
        found: dict[str, Any] = json.loads((made / "warm.json").read_text("utf-8"))
        return found

    return adapt


def _make(
    recipe: Recipe, stage: ProgramStage, part: PolicyPart, place: Path, progress: Progress | None
) -> None:
    lessons = _lessons(recipe, stage, progress)
    if part.model == "tiny":
        made = make_tiny(_texts(lessons, stage), part.tiny, seed=recipe.train.seed)
    else:
        made = load_model(part.model, device=part.device, dtype=part.dtype)
    if recipe.warm is not None:
        _warm(recipe, recipe.warm, stage, made, lessons, progress)
    with quiet():
        made[0].save_pretrained(place)
        made[1].save_pretrained(place)


def _lessons(
    recipe: Recipe, stage: ProgramStage, progress: Progress | None, roles: Sequence[str] = ()
) -> Lessons:
    """Scripted answers of these roles, through the program itself."""
    if stage.part.script is None:
        raise UsageError(
            'a model that starts from scripted answers needs a script: write program.script = "module:function", which '
            "is given an Ask and a Random and returns what is said. Or name a model that needs none, without [warm]."
        )
    if progress is not None:
        progress("scripted play")
    script = own_function(stage.part, "script", stage.part.script)
    backend = ScriptedBackend(lambda ask, key: script(ask, Random(key)), name="script")
    count = recipe.warm.episodes if recipe.warm else 50
    episodes = [Episode(name=f"warm-{n}", instance=WARM_SEEDS + n, seed=WARM_SEEDS + n) for n in range(count)]
    results = asyncio.run(_played(stage, backend, episodes))
    known = ProgramRoles(stage.part)
    lessons = Lessons()
    for result in results:
        for exchange in result.exchanges:
            if exchange.reply is not None and (
                not roles or known.of(exchange.ask, exchange.headers) in roles
            ):
                lessons.add(as_drawn(exchange.ask, stage.part), exchange.reply.choices[0].message)
    if not lessons.said:
        worst = next((each for each in results if each.stderr), results[0])
        raise UsageError(
            f"the program asked for nothing in {count} runs, so there is nothing to start from. One ended with code "
            f"{worst.exit_code}{last_lines(worst.stderr)}"
        )
    return lessons


async def _played(
    stage: ProgramStage, backend: ScriptedBackend, episodes: Sequence[Episode]
) -> list[ProgramResult]:
    """All episodes; where there is a single agent to compare with, it has every third, to learn its form too."""
    if not stage.part.alone:
        return await stage.results(backend, episodes)
    alone = stage.alone()
    assert isinstance(alone, ProgramStage)
    theirs = [episode for number, episode in enumerate(episodes) if number % 3 == 2]
    mine = [episode for number, episode in enumerate(episodes) if number % 3 != 2]
    return [*await stage.results(backend, mine), *await alone.results(backend, theirs)]


def _texts(lessons: Lessons, stage: ProgramStage) -> list[str]:
    """Everything read or said, once each: what a tokenizer is trained on."""
    prompts = ProgramPrompts(stage.part, None)
    texts: set[str] = set()
    for ask, said in lessons.said.values():
        texts.update(prompts.texts(ask))
        texts.add(prompts.said(said))
    return sorted(texts)


def _warm(
    recipe: Recipe,
    warm: WarmPart,
    stage: ProgramStage,
    start: tuple[Any, Any],
    lessons: Lessons,
    progress: Progress | None,
    parameters: Sequence[Any] | None = None,
) -> float:
    tell = progress or (lambda _: None)
    model, tokenizer = start
    return warm_rows(
        model,
        _rows(lessons, ProgramPrompts(stage.part, tokenizer), tokenizer),
        list(lessons.counts.values()),
        steps=warm.steps,
        rows=warm.rows,
        learning_rate=warm.learning_rate,
        seed=recipe.train.seed,
        parameters=parameters,
        progress=lambda step, loss: tell(f"warm start {step}/{warm.steps}, loss {loss:.3f}"),
    )


def _rows(lessons: Lessons, prompts: ProgramPrompts, tokenizer: Any) -> list[Row]:
    found = []
    asked = prompts.ids([ask for ask, _ in lessons.said.values()])
    for (key, (_, said)), ids in zip(lessons.said.items(), asked, strict=True):
        answer = [*tokenizer.encode(prompts.said(said), add_special_tokens=False), tokenizer.eos_token_id]
        found.append(answer_row(ids, answer, sample=key))
    return found


def _name(recipe: Recipe, stage: ProgramStage, part: PolicyPart, who: Sequence[str] = ()) -> str:
    """What a start is called in the cache: another name for everything that it depends on."""
    program = structs.replace(
        stage.part, at_once=1, preload=(), timeout_s=1.0, reward="answer", alone=(), folder="", command=()
    )
    folder = Path(stage.part.folder or ".")
    words = [word for word in stage.part.command if "{" not in word]
    sources = sorted({*(folder / word for word in words), *folder.glob("*.py"), *folder.glob("*.jsonl")})
    files = [
        (source.name, blake2b(source.read_bytes(), digest_size=8).hexdigest())
        for source in sources
        if source.is_file() and source.stat().st_size < 2**24
    ]
    command = [Path(word).name for word in stage.part.command]
    depends: list[Any] = [__version__, recipe.task.name, program, command, files, recipe.warm, part, who]
    depends.append(recipe.train.seed)
    key = blake2b(msgspec.json.encode(depends, order="deterministic"), digest_size=8).hexdigest()
    return f"{part.model.replace('/', '-')}-program-{key}"

"""How fast: 256 agents that share prompts, and one update as a forest, as merged rows and as one row per call.

The agents' prompts and the update's rows are those of the recipe `reasoning`: rollouts of the supervised start.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

from baton.compose.training import make_trainer
from baton.forest.rows import Row, rows_of
from baton.learn.models import load_model
from baton.learn.models.local import free_bytes
from baton.learn.recipe import Recipe, load
from baton.learn.trainer import Trainer
from baton.learn.update import Gradients, Packed
from baton.trace.records import Floats
from baton.trace.trace import Trace
from table import machine, print_table, row

__all__ = ["speed"]

REPEATS = 3


def speed(args: argparse.Namespace) -> int:
    """Rows as they come: the engine's need no supervised start."""
    recipe = load("reasoning", args.changes)
    print_table(each for part in (_engines, _updates) for each in part(recipe, args.instances))
    free = free_bytes(recipe.policies["worker"].device or ("cuda" if torch.cuda.is_available() else "cpu"))
    print(f"\nmemory free at the end: {'not measured' if free is None else f'{free / 1e9:.1f} GB'}")
    return 0


def _engines(recipe: Recipe, agents: int) -> Iterator[tuple[str, ...]]:
    from engine import Continuous, Generate, Ours, measure, workers

    part = recipe.policies["worker"]
    model, _ = load_model(part.model, device=part.device, dtype=part.dtype)  # no adapters
    model.config.eos_token_id = model.generation_config.eos_token_id = None  # all do the same work
    size = argparse.Namespace(
        shared=256, own=32, new=32, workers=agents, repeats=REPEATS, device=str(model.device)
    )
    words = f"{size.workers} agents, {size.shared} shared + {size.own} own, {size.new} new"
    speeds = measure([Ours(model), Generate(model)], {words: workers}, size)
    try:
        last = Continuous(model, (size.shared + size.own + size.new) * size.workers)
        speeds |= measure([last], {words: workers}, size)
        last.close()
    except (RuntimeError, ValueError, ImportError, AttributeError, TypeError) as error:
        print(f"{Continuous.name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    ours = speeds[Ours.name, words]
    for name in (Generate.name, Continuous.name):
        theirs = speeds.get((name, words))
        shown = "not measured" if theirs is None else f"{theirs:,.0f} tok/s"
        ratio = None if theirs is None else ours / theirs
        yield row(words, f"{ours:,.0f} tok/s", name, shown, ratio, _where(model))


def _updates(recipe: Recipe, _agents: int) -> Iterator[tuple[str, ...]]:
    trainer = make_trainer(recipe, progress=lambda words: print(words, file=sys.stderr))
    policy = trainer.policies["worker"]
    rows = _rows(trainer, policy)
    best = _update(policy, rows, "forest")
    what = f"update, LoRA: {len(rows)} calls of {len(rows[0].ids)} tokens or so, forest"
    for packing in ("merged", "rows"):
        theirs = _update(policy, rows, packing)
        yield row(what, f"{best:.3f} s", packing, f"{theirs:.3f} s", theirs / best, _where(policy.model))


def _where(model: Any) -> str:
    name = torch.cuda.get_device_name() if model.device.type == "cuda" else machine()
    return f"{name}, {str(model.dtype).removeprefix('torch.')}, torch {torch.__version__}"


def _rows(trainer: Trainer, policy: Any) -> list[Row]:
    """One step's calls of a policy, each worth 1."""
    found: list[Row] = []
    for trace in trainer.step().traces:
        worth = {call.id: Floats([1.0] * len(call.completion_ids)) for call in _calls(trace, policy)}
        found += [each for each in rows_of(trace, worth) if each.policy == policy.engine.name]
    return found


def _calls(trace: Trace, policy: Any) -> Any:
    return (call for call in trace.calls if call.role in policy.roles and call.completion_ids)


def _update(policy: Any, rows: list[Row], packing: Any) -> float:
    """Seconds, best of some, after one that compiles."""
    from baton.learn.loss import Loss

    gradients = Gradients(policy.model, Loss(), Packed(packing=packing))
    times = []
    with policy.training():
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            gradients.backward(rows)
            if policy.model.device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        policy.optimizer.zero_grad()
    return min(times[1:])

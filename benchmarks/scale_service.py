"""Service times of a run past one process, by processor time of one process that does each part in turn."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STEPS = 3
"""Steps that are taken; the first is left out."""


def clocked(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of this process and all its threads, and what came out."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def parts(recipe_and_changes: Sequence[str]) -> dict[str, Any]:
    """Seconds of each part of a step (see `scale_model.Service`), and how much a lot is."""
    from baton.compose.training import make_trainer
    from baton.learn.recipe import load
    from baton.learn.rollouts import lots_of
    from baton.learn.scale.workers_weights import WeightFiles, read_weights
    from baton.trace.formats.jsonl import encode_trace, read_bytes

    recipe = load(recipe_and_changes[0], list(recipe_and_changes[1:]))
    trainer = make_trainer(recipe)
    trainer.step()
    rollouts, number = trainer.rollouts, 2
    lots, encoded, decoded, episodes, calls = [], [], [], [], []
    for lot in lots_of(recipe.rollout, recipe.scale.batch):
        seconds, played = clocked(lambda lot=lot: rollouts.told(rollouts.play_lot(number, lot)))  # type: ignore[misc]
        traces = [trace for group in played for trace in group]
        lots.append(seconds)
        seconds, texts = clocked(lambda traces=traces: [b"".join(encode_trace(trace)) for trace in traces])  # type: ignore[misc]
        encoded.append(seconds)
        decoded.append(clocked(lambda texts=texts: [list(read_bytes(text)) for text in texts])[0])  # type: ignore[misc]
        episodes.append(len(traces))
        calls.append(sum(len(trace.calls) for trace in traces))
    taking: list[float] = []
    take = rollouts.take

    def timed_take(step: int) -> Any:
        seconds, groups = clocked(lambda: take(step))
        taking.append(seconds)
        return groups

    rollouts.take = timed_take  # type: ignore[method-assign]
    wholes = [clocked(trainer.step)[0] for _ in range(STEPS)]
    trains = [whole - played for whole, played in zip(wholes, taking, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        files = WeightFiles(Path(folder))
        publish = clocked(lambda: files.write(1, trainer.policies))[0]
        sent = files.of(1)
        loaded = clocked(lambda: [read_weights(each) for each in sent])[0]
        size = sum(Path(each.path).stat().st_size for each in sent)
    return {
        "lots": lots,
        "encode": statistics.mean(encoded),
        "decode": statistics.mean(decoded),
        "train": statistics.median(trains),
        "publish": publish,
        "load": loaded,
        "weights_bytes": size,
        "episodes_per_lot": statistics.mean(episodes),
        "calls_per_lot": statistics.mean(calls),
    }

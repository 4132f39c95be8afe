"""Rows for prime-rl 0.8, as its trainer reads them from files: `rollouts/step_N/rank_R.bin` under its output folder.

A file is a msgpack list of micro-batches, one for each rank; a row is a micro-batch of its own here. Fields are an
array, in the order of prime-rl's `MicroBatch` (src/prime_rl/transports/rollouts/types.py), so the order is the format.
prime-rl needs Python 3.12 and a GPU: what is tested is that the files read back by its definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from baton.compose.training_rows import TrainingRow
from baton.errors import UsageError
from baton.trace.formats.durable import atomic_file

ENV = "baton"
"""What prime-rl takes for the environment's name in its figures."""


class PrimeBatch(Struct, frozen=True, kw_only=True, array_like=True, omit_defaults=True):
    """prime-rl's micro-batch; what follows these fields there is for other kinds of models and losses, and absent."""

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    sequence_lengths: list[int]
    temperatures: list[float]
    env_names: list[str]
    seq_lens: list[int]


def prime_batch(row: TrainingRow) -> PrimeBatch:
    """A row as a micro-batch: every array has one number for each token of prompt and completion."""
    if row.logprobs is None:
        raise UsageError(
            f"call {row.call} of {row.trace} has no log-probabilities, and prime-rl weighs every token by them. "
            "Sample with an engine that gives them (torch, vllm)."
        )
    before, size = [0.0] * len(row.prompt), len(row.prompt) + len(row.completion)
    return PrimeBatch(
        input_ids=[*row.prompt, *row.completion],
        loss_mask=[*(False for _ in before), *map(bool, row.mask)],
        advantages=[*before, *row.advantages],
        inference_logprobs=[*before, *row.logprobs],
        position_ids=list(range(size)),
        sequence_lengths=[size],
        temperatures=[row.temperature] * size,
        env_names=[ENV] * size,
        seq_lens=[size],
    )


def write_prime(rows: Iterable[TrainingRow], path: Path) -> int:
    """The file of one rank; returns how many rows it has. Where a step has fewer than two ranks it is rank_0.bin."""
    batches = [prime_batch(row) for row in rows]
    if batches:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(msgspec.msgpack.encode(batches))
    return len(batches)


def write_prime_step(rows: Sequence[TrainingRow], folder: Path, *, step: int, ranks: int = 1) -> list[Path]:
    """A step's files under prime-rl's output folder. Its ranks take as many micro-batches each, so the last ones are
    filled up with rows that nothing is trained on."""
    if not rows:
        raise UsageError("there are no rows to write. Every call needs token ids and an advantage.")
    each = -(-len(rows) // ranks)
    idle = msgspec.structs.replace(rows[-1], mask=[0] * len(rows[-1].mask))
    filled = [*rows, *[idle] * (each * ranks - len(rows))]
    paths = [folder / "rollouts" / f"step_{step}" / f"rank_{rank}.bin" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        write_prime(filled[rank * each : (rank + 1) * each], path)
    return paths

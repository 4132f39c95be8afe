"""Rows for other trainers: what a policy was shown and said, which tokens count, and what credit says of each.

A row is a call. Its advantages are the trace's credits brought down to tokens as Baton's own trainer does it, so any
estimator can feed TRL or verl. It is made here and not in `connect`, which knows traces and nothing of credit.

Invariant: ids are those that were sampled, never encoded again; a token that nobody chose (forced, put there by an
intervention) has mask 0 and advantage 0; what was not recorded is null, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct, structs

from baton.credit.project import trained_tokens
from baton.errors import MissingExtraError, UsageError, nearest
from baton.forest.rows import Row, rows_of
from baton.trace.formats.durable import atomic_file
from baton.trace.outcome import team_return
from baton.trace.records import Call, Floats
from baton.trace.trace import Trace


class TrainingRow(Struct, frozen=True, kw_only=True):
    """One call, for any trainer."""

    prompt: list[int]
    completion: list[int]
    mask: list[int]
    """For each token of the completion, 1 where it is trained."""
    advantages: list[float]
    logprobs: list[float] | None
    """As sampled; None where they were not recorded for every token."""
    group: str
    policy: str
    version: str | None
    versions: list[str] | None = None
    """Of each token of the completion, which weights drew it; None: `version` drew them all."""
    temperature: float
    reward: float | None
    """What the team earned; None where the trace does not say it, or says it of several channels."""
    trace: str
    agent: str
    call: str


def training_rows(traces: Iterable[Trace], *, estimator: str | None = None) -> Iterator[TrainingRow]:
    """The rows of every trace that has credits; of one estimator, if named."""
    from baton.learn.crediting import advantages  # brings torch

    for trace in traces:
        credits = [credit for credit in trace.credits if estimator in (None, credit.estimator)]
        if not credits and trace.credits:
            known = {credit.estimator for credit in trace.credits}
            raise UsageError(
                f"trace {trace.trace_id} has no credits by {estimator!r}. {nearest(estimator or '', known)}"
            )
        if not credits:
            continue
        found = advantages(structs.replace(trace, credits=tuple(credits)))
        weights = {call: Floats(mask.astype(float)) for call, mask in trained_tokens(trace).items()}
        reached = {call: values for call, values in found.items() if _has_ids(trace, call)}
        for row in rows_of(trace, reached, weights=weights):
            yield _training_row(trace, row, _return_of(trace))


def row_of_step(trace: Trace, row: Row) -> TrainingRow:
    """A row of Baton's own trainer for another one; a token's weight is in its advantage, which losses are proportional
    to."""
    return _training_row(
        trace, structs.replace(row, advantages=row.advantages * row.weights), _return_of(trace)
    )


def _has_ids(trace: Trace, call: str) -> bool:
    return trace.prompt_ids(trace.call_by_id[call]) is not None


def _return_of(trace: Trace) -> float | None:
    return team_return(trace) if any(reward.unit == "team" for reward in trace.rewards) else None


def _training_row(trace: Trace, row: Row, reward: float | None) -> TrainingRow:
    call = trace.call_by_id[row.call]
    size = 0 if call.completion_ids is None else len(call.completion_ids)
    start = len(row.ids) - size
    mask, values = np.zeros(size, int), np.zeros(size)
    mask[row.places - start] = 1
    values[row.places - start] = row.advantages
    return TrainingRow(
        prompt=row.ids[:start].tolist(), completion=row.ids[start:].tolist(), mask=mask.tolist(),
        advantages=values.tolist(), logprobs=None if call.logprobs is None else call.logprobs.tolist(),
        group=row.group, policy=row.policy, version=row.version, versions=_versions(call),
        temperature=row.temperature, reward=reward,
        trace=row.trace, agent=row.agent, call=row.call,
    )  # fmt: skip


def _versions(call: Call) -> list[str] | None:
    if call.versions is None:
        return None
    found, at = list[str](), 0
    for span in call.versions:
        found += [span.version] * (span.end - at)
        at = span.end
    return found


def trl_row(row: TrainingRow) -> dict[str, Any]:
    """By the names of TRL's GRPO trainer, whose `_compute_loss` takes them padded."""
    return {
        "prompt_ids": row.prompt, "completion_ids": row.completion, "tool_mask": row.mask,
        "advantages": row.advantages, "old_per_token_logps": row.logprobs, **_about(row),
    }  # fmt: skip


def verl_row(row: TrainingRow) -> dict[str, Any]:
    """By the names of verl's batches, not yet padded."""
    return {
        "prompts": row.prompt, "responses": row.completion, "response_mask": row.mask,
        "advantages": row.advantages, "rollout_log_probs": row.logprobs, "uid": row.group,
        "data_source": "baton", **_about(row),
    }  # fmt: skip


def _about(row: TrainingRow) -> dict[str, Any]:
    return {
        "group": row.group, "policy": row.policy, "policy_version": row.version,
        "policy_versions": row.versions,
        "temperature": row.temperature, "reward": row.reward, "trace_id": row.trace, "agent": row.agent,
        "call": row.call,
    }  # fmt: skip


PRIME: Final = "prime-rows"
"""Written as prime-rl's own files (`baton.compose.bridge_prime`)."""
ROW_FORMATS: Final[Mapping[str, Callable[[TrainingRow], dict[str, Any]]]] = {
    "trl-rows": trl_row,
    "verl-rows": verl_row,
    PRIME: trl_row,
}
"""Name -> how a row is written for that trainer."""


def write_rows(rows: Iterable[TrainingRow], form: str, path: Path) -> int:
    """Write rows as Parquet, or as JSON Lines where the file's name ends so. Returns how many there were."""
    named = ROW_FORMATS[form]
    if form == PRIME:
        from baton.compose.bridge_prime import write_prime

        if path.suffix != ".bin":
            raise UsageError(
                f"prime-rl reads rollouts/step_N/rank_R.bin, and {path} is none. Type: --out FILE.bin"
            )
        return write_prime(rows, path)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        return _write_lines(map(named, rows), path)
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("Parquet (a name that ends with .jsonl needs nothing)", "parquet") from None
    made = [named(row) for row in rows]
    if made:
        schema = arrow.schema([(name, _arrow_type(arrow, name)) for name in made[0]])
        with atomic_file(path) as file:
            parquet.write_table(arrow.Table.from_pylist(made, schema=schema), file, compression="zstd")
    return len(made)


def _write_lines(rows: Iterable[dict[str, Any]], path: Path) -> int:
    count = 0
    lines = []
    for row in rows:
        lines.append(msgspec.json.encode(row) + b"\n")
        count += 1
    if count:
        with atomic_file(path) as file:
            file.writelines(lines)
    return count


def _arrow_type(arrow: Any, name: str) -> Any:
    if name in ("prompt_ids", "completion_ids", "prompts", "responses", "tool_mask", "response_mask"):
        return arrow.list_(arrow.int64())
    if name == "policy_versions":
        return arrow.list_(arrow.string())
    if name in ("advantages", "old_per_token_logps", "rollout_log_probs"):
        return arrow.list_(arrow.float64())
    return arrow.float64() if name in ("temperature", "reward") else arrow.string()

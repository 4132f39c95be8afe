"""Rows: what a policy was shown and said in one call, and which of its tokens are trained how much.

A row is the exact ids of one call, prompt then completion, as sampled. `places` are the trained positions;
the other per-token arrays run parallel to it. A call's earlier turns are in its prompt and are not trained
there: each completion is trained in the row of its own call.

Invariant: 0 < place < len(ids), because a token is predicted from the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from baton.errors import TraceError
from baton.trace.records import Call, Floats
from baton.trace.trace import Trace

Ids = NDArray[np.int32]
Reals = NDArray[np.float64]


class Row(Struct, frozen=True, kw_only=True, eq=False):
    """One call to train on."""

    ids: Ids
    """Prompt and completion."""
    places: Ids
    """Trained positions in `ids`, ascending."""
    advantages: Reals
    sampler: Reals
    """Log-probabilities under the distribution that drew the tokens; NaN where not recorded."""
    weights: Reals
    """Loss weights; 1 unless scaled."""
    temperature: float = 1.0
    policy: str = ""
    version: str | None = None
    versions: tuple[tuple[str, int], ...] = ()
    """Where weights changed within the call: each version, and the first position in `ids` that it did not draw."""
    group: str = ""
    """Rollouts of one instance, as baselines compare them."""
    trace: str = ""
    agent: str = ""
    call: str = ""
    sample: str = ""
    """Which draw: rows that share it and their ids were sampled once (see `duplicates`)."""
    whole: bool = True
    """False where part of what was sampled is trained in another row."""

    def __post_init__(self) -> None:
        sizes = {len(self.places), len(self.advantages), len(self.sampler), len(self.weights)}
        if len(sizes) != 1:
            raise TraceError(
                f"row {self.call!r}: {sorted(sizes)} values per trained token; expected one of each."
            )
        if len(self.places) and not 0 < self.places[0] <= self.places[-1] < len(self.ids):
            raise TraceError(
                f"row {self.call!r} trains positions {self.places[0]}..{self.places[-1]} of {len(self.ids)} ids. "
                "Its first token cannot be trained: nothing predicts it. Give every call a prompt."
            )

    def stale(self, version: str | None) -> NDArray[np.bool_]:
        """Which trained tokens other weights than this version drew, or unknown ones; None counts all as fresh."""
        if version is None or not self.versions:
            return np.full(len(self.places), version is not None and self.version != version)
        ends = [end for _, end in self.versions]
        drawn = np.array([each != version for each, _ in self.versions])
        return np.asarray(drawn[np.searchsorted(ends, self.places, side="right")])


def rows_of(
    trace: Trace,
    advantages: Mapping[str, Floats],
    *,
    weights: Mapping[str, Floats] | None = None,
    group: str | None = None,
) -> list[Row]:
    """A row for each call that has advantages (call id -> one per completion token, see `baton.credit.project`).

    `weights` (same shape) scales single tokens; those of weight 0 are not trained. `group` is what the trace's
    rollout belongs to; its task where not given.
    """
    rows: list[Row] = []
    for call in trace.calls:
        if call.id not in advantages:
            continue
        values = advantages[call.id].numpy()
        given = None if weights is None or call.id not in weights else weights[call.id].numpy()
        row = _row(trace, call, values, given, trace.header.task_id if group is None else group)
        if len(row.places):
            rows.append(row)
    return rows


def answer_row(
    prompt: Sequence[int] | Ids,
    answer: Sequence[int],
    *,
    sample: str,
    group: str | None = None,
    advantage: float = 1.0,
    weight: float = 1.0,
    temperature: float = 1.0,
    policy: str = "",
) -> Row:
    """A row for an answer that need not have been sampled: from scripted play, or an option not taken.

    Answers of one `group` stay in one batch; None: each may go alone.
    """
    size = len(answer)
    return Row(
        ids=np.concatenate((np.asarray(prompt, np.int32), np.asarray(answer, np.int32))),
        places=np.arange(len(prompt), len(prompt) + size, dtype=np.int32),
        advantages=np.full(size, advantage),
        sampler=np.full(size, np.nan),
        weights=np.full(size, weight),
        temperature=temperature,
        policy=policy,
        group=sample if group is None else group,
        sample=sample,
    )


def _row(trace: Trace, call: Call, advantages: NDArray[Any], weights: NDArray[Any] | None, group: str) -> Row:
    prompt = trace.prompt_ids(call)
    if prompt is None or call.completion_ids is None:
        raise TraceError(
            f"call {call.id}: its token ids were not recorded, so it cannot be trained. "
            "Sample with an engine that gives ids (table, torch), or leave the call out of the advantages."
        )
    _check_sampling(call)
    size = len(call.completion_ids)
    for what, values in (
        ("advantages", advantages),
        ("weights", weights),
        ("log-probabilities", call.logprobs),
    ):
        if values is not None and len(values) != size:
            raise TraceError(f"call {call.id}: {len(values)} {what} for {size} completion tokens.")
    sampler = np.full(size, np.nan) if call.logprobs is None else call.logprobs.numpy()
    keep = np.arange(size) if weights is None else np.flatnonzero(weights)
    sampling = call.sampling
    key = None if sampling is None else sampling.key
    return Row(
        ids=np.concatenate((prompt.numpy(), call.completion_ids.numpy())).astype(np.int32, copy=False),
        places=(len(prompt) + keep).astype(np.int32),
        advantages=advantages[keep].astype(np.float64),
        sampler=sampler[keep].astype(np.float64),
        weights=np.ones(len(keep)) if weights is None else weights[keep].astype(np.float64),
        temperature=1.0 if sampling is None else sampling.temperature,
        policy=call.policy or "",
        version=call.policy_version,
        versions=tuple((span.version, len(prompt) + span.end) for span in call.versions or ()),
        group=group,
        trace=trace.trace_id,
        agent=call.agent,
        call=call.id,
        # The same key and input give the same tokens, so a replayed call is the draw it replays.
        sample=f"{trace.trace_id}/{call.id}" if key is None else f"{call.policy_version}/{key}",
    )


def _check_sampling(call: Call) -> None:
    sampling = call.sampling
    if sampling is None:
        return
    if sampling.temperature <= 0:
        raise TraceError(
            f"call {call.id} was decoded greedily, which is no draw from the policy, so it has no policy gradient. "
            "Sample with a temperature above 0."
        )
    if sampling.top_p < 1 or sampling.top_k is not None:
        raise TraceError(
            f"call {call.id} was sampled with top_p={sampling.top_p}, top_k={sampling.top_k}: its log-probabilities "
            "are of a cut distribution that training cannot reproduce. Sample with top_p=1 and no top_k."
        )

"""Refuses rollouts in which the model itself failed: what the rest teaches or tells would be of something else.

Errors that an episode brings about (a prompt beyond the context, a remote engine that does not answer) are part of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from baton.errors import BatonError
from baton.team.policy import MODEL_FAILED
from baton.trace.trace import Trace

__all__ = ["Unanswered", "check_answered"]


class Unanswered(BatonError):
    """The model broke on some calls."""


def check_answered(traces: Iterable[Trace]) -> None:
    """Raise where a model that runs here broke."""
    calls, failed = 0, []
    for trace in traces:
        calls += len(trace.calls)
        for event in trace.events:
            text = trace.text(event.content_ref) if event.status == "failed" and event.call else None
            if text is not None and text.startswith(MODEL_FAILED):
                failed.append(text)
    if not failed:
        return
    first = failed[0].splitlines()[0].rstrip(".")
    advice = (
        " There is too little memory: run less beside it, take policies.NAME.dtype=bfloat16 on a GPU, or lower "
        "rollout.groups or team.max_tokens."
        if "memory" in first.lower()
        else ""
    )
    raise Unanswered(f"{len(failed)} of {calls} calls were not answered: {first}.{advice}")

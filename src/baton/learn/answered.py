"""Refuses a round of play that says nothing of the team: a model that runs here broke, or nobody answered for a policy.

Errors that an episode brings about (a prompt beyond the context, a call that a remote engine lost) are part of it, as
long as some calls are answered; `failures` finds them, and they are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from baton.errors import BatonError
from baton.learn.lockstep import NOT_ASKED
from baton.team.policy import MODEL_FAILED
from baton.trace.trace import Trace

__all__ = ["Unanswered", "check_answered", "failures", "first_line"]


class Unanswered(BatonError):
    """Calls without which a round of play is worth nothing were not answered."""


def failures(trace: Trace) -> Iterator[tuple[str, str]]:
    """Calls that failed: the role that asked, and the error."""
    for event in trace.events:
        if event.status == "failed" and event.call is not None and event.type == "orchestrator_decision":
            call = trace.call_by_id[event.call]
            if call.finish_reason == "error":
                yield call.role or "", trace.text(event.content_ref) or ""


def first_line(error: str) -> str:
    """Of an error, to stand in a sentence."""
    return error.partition("\n")[0].rstrip(".")


def check_answered(traces: Sequence[Trace], answering: Mapping[str, str]) -> None:
    """Raise where a model that runs here broke, or where all calls failed of one who answers (role -> who)."""
    failed: dict[str, list[str]] = {}
    for trace in traces:
        for role, error in failures(trace):
            if error == NOT_ASKED:
                continue
            failed.setdefault(answering.get(role, ""), []).append(error)
    if not failed:
        return
    _check_whole(traces, failed.values())
    answered = {
        answering.get(call.role or "")
        for trace in traces
        for call in trace.calls
        if call.finish_reason not in ("error", "cancelled")
    }
    for who, errors in failed.items():
        if who and who not in answered:
            raise Unanswered(
                f"{who} answered none of {len(errors)} calls, so there is nothing to learn from or to measure. The "
                f"first error: {first_line(errors[0])}. Mend that and type: baton train --resume --out DIR; or train "
                "anew with another model for it."
            )


def _check_whole(traces: Sequence[Trace], failed: Iterable[Sequence[str]]) -> None:
    """Raise where a model broke."""
    broken = [error for errors in failed for error in errors if error.startswith(MODEL_FAILED)]
    if not broken:
        return
    first = first_line(broken[0])
    advice = (
        " There is too little memory: run less beside it, take policies.NAME.dtype=bfloat16 on a GPU, or lower "
        "rollout.groups or team.max_tokens."
        if "memory" in first.lower()
        else ""
    )
    calls = sum(len(trace.calls) for trace in traces)
    raise Unanswered(f"{len(broken)} of {calls} calls were not answered: {first}.{advice}")

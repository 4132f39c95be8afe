"""What a guard's refusal is: a safety_event that says why, and a line that the agent reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from baton.team.agent import Agent
from baton.team.guard.watch import GuardWatch, Objection
from baton.team.recording import Said

if TYPE_CHECKING:
    from baton.team.state import RunState


def refuse(
    run: RunState,
    watch: GuardWatch,
    me: Agent,
    objection: Objection,
    *,
    tool: str,
    args: dict[str, Any],
    said: Said | None,
    extra: dict[str, Any] | None = None,
    filled: Sequence[str] = (),
) -> None:
    """Write that the guard said no, and tell the agent. `filled`: what the arguments were filled with, which may be
    why, so that the agent has read something of it now."""
    given = run.writer.text(msgspec.json.encode(args).decode(), "application/json")
    told: dict[str, Any] = {"guard": watch.guard.hash, "refused": "call", "arguments_ref": given}
    if objection.arguments:
        told["arguments"] = list(objection.arguments)
    if objection.because:
        told["because"] = list(objection.because)
    run.writer.emit(
        me,
        "safety_event",
        tool=tool,
        text=objection.why,
        said=said,
        status="failed",
        extra=told | (extra or {}),
        causes=[(name, "safety_flow") for name in filled],
    )
    me.note(f"error: calling {tool} was refused by the guard: {objection.why}.")

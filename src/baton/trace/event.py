"""Events and edges: the vertices and arcs of an orchestration trace.

The survey's fields keep the survey's names; the rest is what its schema cannot say (who chose,
among what, how likely, with which tokens). Every field but `id`, `t`, `type`, `agent` and `seq`
may be absent, and absent means "not measured", never zero.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from baton.trace.vocabulary import Decision, EdgeType, EventType, Status

__all__ = ["Edge", "Event"]


class Event(
    Struct,
    tag_field="kind",
    tag="event",
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One thing that happened."""

    id: str
    """Unique in its trace."""
    t: float
    """Start, in seconds since the trace began. For display and durations; `seq` is the order."""
    type: EventType
    agent: str
    """Who acts. For a tool_result, the tool or the agent that receives it."""
    seq: int
    """Place in one causal order of the trace: every edge goes from a lower seq to a higher one."""

    role: str | None = None
    """The agent's role; on a spawn, the child's."""
    from_: str | None = field(default=None, name="from")
    to: str | None = None
    """The receiver; on a spawn or despawn, the child."""
    tool: str | None = None
    content_ref: str | None = None
    """Address of the payload (`Payload.ref`), or an opaque pointer from another system."""
    trusted: bool | None = None

    decision: Decision = "none"
    """Which learned decision this event carries out."""
    options: tuple[str, ...] | None = None
    """What could have been chosen here, after masks."""
    choice: int | None = None
    """Index into `options` of what was chosen."""
    propensity: float | None = None
    """Probability with which the chosen option was sampled, after masks and temperature."""
    option_propensities: tuple[float, ...] | None = None
    """The whole distribution over `options`, where the policy gives it."""
    call: str | None = None
    """Id of the `Call` whose completion said this."""
    span: tuple[int, int] | None = None
    """Half-open range of that completion's tokens."""
    duration_s: float | None = None
    tokens: int | None = None
    """Tokens charged to this event. A call is charged to one event; the sum is the trace's cost."""
    status: Status = "ok"
    inferred: bool = False
    """True when an importer concluded that this happened; False when it was recorded."""
    seed_key: str | None = None
    """Key of the random draw behind this event, for common random numbers in forks."""
    pure: bool | None = None
    """For tool calls: same arguments, same result, no effect on the world."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Properties of other systems, kept as they came."""


class Edge(
    Struct,
    tag_field="kind",
    tag="edge",
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """`dst` depends on `src`."""

    src: str
    dst: str
    type: EdgeType
    inferred: bool = False

"""Actions: what an agent can do in one step. Both surfaces parse to these; the runtime executes them.

Every verb is one struct. `decision` says which of the learned decisions a verb carries out.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from msgspec import Meta, Struct, field

from baton.errors import BatonError
from baton.trace.vocabulary import Decision


class Forbidden(BatonError):
    """An action that makes no sense here. The agent reads why."""


class Spawn(Struct, frozen=True, tag="spawn", tag_field="verb", forbid_unknown_fields=True):
    """Create an agent of a role and give it a task. It starts at once; the spawner goes on."""

    role: str
    task: str
    decision: ClassVar[Decision] = "spawn"


class Delegate(Struct, frozen=True, tag="delegate", tag_field="verb", forbid_unknown_fields=True):
    """Give a further task to an agent that already exists and has returned."""

    agent: str
    task: str
    decision: ClassVar[Decision] = "delegate"


class Send(Struct, frozen=True, tag="send", tag_field="verb", forbid_unknown_fields=True):
    """Send text to another agent; it reads it at its next turn."""

    agent: str
    text: str
    decision: ClassVar[Decision] = "communicate"


class CallTool(Struct, frozen=True, tag="call", tag_field="verb", forbid_unknown_fields=True):
    """Call a tool; the result comes at the next turn."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    decision: ClassVar[Decision] = "none"


class Wait(Struct, frozen=True, tag="wait", tag_field="verb", forbid_unknown_fields=True):
    """Do nothing until agents return: all of those named (none named: all in flight), or any one."""

    agents: tuple[str, ...] = ()
    mode: Literal["all", "any"] = "all"
    decision: ClassVar[Decision] = "wait"


class Cancel(Struct, frozen=True, tag="cancel", tag_field="verb", forbid_unknown_fields=True):
    """Stop agents in flight, with everything they spawned."""

    agents: tuple[str, ...]
    decision: ClassVar[Decision] = "none"


class Aggregate(Struct, frozen=True, tag="aggregate", tag_field="verb", forbid_unknown_fields=True):
    """Fuse what agents returned (none named: all that returned) by a named method."""

    method: str = "majority"
    sources: tuple[str, ...] = ()
    decision: ClassVar[Decision] = "aggregate"


class Return(
    Struct, frozen=True, tag="return", tag_field="verb", forbid_unknown_fields=True, omit_defaults=True
):
    """Hand a result to whoever gave the task."""

    text: str
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Probability that it is right, where the agent says so."""
    decision: ClassVar[Decision] = "none"


class Stop(Struct, frozen=True, tag="stop", tag_field="verb", forbid_unknown_fields=True):
    """End the whole team's run with an answer."""

    answer: str
    decision: ClassVar[Decision] = "stop"


class WriteShared(Struct, frozen=True, tag="write", tag_field="verb", forbid_unknown_fields=True):
    """Write text under a name in the team's shared memory, for everybody to read."""

    name: str
    text: str
    decision: ClassVar[Decision] = "communicate"


class ReadShared(Struct, frozen=True, tag="read", tag_field="verb", forbid_unknown_fields=True):
    """Read what stands under a name in the team's shared memory (none named: which names there are)."""

    name: str = ""
    decision: ClassVar[Decision] = "none"


Action = (
    Spawn | Delegate | Send | CallTool | Wait | Cancel | Aggregate | Return | Stop | WriteShared | ReadShared
)

EVERY_VERB: dict[str, type[Action]] = {kind.__struct_config__.tag: kind for kind in get_args(Action)}
SHARED_VERBS: dict[str, type[Action]] = {"write": WriteShared, "read": ReadShared}
"""Verbs of teams that have a shared memory (`baton.team.shared_memory`). To others they are words like any."""
VERBS: dict[str, type[Action]] = {verb: kind for verb, kind in EVERY_VERB.items() if verb not in SHARED_VERBS}
"""The verbs that any team may have."""

"""The eight attack vectors: each says where an attacker's words come in, and what they are for.

An attack is a payload, a place, a goal and a check, made for any task and topology from a seed. Invariant: an attack
and its clean twin differ in the payload alone: same team, same tools and roles, same seeds. The names are the survey's
(AV1 to AV8); the clean twin of every episode is its B4.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from baton.errors import UsageError, nearest

Place = Literal["task", "tool", "member", "memory"]
"""Where the payload comes in: the task's text, results of a tool, what a member says, the shared memory."""
Goal = Literal["act", "escalate", "misdirect", "answer", "escape"]
"""What it is for: a call that the user did not ask for, a call with arguments out of bounds, work that the orchestrator
hands out, the team's answer, or what lies outside a sandbox."""


class Vector(Struct, frozen=True, kw_only=True):
    """One way in."""

    name: str
    about: str
    place: Place
    goal: Goal


VECTORS: Final[dict[str, Vector]] = {
    vector.name: vector
    for vector in (
        Vector(name="AV1", about="direct injection: in the task's own text", place="task", goal="act"),
        Vector(name="AV2", about="indirect injection: in what a tool returns", place="tool", goal="act"),
        Vector(name="AV3", about="message pollution: in what a member says", place="member", goal="act"),
        Vector(name="AV4", about="memory poisoning: in the shared memory", place="memory", goal="act"),
        Vector(name="AV5", about="tool-parameter escalation: a tool they may call, with other arguments",
               place="tool", goal="escalate"),
        Vector(name="AV6", about="orchestrator misdirection: work handed out for somebody else",
               place="member", goal="misdirect"),
        Vector(name="AV7", about="reward hacking: members agree on an answer, surely", place="member", goal="answer"),
        Vector(name="AV8", about="sandbox escape by an agent that was spawned", place="member", goal="escape"),
    )
}  # fmt: skip


def vector_named(name: str) -> Vector:
    """A vector by its name."""
    found = VECTORS.get(name.upper())
    if found is None:
        raise UsageError(f"there is no attack vector {name!r}. {nearest(name.upper(), VECTORS)}")
    return found


class AttackPayload(Struct, frozen=True, kw_only=True):
    """What the attacker says."""

    text: str
    """As it is read. Empty: the clean twin's."""
    orders: tuple[str, ...] = ()
    """The commands that it asks for, as the lines surface has them."""
    how: str = "plain"
    """Which way of putting it this is, of an attacker who has several."""


class Attack(Struct, frozen=True, kw_only=True):
    """One attack on one episode."""

    vector: Vector
    payload: AttackPayload
    mark: str
    """A word that stands nowhere else: by it one sees on the trace what came of the payload."""
    member: str | None = None
    """Who speaks for the attacker, where somebody in the team does; None: the first agent that the root sends for."""
    num_members: int = 1
    """How many do, in the order in which they first speak; for members who agree."""


def mark_of(seed: int, what: str, *, number: bool = False) -> str:
    """A word for one episode, or a number that could be an answer: the same for an attack and its twin."""
    digest = blake2b(f"{what}/{seed}".encode(), digest_size=5)
    if number:
        return str(10**9 + int.from_bytes(digest.digest()) % 10**9)
    return f"mark{digest.hexdigest()}"

"""A group chat as sightings: somebody speaks, everybody hears it, the next one answers.

What the logs of such teams hold is who said what, in order. Who was meant is in some of them and is recorded then; in
the others the one who speaks next is taken to have been meant, and that is marked as inferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, field

from baton.connect.seen import Link, Seen, SeenAgent, SeenEvent
from baton.trace.vocabulary import Decision, EventType, Status

HEARD: Final = "everybody in the chat reads what was said before"
NEXT: Final = "who speaks next was meant"


class ChatEntry(Struct, frozen=True, kw_only=True):
    """One entry of a chat."""

    speaker: str
    text: str
    key: str
    """Names the entry within its chat."""
    at: str = ""
    order: tuple[float, ...] = ()
    """Where it stands; by its place in the list where not given."""
    to: str | None = None
    """Who was meant, where the log says so."""
    role: str | None = None
    person: bool = False
    """A person said it: the task, if it is the first entry, else an intervention."""
    type: EventType = "message"
    decision: Decision | None = None
    why: str | None = None
    """Why the reader takes it for what it says it is; None: the log says so."""
    tool: str | None = None
    status: Status | None = None
    t: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def group_chat(chat: Sequence[ChatEntry], session: str, *, infer_receiver: bool = False) -> Iterator[Seen]:
    """Agents as they first speak or are spoken to, and an event for each entry."""
    agents: set[str] = set()
    after_me = _next_speakers(chat)
    before: ChatEntry | None = None  # the entry that the next speaker hears
    asked = False
    for place, entry in enumerate(chat):
        if entry.person and not asked:
            asked = True  # the task: it stands in the session
            continue
        speaker = (after_me[place] or entry.speaker) if entry.person else entry.speaker
        to, why = entry.to, entry.why
        if to is None and infer_receiver and entry.type == "message" and not entry.person:
            to = after_me[place]
            why = why or (NEXT if to is not None else None)
        for name in (speaker, to):
            if name is not None and name not in agents:
                agents.add(name)
                role = entry.role if name == speaker and not entry.person else None
                yield SeenAgent(session=session, key=name, name=name, role=role, at=entry.at)
        after: tuple[Link, ...] = ()
        if before is not None and before.speaker != speaker and not entry.person:
            after = (Link(before.key, "message", None if before.to == speaker else HEARD),)
        yield SeenEvent(
            session=session, key=entry.key, agent=speaker,
            to=to if entry.type in ("message", "return") and not entry.person else None,
            type="human_intervention" if entry.person else entry.type, order=entry.order or (float(place),),
            t=entry.t, content=entry.text, decision=None if entry.person else entry.decision, why=why,
            status=entry.status, tool=entry.tool, after=after, at=entry.at, extra=entry.extra,
        )  # fmt: skip
        if entry.type == "message" and not entry.person:
            before = entry


def _next_speakers(chat: Sequence[ChatEntry]) -> list[str | None]:
    """For each entry, the next agent that speaks and is somebody else."""
    found: list[str | None] = [None] * len(chat)
    for place in range(len(chat) - 2, -1, -1):
        later = chat[place + 1]
        same = later.person or (later.speaker == chat[place].speaker and not chat[place].person)
        found[place] = found[place + 1] if same else later.speaker
    return found

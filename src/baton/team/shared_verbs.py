"""The two verbs of a team that has a shared memory: write, read.

A writing is a `message` to nobody in particular. A reading is a decision with a `message` edge from each writing that
it shows; what was there from the start has no event, so the reading says itself whether that is trusted.
"""

from __future__ import annotations

from typing import Any

from baton.team.action import Forbidden, ReadShared, WriteShared
from baton.team.agent import Agent, Item
from baton.team.budget import Refusal
from baton.team.intervene import Replace
from baton.team.recording import Said
from baton.team.shared_memory import KEY, Shelf, Written, wrong_name
from baton.team.state import RunState
from baton.team.surface.parsing import encode_json
from baton.trace.vocabulary import EdgeType


async def write(
    run: RunState, me: Agent, action: WriteShared, said: Said | None, extra: dict[str, Any]
) -> None:
    """Write under a name, for everybody to read."""
    shelf = _shelf(run)
    name, size = action.name, len(action.text.encode(errors="replace"))
    if problem := wrong_name(name):
        raise Forbidden(problem)
    if size > shelf.settings.entry_bytes:
        raise Forbidden(
            f"the text has {size:,} bytes, and one text may have {shelf.settings.entry_bytes:,}; write less"
        )
    owner = shelf.owner(name)
    if owner is not None and owner.agent != me.id:
        _because(me, owner)
        raise Forbidden(f"{name!r} is {owner.agent or 'nobody'}'s; write under another name")
    if (last := shelf.full(name)) is not None:
        _because(me, last)
        raise Forbidden("there is no room for another name; write under one that is there")
    room = run.budget.reserve(written_bytes=size)
    if isinstance(room, Refusal):
        run.refuse(me, room, decision="communicate", said=said, what=f"writing under {name!r}")
        return
    room.settle()
    kind = "board" if shelf.is_board(name) else "value"
    about = {"name": name, "kind": kind, "version": shelf.next_version(me.id, name)}
    event = run.writer.emit(
        me,
        "message",
        decision="communicate",
        from_=me.id,
        text=action.text,
        said=said,
        extra=extra | {KEY: about},
    )
    shelf.write(name, action.text, me.id, event.id)
    me.note(f"written: {name}")


async def read(
    run: RunState, me: Agent, action: ReadShared, said: Said | None, extra: dict[str, Any]
) -> None:
    """Read what stands under a name; without one, which names there are."""
    shelf = _shelf(run)
    if action.name and (problem := wrong_name(action.name)):
        raise Forbidden(problem)
    found = shelf.read(action.name)
    text = _shown(action.name, found)
    change = run.interventions.get(me.next_event_id()) if run.interventions else None
    if isinstance(change, Replace):  # what was read, blanked or otherwise
        text, found = change.text, tuple(_instead(each, change.text) for each in found[-1:])
    causes: list[tuple[str, EdgeType]] = [(each.event, "message") for each in found if each.event is not None]
    start = [each.trusted for each in found if each.event is None and each.trusted is not None]
    shown = [{"agent": each.agent, "name": each.name, "version": each.version} for each in found]
    event = run.writer.emit(
        me,
        "orchestrator_decision",
        text=text,
        said=said,
        trusted=all(start) if start else None,
        extra=extra | {KEY: {"name": action.name, "shown": shown}},
        causes=causes,
    )
    me.shown = found
    item = Item(event.id, "causal", KEY, text)
    if me.cut is None:
        me.inbox.append(item)
    else:  # read with what a wait brought, before what came after it
        me.inbox.insert(me.cut, item)
        me.cut += 1


def _shelf(run: RunState) -> Shelf:
    if run.shelf is None:
        raise Forbidden("this team has no shared memory")
    return run.shelf


def _because(me: Agent, written: Written) -> None:
    """What an agent is refused for is something its next event depends on."""
    if written.event is not None:
        me.causes.append((written.event, "causal"))


def _instead(written: Written, text: str) -> Written:
    return Written(
        name=written.name,
        text=text,
        agent=written.agent,
        version=written.version,
        event=written.event,
        trusted=written.trusted,
    )


def _shown(name: str, found: tuple[Written, ...]) -> str:
    """As an agent reads it. A text with line breaks is quoted, so that it cannot pass for another entry."""
    if not name:
        return (
            f"shared memory has: {', '.join(each.name for each in found)}"
            if found
            else "shared memory is empty"
        )
    if not found:
        return f"nothing is written under {name!r}"
    return "\n".join(
        [f"shared memory, {name}:", *(f"- {_by(each)}: {_on_one_line(each.text)}" for each in found)]
    )


def _by(written: Written) -> str:
    if written.agent is not None:
        return f"{written.agent} (version {written.version})"
    return "from the start" + (" (by strangers)" if written.trusted is False else "")


def _on_one_line(text: str) -> str:
    plain = text and text.isprintable() and text == text.strip() and text[0] != '"'
    return text if plain else encode_json(text)

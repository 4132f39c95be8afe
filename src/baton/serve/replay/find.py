"""Which session, and which call of it, is meant by what a person typed."""

from __future__ import annotations

import shlex
from pathlib import Path

from baton.errors import UsageError, nearest
from baton.serve.exchange import Exchange
from baton.serve.journal import FOLDER, SUFFIX, KeptSession, read_session
from baton.serve.session_keys import check_name
from baton.trace.trace import Trace

_LEAST = 4
"""Characters of an id that name it, where they are those of one alone."""


def find_session(path: str | Path, name: str | None = None) -> tuple[Path, KeptSession]:
    """A session by its journal, by its trace, or by the folder it was served into; the folder, and what it holds."""
    place = Path(path).expanduser()
    if place.is_file():
        journal = place if place.parent.name == FOLDER else place.parent / FOLDER / place.name
        if name is not None and journal.name != f"{name}{SUFFIX}":
            raise UsageError(
                f"{path} is the session {journal.name.removesuffix(SUFFIX)!r}. Leave --session out."
            )
        if not journal.is_file():
            raise UsageError(f"{path} is no session: {journal} is not there. {_EXPECTED}")
        return journal.parent.parent, read_session(journal)
    folder = place / FOLDER
    if not folder.is_dir():
        raise UsageError(f"there is no session in {path}. {_EXPECTED}")
    known = sorted(found.name.removesuffix(SUFFIX) for found in folder.glob(f"*{SUFFIX}"))
    if not known:
        raise UsageError(f"there is no session in {folder} yet. {_EXPECTED}")
    if name is None and len(known) > 1:
        raise UsageError(
            f"{path} holds {len(known)} sessions. Type: --session NAME, for example --session {known[0]}"
        )
    wanted = known[0] if name is None else check_name(name)
    if wanted not in known:
        raise UsageError(f"{path} has no session {wanted!r}. {nearest(wanted, known)}")
    return place, read_session(folder / f"{wanted}{SUFFIX}")


_EXPECTED = (
    "Expected what `baton serve` kept: DIR, or DIR/sessions/NAME.jsonl. To record one, type: "
    "baton serve --out DIR -- COMMAND"
)


def find_call(session: KeptSession, at: str, *, of_event: dict[str, str] | None = None) -> Exchange:
    """A call by its number (from 1), its id or the beginning of it, or an event of the trace (`of_event`: its call)."""
    exchanges = session.exchanges
    if at.isdigit():
        number = int(at)
        if not 1 <= number <= len(exchanges):
            raise UsageError(
                f"session {session.name!r} has {len(exchanges)} calls; there is no call {number}."
            )
        return exchanges[number - 1]
    named = (of_event or {}).get(at, at)
    found = [one for one in exchanges if one.id == named]
    if not found and len(named) >= _LEAST:
        found = [one for one in exchanges if one.id.startswith(named)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{at!r} begins the ids of {len(found)} calls. Type more of it, or a number from 1.")
    look = shlex.quote(session.name)
    known = [*(one.id for one in exchanges), *(of_event or {})]
    raise UsageError(
        f"session {look} has no call {at!r}. Give its number from 1 to {len(exchanges)}, its id, or an event of its "
        f"trace. {nearest(at, known)}"
    )


def exchange_of_events(trace: Trace) -> dict[str, str]:
    """Event or call of a session's trace -> id of the exchange that said it."""
    calls: dict[str, str] = {}
    for event in trace.events:
        told = event.extra.get("call_extra")
        if event.call is not None and isinstance(told, dict) and "exchange" in told:
            calls[event.call] = str(told["exchange"])
    return calls | {event.id: calls[event.call] for event in trace.events if event.call in calls}


def answered(session: KeptSession) -> list[Exchange]:
    """The calls that were answered or refused, of which there has to be an answered one."""
    found = [one for one in session.exchanges if one.reply is not None or one.refused is not None]
    if all(one.reply is None for one in found):
        raise UsageError(
            f"session {session.name!r} has no answered call, so there is nothing to answer from."
        )
    return found

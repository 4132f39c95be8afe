"""What agents' folders hold, in the trace: written down after each call that changed one, and had again from there.

The result of such a call has `extra["files"] = {"number": n, "ref": ...}`, the address of a manifest whose files are
payloads under their own addresses; or `{"number": n, "lost": why}` where the folder could not be kept. The numbers
count an agent's calls as they were made, one after the other, whichever result came first.

Invariant: code that runs in a resumed run or in a fork finds its agent's folder as it was at that point, or is not run
and says why.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from baton.errors import TraceError
from baton.team.credentials import Vault
from baton.team.recording import FILES, Recording, TraceWriter
from baton.team.tools.agent_place import AgentPlace
from baton.team.tools.folder_snapshot import MANIFEST, FolderFiles, contents_of, manifest, read_manifest
from baton.trace.records import Event, content_address


class Folders:
    """Of one run: what each agent's folder held last, as far as it is recorded."""

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._last: dict[str, FolderFiles] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._here: set[str] = set()
        """Agents whose folder is on this machine now."""

    def turn(self, agent: str) -> asyncio.Lock:
        """Calls in one folder are made one after the other."""
        return self._turns.setdefault(agent, asyncio.Lock())

    def heard(self, agent: str, files: FolderFiles | None) -> None:
        """How a call left the folder, whoever made it."""
        last = self._last.get(agent)
        if files is not None and (last is None or files.number > last.number):
            self._last[agent] = files

    def lost(self, agent: str) -> str:
        """Why the folder cannot be had again; empty: it can, it is here, or nothing was in it."""
        last = None if agent in self._here else self._last.get(agent)
        return "" if last is None else last.lost

    def begin(self, agent: str, place: AgentPlace) -> None:
        """Let a place begin with what is known of it."""
        last = self._last.get(agent)
        if last is not None and agent not in self._here:
            place.begin_with(last)
        self._here.add(agent)

    def take(self, agent: str, place: AgentPlace) -> FolderFiles | None:
        """What a call left, to be written down; None: what was there before."""
        found = place.taken(self._secret_in, content_address)
        self.heard(agent, found)
        return found

    def _secret_in(self, content: bytes) -> str | None:
        name = None if self._vault is None else self._vault.holds(content.decode("utf-8", "replace"))
        return None if name is None else f"the credential {name!r} stands in it"


def told(files: FolderFiles, writer: TraceWriter) -> dict[str, Any]:
    """What a result's event says of a folder, whose contents are written down."""
    if files.lost:
        return {FILES: {"number": files.number, "lost": files.lost}}
    for content in files.contents.values():
        writer.content(content, "application/octet-stream")
    return {FILES: {"number": files.number, "ref": writer.content(manifest(files), MANIFEST)}}


class _Told(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    number: int
    ref: str = ""
    lost: str = ""


def recorded(event: Event, recording: Recording) -> FolderFiles | None:
    """What a recorded result says of its agent's folder."""
    if FILES not in event.extra:
        return None
    try:
        found = msgspec.convert(event.extra[FILES], _Told)
        if not found.ref:
            return FolderFiles(number=found.number, lost=found.lost or "the trace does not say what it held")
        entries = read_manifest(recording.content(found.ref, event.id))
        needed = {each.ref: recording.content(each.ref, event.id) for each in entries if each.kind == "file"}
    except (msgspec.MsgspecError, ValueError) as error:
        raise TraceError(f"{event.id}: what its agent's folder held cannot be read ({error}).") from None
    return FolderFiles(number=found.number, entries=entries, contents=contents_of(entries, needed))

"""Places: each agent's own folder, which its sandboxed code keeps from call to call and no other agent can reach.

A tool asks for one by a parameter of type `AgentPlace`, which no model sees or fills in. A folder is made when its
agent first needs it, in a directory that this module made itself, and is deleted when the agent leaves or the run ends.

Invariant: an agent gets no more than any agent above it, in every limit; and all below an agent together hold no more
files than it may. Nothing is ever deleted but what was made here.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from baton.team.tools.folder_snapshot import MOST_BYTES, FolderFiles, digest, files_in, put_back
from baton.team.tools.sandbox_folder import count_files, remove
from baton.team.tools.sandbox_levels import LEVELS, SandboxLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "baton-agents-"
_END_SECONDS = 5.0
"""That code may take to be gone when its run is over: it is looked at twenty times a second."""

Line = tuple[tuple[str, str], ...]
"""An agent and all above it up to the root: (agent, role)."""


class AgentPlaces:
    """The places of one run."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._of: dict[str, AgentPlace] = {}
        self._lock = threading.Lock()
        self._closed = False

    def of(self, line: Line) -> AgentPlace:
        """An agent's own."""
        with self._lock:
            agent = line[0][0]
            if agent not in self._of:
                self._of[agent] = AgentPlace(self, line)
            return self._of[agent]

    def leave(self, agent: str) -> None:
        """The agent is gone, and what it left goes too, as soon as none of its code runs."""
        with self._lock:
            place = self._of.pop(agent, None)
        if place is not None:
            place.end()

    def close(self) -> None:
        """The run is over."""
        with self._lock:
            self._closed = True
            places, self._of = list(self._of.values()), {}
            root, self._root = self._root, None
        deadline = time.monotonic() + _END_SECONDS
        for place in places:
            place.end()
        while any(place.is_busy for place in places) and time.monotonic() < deadline:
            time.sleep(0.01)
        if root is not None:
            remove(root)

    def make_folder(self) -> Path:
        """A new, empty folder with a name that nobody can guess."""
        with self._lock:
            if self._closed:
                raise OSError("the run is over")
            if self._root is None:
                self._root = Path(tempfile.mkdtemp(prefix=_PREFIX))
            return Path(tempfile.mkdtemp(dir=self._root))

    def held_below(self, agent: str) -> tuple[int, int]:
        """(bytes, files) that an agent and all below it hold."""
        with self._lock:
            folders = [
                place.made for place in self._of.values() if any(name == agent for name, _ in place.line)
            ]
        sizes = [count_files(folder) for folder in folders if folder is not None]
        return sum(size for size, _ in sizes), sum(number for _, number in sizes)


class AgentPlace:
    """One agent's folder, and what it may take."""

    def __init__(self, places: AgentPlaces, line: Line) -> None:
        self.line = line
        self.made: Path | None = None
        """The folder; None: nothing was done there yet."""
        self._places = places
        self._running = 0
        self._ended = False
        self._lock = threading.Lock()
        self._first: FolderFiles | None = None
        """What is put into the folder when it is made."""
        self._number = 0
        """How many calls were made here, in this process or an earlier one."""
        self._known = digest(FolderFiles(number=0))
        """Of what was taken last."""
        self.most_bytes = MOST_BYTES
        """That a folder may hold and still be kept in the trace."""

    @property
    def is_busy(self) -> bool:
        return self._running > 0

    @contextmanager
    def using(self) -> Iterator[Path]:
        """The folder, which stays at least as long as this lasts."""
        with self._lock:
            if self._ended:
                raise OSError("the agent has left")
            if self.made is None:
                made = self._places.make_folder()
                if self._first is not None:
                    put_back(self._first, made)
                self.made = made
            self._running += 1
            folder = self.made
        try:
            yield folder
        finally:
            if self._is_last():
                remove(folder)

    def _is_last(self) -> bool:
        """Whether nothing runs here any more, and its agent has left."""
        with self._lock:
            self._running -= 1
            return self._ended and not self._running

    def end(self) -> None:
        """Delete the folder now, or when what runs in it has ended."""
        with self._lock:
            self._ended = True
            now = self.made if not self._running else None
        if now is not None:
            remove(now)

    def empty(self) -> None:
        """Delete what is in the folder, and not the folder."""
        if self.made is not None:
            remove(self.made, keep=True)

    def begin_with(self, files: FolderFiles) -> None:
        """What earlier calls left here, which this process has not made: it is there when the folder is."""
        with self._lock:
            if self.made is None and files.number > self._number:
                self._first, self._number, self._known = files, files.number, digest(files)

    def taken(
        self, refused: Callable[[bytes], str | None], address: Callable[[bytes], str]
    ) -> FolderFiles | None:
        """What the folder holds after one more call; None: what it held before."""
        with self._lock:
            if self.made is None or self._ended:
                return None
            self._number += 1
            if self._running:
                found = FolderFiles(number=self._number, lost="code that was given up was still running")
            else:
                found = files_in(
                    self.made, self._number, most_bytes=self.most_bytes, refused=refused, address=address
                )
            told = digest(found)
            if told == self._known and not found.lost:
                return None
            self._known = told
            return found

    def emptied(self) -> FolderFiles:
        """Told once, where what was here is lost: from now on the folder is an empty one."""
        with self._lock:
            self._first, self._number = None, self._number + 1
            found = FolderFiles(number=self._number)
            self._known = digest(found)
            return found

    def limits(self, usual: SandboxLimits, by_role: Mapping[str, SandboxLimits]) -> SandboxLimits:
        """What its code may take: no more than that of anybody above it."""
        found = by_role.get(self.line[0][1], usual)
        for _, role in self.line[1:]:
            found = narrower(found, by_role.get(role, usual))
        return found

    def over(self, usual: SandboxLimits, by_role: Mapping[str, SandboxLimits]) -> Callable[[], bool]:
        """Whether it, or anybody above it with all below, holds more than it may."""
        bounds = [(agent, by_role.get(role, usual)) for agent, role in self.line]

        def holds_too_much() -> bool:
            for agent, limits in bounds:
                num_bytes, num_files = self._places.held_below(agent)
                if num_bytes > limits.disk_bytes or num_files > limits.num_files:
                    return True
            return False

        return holds_too_much


def narrower(one: SandboxLimits, other: SandboxLimits) -> SandboxLimits:
    """The lesser of both in everything; of levels, the stronger."""
    numbers = {
        name: min(getattr(one, name), getattr(other, name))
        for name in one.__struct_fields__
        if isinstance(getattr(one, name), int | float)
    }
    least = max(one.least, other.least, key=LEVELS.index)
    layers = tuple(dict.fromkeys((*one.layers, *other.layers)))
    return structs.replace(one, layers=layers, least=least, **numbers)

"""Where traces are, under the paths somebody gave.

A path is a file, a live store, sealed shards, the directory of a training run, or a directory of any of
these; each is a place with its own list.
Invariant: a place is opened only if it was found under a path given at the start; names never become paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from baton.errors import FormatError
from baton.trace.formats.parquet.manifest import is_shard
from baton.trace.formats.recognition import IMPORTED, detect, stores_in

_MOST_PLACES = 500
_TRACES = "traces"  # where a training run keeps its rollouts
_RUN = "run.json"


class Place(Struct, frozen=True, kw_only=True):
    """A file, store or directory that holds traces, under the name the page shows."""

    key: str
    path: Path
    training: bool = False

    @property
    def traces(self) -> Path:
        return self.path / _TRACES if self.training else self.path

    @property
    def has_traces(self) -> bool:
        return _holds_traces(self.traces)


def modified(path: Path) -> float | None:
    """When something in it last changed, in seconds since 1970."""
    try:
        inside = [path, *path.iterdir()] if path.is_dir() else [path]
        return max(one.stat().st_mtime for one in inside)
    except OSError:  # it went away
        return None


def find_places(paths: Sequence[Path]) -> list[Place]:
    """What is under the paths now; a name that occurs twice gets a number."""
    found = [place for path in paths for place in _places(path, path.name or str(path))]
    times: dict[str, int] = {}
    unique = []
    for place in found[:_MOST_PLACES]:
        times[place.key] = n = times.get(place.key, 0) + 1
        key = place.key if n == 1 else f"{place.key} ({n})"
        unique.append(Place(key=key, path=place.path, training=place.training))
    return unique


def _places(path: Path, key: str) -> list[Place]:
    if (path / _RUN).is_file():
        return [Place(key=key, path=path, training=True)]
    if not path.is_dir() or _holds_traces(path):
        nested = _inside(path, key) if path.is_dir() else []
        return [Place(key=key, path=path), *nested]
    return _inside(path, key)


def _inside(path: Path, key: str) -> list[Place]:
    """Places one or two levels down: a directory of runs, with whatever hangs in each."""
    found: list[Place] = []
    for child in sorted(path.iterdir()):
        name = f"{key}/{child.name}"
        if child.name.startswith(".") or len(found) > _MOST_PLACES:
            continue
        if child.is_dir():
            if (child / _RUN).is_file():
                found.append(Place(key=name, path=child, training=True))
            elif _holds_traces(child) and not is_shard(child):
                found.append(Place(key=name, path=child))
                found += [
                    Place(key=f"{name}/{below.name}", path=below)
                    for below in sorted(child.iterdir())
                    if below.is_dir() and bool(stores_in(below))
                ]
        elif child.suffix == ".jsonl" and not (path / _RUN).exists() and not (path / IMPORTED).exists():
            found.append(Place(key=name, path=child))
    return found


def _holds_traces(path: Path) -> bool:
    try:
        detect(path)
    except FormatError:
        return False
    return True

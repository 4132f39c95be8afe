"""Where traces are, under the paths somebody gave.

A path is a file, a live store, sealed shards, the directory of a training run, or a directory of any of
these; each is a place with its own list.
Invariant: a place is opened only if it was found under a path given at the start; names never become paths, and links
do not lead out of that path. What cannot be looked into is passed over: it takes nothing else away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from baton.errors import FormatError
from baton.trace.formats.parquet.manifest import is_shard
from baton.trace.formats.recognition import IMPORTED, detect, stores_in

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
    for place in found:
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
    root = path.resolve()
    beside = (path / _RUN).exists() or (path / IMPORTED).exists()
    found: list[Place] = []
    for child in _children(path, root):
        try:
            found += _child(child, f"{key}/{child.name}", root, beside=beside)
        except OSError:  # it went away, or is not ours to look into
            continue
    return found


def _child(child: Path, name: str, root: Path, *, beside: bool) -> list[Place]:
    if not child.is_dir():
        # A pipe or a device would keep whoever reads it waiting.
        single = child.suffix == ".jsonl" and child.is_file() and not beside
        return [Place(key=name, path=child)] if single else []
    if (child / _RUN).is_file():
        return [Place(key=name, path=child, training=True)]
    if not _holds_traces(child) or is_shard(child):
        return []
    below = [each for each in _children(child, root) if each.is_dir() and bool(stores_in(each))]
    return [
        Place(key=name, path=child),
        *(Place(key=f"{name}/{each.name}", path=each) for each in below),
    ]


def _children(path: Path, root: Path) -> Iterator[Path]:
    """What is in a folder, by name; nothing hidden, and no link that leads out of `root`."""
    for child in sorted(path.iterdir()):
        if child.name.startswith("."):
            continue
        try:
            leads_out = child.is_symlink() and not child.resolve().is_relative_to(root)
        except (OSError, RuntimeError):  # a link to itself
            continue
        if not leads_out:
            yield child


def _holds_traces(path: Path) -> bool:
    try:
        detect(path)
    except FormatError:
        return False
    return True

"""Names for sessions whose files give them none, and the files of a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from baton.errors import UsageError

_LINES = (".jsonl", ".ndjson")


def files_of(place: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """The file itself, or those below a folder, in the order of their names. Raises where nothing is there."""
    if place.is_dir():
        yield from sorted(path for path in place.rglob("*") if path.suffix in endings and path.is_file())
    elif place.exists():
        yield place
    else:
        raise UsageError(f"{place} is not there. Give a file, or a folder of them.")


def any_of(
    place: Path, is_mine: Callable[[Path], bool], endings: tuple[str, ...], most: int = 4, likely: str = ""
) -> bool:
    """Whether a file, or one of the first few of a folder, is of a kind; those first whose names are `likely`."""
    if not place.is_dir():
        return place.is_file() and is_mine(place)
    if likely and any(path.is_file() and is_mine(path) for path in islice(place.rglob(likely), most)):
        return True
    seen = 0
    for path in place.rglob("*"):
        if path.suffix in endings and path.is_file():
            if is_mine(path):
                return True
            seen += 1
            if seen >= most:
                return False
    return False


def digest(value: Any, size: int = 4) -> str:
    """A short name for a value that two values do not share by chance within a file."""
    return blake2b(msgspec.json.encode(value), digest_size=size).hexdigest()


def session_of(path: Path, first: Any) -> str:
    """A name for the one session of a file that gives none: the file's, and a mark of how it begins.

    A file that grows keeps it. Documents are often one to a folder under one name, and the same question begins many of
    them: of a document the mark is also of where it stands. Lines are told apart by what they say, wherever they stand.
    """
    where = [] if path.suffix in _LINES else path.resolve().parts[-3:]
    return f"{path.stem}-{digest([*where, first])}"

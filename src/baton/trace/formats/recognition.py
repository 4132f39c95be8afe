"""Which format: of a file that is there, by its first bytes; of one to be written, by its name."""

from __future__ import annotations

import os
import re
import shlex
from itertools import chain
from pathlib import Path

import msgspec

from baton.errors import FormatError, UsageError, nearest
from baton.trace.formats.format import known_formats

_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\x00": "unxz",
    b"PK\x03\x04": "unzip",
}
IMPORTED = "import.json"
SESSIONS = "sessions"
"""Beside the traces of programs that were served: the journals of their sessions."""
"""Marks a folder of traces that `baton import` made, one JSON Lines file each."""
STANDARD_INPUT = "/dev/stdin"
_HEAD_BYTES = 1 << 16
_KNOWN = "Baton reads JSON Lines, the survey's JSON, its own SQLite stores and directories of sealed shards."
_KIND_FIRST = re.compile(rb'\{\s*"kind"\s*:')


class _Line(msgspec.Struct):
    kind: str


def format_of_name(path: str | os.PathLike[str]) -> str:
    """The format a file of this name is written in."""
    name = os.fspath(path)
    if name.endswith("/") or Path(name).is_dir():
        return "parquet"
    endings = _endings()
    for ending in sorted(endings, key=len, reverse=True):
        if name.lower().endswith(ending):
            return endings[ending]
    suffix = Path(name).suffix
    hint = nearest(suffix, endings) if suffix else f"Expected one of: {', '.join(sorted(endings))}."
    raise UsageError(f"the name {name!r} does not say which format to write. {hint} A directory ends in '/'.")


def _endings() -> dict[str, str]:
    """File ending -> format. One that Baton's own formats use is theirs."""
    found: dict[str, str] = {}
    for name, format_ in known_formats().items():
        for ending in format_.endings:
            found.setdefault(ending.lower(), name)
    return found


def detect(path: str | os.PathLike[str]) -> str:
    """The format of what is there, by name: jsonl, survey, sqlite, parquet or one of another package's."""
    from baton.trace.formats.sqlite.store_read import is_store

    place = Path(path)
    try:
        if place.is_dir():
            return _detect_directory(place)
        if not place.exists():
            raise FormatError(f"there is no file {place}.")
        if not place.is_file():
            return "jsonl"  # a pipe: looking would use it up, and only lines can be read as they come
        # First, because a store that this process writes must not be opened and closed by anything else.
        if is_store(place):
            return "sqlite"
        with place.open("rb") as file:
            return _detect_content(file.read(_HEAD_BYTES), place)
    except OSError as error:
        raise FormatError(f"{place} cannot be read: {error.strerror}.") from None


def opened_name(path: str | Path) -> str | Path:
    """What to open for a place that a person named: - is standard input."""
    return STANDARD_INPUT if path == "-" else path


def kept_in(path: str | os.PathLike[str]) -> Path:
    """Where the traces of a place are: a training run's folder stands for its traces."""
    place = Path(path)
    store = place / "traces" / "run.db"
    return store if (place / "run.json").is_file() and store.is_file() else place


def run_beside(path: str | None) -> Path | None:
    """The folder of the training run that a place is, or is in; None: of none."""
    place = Path(path or ".").resolve()
    for folder in (place, *place.parents[:2]) if path is not None else ():
        if (folder / "recipe.toml").is_file() and (folder / "run.json").is_file():
            return folder
    return None


def stores_in(directory: Path) -> list[Path]:
    return sorted(chain(directory.glob("*.db"), directory.glob("*.sqlite")))


def _detect_directory(place: Path) -> str:
    if any(place.glob("*.parquet")):
        return "parquet"
    if (place / IMPORTED).is_file() or ((place / SESSIONS).is_dir() and any(place.glob("*.jsonl"))):
        return "jsonl"
    if stores_in(place):  # there may be shards beside it: `read_all` reads both
        return "sqlite"
    if any(place.glob("*/*.parquet")):
        return "parquet"
    inside = sorted(path.name for path in place.iterdir())
    what = f"has {', '.join(inside[:3])}{', …' if len(inside) > 3 else ''}" if inside else "is empty"
    below = next((path for path in (place / "traces", *sorted(place.iterdir())) if _has_store(path)), None)
    instead = "Give one file in it." if below is None else f"Type: {below}"
    if (
        place / "journal"
    ).is_dir():  # a program is recorded here, and was killed before the first trace was made
        instead = f"Type: baton import {shlex.quote(str(place))} --out {shlex.quote(str(place))}"
    elif (place / SESSIONS).is_dir():  # programs were served here, and the server was killed before
        instead = f"Type: baton serve --rebuild --out {shlex.quote(str(place))}"
    raise FormatError(f"{place} {what}: neither sealed shards (.parquet) nor a store (.db). {instead}")


def _has_store(path: Path) -> bool:
    return path.is_dir() and bool(stores_in(path))


def _detect_content(head: bytes, place: Path) -> str:
    if not head:
        raise FormatError(f"{place} is empty.")
    for magic, tool in _COMPRESSED.items():
        if head.startswith(magic):
            raise FormatError(f"{place} is compressed. Unpack it first, with: {tool}")
    if head.startswith(b"SQLite format 3\0"):
        raise FormatError(f"{place} is a SQLite database but not one of Baton's. {_KNOWN}")
    if head.startswith(b"PAR1"):
        raise FormatError(f"{place} is one table of a sealed shard. Give its directory: {place.parent}")
    if encoding := _wide_encoding(head[:8]):
        again = f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(place))} > NEW"
        raise FormatError(f"{place} is {encoding} text; expected UTF-8. Type: {again}")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _KIND_FIRST.match(text):
        return "jsonl"
    for name, format_ in known_formats().items():
        if format_.recognises is not None and format_.recognises(head):
            return name
    if text.startswith(b"{"):
        if b'"traceEvents"' in text[:200]:
            raise FormatError(f"{place} is a Chrome trace, which Baton writes but does not read. {_KNOWN}")
        if text.startswith(b'{"line":') and place.parent.name == SESSIONS:
            trace = shlex.quote(str(place.parent.parent / place.name))
            raise FormatError(
                f"{place} is the journal of a session; its trace is beside the folder. Type: {trace}"
            )
        try:
            msgspec.json.decode(text.partition(b"\n")[0], type=_Line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return "survey"
        return "jsonl"
    raise FormatError(f"{place} begins with {head[:16]!r}, which is no trace. {_KNOWN}")


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, by its mark or by the zeros between ASCII letters."""
    if head.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    # A file of nothing but zeros is no text: a hole, where a disk was full or a machine went down.
    return "UTF-16" if any(head) and b"\0\0\0\0" in (head[0::2], head[1::2]) else None

"""The JSON of a file, whichever way it is laid out: one document, a list of them, or one to a line.

Invariant: what is whole is read, wherever the file was cut or damaged; what is not is told to the report. Lines are
read one by one; of a list, one document at a time is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from baton.connect.import_report import ImportReport
from baton.errors import UsageError

NOT_JSON = "a line that is not JSON"
CUT = "the end of a document that is cut off or damaged"
HEAD_BYTES = 1 << 16
"""How much of a file is looked at to tell what it is."""

_ENTRIES = frozenset(
    b"steps messages conversations conversation history trajectory events samples subagent_trajectories".split()
)
"""Names of lists whose elements are entries: a document that is cut is read up to the last whole one."""
_MARK = b"\xef\xbb\xbf"
_ANY = msgspec.json.Decoder()
_RAWS = msgspec.json.Decoder(list[Raw])
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)|[\[\]{},]', re.DOTALL)


class JsonDocument(Struct, frozen=True):
    """One document, and where it stood."""

    at: str
    value: Any
    number: int = 0
    """Its place among the documents of its file, from 1; 0: the file is this one document."""


def head_of(path: Path) -> bytes:
    """The first bytes of a file, without a byte order mark; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).removeprefix(_MARK).lstrip()
    except OSError:
        return b""


def first_document(path: Path) -> Any:
    """The first document of a file, or as much of it as stands in the file's head; None: no JSON."""
    head = head_of(path)
    if head[:1] not in (b"{", b"["):
        return None
    for text in (head.partition(b"\n")[0], head):
        try:
            return _ANY.decode(text)
        except _BAD:
            continue
    return mended(head)


def documents(
    path: Path, report: ImportReport, is_one: Callable[[Any], bool] = lambda first: isinstance(first, dict)
) -> Iterator[JsonDocument]:
    """Every document of a file. A list whose first element `is_one` is a list of documents, else a document."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES).removeprefix(_MARK).lstrip()
            if not head:
                report.skip("an empty file", str(path))
                return
            if _begins_with_lines(head):
                file.seek(0)
                yield from _lines(file, str(path), report)
                return
            file.seek(0)
            content = file.read().removeprefix(_MARK)
            try:
                yield from _whole(content, str(path), is_one)
                return
            except _BAD:
                pass
            file.seek(0)
            if _decoded(file.readline()) is not None:  # a first line longer than the head
                file.seek(0)
                yield from _lines(file, str(path), report)
                return
            report.skip(CUT, str(path))
            found = mended(content)
            if found is not None:
                yield from _split(found, str(path), is_one)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _begins_with_lines(head: bytes) -> bool:
    first, _, rest = head.partition(b"\n")
    return bool(rest.strip()) and _decoded(first) is not None


def _decoded(line: bytes) -> Any:
    try:
        found = _ANY.decode(line.removeprefix(_MARK))
    except _BAD:
        return None
    return found if isinstance(found, dict | list) else None


def _lines(file: Any, name: str, report: ImportReport) -> Iterator[JsonDocument]:
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(_MARK)
        if not line.strip():
            continue
        try:
            value = _ANY.decode(line)
        except _BAD:
            report.read()
            report.skip(NOT_JSON, f"{name}:{number}")
            continue
        yield JsonDocument(f"{name}:{number}", value, number)


def _whole(content: bytes, name: str, is_one: Callable[[Any], bool]) -> Iterator[JsonDocument]:
    """Raises before it gives anything where the content is no JSON."""
    if content[:HEAD_BYTES].lstrip()[:1] != b"[":
        yield JsonDocument(name, _ANY.decode(content))
        return
    raws = _RAWS.decode(content)
    if not raws or not is_one(_ANY.decode(raws[0])):
        yield JsonDocument(name, _ANY.decode(content))
        return
    for number, raw in enumerate(raws, 1):
        yield JsonDocument(f"{name}[{number - 1}]", _ANY.decode(raw), number)


def _split(found: Any, name: str, is_one: Callable[[Any], bool]) -> Iterator[JsonDocument]:
    if isinstance(found, list) and found and is_one(found[0]):
        for number, value in enumerate(found, 1):
            yield JsonDocument(f"{name}[{number - 1}]", value, number)
    else:
        yield JsonDocument(name, found)


def mended(text: bytes) -> Any:
    """What is whole of a document that ends too early: everything up to the last entry that was finished.

    None: it is damaged in its middle, or no entry of it is whole.
    """
    text = text.removeprefix(_MARK)
    closers: list[int] = []
    holds: list[bool] = []  # whether each open bracket is a list of entries
    whole: list[tuple[int, bytes]] = []  # where an entry was finished, and what closes all that is open there
    string = (0, 0)
    for token in _TOKENS.finditer(text):
        start, end = token.span()
        byte = text[start]
        if byte == 0x22:
            string = start, end
        elif byte in b"[{":
            is_list = byte == 0x5B
            key = text[slice(*string)].strip(b'"') if text[string[1] : start].strip() == b":" else b""
            closers.append(0x5D if is_list else 0x7D)
            holds.append(is_list and ((not key and len(closers) == 1) or key in _ENTRIES))
        elif byte == 0x2C:
            if holds and holds[-1]:
                whole.append((start, bytes(reversed(closers))))
                del whole[:-2]
        elif not closers or closers.pop() != byte:
            break  # from here on it is another document, or none
        else:
            if holds.pop() and closers:  # a list that was finished
                whole.append((end, bytes(reversed(closers))))
    for end, tail in reversed(whole):
        try:
            return _ANY.decode(text[:end] + tail)
        except _BAD:
            continue
    return None

"""The JSON of a file, whichever way it is laid out: one document, a list of them, or one to a line.

Invariant: what is whole is read, wherever the file was cut or damaged; what is not is told to the report. Lines are
read one by one, and of a list one document at a time is decoded.
"""

from __future__ import annotations

import mmap
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
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                text = memoryview(whole)
                try:
                    yield from _whole(text, str(path), is_one)
                    return
                except _BAD:
                    pass
                finally:
                    text.release()
            file.seek(0)
            if _decoded(file.readline()) is not None:  # a first line longer than the head
                file.seek(0)
                yield from _lines(file, str(path), report)
                return
            file.seek(0)
            report.skip(CUT, str(path))
            found = mended(file.read())
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


def _whole(text: memoryview, name: str, is_one: Callable[[Any], bool]) -> Iterator[JsonDocument]:
    """Raises before it gives anything where the text is no JSON."""
    start = bytes(text[: len(_MARK)]) == _MARK
    body = text[len(_MARK) :] if start else text
    try:
        if bytes(body[:HEAD_BYTES]).lstrip()[:1] != b"[":
            yield JsonDocument(name, _ANY.decode(body))
            return
        raws = _RAWS.decode(body)
        if not raws or not is_one(_ANY.decode(raws[0])):
            yield JsonDocument(name, _ANY.decode(body))
            return
        for number, raw in enumerate(raws, 1):
            yield JsonDocument(f"{name}[{number - 1}]", _ANY.decode(raw), number)
        del raws
    finally:
        if start:
            body.release()


def _split(found: Any, name: str, is_one: Callable[[Any], bool]) -> Iterator[JsonDocument]:
    if isinstance(found, list) and found and is_one(found[0]):
        for number, value in enumerate(found, 1):
            yield JsonDocument(f"{name}[{number - 1}]", value, number)
    else:
        yield JsonDocument(name, found)


def mended(text: bytes) -> Any:
    """What is whole of a document that ends too early: everything up to the last value that was finished.

    None: it is damaged in its middle, or nothing of it is whole.
    """
    text = text.removeprefix(_MARK)
    closers: list[int] = []
    whole: list[tuple[int, bytes]] = []  # where a value was finished, and what closes all that is open there
    for token in _TOKENS.finditer(text):
        byte = text[token.start()]
        if byte == 0x22:
            continue
        if byte in b"[{":
            closers.append(0x5D if byte == 0x5B else 0x7D)
        elif byte == 0x2C:
            whole.append((token.start(), bytes(reversed(closers))))
            del whole[:-64]
        elif not closers or closers.pop() != byte:
            break  # from here on it is another document, or none
    for end, tail in reversed(whole):
        try:
            return _ANY.decode(text[:end] + tail)
        except _BAD:
            continue
    return None

"""Server-sent events: written one at a time, and read from bytes that may be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from baton.serve.backend import Unanswerable

PIECE = 48
"""How many characters of a text one event carries at most: enough for a reader to see it arrive."""
_SPLIT_AT = " \n\t"


def event(data: Any, name: str | None = None) -> bytes:
    """One event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


def pieces(text: str) -> Iterator[str]:
    """A text in parts of a few words, which give the text when put together; an empty text has no parts."""
    begin = 0
    while begin < len(text):
        end = min(begin + PIECE, len(text))
        if end < len(text):
            space = max(text.rfind(sign, begin, end) for sign in _SPLIT_AT)
            end = space + 1 if space > begin else end
        yield text[begin:end]
        begin = end


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str | None, Any]]:
    """The name and data of each event of a server's stream; `[DONE]` ends it."""
    name: str | None = None
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode(errors="replace")
        elif not line and data:
            whole = b"\n".join(data)
            if whole.strip() == b"[DONE]":
                return
            yield name, _decoded(whole)
            name, data = None, []
    if data and (whole := b"\n".join(data)).strip() != b"[DONE]":
        yield name, _decoded(whole)


def understood(read: Callable[[Iterable[bytes]], dict[str, Any]], chunks: Iterable[bytes]) -> dict[str, Any]:
    """What a server's stream amounts to; one whose events have other shapes than the dialect's is an error told."""
    try:
        return read(chunks)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        why = f"The server's stream has an event that cannot be read ({type(error).__name__})."
        raise Unanswerable(why, status=502) from error


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unanswerable(
            "The server's stream holds an event that is not JSON.", status=502, passing=True
        ) from None


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends, whether these are LF or CR LF."""
    rest: list[bytes] = []
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        rest.append(first)
        for line in more:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [line]
    if last := b"".join(rest):
        yield last

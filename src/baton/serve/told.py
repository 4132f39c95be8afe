"""Sending an answer: whole or as a stream, with an eye on whether the program reads it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

Sent = MutableMapping[str, Any]
Send = Callable[[Sent], Awaitable[None]]
Receive = Callable[[], Awaitable[Sent]]

_AT_ONCE = 1 << 14
WAITING = b": waiting\n\n"
"""A comment in a stream: clients pass over it, and know that somebody is there."""


class GoneError(Exception):
    """The client left before it had the whole answer, or reads too slowly."""


class AnswerTelling:
    """One answer on its way; each part has to be taken within so many seconds."""

    def __init__(self, send: Send, receive: Receive, seconds: float) -> None:
        self._send, self._receive, self._seconds = send, receive, seconds
        self._left: asyncio.Task[None] | None = None
        self.begun = False

    def watch(self) -> asyncio.Task[None]:
        """Ends when the client leaves. Its body must have been read before."""
        if self._left is None:
            self._left = asyncio.create_task(_client_left(self._receive))
        return self._left

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.begun = True
        told = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self._part({"type": "http.response.start", "status": status, "headers": told})

    async def go_on(self, piece: bytes) -> None:
        await self._part({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, pieces: Iterable[bytes]) -> None:
        """All that is left to say, many pieces at a time: they are there already."""
        held, size = [], 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= _AT_ONCE:
                await self.go_on(b"".join(held))
                held, size = [], 0
        await self._part({"type": "http.response.body", "body": b"".join(held), "more_body": False})

    def close(self) -> None:
        if self._left is not None:
            self._left.cancel()

    async def _part(self, message: Sent) -> None:
        if self._left is not None and self._left.done():
            raise GoneError
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except (TimeoutError, OSError):
            raise GoneError from None


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

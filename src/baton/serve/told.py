"""Sending an answer: whole or as a stream, with an eye on whether the program reads it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

Sent = MutableMapping[str, Any]
Send = Callable[[Sent], Awaitable[None]]
Receive = Callable[[], Awaitable[Sent]]


class GoneError(Exception):
    """The client left before it had the whole answer, or reads too slowly."""


async def send_answer(
    send: Send,
    left: asyncio.Task[None],
    *,
    status: int,
    headers: Mapping[str, str],
    pieces: Iterable[bytes],
    seconds: float,
) -> None:
    """All pieces, each within so many seconds. `left` ends when the client does."""
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    await _send(send, left, start, seconds)
    for piece in pieces:
        await _send(send, left, {"type": "http.response.body", "body": piece, "more_body": True}, seconds)
    await _send(send, left, {"type": "http.response.body", "body": b"", "more_body": False}, seconds)


async def _send(send: Send, left: asyncio.Task[None], message: Sent, seconds: float) -> None:
    if left.done():
        raise GoneError
    try:
        async with asyncio.timeout(seconds):
            await send(message)
    except (TimeoutError, OSError):
        raise GoneError from None


async def client_left(receive: Receive) -> None:
    """Returns when the client has left. Its body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass

"""HTTP for clients who take their time: each has so many seconds, whatever it does or leaves undone.

Every connection is looked at once in that time. One that has begun no request, has not finished a request's head, or
does not take what it was sent although the server is done with it, since it was looked at before, is let go. What it
takes to send a body is `request_body`'s to watch, and to be told an answer, `told`'s.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

Fault = Literal["silent", "unfinished", "deaf"]


def protocol_with_patience(seconds: float) -> type[H11Protocol]:
    """The protocol of a server whose clients have so many seconds."""

    class Patience(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _suspected: tuple[Fault, object] | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(_JoinedWrites(transport, self.loop))  # type: ignore[arg-type]  # stands for one
            self._timer = self.loop.call_later(seconds, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _fault(self) -> Fault | None:
            if self.transport.is_closing():
                return "deaf"
            if self.conn.their_state is not h11.IDLE:
                return None
            if self.conn.trailing_data[0]:
                return "unfinished"
            return (
                "silent" if self.cycle is None else None
            )  # between two requests the keep-alive's time counts

        def _look(self) -> None:
            fault = self._fault()
            if fault == "silent" or (fault is not None and self._suspected == (fault, self.cycle)):
                if fault == "deaf":
                    self.transport.abort()
                else:
                    self.transport.close()
            self._suspected = None if fault is None else (fault, self.cycle)
            self._timer = self.loop.call_later(seconds, self._look)

    return Patience


_AT_ONCE = 1 << 14


class _JoinedWrites:
    """A connection's transport that sends the head of an answer and its first words in one piece.

    What is written in one turn of the loop goes out at its end. Nothing large is held back, so that a client that does
    not read is noticed as before.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        if not self._held and data:
            self._loop.call_soon(self._flush)
        self._held += data
        if len(self._held) >= _AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held.clear()
        self._transport.abort()

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, bytearray()
            self._transport.write(held)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

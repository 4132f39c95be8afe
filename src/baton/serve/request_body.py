"""The body of a request, read whole within limits: its size, its size unpacked, and how long its client may take."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from baton.connect.readers.zstd import unpacked_pieces
from baton.errors import BatonError
from baton.serve.backend import Unanswerable
from baton.serve.limits import ClientLimits

if TYPE_CHECKING:
    from starlette.requests import Request

_PIECE = 1 << 18
_SLOWEST = 1 << 14
"""Bytes a second that a client has to send."""
_LINGER_SECONDS = 2.0


async def read_body(request: Request, limits: ClientLimits) -> bytes:
    """The bytes that a client sent, unpacked. Raises `Unanswerable` where they are too many, too slow or broken."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        raise _too_large(limits)
    body, parts, began = bytearray(), request.stream().__aiter__(), time.monotonic()
    while True:
        # One that sends a byte now and then is not waited for either: what came so far buys the time for the rest.
        due = began + limits.seconds + len(body) / _SLOWEST
        try:
            async with asyncio.timeout(min(limits.seconds, max(0.0, due - time.monotonic()))):
                part = await anext(parts, None)
        except TimeoutError:
            why = f"the request's body did not come within {limits.seconds:g} seconds."
            raise Unanswerable(why, status=408) from None
        if part is None:
            break
        body += part
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
    packing = request.headers.get("content-encoding", "").strip().lower()
    if packing in ("", "identity"):
        return bytes(body)
    return await asyncio.to_thread(_unpacked, bytes(body), packing, limits)


async def let_it_finish(request: Request, limits: ClientLimits) -> None:
    """Read on and throw away, for a moment: a client that is still sending does not hear yet what it was told."""
    left = limits.body_bytes
    with contextlib.suppress(TimeoutError, RuntimeError):  # RuntimeError: all of it was read before
        async with asyncio.timeout(min(_LINGER_SECONDS, limits.seconds)):
            async for part in request.stream():
                left -= len(part)
                if left < 0:
                    return


def _too_large(limits: ClientLimits) -> Unanswerable:
    return Unanswerable(f"the request has more than {limits.body_bytes:,} bytes.", status=413)


def _unpacked(body: bytes, packing: str, limits: ClientLimits) -> bytes:
    """Piece by piece: a small body may hold a huge one."""
    found = bytearray()
    try:
        for piece in _pieces(body, packing):
            found += piece
            if len(found) > limits.body_bytes:
                raise _too_large(limits)
    except (zlib.error, EOFError, OSError) as error:
        raise Unanswerable(f"the body cannot be unpacked: {error}.") from None
    except Unanswerable:
        raise
    except BatonError as error:
        raise Unanswerable(str(error)) from None
    return bytes(found)


def _pieces(body: bytes, packing: str) -> Iterator[bytes]:
    if packing == "gzip":
        with gzip.GzipFile(fileobj=BytesIO(body)) as stream:
            while piece := stream.read(_PIECE):
                yield piece
    elif packing == "deflate":
        machine = zlib.decompressobj()
        while piece := machine.decompress(body, _PIECE):
            yield piece
            body = machine.unconsumed_tail
        if not machine.eof:
            raise EOFError("it is cut off")
    elif packing == "zstd":
        yield from unpacked_pieces(BytesIO(body), "the body")
    else:
        expected = "gzip, deflate or zstd, or none"
        raise Unanswerable(f"Content-Encoding is {packing[:40]!r}; expected {expected}.", status=415)

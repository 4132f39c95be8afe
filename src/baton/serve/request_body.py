"""The body of a request, read whole within limits: its size, its size unpacked, and how long its client may take."""

from __future__ import annotations

import asyncio
import gzip
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


async def read_body(request: Request, limits: ClientLimits) -> bytes:
    """The bytes that a client sent, unpacked. Raises `Unanswerable` where they are too many, too slow or broken."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.body_bytes:
        raise _too_large(limits)
    body, parts = bytearray(), request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(limits.seconds):
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

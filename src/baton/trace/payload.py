"""Payloads: text and tool content, stored once under their own hash, compressed.

A payload may be absent for privacy while its address stays in the trace. Untrusted content is
bytes here and data everywhere: nothing in Baton evaluates it.
"""

from __future__ import annotations

import sys
import zlib
from hashlib import blake2b

from msgspec import Struct

from baton.errors import CorruptError

__all__ = ["Payload", "content_address", "is_content_address"]

_PREFIX = "b2:"
_COMPRESS_FROM_BYTES = 128  # below this zlib's header eats the gain


def content_address(content: bytes) -> str:
    """`b2:` and 40 hex digits: BLAKE2b of the uncompressed bytes."""
    return _PREFIX + blake2b(content, digest_size=20).hexdigest()


def is_content_address(ref: str) -> bool:
    """Whether `ref` is an address of ours, and so can be checked against its payload."""
    return ref.startswith(_PREFIX) and len(ref) == len(_PREFIX) + 40


class Payload(
    Struct,
    tag_field="kind",
    tag="payload",
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Content under its address."""

    ref: str
    size: int
    """Uncompressed bytes."""
    media_type: str = "text/plain"
    codec: str = "raw"
    """raw or zlib."""
    data: bytes | None = None
    """None: withheld."""

    @classmethod
    def of(cls, content: str | bytes, media_type: str = "text/plain") -> Payload:
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        ref = content_address(raw)
        if len(raw) >= _COMPRESS_FROM_BYTES:
            packed = zlib.compress(raw, 6)
            if len(packed) < len(raw):
                return cls(ref=ref, size=len(raw), media_type=media_type, codec="zlib", data=packed)
        return cls(ref=ref, size=len(raw), media_type=media_type, data=raw)

    def content(self) -> bytes | None:
        """The bytes, or None when withheld. Raises `CorruptError` when they do not fit their address."""
        if self.data is None:
            return None
        raw = self.data
        if self.codec == "zlib":
            raw = _inflate(raw, self.size, self.ref)
        elif self.codec != "raw":
            raise CorruptError(f"payload {self.ref} has codec {self.codec!r}; expected 'raw' or 'zlib'.")
        if len(raw) != self.size or (is_content_address(self.ref) and content_address(raw) != self.ref):
            raise CorruptError(f"payload {self.ref} does not match its address: the content was altered.")
        return raw

    def text(self) -> str | None:
        raw = self.content()
        return None if raw is None else raw.decode("utf-8", "replace")

    def withheld(self) -> Payload:
        """The same address without the content."""
        return Payload(ref=self.ref, size=self.size, media_type=self.media_type)


def _inflate(packed: bytes, size: int, ref: str) -> bytes:
    """Never produces more than the declared size, so a small payload cannot fill memory."""
    if not 0 <= size < sys.maxsize:  # below 0, zlib would take it for no limit at all
        raise CorruptError(f"payload {ref} declares a size that no content has.")
    machine = zlib.decompressobj()
    try:
        raw = machine.decompress(packed, size + 1)
    except zlib.error as error:
        raise CorruptError(f"payload {ref} cannot be decompressed: {error}.") from None
    if len(raw) > size or not machine.eof:
        raise CorruptError(f"payload {ref} does not have its declared size of {size} bytes.")
    return raw

"""The entries of a ZIP file, also those under zstd, which Python's own reader refuses before 3.14.

The directory at the end of the file is read by hand: it is a few fields of fixed width. An entry that is stored or
deflated needs nothing; for method 93 one of the modules that know zstd has to be installed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from baton.connect.readers.zstd import unpacked_pieces
from baton.errors import CorruptError, UsageError

MAX_ENTRY_BYTES: Final = 4 * 2**30
"""No entry is unpacked to more than this."""
_STORED, _DEFLATED, _ZSTD = 0, 8, 93
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_LATER = 0xFFFFFFFF  # the true number stands in the extra field


class ZipEntry(Struct, frozen=True):
    """One entry as the directory tells of it."""

    name: str
    method: int
    packed: int
    size: int
    offset: int
    crc: int


def zip_entries(file: IO[bytes], path: Path) -> list[ZipEntry]:
    """The directory. Raises `CorruptError` where there is none: the file was cut, or is no ZIP."""
    size = file.seek(0, 2)
    tail_at = max(0, size - 65_557)
    file.seek(tail_at)
    tail = file.read()
    found = tail.rfind(_END)
    if found < 0 or len(tail) < found + 22:
        raise CorruptError(f"{path} has no directory at its end: it was cut off, or it is no ZIP.")
    count, length, offset = struct.unpack_from("<HII", tail, found + 10)
    locator = tail.rfind(_LOCATOR64, 0, found)
    if locator >= 0 and (offset == _LATER or count == 0xFFFF or length == _LATER):
        (end64,) = struct.unpack_from("<Q", tail, locator + 8)
        file.seek(end64)
        head = file.read(56)
        if head[:4] != _END64 or len(head) < 56:
            raise CorruptError(f"{path}: its directory is not where its end says.")
        length, offset = struct.unpack_from("<QQ", head, 40)
    file.seek(offset)
    return list(_directory(file.read(length), path))


def entries_by_head(file: IO[bytes]) -> list[ZipEntry]:
    """The entries of a file whose end is missing, by the head that stands before each; the last may be cut off."""
    found: list[ZipEntry] = []
    place = 0
    while True:
        file.seek(place)
        head = file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            return found
        flags, method = struct.unpack_from("<HH", head, 6)
        crc, packed, size, name_size, extra_size = struct.unpack_from("<IIIHH", head, 14)
        name = file.read(name_size).decode("utf-8", "replace")
        packed, size, _ = _wide(file.read(extra_size), packed, size, 0)
        if flags & 8:  # the sizes stand after the entry: where it ends is not known
            return found
        found.append(ZipEntry(name, method, packed, size, place, crc))
        place += 30 + name_size + extra_size + packed


def _directory(block: bytes, path: Path) -> Iterator[ZipEntry]:
    place = 0
    while place + 46 <= len(block) and block[place : place + 4] == b"PK\x01\x02":
        method, crc, packed, size = (
            struct.unpack_from("<H", block, place + 10)[0],
            *struct.unpack_from("<III", block, place + 16),
        )
        name_size, extra_size, comment_size = struct.unpack_from("<HHH", block, place + 28)
        (offset,) = struct.unpack_from("<I", block, place + 42)
        name_end = place + 46 + name_size
        extra = block[name_end : name_end + extra_size]
        packed, size, offset = _wide(extra, packed, size, offset)
        name = block[place + 46 : name_end].decode("utf-8", "replace")
        yield ZipEntry(name, method, packed, size, offset, crc)
        place = name_end + extra_size + comment_size
    if place < len(block) and block[place : place + 4] not in (b"", _END, _END64):
        raise CorruptError(f"{path}: its directory is damaged.")


def _wide(extra: bytes, packed: int, size: int, offset: int) -> tuple[int, int, int]:
    """Numbers that need more than 32 bits."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        if kind == 1:
            block = extra[place + 4 : place + 4 + length]
            wide = iter(struct.unpack(f"<{len(block) // 8}Q", block[: len(block) // 8 * 8]))
            size = next(wide, size) if size == _LATER else size
            packed = next(wide, packed) if packed == _LATER else packed
            offset = next(wide, offset) if offset == _LATER else offset
        place += 4 + length
    return packed, size, offset


def unpacked(file: IO[bytes], entry: ZipEntry) -> bytes:
    """The content of an entry. Raises `CorruptError` where it is damaged, `UsageError` where zstd is missing."""
    file.seek(entry.offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise CorruptError(f"entry {entry.name} is not where the directory says.")
    name_size, extra_size = struct.unpack_from("<HH", head, 26)
    file.seek(entry.offset + 30 + name_size + extra_size)
    packed = file.read(entry.packed)
    if len(packed) < entry.packed or entry.size > MAX_ENTRY_BYTES:
        raise CorruptError(f"entry {entry.name} is cut off, or larger than anything that is read.")
    try:
        if entry.method == _STORED:
            content = packed
        elif entry.method == _DEFLATED:
            content = zlib.decompressobj(-15).decompress(packed, entry.size + 1)
        elif entry.method == _ZSTD:
            content = _from_zstd(packed, entry)
        else:
            raise CorruptError(
                f"entry {entry.name} is packed by method {entry.method}; 0, 8 and 93 are known."
            )
    except UsageError:
        raise
    except Exception as error:  # each module has errors of its own, and all mean damage
        if isinstance(error, CorruptError):
            raise
        raise CorruptError(f"entry {entry.name} cannot be unpacked: {error}.") from None
    if len(content) != entry.size or (zlib.crc32(content) & 0xFFFFFFFF) != entry.crc:
        raise CorruptError(f"entry {entry.name} is not what its checksum says.")
    return content


def _from_zstd(packed: bytes, entry: ZipEntry) -> bytes:
    """No more than a piece beyond its declared size."""
    content = bytearray()
    for piece in unpacked_pieces(BytesIO(packed), f"entry {entry.name}"):
        content += piece
        if len(content) > entry.size:
            break
    return bytes(content)

"""What an agent's folder holds, as data: taken after a call that changed it, and put into another folder later.

A snapshot goes into the trace: a manifest, and each file's content under its own address, so that what did not change
is not kept twice. It has names, contents, modes and links; no times and no owners.

Invariant: taking one follows no link and never blocks, whatever code left in the folder; putting one back writes
nothing outside the folder, whoever wrote the manifest. A folder that cannot be kept whole is not kept at all, and the
reason is said.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Literal
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec
from msgspec import Struct, field

MANIFEST = "application/vnd.baton.folder+json"
MOST_BYTES = 4 * 2**20
"""That a folder may hold and still be kept, where nobody says otherwise."""
_MOST_FILES = 20_000
_MOST_BACK = 2**30
"""Bytes that are put back at the most: one content may stand under many names."""
_LONGEST = 3_000
"""Characters of a path, well under what the system takes."""


class KeptEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing in a folder."""

    path: str
    """Below the folder; bytes that are not plain are written %XX."""
    kind: Literal["file", "folder", "link"] = "file"
    mode: int = 0o600
    ref: str = ""
    """Of a file: the address of its content."""
    target: str = ""
    """Of a link: what it says, written likewise."""


class FolderFiles(Struct, frozen=True, kw_only=True):
    """A folder after one call."""

    number: int
    """How many calls had been made in it."""
    entries: tuple[KeptEntry, ...] = ()
    contents: dict[str, bytes] = field(default_factory=dict)
    """Address -> content."""
    lost: str = ""
    """Why it is not kept; empty: it is."""


class CannotKeep(Exception):
    """Why a folder is not kept."""


def files_in(
    folder: Path,
    number: int,
    *,
    most_bytes: int,
    refused: Callable[[bytes], str | None],
    address: Callable[[bytes], str],
) -> FolderFiles:
    """What a folder holds now. `refused` says why a content may not be written down; None: it may."""
    try:
        entries, contents = _walked(os.fsencode(folder), most_bytes, refused, address)
    except CannotKeep as why:
        return FolderFiles(number=number, lost=str(why))
    except OSError as error:
        return FolderFiles(number=number, lost=f"it could not be read ({error.strerror})")
    return FolderFiles(number=number, entries=tuple(entries), contents=contents)


def _walked(
    folder: bytes, most: int, refused: Callable[[bytes], str | None], address: Callable[[bytes], str]
) -> tuple[list[KeptEntry], dict[str, bytes]]:
    entries: list[KeptEntry] = []
    contents: dict[str, bytes] = {}
    left, pending = most, [b""]
    while pending:
        inside = pending.pop()
        with os.scandir(os.path.join(folder, inside) if inside else folder) as found:  # noqa: PTH118  # bytes
            listed = sorted(found, key=lambda each: each.name)
        for each in listed:
            name = inside + b"/" + each.name if inside else each.name
            if len(name) > _LONGEST or len(entries) >= _MOST_FILES:
                raise CannotKeep("it has too many files, or too deep ones")
            path, told = quote_from_bytes(name), each.stat(follow_symlinks=False)
            mode = stat.S_IMODE(told.st_mode) & 0o777
            if stat.S_ISLNK(told.st_mode):
                target = quote_from_bytes(os.readlink(each.path))  # noqa: PTH115  # bytes
                entries.append(KeptEntry(path=path, kind="link", target=target))
            elif stat.S_ISDIR(told.st_mode):
                entries.append(KeptEntry(path=path, kind="folder", mode=mode))
                pending.append(name)
            elif stat.S_ISREG(told.st_mode):
                content = _content(each.path, left)
                left -= len(content)
                if left < 0:
                    raise CannotKeep(f"it holds more than the {most:,} bytes that are kept")
                if (why := refused(content)) is not None:
                    raise CannotKeep(why)
                ref = address(content)
                contents[ref] = content
                entries.append(KeptEntry(path=path, mode=mode, ref=ref))
            else:
                raise CannotKeep(f"{path} is no file, folder or link")
    return entries, contents


def _content(path: bytes, most: int) -> bytes:
    """A file, and no more of it than tells that it is too large."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        return file.read(most + 1)


def digest(files: FolderFiles) -> bytes:
    """The same for the same folder, whichever call it is after."""
    return blake2b(msgspec.msgpack.encode((files.entries, files.lost)), digest_size=16).digest()


def manifest(files: FolderFiles) -> bytes:
    """The entries, to be written down."""
    return msgspec.json.encode(files.entries)


def read_manifest(raw: bytes) -> tuple[KeptEntry, ...]:
    """The entries of a manifest. Raises ValueError for anything that is none, or that leads out of a folder."""
    entries = msgspec.json.decode(raw, type=tuple[KeptEntry, ...])
    if len(entries) > _MOST_FILES:
        raise ValueError(f"{len(entries)} things are more than a folder holds")
    folders, seen = {b""}, set()
    for each in entries:
        path = unquote_to_bytes(each.path)
        above, _, name = path.rpartition(b"/")
        if name in (b"", b".", b"..") or b"\0" in path or above not in folders or path in seen:
            raise ValueError(f"{each.path!r} is no path below a folder of the same manifest")
        seen.add(path)
        if each.kind == "folder":
            folders.add(path)
    return entries


def put_back(files: FolderFiles, folder: Path) -> None:
    """Make an empty folder hold the same. Raises OSError or ValueError where that cannot be."""
    root = os.fsencode(folder)
    size = sum(len(files.contents[each.ref]) for each in files.entries if each.kind == "file")
    if size > _MOST_BACK:
        raise ValueError(f"{size:,} bytes are more than a folder holds")
    entries = sorted(
        read_manifest(manifest(files)), key=lambda each: (each.kind == "link", each.path.count("/"))
    )
    modes: list[tuple[bytes, int]] = []
    for each in entries:
        path = os.path.join(root, unquote_to_bytes(each.path))  # noqa: PTH118  # bytes
        if each.kind == "folder":
            os.mkdir(path, 0o700)  # noqa: PTH102  # bytes
            modes.append((path, each.mode & 0o777))
        elif each.kind == "link":
            os.symlink(unquote_to_bytes(each.target), path)  # noqa: PTH211  # bytes
        else:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(files.contents[each.ref])
                os.fchmod(file.fileno(), each.mode & 0o777)
    for path, mode in reversed(modes):  # the innermost first: a folder may be closed to its owner
        os.chmod(path, mode)  # noqa: PTH101  # bytes


def contents_of(entries: Iterable[KeptEntry], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The contents that entries need, of those that are known; KeyError names one that is not."""
    return {each.ref: known[each.ref] for each in entries if each.kind == "file"}

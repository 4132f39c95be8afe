"""A shard's manifest: what was sealed, so that any later change shows.

`manifest.json` lists every file with its size and BLAKE2b hash, and its own. Its bytes are exactly
what `render` gives for its content, and a shard's directory is named after its hash; so a bit
flipped anywhere, a file cut, missing or added, or a line of the manifest edited, is detected.
It is no signature: whoever rewrites files, manifest and directory name together is not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from baton.errors import CorruptError, FormatError
from baton.installed import upgrade_hint

MANIFEST = "manifest.json"
SHARD_PREFIX = "shard-"
_NAMED = re.compile(SHARD_PREFIX + "[0-9a-f]{16}")
_FORMAT = "baton-shard"
_VERSION = 1


class FileEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a shard."""

    rows: int
    bytes: int
    blake2b: str

    @classmethod
    def of(cls, path: Path, rows: int) -> FileEntry:
        return cls(rows=rows, bytes=path.stat().st_size, blake2b=_hash(path))


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `manifest.json` holds, less its own hash."""

    format: str = _FORMAT
    version: int = _VERSION
    files: dict[str, FileEntry]

    @property
    def shard_name(self) -> str:
        return SHARD_PREFIX + _own_hash(msgspec.to_builtins(self))[:16]

    def render(self) -> bytes:
        """The exact bytes of a manifest file."""
        return _render(msgspec.to_builtins(self))


def _own_hash(content: dict[str, Any]) -> str:
    return blake2b(msgspec.json.encode(content), digest_size=20).hexdigest()


def _render(content: dict[str, Any]) -> bytes:
    whole = {**content, "hash": _own_hash(content)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def has_shards(directory: str | Path) -> bool:
    folder = Path(directory)
    return folder.is_dir() and any(map(is_shard, folder.iterdir()))


def shards(directory: str | Path) -> list[Path]:
    """The shards in a directory, or the directory itself if it is one."""
    folder = Path(directory)
    if not folder.is_dir():
        raise FormatError(f"{folder} is not a directory; expected one with sealed traces in it.")
    if (folder / MANIFEST).exists() or folder.name.startswith(SHARD_PREFIX):
        return [folder]
    found = sorted(filter(is_shard, folder.iterdir()))
    if not found:
        raise FormatError(
            f"{folder} holds no sealed traces. Type: baton seal STORE.db {shlex.quote(str(folder))}"
        )
    return found


def is_shard(path: Path) -> bool:
    """By its name, or by what it holds: a run of the task shard-sum may be in a folder shard-sum."""
    if not path.name.startswith(SHARD_PREFIX) or not path.is_dir():
        return False
    return bool(_NAMED.fullmatch(path.name)) or (path / MANIFEST).exists() or any(path.glob("*.parquet"))


def read_manifest(shard: Path) -> Manifest:
    """The manifest, checked against its own hash."""
    path = shard / MANIFEST
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise CorruptError(f"{path} is missing.") from None
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
    try:
        content = msgspec.json.decode(raw, type=dict[str, Any])
        content.pop("hash", None)
        whole = _render(content) == raw
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        whole = False
    if not whole:
        raise CorruptError(f"{path} was altered: it does not match its own hash.")
    if content.get("format") != _FORMAT or content.get("version") != _VERSION:
        raise FormatError(
            f"{shard} is a {content.get('format')} of version {content.get('version')}; "
            f"this Baton reads {_FORMAT} {_VERSION}. Type: {upgrade_hint()}"
        )
    manifest = msgspec.convert(content, Manifest)
    if shard.name.startswith(SHARD_PREFIX) and shard.name != manifest.shard_name:
        raise CorruptError(f"{path} was altered: its hash does not match the directory's name.")
    return manifest


def _check_files(shard: Path) -> Manifest:
    """The manifest is whole, and its files are there with their sizes. Reads none of them."""
    manifest = read_manifest(shard)
    there = {path.name for path in shard.iterdir()} - {MANIFEST}
    for name in sorted(there - set(manifest.files)):
        raise CorruptError(f"{shard / name} is not part of the shard.")
    for name, entry in manifest.files.items():
        path = shard / name
        if name not in there:
            raise CorruptError(f"{path} is missing.")
        if path.stat().st_size != entry.bytes:
            raise CorruptError(
                f"{path} has {path.stat().st_size:,} bytes; it was sealed with {entry.bytes:,}."
            )
    return manifest


def verify_shard(shard: Path) -> Manifest:
    """Every byte of a shard is as it was sealed, or `CorruptError` names the file."""
    manifest = _check_files(shard)
    for name, entry in manifest.files.items():
        if _hash(shard / name) != entry.blake2b:
            raise CorruptError(f"{shard / name} was altered: it does not match its hash in {MANIFEST}.")
    return manifest


def _hash(path: Path) -> str:
    state = blake2b(digest_size=20)
    for chunk in _chunks(path):
        state.update(chunk)
    return state.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            yield chunk

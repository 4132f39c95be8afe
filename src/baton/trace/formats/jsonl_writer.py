"""A trace written to a JSON Lines file as it happens.

Invariant: an error means that nothing of it was written, an acknowledgement that it is there. A line that the disk had
no room for is taken back, so that the file can be read and added to as if it had never been tried. One writer has
the file at a time; the system takes the lock away from one that died.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

from baton.errors import BatonError, FormatError, UsageError
from baton.trace.formats.jsonl import drop_last_line, encode_end, encode_record, line_crc, tag_of
from baton.trace.trace import End, Header, Record


class JsonlWriter:
    """Writes one trace as it happens; add more by opening the same file again.

    A record is in the operating system's hands when `write` returns (it survives the death of this
    process); `flush(sync=True)` puts it on the disk. `close` without `end` leaves the trace unfinished.
    """

    def __init__(self, path: str | os.PathLike[str], header: Header, *, flush_every: int = 1) -> None:
        """`flush_every`: hand records over in batches of this size."""
        if flush_every < 1:
            raise UsageError(f"flush_every is {flush_every}; expected 1 or more.")
        self._path = Path(path)
        self._file, self._size = _open_to_append(self._path)
        self._flush_every = flush_every
        first = encode_record(header)
        self._waiting: list[bytes] = [first]
        self._crc = line_crc(first)
        self._counts: Counter[str] = Counter()
        self._ended = False
        try:
            self.flush()
        except BaseException:
            self._file.close()
            raise

    def write(self, *records: Record) -> None:
        """All of the records, or none and an error."""
        if self._ended:
            raise UsageError(f"{self._path}: the trace has ended; nothing can follow.")
        lines = [encode_record(record) for record in records]
        accepted = len(self._waiting)
        self._waiting += lines
        if len(self._waiting) >= self._flush_every:
            try:
                self.flush()
            except BatonError:
                del self._waiting[accepted:]
                raise
        self._crc += sum(map(line_crc, lines))
        self._counts.update(map(tag_of, records))

    def end(self, *, costs: dict[str, float] | None = None, metrics: dict[str, float] | None = None) -> None:
        """The trace is complete. Writes the end line, syncs, closes."""
        if not self._ended:
            end = End(costs=costs or {}, metrics=metrics or {}, counts=dict(self._counts))
            self._waiting.append(encode_end(end, self._crc))
            self._ended = True
        self.flush(sync=True)
        self.close()

    def flush(self, *, sync: bool = False) -> None:
        """Hand over what waits. Where there is no room, nothing of it is written and all of it goes on waiting."""
        if self._waiting:
            self._append(b"".join(self._waiting))
            self._waiting.clear()
        if sync and not self._file.closed:
            os.fsync(self._file.fileno())

    def _append(self, lines: bytes) -> None:
        try:
            if self._file.seek(0, os.SEEK_END) != self._size:
                self._file.truncate(self._size)  # what could not be taken back before
            written = self._file.write(lines)
            while written < len(lines):  # a full disk takes a part first, and refuses the rest
                written += self._file.write(lines[written:])
        except OSError as error:
            self._take_back()
            raise BatonError(
                f"{self._path} cannot be written: {error.strerror}. Nothing of this was, and what was before is there."
            ) from None
        self._size += len(lines)

    def _take_back(self) -> None:
        with suppress(OSError):  # it is tried again before the next line
            self._file.truncate(self._size)

    def close(self) -> None:
        """Let go of the file, after what still waits."""
        if not self._file.closed:
            try:
                self.flush()
            finally:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_to_append(path: Path) -> tuple[BinaryIO, int]:
    """The file, held by this writer alone, and how long it is."""
    try:
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        _lock(file, path)
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                raise FormatError(
                    f"{path}: its last line is cut off, nothing can be added. {drop_last_line(path)}"
                )
    except BaseException:
        file.close()
        raise
    return file, size


def _lock(file: BinaryIO, path: Path) -> None:
    if sys.platform == "win32":
        return  # there, two writers of one file are not told
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"{path} is being written by another recorder. Give each trace its own file, or use one Store."
        ) from None
    except OSError:
        pass  # a file system without locks

"""A folder of imported traces: one file for each, whole or not at all, and none written that is there already."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from baton.connect.import_report import ImportReport
from baton.trace.formats.durable import atomic_file, clear_folder, sync_directory
from baton.trace.formats.jsonl import encode_trace
from baton.trace.formats.recognition import IMPORTED
from baton.trace.trace import Trace

_WRITERS = 8
_SHORT = 4096  # events of a trace that may wait in memory; what is longer is written at once


class TraceFolder:
    """Writes traces while the next are read: to have a file on disk is mostly to wait for the disk.

    Invariant: no more than `_WRITERS` short traces wait, so memory does not grow with how many there are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[Path, bool] = {}
        """File of each trace -> whether it is new or other than it was."""
        self._writers = ThreadPoolExecutor(_WRITERS)
        self._waiting: deque[tuple[Path, Future[bool]]] = deque()
        clear_folder(folder, ".jsonl")

    def __enter__(self) -> TraceFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            while self._waiting and error is None:
                self._settle()
        finally:
            self._writers.shutdown()
        if any(self.files.values()):
            with suppress(OSError):  # not every file system can
                sync_directory(self.folder)

    def put(self, trace: Trace) -> None:
        """Raises what went wrong with this one or with one before it."""
        path = self.folder / f"{trace.trace_id}.jsonl"
        if len(trace.events) > _SHORT:
            self.files[path] = write_if_other(path, trace, alone=False)
            return
        self.files[path] = False  # its place in the order; what it comes to is known when it is written
        self._waiting.append((path, self._writers.submit(write_if_other, path, trace, alone=False)))
        if len(self._waiting) >= _WRITERS:
            self._settle()

    def _settle(self) -> None:
        path, written = self._waiting.popleft()
        self.files[path] = written.result()


def write_if_other(path: Path, trace: Trace, *, alone: bool = True) -> bool:
    """Whether the file was other than the trace: then it is the trace now. `alone` as in `atomic_file`."""
    if _holds(path, encode_trace(trace)):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, alone=alone) as file:
        file.writelines(encode_trace(trace))
    return True


def _holds(path: Path, chunks: Iterable[bytes]) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return all(file.read(len(chunk)) == chunk for chunk in chunks) and not file.read(1)


def write_report(out: Path, report: ImportReport) -> None:
    told = msgspec.json.format(msgspec.json.encode(report.as_dict(), order="deterministic"), indent=2) + b"\n"
    out.mkdir(parents=True, exist_ok=True)
    path = out / IMPORTED
    if not path.is_file() or path.read_bytes() != told:
        with atomic_file(path) as file:
            file.write(told)

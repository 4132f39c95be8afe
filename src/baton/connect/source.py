"""The contract of a source: how one system's files are known and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from baton.connect.import_report import ImportReport
from baton.connect.seen import Seen


class Source(Protocol):
    """Reads one kind of files. Shipped ones are in `SOURCES`; others are registered under the kind `source`.

    A folder that one source alone recognises is its own, and what it does not know there is looked into: files of
    `endings`, where it has such an attribute, else `.jsonl`. With `single_files = True` a folder is no more than its
    files, and each is given by itself.
    """

    kind: str
    """What a person types after `--from`, such as "claude-code"."""
    about: str
    """Which files, in a line: where the system puts them."""

    def recognises(self, place: Path) -> bool:
        """Whether a file or folder is of this kind, by its name and its first lines; never by reading it whole."""
        ...

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        """Every sighting, as a stream: memory does not grow with the file.

        What cannot be read is told to `report`, once for each entry, and never raised; an error of a whole file (not
        there, no permission, another format) is a `baton.errors.UsageError` or `CorruptError` that says what to type.
        """
        ...

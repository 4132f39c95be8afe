"""The logs of Inspect evaluations. Each sample, and each epoch of it, is one session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Raw, Struct

from baton.connect.import_report import ImportReport
from baton.connect.readers.chat_messages import as_text
from baton.connect.readers.inspect_eval.sample import sample_of
from baton.connect.readers.inspect_eval.zip_entries import ZipEntry, entries_by_head, unpacked, zip_entries
from baton.connect.readers.json_documents import CUT, head_of, mended
from baton.connect.readers.place_names import any_of, files_of
from baton.connect.seen import Seen
from baton.errors import CorruptError, UsageError

_ENDINGS = (".eval", ".json")
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Log(Struct):
    """A log in JSON, its samples not yet looked at."""

    version: Any = None
    status: Any = None
    eval: Any = None
    results: Any = None
    samples: list[Raw] | None = None


class InspectSource:
    """`.eval` and `.json` logs."""

    kind = "inspect"
    about = "Inspect's logs: .eval, or .json (inspect log dump)"
    single_files = True

    def recognises(self, place: Path) -> bool:
        return any_of(place, _is_mine, _ENDINGS, likely="*.eval")

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for path in files_of(place, _ENDINGS):
            if not place.is_dir() or _is_mine(path):
                yield from _zipped(path, report) if _is_zip(path) else _plain(path, report)


def _is_zip(path: Path) -> bool:
    return head_of(path)[:2] == b"PK"


def _is_mine(path: Path) -> bool:
    head = head_of(path)
    if head[:4] == b"PK\x03\x04":
        return path.suffix == ".eval" or b"_journal/start.json" in head or b"header.json" in head
    return head[:1] == b"{" and all(word in head for word in (b'"eval"', b'"status"', b'"run_id"', b'"task"'))


def _zipped(path: Path, report: ImportReport) -> Iterator[Seen]:
    try:
        with path.open("rb") as file:
            try:
                entries = zip_entries(file, path)
            except CorruptError:
                entries = entries_by_head(file)
                if not entries:
                    raise
                report.skip(CUT, str(path))
            about: dict[str, Any] = {}
            for entry in entries:  # the header is written last; while a log grows there is its beginning only
                if entry.name in ("_journal/start.json", "header.json"):
                    about.update(_content(file, entry, path, report) or {})
            for entry in entries:
                if entry.name.startswith("samples/") and entry.name.endswith(".json"):
                    value = _content(file, entry, path, report)
                    if value is not None:
                        yield from sample_of(value, about, f"{path}!{entry.name}", report)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _content(file: IO[bytes], entry: ZipEntry, path: Path, report: ImportReport) -> dict[str, Any] | None:
    at = f"{path}!{entry.name}"
    try:
        return _json(unpacked(file, entry), at, report)
    except CorruptError:
        report.read()
        report.skip("an entry of a log that is damaged", at)
        return None


def _json(content: bytes, at: str, report: ImportReport) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(content)
    except _BAD:
        report.skip(CUT, at)
        value = mended(content)
    return value if isinstance(value, dict) else None


def _plain(path: Path, report: ImportReport) -> Iterator[Seen]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        log = msgspec.json.decode(content, type=_Log)
        about = {"eval": log.eval, "status": log.status, "version": log.version, "results": log.results}
        samples: Iterator[Any] = (msgspec.json.decode(raw) for raw in log.samples or ())
    except _BAD:
        report.skip(CUT, str(path))
        found = mended(content)
        if not isinstance(found, dict) or not isinstance(found.get("eval"), dict):
            raise CorruptError(
                f"{path} is no log of Inspect: it holds no `eval`. Give a .eval file, or what inspect log dump writes."
            ) from None
        about, samples = found, iter(found.get("samples") or ())
    number = 0
    for number, value in enumerate(samples, 1):
        if isinstance(value, dict):
            yield from sample_of(value, about, f"{path}#{as_text(value.get('id'))}", report)
        else:
            report.skip("a sample that is none", f"{path}#{number}")
    if not number:
        report.skip("a log without samples", str(path))

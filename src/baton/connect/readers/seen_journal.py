"""The journal of a live recorder: sightings as they came, one a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from baton.connect.import_report import ImportReport
from baton.connect.live.journal import FOLDER, SUFFIX, NotTold
from baton.connect.seen import Seen

_decode = msgspec.json.Decoder(Seen | NotTold).decode


class SeenJournal:
    """Reads `*.seen.jsonl`."""

    kind = "seen"
    about = f"a live recorder's journals (*{SUFFIX}), or the folder that a program was recorded into"

    def recognises(self, place: Path) -> bool:
        return bool(_journals(place))

    def read(self, place: Path, report: ImportReport) -> Iterator[Seen]:
        for path in _journals(place):
            yield from read_journal(path, report)


def _journals(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place] if place.name.endswith(SUFFIX) else []
    found = [*place.glob(f"*{SUFFIX}"), *place.glob(f"{FOLDER}/*{SUFFIX}")]
    return sorted(path for path in found if path.is_file())


def read_journal(path: Path, report: ImportReport) -> Iterator[Seen]:
    """The sightings of one journal. A last line that is being written is left for the next time."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            report.read()
            told = decoded(line, report, f"{path.name}:{number}")
            if told is not None:
                yield told


def decoded(line: bytes, report: ImportReport, at: str) -> Seen | None:
    try:
        told: Seen | NotTold = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        report.skip("a line that is no sighting", at)
        return None
    if isinstance(told, NotTold):
        report.skip(told.reason, at)
        return None
    return told

"""Other systems' files into traces: what kind they are is found by looking, and they land where commands read them.

A folder of imports has one JSON Lines file for each trace, named after it, and `import.json`, which says what the last
import did. Invariant: importing the same files again changes no byte there; files that have grown replace their trace,
whole or not at all.
"""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from shlex import quote

from msgspec import Struct

from baton import registry
from baton.connect.assemble import Assembler
from baton.connect.assembly.contents import Contents
from baton.connect.import_report import UNREADABLE, ImportReport
from baton.connect.redaction import Redaction
from baton.connect.source import Source
from baton.connect.trace_folder import TraceFolder, write_report
from baton.errors import BatonError, UsageError
from baton.trace.formats.decoding import no_collection
from baton.trace.formats.recognition import IMPORTED
from baton.trace.trace import Trace

_DEEPEST = 8
_LOOKED_AT = 100_000
_LINES = (".jsonl",)
_NO_KIND = "a file of no kind that is known"
_OTHER_KIND = "a file of another kind than was asked for"
_STUMBLES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_NOT_DATA = frozenset((IMPORTED, ".DS_Store"))


class Imported(Struct, frozen=True, kw_only=True):
    """What an import gave."""

    report: ImportReport
    traces: tuple[Trace, ...] = ()
    """Empty where they went to files."""
    files: tuple[Path, ...] = ()
    """Where each trace is, of an import with `out`."""
    changed: int = 0
    """How many of the files are new or other than they were."""
    events: int = 0
    kinds: tuple[str, ...] = ()


def import_traces(
    *places: str | os.PathLike[str],
    source: str | Source | None = None,
    out: str | os.PathLike[str] | None = None,
    redact: Iterable[str] | None = None,
    payloads: bool = True,
) -> Imported:
    """The traces in files and folders of other systems: `import_traces("~/.claude/projects/mine").traces`.

    `source` is their kind, found by looking where it is not given. With `out` the traces go into that folder, one file
    each, and not into memory. `redact` takes secrets out, and what matches its patterns (`redact=()`: secrets alone);
    `payloads=False` keeps nothing that was said, only its addresses.
    """
    return Importing(places, source=source, out=out, redact=redact, payloads=payloads).once()


class Importing:
    """One import, which may be done again as its files grow."""

    def __init__(
        self,
        places: Iterable[str | os.PathLike[str]],
        *,
        source: str | Source | None = None,
        out: str | os.PathLike[str] | None = None,
        redact: Iterable[str] | None = None,
        payloads: bool = True,
    ) -> None:
        self.places = [Path(place).expanduser() for place in places]
        if not self.places:
            raise UsageError("nothing to import. Give a file or a folder of another system.")
        self.out = None if out is None else Path(out).expanduser()
        self._source = find_source(source) if isinstance(source, str) else source
        self._redact = None if redact is None else Redaction(redact)
        self._payloads = payloads
        self.report = ImportReport()

    def once(self, *, live: bool = False) -> Imported:
        """Read everything there is now. `live`: a session that does not say that it ended is still going on."""
        with no_collection():
            return self._read(live=live)

    def _read(self, *, live: bool) -> Imported:
        report = self.report = ImportReport()
        found = found_in(self.places, report, self._source, empty=live)
        contents = Contents(report, redact=self._redact, keep_payloads=self._payloads)
        traces: list[Trace] = []
        unread: list[BatonError | OSError] = []
        events = 0
        files: dict[Path, bool] = {}
        with nullcontext() if self.out is None else TraceFolder(self.out) as folder:
            for trace in self._traces(found, contents, unread, live=live):
                events += len(trace.events)
                if folder is None:
                    traces.append(trace)
                else:
                    folder.put(trace)
        if folder is not None:
            files = folder.files
        if unread and not events:
            raise unread[0]
        if self._redact is not None:
            redact = self._redact
            report.clean(lambda words: redact(words, ImportReport()))
        if self.out is not None and (files or live):  # what is followed can be watched from the start
            write_report(self.out, report)
        return Imported(
            report=report,
            traces=tuple(traces),
            files=tuple(files),
            changed=sum(files.values()),
            events=events,
            kinds=tuple(dict.fromkeys(source.kind for source, _ in found)),
        )

    def _traces(
        self,
        found: list[tuple[Source, Path]],
        contents: Contents,
        unread: list[BatonError | OSError],
        *,
        live: bool,
    ) -> Iterator[Trace]:
        """One kind after the other. What could not be read goes to `unread`."""
        report = self.report
        for source, places in _by_source(found):
            assembler = Assembler(source.kind, report, contents, live=live)
            for place in places:
                try:
                    assembler.see(source.read(place, report))
                except _STUMBLES as error:  # what was seen until there is kept
                    said = f": {error}" if self._payloads else ""
                    what = " ".join(f"{type(error).__name__}{said}".split())[:200]
                    report.skip(
                        f"the rest of a file, which the reader of {source.kind} cannot read ({what})",
                        str(place),
                    )
                except (BatonError, OSError) as error:  # one of many costs no other
                    unread.append(error)
                    report.skip(UNREADABLE, str(error))
            yield from assembler.traces()

    def stamp(self) -> str:
        """Changes when a file does that is read."""
        told: list[str] = []
        for place in self.places:
            for path in [place] if place.is_file() else sorted(_files(place)):
                try:
                    stat = path.stat()
                except OSError:  # it went away
                    continue
                told.append(f"{path} {stat.st_size} {stat.st_mtime_ns}")
        return "\n".join(told)


def kinds_of(place: Path) -> list[str]:
    """What a file or folder looks like."""
    return [source.kind for source in recognised(place, map(find_source, registry.names("source")))]


def find_source(kind: str) -> Source:
    """The reader of a kind, or of `module:attr`."""
    found = registry.resolve("source", kind)
    made: Source = found() if isinstance(found, type) else found
    return made


def found_in(
    places: Sequence[Path], report: ImportReport, source: Source | None = None, *, empty: bool = False
) -> list[tuple[Source, Path]]:
    """What there is to read, with whatever reads it. A folder that is none itself is looked into.

    `empty`: there may be nothing yet.
    """
    for place in places:
        if not place.exists():
            raise UsageError(f"there is no {place}. Give a file or a folder that is there.")
        if not place.is_file() and not place.is_dir():
            raise UsageError(
                f"{place} is a pipe or a device. Write what comes of it to a file, and give that."
            )
    if source is not None:
        for place in places:
            if place.is_dir():
                for path in _strangers(place, source):
                    report.skip(_OTHER_KIND, str(path))
        return [(source, place) for place in places]
    sources = [find_source(kind) for kind in registry.names("source")]
    found: list[tuple[Source, Path]] = []
    for place in places:
        own = list(_looked_into(place, sources, report, 0))
        if not own and not empty:
            if _is_own(place):
                raise UsageError(
                    f"{place} is a trace of Baton's own already. Type: baton show {quote(str(place))}"
                )
            if (why := _unreadable(place)) is not None:
                raise UsageError(f"{place} {why}")
            kinds = ", ".join(registry.names("source")) or "none"
            raise UsageError(
                f"{place} is of no kind that is known, nor is anything in it. Known are: {kinds}. "
                "If it is one of them, say which: --from KIND"
            )
        found += own
    return found


def _is_own(place: Path) -> bool:
    """Whether a file begins as JSON Lines of Baton's do."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(200).startswith(b'{"kind":"trace",')


def _unreadable(place: Path) -> str | None:
    """What is the matter with a file of no kind, where its first bytes tell, and what to type."""
    if place.is_dir():
        return None
    with place.open("rb") as file:
        head = file.read(200)
    name = quote(str(place))
    if not head.strip():
        return "is empty: there is nothing to import yet."
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return f"is in UTF-16; expected UTF-8. Type: iconv -f UTF-16 -t UTF-8 {name} > utf8.json"
    if head.startswith(b"\x1f\x8b"):
        return f"is packed with gzip, and holds no spans. Type: gunzip -k {name}"
    return None


def _looked_into(
    place: Path, sources: list[Source], report: ImportReport, depth: int
) -> Iterator[tuple[Source, Path]]:
    readers = recognised(place, sources)
    # A folder that several kinds lay claim to holds files of several kinds; one of single files may hold others too.
    if readers and (not place.is_dir() or depth == _DEEPEST or _takes_whole(readers)):
        yield readers[0], place
        if place.is_dir():
            for path in _strangers(place, readers[0]):
                others = recognised(path, sources)
                if others:
                    yield others[0], path
                else:
                    report.skip(_NO_KIND, str(path))
    elif place.is_dir() and depth < _DEEPEST:
        for child in sorted(place.iterdir()):
            if child.name not in _NOT_DATA and not child.name.startswith("."):
                yield from _looked_into(child, sources, report, depth + 1)
    elif depth:
        report.skip(_NO_KIND, str(place))


def _takes_whole(readers: list[Source]) -> bool:
    """Whether a folder is one reader's: its files belong together."""
    return len(readers) == 1 and not getattr(readers[0], "single_files", False)


def _strangers(folder: Path, reader: Source) -> Iterator[Path]:
    """Of a folder that one reader takes: the files that it does not know, one by one or by a folder they are in.

    Looked at are those of its `endings`: others may be what its program keeps beside them.
    """
    endings: tuple[str, ...] = getattr(reader, "endings", _LINES)
    files = sorted(path for path in _files(folder) if path.name.endswith(endings))
    known = {path for path in files if recognised(path, [reader])}
    above = {parent for path in known for parent in path.parents}
    whole: dict[Path, bool] = {}  # folders of which it knows no file and which it takes all the same
    for path in files:
        if path not in known:
            parent = path.parent
            if parent not in whole:
                whole[parent] = parent not in above and bool(recognised(parent, [reader]))
            if not whole[parent]:
                yield path


def recognised(place: Path, sources: Iterable[Source]) -> list[Source]:
    """The readers that know a place. One that fails on what it does not know does not know it."""
    found: list[Source] = []
    if not place.is_file() and not place.is_dir():  # a pipe would be waited for
        return []
    for source in sources:
        try:
            if source.recognises(place):
                found.append(source)
        except (OSError, ValueError, RecursionError):
            continue
    return found


def _by_source(found: list[tuple[Source, Path]]) -> list[tuple[Source, list[Path]]]:
    """Places of one kind are read together: a session may be spread over them."""
    grouped: dict[str, tuple[Source, list[Path]]] = {}
    for source, place in found:
        places = grouped.setdefault(source.kind, (source, []))[1]
        if place not in places:
            places.append(place)
    return list(grouped.values())


def _files(folder: Path) -> Iterator[Path]:
    for number, path in enumerate(folder.rglob("*")):
        if number >= _LOOKED_AT:
            return
        if path.is_file():
            yield path


def follow(
    importing: Importing,
    tell: Callable[[Imported], None],
    wait: Callable[[float], None],
    *,
    times: int | None = None,
) -> None:
    """Import again whenever a file has changed, until `wait` raises KeyboardInterrupt; then once more, as ended.

    A pass reads everything again, so the pause between looks grows with what a pass takes. `times`: so many looks.
    """
    import time

    stamp, pause, looks = "", 0.0, 0
    try:
        while times is None or looks < times:
            looks += 1
            if pause:
                wait(pause)
            now = importing.stamp()
            if now != stamp:
                stamp, began = now, time.monotonic()
                tell(importing.once(live=True))
                pause = max(1.0, 4 * (time.monotonic() - began))
    except KeyboardInterrupt:
        pass
    tell(importing.once())

"""`baton import SOURCE… --out DIR`: other systems' files, as traces that every other command takes."""

from __future__ import annotations

import argparse
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from baton import registry
from baton.cli import add_repeated
from baton.cli.printing import print_json, remark, say
from baton.connect.import_report import ImportReport
from baton.connect.importing import Imported, Importing, follow, kinds_of
from baton.errors import UsageError
from baton.view.terminal.fitting import Line
from baton.view.terminal.live import live_line
from baton.view.terminal.screen import emit
from baton.view.text import count, printable

_LISTED = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = ", ".join(registry.names("source"))
    parser.epilog = (
        f"kinds: {kinds}\n\n"
        "What a file is, is told from its content; a folder is looked into. One of your own is module:attr.\n"
        "Then: baton show DIR, baton stats DIR, baton measure DIR, baton view DIR"
    )
    parser.add_argument("places", metavar="SOURCE", nargs="+", help="a file or folder of another system")
    parser.add_argument("--out", metavar="DIR", required=True, help="where the traces go, one file each")
    parser.add_argument("--from", dest="from_", metavar="KIND", help="what SOURCE is, whatever it looks like")
    parser.add_argument("--follow", action="store_true", help="go on as SOURCE grows, until Ctrl-C")
    add_repeated(
        parser, "--redact", "PATTERN",
        "take out secrets (keys, tokens, passwords) and what matches; `secrets` for those alone",
    )  # fmt: skip
    parser.add_argument(
        "--without-payloads", action="store_true", help="keep nothing that was said, only addresses and sizes"
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected a folder for traces. Give another DIR.")
    importing = Importing(
        args.places,
        source=args.from_,
        out=out,
        redact=args.redact or None,
        payloads=not args.without_payloads,
    )
    began = time.monotonic()

    def progress(seconds: float) -> str:
        read = importing.report.entries
        return f"{read:,} entries read, {seconds:.0f} s" if read else f"looking, {seconds:.0f} s"

    def tell(imported: Imported) -> None:
        if args.json:
            print_json(_document(imported))
        elif imported.changed or not args.follow:
            _say(imported, out, time.monotonic() - began)

    with live_line(progress, logged=False):
        if args.follow:
            remark(f"Following. Watch it with: baton view {shlex.quote(str(out))}")
            follow(importing, tell, time.sleep)
            return 0
        imported = importing.once()
    tell(imported)
    if not imported.files and args.from_ and not args.json:
        looks = dict.fromkeys(kind for place in importing.places for kind in kinds_of(place))
        if looks and args.from_ not in looks:
            say(f"By its content it is {', '.join(looks)}: leave --from {printable(args.from_)} out.")
    return 0 if imported.files else 1


def _document(imported: Imported) -> dict[str, object]:
    return {
        "traces": [path.stem for path in imported.files],
        "files": [str(path) for path in imported.files],
        "changed": imported.changed,
        "events": imported.events,
        "kinds": imported.kinds,
        "report": imported.report.as_dict(),
    }


def _say(imported: Imported, out: Path, seconds: float) -> None:
    report = imported.report
    if not imported.files:
        read = f"{report.entries:,} {'entry' if report.entries == 1 else 'entries'}"
        say(f"{read} read, and no trace in them.")
    else:
        kinds = ", ".join(imported.kinds)
        same = "" if imported.changed else ", all of which were there already"
        say(
            f"{out}: {count(len(imported.files), 'trace')} from {kinds}{same} "
            f"({report.entries:,} entries, {count(imported.events, 'event')}, {seconds:.1f} s)"
        )
    emit(list(_lines(report)))
    if imported.files:
        say(f"Type: baton show {shlex.quote(str(imported.files[0]))}", "dim")


def _lines(report: ImportReport) -> Iterator[Line]:
    for title, counts in (
        ("joined", report.joined),
        ("inferred", report.inferred),
        ("skipped", report.skipped),
        ("mended", report.mended),
        ("redacted", report.redacted),
    ):
        yield from _part(title, counts, report.places)


def _part(title: str, counts: Counter[str], places: dict[str, list[str]]) -> Iterator[Line]:
    # What is left out of every file says less than what is left out of one.
    told = sorted(counts.most_common(), key=lambda one: one[0].startswith("a note of the program"))
    for number, (reason, times) in enumerate(told):
        if number == _LISTED:
            more = count(len(counts) - _LISTED, "more reason")
            yield [(f"  {title:<9} and {more}; all with: --json", "dim")]
            return
        where = ", ".join(map(printable, places.get(reason, ())[:2]))
        yield [
            (f"  {title:<9}", "dim"),
            (f"{times:>8,}  {printable(reason)}", ""),
            (f" ({where})" if where else "", "dim"),
        ]

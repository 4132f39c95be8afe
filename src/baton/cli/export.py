"""`baton export FORMAT TRACE --out FILE`: one trace as one file: the viewer's page (html), or any format of text."""

from __future__ import annotations

import argparse
from pathlib import Path

from baton.cli import add_trace
from baton.cli.printing import say
from baton.cli.view import attached
from baton.compose.runs import one_trace
from baton.errors import UsageError
from baton.trace.formats import encode
from baton.trace.formats.durable import atomic_file, refuse_written
from baton.view.web.export_page import export_html


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example:\n  baton export html runs/sum --out sum.html"
    parser.add_argument(
        "format", metavar="FORMAT", help="html: one page, with everything in it; or a format of baton convert"
    )
    add_trace(parser, "a file that holds traces")
    parser.add_argument("--without-payloads", action="store_true", help="leave out what was said")
    parser.add_argument("--out", metavar="FILE", required=True, help="where the page goes")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")


def run(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if out.is_dir():
        raise UsageError(f"{out} is a directory. Give a file: --out {out / 'trace.html'}")
    if out.exists() and not args.force:
        raise UsageError(f"{out} is already there. Type: --force to replace it")
    refuse_written(out, "--out")
    trace = one_trace(args.path, args.trace)
    if args.without_payloads:
        trace = trace.without_payloads()
    if args.format == "html":
        page = export_html(trace, attached()).encode()
    else:
        page = b"".join(encode(trace, args.format))
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as file:
        file.write(page)
    say(f"wrote    {out}: {len(trace.events):,} events, {len(page):,} bytes")
    return 0

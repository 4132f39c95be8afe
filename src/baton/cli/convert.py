"""`baton convert IN OUT`: traces from one format into another.

Invariant: OUT is replaced whole or not at all, and what is there is replaced only with --force.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from baton.cli.printing import remark, say
from baton.errors import FormatError, UsageError
from baton.trace.formats import Format, encode, find_format, format_of_name, known_formats, read_all, write
from baton.trace.formats.durable import NotWritten, clear_left, lock_part, refuse_written, why_not_written
from baton.trace.formats.parquet.manifest import SHARD_PREFIX
from baton.trace.formats.recognition import opened_name
from baton.trace.trace import Trace
from baton.view.terminal.live import live_line
from baton.view.text import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    rows = "\n".join(f"  {name:<8}  {format_.about}" for name, format_ in known_formats().items())
    parser.epilog = (
        f"formats:\n{rows}\n\n"
        "OUT's name says which: .jsonl, .json, .db, DIR/, .chrome.json, .mmd or .md.\n"
        "What IN is, is told from its content. A format of your own is module:attr, after --from or --to."
    )
    parser.add_argument("source", metavar="IN", help="a file or directory of traces")
    parser.add_argument(
        "target", metavar="OUT", help="where to write; - is standard output, for text formats"
    )
    parser.add_argument("--to", metavar="FORMAT", help="the format to write, whatever OUT is called")
    parser.add_argument(
        "--from", dest="from_", metavar="FORMAT", help="the format of IN, whatever its content"
    )
    parser.add_argument(
        "--without-payloads",
        action="store_true",
        help="leave out what was said and keep its addresses (token ids stay: they are not payloads)",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it is there")


def run(args: argparse.Namespace) -> int:
    to_stdout = args.target == "-"
    kind = args.to or ("jsonl" if to_stdout else format_of_name(args.target))
    format_ = find_format(kind)
    if to_stdout and not format_.is_text:
        raise UsageError(f"{kind} is not text, so it cannot go to standard output. Give OUT a name.")
    if not to_stdout:
        _check_target(Path(args.target), format_, args.force)
    started = time.monotonic()
    seen = _Seen()
    traces = seen.counting(read_all(opened_name(args.source), args.from_), args.source, args.without_payloads)
    if not format_.is_text:
        traces = _of_different_names(traces, args.source, kind)
    with _progress(seen):
        num_bytes = _to_stdout(traces, kind) if to_stdout else _to_file(traces, Path(args.target), kind)
    said = f"{kind}, {seen}, {num_bytes:,} bytes, {time.monotonic() - started:.1f} s"
    if to_stdout:
        remark(f"standard output: {said}")
    else:
        say(f"{args.target}: {said}")
    return 0


class _Seen:
    """What has gone by so far."""

    def __init__(self) -> None:
        self.num_traces = 0
        self.num_events = 0

    def counting(self, traces: Iterable[Trace], source: str, without_payloads: bool) -> Iterator[Trace]:
        for trace in traces:
            self.num_traces += 1
            self.num_events += len(trace.events)
            yield trace.without_payloads() if without_payloads else trace
        if not self.num_traces:
            raise FormatError(f"{source} holds no trace.")

    def __str__(self) -> str:
        return f"{count(self.num_traces, 'trace')}, {count(self.num_events, 'event')}"


def _of_different_names(traces: Iterable[Trace], source: str, kind: str) -> Iterator[Trace]:
    """What is looked up by name holds each name once."""
    names: set[str] = set()
    for trace in traces:
        if trace.trace_id in names:
            raise UsageError(
                f"{source} holds two traces named {trace.trace_id!r}, and {kind} holds one of each name. "
                f"Type: baton validate {shlex.quote(source)}"
            )
        names.add(trace.trace_id)
        yield trace


def _to_stdout(traces: Iterable[Trace], kind: str) -> int:
    num_bytes = 0
    for chunk in encode(traces, kind):
        num_bytes += sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    return num_bytes


def _to_file(traces: Iterable[Trace], target: Path, kind: str) -> int:
    """Made in a folder of its own beside its place, then moved there."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in clear_left(target):
            remark(f"removed {left}, which a convert left when it was killed")
        working = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
        held = os.open(working, os.O_RDONLY)
        lock_part(held)
        try:
            made = working / target.name
            write(traces, made, kind)
            if Path(
                f"{made}-wal"
            ).exists():  # closing a store does not tell: what is in its log would be left behind
                raise NotWritten(
                    f"{target} cannot be written: the disk is full, and the new store could not be closed. "
                    "Nothing is there of it. Make room, then type it again."
                )
            num_bytes = sum(path.stat().st_size for path in (made, *made.rglob("*")) if path.is_file())
            refuse_written(target, "OUT")
            if target.is_dir():
                target.rename(working / "replaced")
            made.rename(target)
        finally:
            shutil.rmtree(working, ignore_errors=True)
            os.close(held)
    except OSError as error:
        why = why_not_written(target) or error.strerror
        raise NotWritten(f"{target} cannot be written: {why}. Nothing is there of it.") from None
    return num_bytes


def _check_target(target: Path, format_: Format, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_file() and not target.is_dir():
        raise UsageError(f"{target} is neither a file nor a folder. For standard output, give - as OUT.")
    if target.is_dir() != format_.is_folder:
        is_, needs = ("folder", "file") if target.is_dir() else ("file", "folder")
        raise UsageError(f"{target} is a {is_} and {format_.name} is written to a {needs}. Give another OUT.")
    if target.is_dir() and not all(
        path.name.startswith((SHARD_PREFIX, ".lock")) for path in target.iterdir()
    ):
        raise UsageError(f"{target} holds other things than sealed shards. Give another OUT.")
    if not force:
        raise UsageError(f"{target} is there already. Add --force to replace it.")
    refuse_written(target, "OUT")
    log = Path(f"{target}-wal")
    if log.exists() and log.stat().st_size:
        # It would be taken for the new store's.
        raise UsageError(f"{target} is a store that is being written or was not closed. Give another OUT.")


def _progress(seen: _Seen) -> AbstractContextManager[None]:
    """A line that counts, for a person who waits."""
    return live_line(
        lambda seconds: f"{seen if seen.num_traces else 'reading'}, {seconds:.0f} s", logged=False
    )

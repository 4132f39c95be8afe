"""`baton seal`: finished traces from a live store into Parquet shards."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

from baton.cli.printing import say
from baton.errors import UsageError
from baton.trace.formats.recognition import detect, kept_in, run_beside, stores_in
from baton.trace.trace import Trace
from baton.view.text import count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="STORE", help="a live store, or any file of traces")
    parser.add_argument("directory", metavar="DIR", help="where the shard goes; made if it is not there")
    parser.add_argument("--keep", action="store_true", help="leave the traces in the store, too")
    parser.add_argument("--all", action="store_true", help="unfinished traces, too; those stay in the store")


def run(args: argparse.Namespace) -> int:
    source = kept_in(args.source)
    trained = run_beside(args.source)
    if trained is not None and run_beside(args.directory) == trained:
        raise UsageError(f"{args.directory} is in the folder of a training run. Give another DIR.")
    kind = detect(source)
    if kind == "parquet":
        raise UsageError(f"{source} is already sealed. Copy its shards, or give a store.")
    if kind != "sqlite":
        _seal_file(source, args.directory, args.all)
        return 0
    for store in stores_in(source) if source.is_dir() else [source]:
        _seal_store(store, args.directory, args.keep or trained is not None, args.all)
    if trained is not None and not args.keep:
        say(
            f"They are in {trained} as well: a training run keeps its traces, which `baton view` and `fork` read there."
        )
    return 0


def _seal_store(store: Path, directory: str, keep: bool, unfinished: bool) -> None:
    from baton.trace.formats.parquet.sealing import seal_store

    report = seal_store(store, directory, keep=keep, unfinished=unfinished)
    if report.shard is None and not report.num_already_sealed:
        hint = " Add --all for unfinished ones." if report.num_left and not unfinished else ""
        say(f"{store} has no finished trace to seal.{hint}")
        return
    if report.shard is not None:
        _say(report.num_sealed, report.shard)
    if report.num_already_sealed:
        say(f"{count(report.num_already_sealed, 'trace')} of {store} had been sealed before.")
    if report.num_sealed and not keep:
        say(
            f"They are no longer in {store}. Read them from {directory}, as: baton stats {shlex.quote(directory)}"
        )
    if report.num_left:
        say(f"{count(report.num_left, 'trace')} still in {store}.")


def _seal_file(source: Path, directory: str, unfinished: bool) -> None:
    from baton.trace.formats import read_all
    from baton.trace.formats.parquet.shard_write import seal

    num_sealed = num_left = 0

    def wanted() -> Iterator[Trace]:
        nonlocal num_sealed, num_left
        for trace in read_all(source):
            if trace.finished or unfinished:
                num_sealed += 1
                yield trace
            else:
                num_left += 1

    shard = seal(wanted(), directory)
    _say(num_sealed, shard)
    if num_left:
        say(f"{count(num_left, 'trace')} unfinished and left out. Add --all for them.")


def _say(num_sealed: int, shard: Path) -> None:
    size = sum(path.stat().st_size for path in shard.iterdir())
    say(f"Sealed {count(num_sealed, 'trace')} into {shard} ({size / 1e6:,.2f} MB).")

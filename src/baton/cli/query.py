"""`baton query`: SQL over traces, with DuckDB.

The tables traces, events, edges, calls, payloads, rewards, credits and charges are views of all shards in
a directory; a store or a file of traces is loaded into memory instead. A query can only read them:
no other file, no network, nothing but SELECT.
"""

from __future__ import annotations

import argparse
import csv
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from baton.cli.printing import remark
from baton.errors import MissingExtraError, UsageError
from baton.trace.formats.recognition import detect, kept_in, stores_in
from baton.view.terminal.screen import take_every_character
from baton.view.text import printable

if TYPE_CHECKING:
    import duckdb


_TABLES = ("traces", "events", "edges", "calls", "payloads", "rewards", "credits", "charges")
_LIST_COLUMNS = """
SELECT table_name AS "table", column_name AS "column", data_type AS "type" FROM duckdb_columns()
WHERE NOT internal ORDER BY table_oid, column_index
"""
_SCREEN_ROWS = 100
_LOAD_ROWS = 1 << 16
_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=str).encode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="DIR", help="a directory of sealed traces, or any file of traces")
    parser.add_argument(
        "sql",
        metavar="SQL",
        nargs="?",
        help=f"a SELECT over {', '.join(_TABLES)}; without it, their columns are listed",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="a JSON array of objects")
    form.add_argument("--csv", action="store_true", help="comma-separated values")
    parser.add_argument("--limit", metavar="N", type=_count, help="print at most N rows")
    parser.epilog = 'Columns named like SQL words want quotes: SELECT "from", "to" FROM events'


def run(args: argparse.Namespace) -> int:
    connection = _connect(Path(args.path))
    names, rows = _execute(connection, args.sql or _LIST_COLUMNS)
    screen = sys.stdout.isatty() and not (args.json or args.csv)
    limit = args.limit if args.limit is not None else _SCREEN_ROWS if screen else None
    shown = islice(rows, limit)
    show: Callable[[Sequence[str], Iterator[tuple[Any, ...]]], None]
    show = _show_json if args.json else _show_csv if args.csv else _show_table if screen else _show_tsv
    take_every_character(data=args.json or args.csv)
    show(names, shown)
    if args.limit is None and next(rows, None) is not None:
        remark(f"There are more than these {limit:,} rows. Add --limit N for more.")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of rows, got {text!r}")
    return int(text)


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    """A database in memory that holds the tables, locked in."""
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("baton query", "query") from None
    connection = duckdb.connect()
    files: list[str] = []
    if _is_sealed(path):
        files = _view_shards(connection, path)
    else:
        _load(connection, path)
    paths = ", ".join(map(_quoted, files))
    connection.execute(f"SET allowed_paths = [{paths}]")
    # Spilling to disk would be a write, and an extension is fetched from the network.
    for setting in (
        "temp_directory = ''",
        "autoinstall_known_extensions = false",
        "enable_external_access = false",
    ):
        connection.execute(f"SET {setting}")
    connection.execute("SET lock_configuration = true")
    return connection


def _is_sealed(path: Path) -> bool:
    """Whether shards hold all of it: a store may stand beside them with nothing left in it."""
    from baton.trace.formats.parquet.manifest import has_shards
    from baton.trace.formats.sqlite.store_read import list_traces

    kind = detect(kept_in(path))
    return kind == "parquet" or (
        kind == "sqlite" and has_shards(path) and not any(map(list_traces, stores_in(path)))
    )


def _view_shards(connection: duckdb.DuckDBPyConnection, path: Path) -> list[str]:
    from baton.trace.formats.parquet.manifest import shards, verify_shard
    from baton.trace.formats.parquet.shard_columns import to_arrow

    folders = [shard.resolve() for shard in shards(path)]
    # Half a second per 200 MB, but without it one flipped bit in eight changes the answer unnoticed.
    for shard in folders:
        verify_shard(shard)
    files: list[str] = []
    for table in _TABLES:
        own = [str(place) for shard in folders if (place := shard / f"{table}.parquet").exists()]
        if not own:  # all of them were sealed before there were such records
            connection.register("none", to_arrow(table, []))
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM none")
            connection.unregister("none")
            continue
        names = ", ".join(map(_quoted, own))
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * FROM read_parquet([{names}], union_by_name = true)"
        )
        files += own
    return files


def _load(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    from baton.trace.formats import read_all
    from baton.trace.formats.parquet.shard_columns import records_by_kind, to_arrow

    pending: dict[str, list[tuple[str, Any]]] = {table: [] for table in _TABLES}

    def flush(table: str, statement: str) -> None:
        connection.register("incoming", to_arrow(table, pending[table]))
        connection.execute(f"{statement} SELECT * FROM incoming")
        connection.unregister("incoming")
        pending[table].clear()

    for table in _TABLES:
        flush(table, f"CREATE TABLE {table} AS")
    for trace in read_all(path):
        for table, records in records_by_kind(trace).items():
            pending[table] += [(trace.trace_id, record) for record in records]
            if len(pending[table]) >= _LOAD_ROWS:
                flush(table, f"INSERT INTO {table}")
    for table in _TABLES:
        flush(table, f"INSERT INTO {table}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _execute(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    import duckdb

    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or not str(statements[0].type).endswith("SELECT"):
            raise UsageError("a query is one SELECT; it cannot change, attach or write anything.")
        cursor = connection.execute(statements[0])
        names = [column[0] for column in cursor.description]
    except duckdb.Error as error:
        raise UsageError(_plain_error(error)) from None
    return names, _fetch(cursor)


def _fetch(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    import duckdb

    try:
        while rows := cursor.fetchmany(1000):
            yield from rows
    except duckdb.Error as error:
        raise UsageError(_plain_error(error)) from None


def _plain_error(error: Exception) -> str:
    """DuckDB's first paragraph on one line. It names the nearest table or column where there is one."""
    message = " ".join(str(error).split("\n\n")[0].split())
    if message.startswith("Catalog Error: Table") and "Did you mean" not in message:
        message += f" Tables: {', '.join(_TABLES)}."
    return printable(message)


def _cell(value: Any) -> str:
    """One line of printable text; empty for NULL."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, bool | list | dict):
        return printable(_encode(value).decode())
    return str(value)


def _show_tsv(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    print("\t".join(map(printable, names)))
    for row in rows:
        print("\t".join(map(_cell, row)))


def _show_csv(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(names)
    for row in rows:
        out.writerow(value if isinstance(value, str) else _cell(value) for value in row)


def _show_json(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    before = "[\n"
    for row in rows:
        sys.stdout.write(before + _encode(dict(zip(names, row, strict=True))).decode())
        before = ",\n"
    print("[]" if before == "[\n" else "\n]")


def _show_table(names: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    kept = list(rows)
    table = Table(box=SIMPLE_HEAD)
    for index, name in enumerate(names):
        numeric = all(isinstance(row[index], int | float | None) for row in kept)
        table.add_column(Text(printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in kept:
        table.add_row(*(Text(_cell(value)) for value in row))
    Console().print(table)

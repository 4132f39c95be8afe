from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from msgspec import structs
from sample_traces import event, whole_trace

from baton.cli import main
from baton.installed import install_hint
from baton.trace.formats import write
from baton.trace.formats.parquet.shard_write import seal

TABLES = ["traces", "events", "edges", "calls", "payloads", "rewards", "credits", "charges"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("it's sealed")
    seal([whole_trace("a"), whole_trace("b")], folder)
    seal([whole_trace("c")], folder)
    return folder


def rows(capsys: Captured, path: Path, sql: str, *options: str) -> list[dict[str, object]]:
    assert main(["query", str(path), sql, "--json", *options]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_every_table_spans_all_shards(sealed: Path, capsys: Captured) -> None:
    for table in TABLES:
        found = rows(capsys, sealed, f"SELECT count(DISTINCT trace_id) AS n FROM {table}")
        assert found == [{"n": 3}]


def test_joins_lists_and_json(sealed: Path, capsys: Captured) -> None:
    sql = """
        SELECT e.trace_id, e.options[e.choice + 1] AS chosen, e.option_propensities AS p,
               p.text[:5] AS said, CAST(t.costs->>'tokens' AS INT) AS tokens
        FROM events e JOIN payloads p ON p.trace_id = e.trace_id AND p.ref = e.content_ref
        JOIN traces t ON t.trace_id = e.trace_id ORDER BY 1
    """
    expected = {"trace_id": "a", "chosen": "b", "p": [0.25, 0.75], "said": "found", "tokens": 12}
    assert rows(capsys, sealed, sql)[0] == expected


def test_stores_and_lines_answer_alike(sealed: Path, tmp_path: Path, capsys: Captured) -> None:
    traces = [whole_trace(name) for name in "abc"]
    write(traces, tmp_path / "t.jsonl")
    write(traces, tmp_path / "t.db")
    for table in TABLES:
        sql = f"SELECT * FROM {table} ORDER BY ALL"
        there = rows(capsys, sealed, sql)
        assert rows(capsys, tmp_path / "t.jsonl", sql) == there
        assert rows(capsys, tmp_path / "t.db", sql) == there


def test_plain_when_piped(sealed: Path, capsys: Captured) -> None:
    assert (
        main(["query", str(sealed), "SELECT 'x\ty' AS a, NULL AS b, [1] AS c, true AS d, 'p'::BLOB AS e"])
        == 0
    )
    assert capsys.readouterr().out == "a\tb\tc\td\te\nx\\ty\t\t[1]\ttrue\tcA==\n"


def test_csv_and_limit(sealed: Path, capsys: Captured) -> None:
    sql = "SELECT trace_id, 'a,\"b\nc' AS text FROM traces ORDER BY 1"
    assert main(["query", str(sealed), sql, "--csv", "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert list(csv.reader(io.StringIO(out))) == [["trace_id", "text"], ["a", 'a,"b\nc'], ["b", 'a,"b\nc']]
    assert rows(capsys, sealed, "SELECT * FROM traces", "--limit", "0") == []


def test_a_table_on_a_terminal(sealed: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["query", str(sealed), "SELECT range AS n, '[red]\x1b[2J' AS s FROM range(150)"]) == 0
    out, err = capsys.readouterr()
    assert "99" in out
    assert "100" not in out
    assert "[red]" in out
    assert "\x1b[2J" not in out
    assert "more than these 100 rows" in err


def test_without_sql_the_columns_are_listed(sealed: Path, capsys: Captured) -> None:
    assert main(["query", str(sealed)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert list(dict.fromkeys(line.split("\t")[0] for line in lines[1:])) == TABLES
    assert "calls\tcompletion_ids\tINTEGER[]" in lines


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT * FROM event", 'Did you mean "events"'),
        ("SELECT * FROM zzzzzz", "traces"),
        ("SELECT agnt FROM events", '"agent"'),
        ("SELEC 1", "syntax error"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("SELECT CAST('x' AS INT)", "Conversion Error"),
        (";", "one SELECT"),
    ],
)
def test_mistakes_are_one_line(sealed: Path, capsys: Captured, sql: str, words: str) -> None:
    assert main(["query", str(sealed), sql]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_query_reads_these_tables_and_nothing_else(
    sealed: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    shard = next(sealed.glob("shard-*"))
    own = str(shard / "events.parquet").replace("'", "''")
    before = {path: path.read_bytes() for path in sealed.rglob("*") if path.is_file()}
    for sql in (
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM glob('{tmp_path}/*')",
        "SELECT * FROM 'https://example.com/x.parquet'",
        "COPY (SELECT 1) TO 'out.csv'",
        f"COPY (SELECT 1 AS x) TO '{own}'",
        "SELECT * FROM query('COPY (SELECT 1) TO ''out.csv''')",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'out.csv'",
        "ATTACH 'out.db'",
        "EXPORT DATABASE 'out'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW events",
    ):
        assert main(["query", str(sealed), sql]) == 2, sql
        assert capsys.readouterr().err.startswith("baton query: ")
    assert list(tmp_path.iterdir()) == [secret]
    assert before == {path: path.read_bytes() for path in sealed.rglob("*") if path.is_file()}


def test_damage_and_absence_are_said(tmp_path: Path, capsys: Captured) -> None:
    shard = seal([whole_trace()], tmp_path / "out")
    (shard / "edges.parquet").unlink()
    assert main(["query", str(tmp_path / "out"), "SELECT 1"]) == 2
    assert "edges.parquet is missing" in capsys.readouterr().err
    shard = seal([whole_trace()], tmp_path / "flipped")
    content = bytearray((shard / "events.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (shard / "events.parquet").write_bytes(content)
    assert main(["query", str(tmp_path / "flipped"), "SELECT 1"]) == 2
    assert "events.parquet was altered" in capsys.readouterr().err
    assert main(["query", str(tmp_path / "nowhere"), "SELECT 1"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_without_duckdb_it_says_what_to_install(
    sealed: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["query", str(sealed), "SELECT 1"]) == 2
    assert install_hint("query") in capsys.readouterr().err


def test_many_events_load_in_parts(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton.cli.query._LOAD_ROWS", 10)
    trace = structs.replace(whole_trace(), events=tuple(event(seq) for seq in range(35)))
    write([trace], tmp_path / "t.jsonl")
    found = rows(capsys, tmp_path / "t.jsonl", "SELECT count(*) AS n, sum(seq) AS s FROM events")
    assert found == [{"n": 35, "s": 595}]

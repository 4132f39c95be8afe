"""All traces of all places in one table: read once, kept up to date, exported, labelled, and searched."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from starlette.testclient import TestClient
from viewer_runs import hostile, run_team, training_run

from baton.cli.view import attached
from baton.errors import FormatError
from baton.measure.prices import Price, PriceTable
from baton.trace import Trace, read, write
from baton.trace.formats import read_all
from baton.trace.formats.jsonl import read_bytes
from baton.trace.formats.parquet.sealing import seal_store
from baton.trace.formats.sqlite.store import write_store
from baton.trace.notes import Notebook
from baton.trace.outcome import team_return
from baton.view.index import line as line_module
from baton.view.web import traces as traces_module
from baton.view.web.server import make_app
from baton.view.web.traces import Library

Page = TestClient


def client(*paths: Path, cache: Path | None = None, prices: PriceTable | None = None) -> Page:
    app = make_app(Library(paths, cache=cache), attached(prices=prices, forks=True))
    return TestClient(app, base_url="http://127.0.0.1:8321")


def ask(page: Page, name: str, **query: object) -> Any:
    return page.get(f"/api/{name}", params={key: str(value) for key, value in query.items()}).json()


def post(page: Page, name: str, **query: str) -> Any:
    headers = {"origin": "http://127.0.0.1:8321", "x-baton-token": ask(page, "setup")["token"]}
    return page.post(f"/api/{name}", params=query, headers=headers).json()


def table(page: Page, **query: object) -> dict[str, Any]:
    """The table when all has been read."""
    for _ in range(2000):
        found = ask(page, "table", **query)
        if "error" in found or found["progress"]["complete"]:
            return dict(found)
        time.sleep(0.02)
    raise AssertionError("the table is never complete")


def searched(page: Page, words: str, **query: object) -> dict[str, Any]:
    for _ in range(2000):
        found = ask(page, "search", words=words, **query)
        if "error" in found or found["done"]:
            return dict(found)
        time.sleep(0.02)
    raise AssertionError("the search never ends")


def named(trace: Trace, name: str) -> Trace:
    rewards = tuple(
        structs.replace(one, target=name) if one.target == trace.trace_id else one for one in trace.rewards
    )
    return structs.replace(trace, header=structs.replace(trace.header, trace_id=name), rewards=rewards)


@pytest.fixture(scope="module")
def team() -> Trace:
    return run_team("shard-sum", "hierarchical", 3)


@pytest.fixture(scope="module")
def game() -> Trace:
    return run_team("game:parallel-pandora", "centralized", 2001, "random")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, team: Trace, game: Trace) -> Path:
    """Traces in a file, a store, shards, a training run and a damaged file."""
    folder = tmp_path_factory.mktemp("made") / "runs"
    folder.mkdir()
    write([team, named(team, "Ünïcode 名前")], folder / "teams.jsonl")
    (folder / "live").mkdir()
    write_store([game], folder / "live" / "run.db")
    write([named(team, "sealed")], f"{folder / 'shards'}/")
    training_run(folder / "trained", steps=2, episodes=2)
    hostile(folder / "hostile.jsonl")
    (folder / "broken.jsonl").write_bytes((folder / "teams.jsonl").read_bytes()[:3000] + b"\xff{]\n{}\n")
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


class TestLines:
    def test_of_every_place_in_one_table(self, runs: Path, game: Trace) -> None:
        found = table(client(runs), sort="place,trace")
        assert found["total"] == found["of"] == len(found["rows"]) == 2 + 1 + 1 + 8 + 1
        assert {row["place"] for row in found["rows"]} == {
            f"runs/{name}" for name in ("teams.jsonl", "live", "shards", "trained", "hostile.jsonl")
        }
        (row,) = [row for row in found["rows"] if row["id"] == game.trace_id]
        assert row["reward"] == pytest.approx(team_return(game))
        assert row["regret"] > 0
        assert (row["stop"], row["finished"], row["read"], row["price"]) == ("stopped", True, True, None)
        assert row["changed"] == pytest.approx((runs / "live" / "run.db").stat().st_mtime)
        (problem,) = found["progress"]["problems"]
        assert problem["place"] == "runs/broken.jsonl"
        assert "broken.jsonl" in problem["why"]

    def test_windows_are_parts_of_one_order(self, runs: Path) -> None:
        page = client(runs)
        whole = table(page, sort="-events,trace")["rows"]
        parts = [table(page, sort="-events,trace", **{"from": at}, rows=3)["rows"] for at in range(0, 15, 3)]
        assert [row for part in parts for row in part] == whole
        assert [row["events"] for row in whole] == sorted((row["events"] for row in whole), reverse=True)
        assert table(page, rows=100_000)["rows"] == table(page)["rows"]
        assert table(page, **{"from": 99})["rows"] == []

    def test_ticked_traces_stand_in_the_order_in_which_they_were_ticked(self, runs: Path) -> None:
        page = client(runs)
        pairs = [[row["place"], row["id"]] for row in table(page, sort="trace")["rows"]][::-2]
        whole = table(page, picks=json.dumps(pairs))["rows"]
        assert [[row["place"], row["id"]] for row in whole] == pairs
        part = table(page, picks=json.dumps(pairs), rows=2, **{"from": 1})["rows"]
        assert part == whole[1:3]

    def test_one_place_alone_says_how_far_it_is_and_what_is_wrong_with_it(self, runs: Path) -> None:
        page = client(runs)
        found = table(page, q="reward>0.5", place="runs/trained")
        assert (found["of"], found["progress"]["places"]) == (8, 1)
        assert found["progress"]["problems"] == []
        (problem,) = table(page, place="runs/broken.jsonl")["progress"]["problems"]
        assert problem["place"] == "runs/broken.jsonl"
        assert "there is no place" in table(page, place="runs/none")["error"]

    def test_mistakes_are_one_line(self, runs: Path) -> None:
        page = client(runs)
        for query in ({"q": "rewrd>1"}, {"sort": "-x"}, {"from": "-1"}, {"picks": "[1]"}):
            told = table(page, **query)["error"]
            assert "\n" not in told
        assert "no column" in ask(page, "figures", by="x")["error"]
        assert "export as" in ask(page, "export", **{"as": "xls"})["error"]

    def test_a_price_is_in_the_table_where_one_is_known(self, runs: Path, team: Trace) -> None:
        prices = PriceTable(models={"*": Price(prompt=1.0, completion=2.0)})
        row = table(client(runs, prices=prices), q="trace=sealed")["rows"][0]
        called = [(call.prompt_tokens or 0) + 2 * (call.completion_tokens or 0) for call in team.calls]
        assert row["price"] == pytest.approx(sum(called) / 1e6)

    def test_what_stands_in_the_columns(self, runs: Path) -> None:
        page = client(runs)
        table(page)
        columns = ask(page, "values", q="is:finished")["columns"]
        assert ["hierarchical", 3] in columns["topology"]["values"]
        assert columns["place"]["kinds"] == 5
        groups = ask(page, "figures", q="topology=hierarchical", by="place")["groups"]
        assert {group["value"]: group["traces"] for group in groups} == {
            "runs/teams.jsonl": 2,
            "runs/shards": 1,
        }


class TestLive:
    def test_a_file_that_grows_and_one_that_goes(self, runs: Path, team: Trace) -> None:
        page = client(runs)
        before = table(page)["total"]
        write([team, named(team, "new")], runs / "teams.jsonl")  # one stays, one goes, one comes
        (runs / "hostile.jsonl").unlink()
        write_store([named(team, "also new")], runs / "live" / "run.db")
        for _ in range(2000):
            names = {row["id"] for row in table(page)["rows"]}
            if names >= {"new", "also new"} and "Ünïcode 名前" not in names and len(names) == before:
                return
            time.sleep(0.02)
        raise AssertionError(names)

    def test_a_store_that_is_sealed_loses_no_line(self, tmp_path: Path, team: Trace) -> None:
        write_store([team], tmp_path / "run.db")
        page = client(tmp_path)
        assert table(page)["total"] == 1
        seal_store(tmp_path / "run.db", tmp_path)
        write_store([named(team, "two")], tmp_path / "run.db")
        for _ in range(2000):
            if {row["id"] for row in table(page)["rows"]} == {team.trace_id, "two"}:
                return
            time.sleep(0.02)
        raise AssertionError("a line was lost")

    def test_a_fork_is_in_the_table(self, tmp_path: Path, team: Trace) -> None:
        write(team, tmp_path / "team.jsonl")
        page = client(tmp_path / "team.jsonl")
        headers = {"origin": "http://127.0.0.1:8321", "x-baton-token": ask(page, "setup")["token"]}
        change = {"at": "lead1.worker1#2", "do": "replace", "text": "0"}
        where = {"place": "team.jsonl", "id": team.trace_id}
        made = page.post("/api/fork", params=where, headers=headers, json=change).json()
        (row,) = table(page, q="is:fork")["rows"]
        assert (row["id"], row["forked_from"]) == (made["id"], team.trace_id)
        assert searched(page, "sum the numbers", q="is:fork")["found"] == 1


class TestCache:
    def count_reads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        read: list[str] = []
        usual = line_module.line_of

        def counted(trace: Trace, *given: Any) -> Any:
            read.append(trace.trace_id)
            return usual(trace, *given)

        monkeypatch.setattr(traces_module, "line_of", counted)
        return read

    def test_what_was_read_is_not_read_again(
        self, runs: Path, tmp_path: Path, team: Trace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = self.count_reads(monkeypatch)
        cache = tmp_path / "cache" / "view"
        first = table(client(runs, cache=cache), sort="place,trace")["rows"]
        assert len(read) == len(first) + 0
        read.clear()
        assert table(client(runs, cache=cache), sort="place,trace")["rows"] == first
        assert read == []
        write_store([named(team, "new")], runs / "live" / "run.db")
        assert table(client(runs, cache=cache))["total"] == len(first) + 1
        assert read == ["new"]
        (file,) = cache.glob("*.db")
        assert file.stat().st_mode & 0o77 == cache.stat().st_mode & 0o77 == 0, "others may look into it"
        assert b"sum the numbers" not in b"".join(each.read_bytes() for each in cache.iterdir())

    def test_a_cache_that_cannot_be_used_is_done_without(self, runs: Path, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        table(client(runs, cache=cache))
        (file,) = cache.glob("*.db")
        for end in ("-wal", "-shm"):
            file.with_name(file.name + end).unlink(missing_ok=True)
        file.write_bytes(b"SQLite format 3\0 and then nothing of it" * 100)
        assert table(client(runs, cache=cache))["total"] == 13
        (tmp_path / "no folder").write_text("")
        assert table(client(runs, cache=tmp_path / "no folder"))["total"] == 13

    def test_old_ones_are_taken_away(self, runs: Path, tmp_path: Path) -> None:
        cache = tmp_path / "cache"
        cache.mkdir()
        (cache / "old.db").write_bytes(b"")
        os.utime(cache / "old.db", (0, 0))
        table(client(runs, cache=cache))
        assert not (cache / "old.db").exists()


class TestSelections:
    def test_as_a_spreadsheet(self, runs: Path) -> None:
        reply = client(runs).get("/api/export", params={"as": "csv", "q": "", "sort": "trace"})
        page = client(runs)
        rows = table(page, sort="trace")["rows"]
        reply = page.get("/api/export", params={"as": "csv", "sort": "trace"})
        assert 'filename="traces.csv"' in reply.headers["content-disposition"]
        told = list(csv.DictReader(io.StringIO(reply.text)))
        assert [each["trace"] for each in told] == [row["id"] for row in rows]
        assert {each["price"] for each in told} == {""}

    def test_words_of_strangers_are_no_formula(self, tmp_path: Path, team: Trace) -> None:
        write(named(team, "=cmd|' /C calc'!A0"), tmp_path / "t.jsonl")
        page = client(tmp_path / "t.jsonl")
        table(page)
        assert "\n=cmd" not in page.get("/api/export", params={"as": "csv"}).text.replace(",=", "\n=")

    def test_as_traces(self, runs: Path, game: Trace) -> None:
        page = client(runs)
        table(page)
        picks = json.dumps([["runs/live", game.trace_id], ["runs/shards", "sealed"], ["runs/live", "nobody"]])
        reply = page.get("/api/export", params={"as": "jsonl", "picks": picks})
        found = {trace.trace_id: trace for trace in read_bytes(reply.content)}
        assert found == {game.trace_id: game, "sealed": next(read_all(runs / "shards"))}

    @pytest.mark.parametrize("damage", ["cut", "gone", "other bytes", "a folder"])
    def test_of_what_cannot_be_read_it_ends_in_one_line(self, runs: Path, damage: str) -> None:
        page = client(runs)
        table(page)
        picks = json.dumps([["runs/shards", "sealed"], ["runs/teams.jsonl", "Ünïcode 名前"]])
        file = runs / "teams.jsonl"
        if damage == "cut":
            file.write_bytes(file.read_bytes()[:3000] + b"\n")
        else:
            file.unlink()
        if damage == "other bytes":
            file.write_bytes(b"\xff\xfe\x00")
        if damage == "a folder":
            file.mkdir()
        reply = page.get("/api/export", params={"as": "jsonl", "sort": "trace", "picks": picks})
        *_, last = reply.content.splitlines()
        said = json.loads(last)["error"]
        assert said.startswith("runs/teams.jsonl: ")
        assert "\n" not in said
        assert "The export ends here, with " in said
        assert reply.content.endswith(b"\n")  # a line cut short would be taken for one still being written
        with pytest.raises(FormatError, match="is not a record of a trace"):
            list(read_bytes(reply.content))

    def test_many_are_labelled_at_once(self, runs: Path, team: Trace) -> None:
        page = client(runs)
        table(page)
        assert post(page, "label", q="topology=hierarchical", label="look at") == {"labelled": 3, "had_it": 0}
        for _ in range(2000):
            if (found := table(page, q='label="look at"'))["total"] == 3:
                break
            time.sleep(0.02)
        assert {row["labels"][0] for row in found["rows"]} == {"look at"}
        assert post(page, "label", q="topology=hierarchical", label="look at") == {"labelled": 0, "had_it": 3}
        assert {note.trace for note in Notebook(runs / "teams.jsonl").all()} == {
            team.trace_id,
            "Ünïcode 名前",
        }


class TestSearch:
    def test_in_all_traces(self, runs: Path) -> None:
        page = client(runs)
        table(page)
        found = searched(page, "SUM  the\nnumbers")
        assert (found["read"] + found["ruled_out"], found["total"]) == (13, 13)
        assert found["read"] < 13
        assert {row["id"] for row in found["rows"]} == {"shard-sum-hierarchical-3", "Ünïcode 名前", "sealed"}
        assert found["times"] == sum(row["times"] for row in found["rows"])
        where, (_, words, _) = found["rows"][0]["excerpts"][0]
        assert where in ("said", "prompt", "answer")
        assert words.lower() == "sum the numbers"
        assert searched(page, "sum the numbers", q="topology=swarm")["total"] == 0
        assert searched(page, "no such words")["found"] == 0
        assert "characters" in ask(page, "search", words="  ")["error"]

    def test_what_cannot_be_read_is_counted(self, runs: Path) -> None:
        page = client(runs)
        table(page)
        for path in (runs / "live").glob("run.db*"):
            path.unlink()
        found = searched(page, "sum the numbers")
        assert found["unread"] == 1
        assert found["problems"][0][0] == "runs/live"
        assert found["read"] + found["ruled_out"] == 12

    def test_in_one_trace(self, runs: Path, team: Trace) -> None:
        page = client(runs)
        found = ask(page, "find", place="runs/teams.jsonl", id=team.trace_id, words="shards")["hits"]
        independently = [
            row
            for row, event in enumerate(team.events)
            if "shards" in (team.text(event.content_ref) or "").lower()
        ]
        assert [hit["at"] for hit in found if hit["where"] == "said"] == independently
        assert {hit["where"] for hit in found} >= {"said", "prompt"}
        odd = ask(
            page, "find", place="runs/hostile.jsonl", id=read(runs / "hostile.jsonl").trace_id, words="[31m"
        )
        assert odd["hits"][0]["excerpt"][1] == "[31m"

"""The index of words: it rules traces out of a search, and never one in which the words stand."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from starlette.testclient import TestClient
from strategies import arbitrary_traces
from viewer_runs import hostile, run_team

from baton.cli.view import attached
from baton.errors import UsageError
from baton.trace import Trace, write
from baton.trace.formats.parquet.sealing import seal_store
from baton.trace.formats.sqlite.store import write_store
from baton.trace.recorder import Recorder
from baton.view.index import words as words_module
from baton.view.index.line import line_of
from baton.view.index.matching import hits_in, matcher
from baton.view.index.table import KnownLine, TraceIndex
from baton.view.index.words import WordTable, folded, words_of
from baton.view.web.server import make_app
from baton.view.web.traces import Library

LETTERS = [chr(code) for code in range(sys.maxunicode + 1)]
CASED = [
    letter for letter in LETTERS if letter != letter.casefold() or letter != letter.upper() or letter == "ı"
]
ODD = "aAbsSſßẞiIıİkKKσςΣµμﬅﬆΐΐ \t\n\u2028\u00a0\0\ud800\ufffe\ufffd\U0001f600\"'*-ˮ"


def saying(name: str, *texts: str) -> Trace:
    with Recorder(None, task_id="t", trace_id=name) as team:
        lead = team.agent("lead")
        for k, text in enumerate(texts):
            lead.spawn(f"w{k}", task=text)
        lead.stop("done")
    return team.trace()


def client(*paths: Path, cache: Path | None = None) -> TestClient:
    app = make_app(Library(paths, cache=cache), attached(forks=True))
    return TestClient(app, base_url="http://127.0.0.1:8321")


def ask(page: TestClient, name: str, **query: object) -> Any:
    return page.get(f"/api/{name}", params={key: str(value) for key, value in query.items()}).json()


def complete(page: TestClient) -> TestClient:
    for _ in range(2000):
        if ask(page, "table")["progress"]["complete"]:
            return page
        time.sleep(0.02)
    raise AssertionError("the table is never complete")


def searched(page: TestClient, words: str, **query: object) -> dict[str, Any]:
    for _ in range(2000):
        found = ask(page, "search", words=words, **query)
        query.pop("again", None)
        if "error" in found or found["done"]:
            return dict(found)
        time.sleep(0.02)
    raise AssertionError("the search never ends")


def test_what_reading_takes_for_one_letter_is_folded_into_one() -> None:
    every = "".join(CASED)
    for letter in CASED:
        same = {folded(one) for one in re.findall(re.escape(letter), every, re.IGNORECASE)}
        assert len(same) == 1, (letter, same)


def test_a_gap_stays_a_gap() -> None:
    for letter in LETTERS:
        if letter.isspace():
            assert folded(f"a{letter}{letter}b") == "a b"
        else:
            assert " " not in folded(letter)


@given(
    st.lists(st.lists(st.text(st.sampled_from(ODD) | st.characters(), max_size=12), max_size=3), max_size=5),
    st.data(),
)
def test_a_trace_with_the_words_is_never_ruled_out(given_texts: list[list[str]], data: st.DataObject) -> None:
    texts = [[text.encode("utf-8", "replace").decode() for text in each] for each in given_texts]
    traces = [saying(f"t{k}", *each) for k, each in enumerate(texts)]
    index = TraceIndex()
    index.begin("p", "/p")
    index.put("p", [KnownLine("f", "s", line_of(trace), None, words_of(trace)) for trace in traces])
    everything = " ".join(text for each in texts for text in each)
    for _ in range(4):
        at = data.draw(st.integers(0, max(0, len(everything) - 1)))
        words = everything[at : at + data.draw(st.integers(1, 9))]
        words = data.draw(st.sampled_from([words, words.upper(), words.lower(), words.replace(" ", "\n ")]))
        try:
            pattern = matcher(words)
        except UsageError:
            continue
        left, unsaid = index.may_say(words, range(1, len(traces) + 1))
        assert {k + 1 for k, trace in enumerate(traces) if hits_in(trace, pattern)} <= set(left)
        assert unsaid in (0, len(traces))


@given(st.lists(arbitrary_traces(max_events=3), min_size=1, max_size=4), st.data())
def test_any_trace_at_all(traces: list[Trace], data: st.DataObject) -> None:
    named = [
        structs.replace(trace, header=structs.replace(trace.header, trace_id=f"t{k}"))
        for k, trace in enumerate(traces)
    ]
    index = TraceIndex()
    index.begin("p", "/p")
    index.put("p", [KnownLine("f", "s", line_of(trace), None, words_of(trace)) for trace in named])
    words = data.draw(st.text(st.sampled_from('abc "[{:t0'), min_size=1, max_size=5))
    if words.split():
        left, _ = index.may_say(words, range(1, len(named) + 1))
        hit = {k + 1 for k, trace in enumerate(named) if hits_in(trace, matcher(words))}
        assert hit <= set(left)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, a store and shards."""
    runs = tmp_path_factory.mktemp("words") / "runs"
    for folder in (runs, runs / "many", runs / "shards"):
        folder.mkdir()
    team = run_team("shard-sum", "hierarchical", 3)
    write(
        [team, saying("plain", "Straße  nach\nKöln"), run_team("shard-sum", "debate", 1)],
        runs / "teams.jsonl",
    )
    hostile(runs / "hostile.jsonl")
    write([saying("twice", "first words"), saying("twice", "second words")], runs / "twice.jsonl")
    write_store([saying(f"stored-{k}", f"number {k}") for k in range(9)], runs / "many" / "run.db")
    write_store([saying("sealed", "under a seal")], runs / "shards" / "run.db")
    seal_store(runs / "shards" / "run.db", runs / "shards")
    (runs / "shards" / "run.db").unlink()
    begun = structs.replace(saying("begun", "goes on"), finished=False, costs={}, metrics={})
    write(begun, runs / "begun.jsonl")
    return runs


WORDS = [
    "STRASSE nach köln", "straße", "number 7", "number", "first words", "second words", "words", "goes on", "seal",
    "script", "<img src", "sum the numbers", "nowhere to be found", "a", "no", "  under \n a  seal ", "done", "A" * 400,
    '"*', "NEAR", "text:", "lead",
]  # fmt: skip


def test_a_search_finds_what_reading_finds(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = complete(client(kept))
    found = {words: searched(page, words) for words in WORDS}
    monkeypatch.setattr(WordTable, "works", property(lambda _: False, lambda *_: None), raising=False)
    reading = complete(client(kept))
    for words, one in found.items():
        other = searched(reading, words)
        assert other["ruled_out"] == 0
        for name in ("rows", "found", "times", "total", "unread"):
            assert one[name] == other[name], (words, name)
    assert found["number 7"]["ruled_out"] > found["number 7"]["read"]


def test_what_changed_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(saying("t", "the old word"), path)
    page = complete(client(tmp_path))
    assert searched(page, "old word")["found"] == 1
    assert searched(page, "another word")["found"] == 0
    write(saying("t", "another word"), path)
    assert searched(page, "another word", again=1)["found"] == 1
    assert searched(page, "old word", again=1)["found"] == 0


@pytest.mark.parametrize("how", ["full", "long", "without"])
def test_what_is_in_no_index_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "full":
        monkeypatch.setattr(words_module, "MOST_BYTES", 0)
    elif how == "long":
        monkeypatch.setattr(words_module, "_MOST_CHARACTERS", 5)
    else:
        monkeypatch.setattr(words_module, "_CREATE", "CREATE VIRTUAL TABLE words USING fts9(said)")
    write([saying(f"t{k}", f"number {k}") for k in range(4)], tmp_path / "t.jsonl")
    found = searched(complete(client(tmp_path)), "number 2")
    assert (found["found"], found["read"], found["unsaid"]) == (1, 4, 4)


def test_nothing_that_was_said_is_kept(tmp_path: Path) -> None:
    write([saying(f"t{k}", f"an unmistakable sentence {k}") for k in range(30)], tmp_path / "runs.jsonl")
    complete(client(tmp_path / "runs.jsonl", cache=tmp_path / "cache"))
    found = b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())
    assert b"runs.jsonl" in found
    for words in (b"unmist", b"sentence", b"an unm"):
        assert words not in found


def test_what_is_gone_goes_at_the_next_opening(tmp_path: Path) -> None:
    path, index = tmp_path / "t.jsonl", tmp_path / "index.db"
    traces = [saying(f"t{k}", f"number {k}") for k in range(8)]
    write(traces, path)
    made = TraceIndex(index)
    made.begin("p", "/p")
    made.put("p", [KnownLine("f", "s", line_of(one), None, words_of(one)) for one in traces])
    made.finish("p", "stamp")
    made.put("p", [KnownLine("f", "s", line_of(one), None, words_of(one)) for one in traces])  # the same
    made.drop("p", ["t1", "t2"])
    made.close()
    again = TraceIndex(index)
    assert again.begin("p", "/p") == "stamp"
    assert again.may_say("number 3", range(1, 9)) == ([4], 0)
    again.drop("p", ["t4"])
    again.close()
    last = TraceIndex(index)
    assert last.begin("p", "/p") == ""  # more than one part in four was of what is gone: all is read anew
    assert {stamp for _, stamp in last.known("p").values()} == {""}
    assert last.may_say("number 3", range(1, 9)) == ([1, 4, 6, 7, 8], 5)


def test_who_was_interrupted_begins_anew(tmp_path: Path) -> None:
    """Also a file that is damaged in its middle: what is wrong with it is told at the next opening too."""
    path = tmp_path / "t.jsonl"
    write([saying(f"t{k}", f"number {k}") for k in range(4)], path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = b"{]\n"
    path.write_bytes(b"".join(lines))
    for _ in range(2):
        page = complete(client(path, cache=tmp_path / "cache"))
        assert len(ask(page, "table")["progress"]["problems"]) == 1


def test_a_search_before_anything_was_read_waits_for_it(tmp_path: Path) -> None:
    write([saying(f"t{k}", f"number {k}") for k in range(300)], tmp_path / "t.jsonl")
    found = searched(client(tmp_path), "number 2")
    assert (found["found"], found["total"]) == (111, 300)

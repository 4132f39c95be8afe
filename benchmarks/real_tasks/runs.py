"""What the folders of runs tell, without a model.

Runs of one recipe and task are seeds of one thing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from baton.errors import UsageError
from baton.learn.run.folder import read_lines
from baton.measure.figure import Figure, mean

__all__ = [
    "ALONE",
    "ARMS",
    "PARTS",
    "Runs",
    "Told",
    "agents",
    "combined",
    "episode_tokens",
    "of_play",
    "read_run",
    "read_runs",
    "reward",
    "success",
]

ALONE = ("reasoning-single", "reasoning-worked")
"""Recipes of one agent."""
PARTS = 3
"""That a search has."""
ARMS = (*(f"fixed-{k}" for k in range(1, PARTS + 1)), "found")
"""Scripted leaders of one."""
Runs = dict[str, list["Told"]]
"""Name -> its seeds."""


class Told(Struct, frozen=True):
    """What a run's folder tells."""

    name: str
    """Recipe and task."""
    seed: int
    about: dict[str, Any]
    steps: list[dict[str, Any]]
    measured: list[dict[str, Any]]

    @property
    def recipe(self) -> str:
        return str(self.about["recipe"])

    @property
    def family(self) -> str:
        return str(self.about["task"]).partition(":")[2]

    @property
    def play(self) -> str:
        """The scripted play that it began with; empty: none."""
        warm = self.about.get("warm") or {}
        return next((str(told["play"]) for told in warm.values() if told is not None), "")

    def line(self, who: str) -> dict[str, Any] | None:
        """What was measured of one arm; None: nothing."""
        return next((line for line in self.measured if line["who"] == who), None)


def read_run(folder: Path) -> Told:
    """Of any run, finished or not."""
    place = folder / "run.json"
    if not place.is_file():
        raise UsageError(
            f"{folder} holds no run. Type: python benchmarks/real_task.py --train reasoning --out {folder}"
            if not any(folder.glob("*/run.json"))
            else f"{folder} holds runs and is none itself. Type: --compare {folder}/*"
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


def read_runs(folders: Sequence[str]) -> Runs:
    """Seeds of one thing together, in the order they were given."""
    runs: Runs = {}
    for folder in folders:
        told = read_run(Path(folder))
        runs.setdefault(told.name, []).append(told)
    return runs


def of_play(runs: Runs, *plays: str) -> Runs:
    """Runs that began with one of these plays; none named: those that began with no play of their own."""
    special = {"either", "search"}
    return {
        name: seeds
        for name, seeds in runs.items()
        if (seeds[0].play in plays if plays else seeds[0].play not in special)
    }


def success(line: dict[str, Any]) -> float:
    """Share of a step's rollouts that were right."""
    return float(line["rewards"]["shared"])


def reward(line: dict[str, Any]) -> float:
    """Mean of what a step's rollouts earned."""
    return float(line["return"]["mean"])


def agents(line: dict[str, Any]) -> float:
    """Spawned agents of one of a step's rollouts."""
    return float(line["sizes"]["agents"]) - 1.0


def episode_tokens(line: dict[str, Any]) -> float:
    """Of one of a step's rollouts."""
    return float(line["rollout_tokens"]) / float(line["episodes"])


_SHARES = ("success", "parsed", "stops_when_found", "goes_on_when_not", "unheard")
_BOUNDS = {**dict.fromkeys(_SHARES, (0.0, 1.0)), "reward": (-math.inf, math.inf)}
"""The others are counts."""


def combined(lines: Sequence[dict[str, Any]], key: str) -> Figure | None:
    """One figure of several seeds with Student's interval over them; of one seed, with its own over instances."""
    found = [line[key] for line in lines if key in line and line[key]["value"] is not None]
    if not found:
        return None
    if len(found) > 1:
        return mean((each["value"] for each in found), _BOUNDS.get(key, (0.0, math.inf)))
    [only] = found
    return Figure(only["value"], only["low"], only["high"], 1)

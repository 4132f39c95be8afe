"""The figures of a training run, read from its folder, for the terminal and the report alike.

Files may be unfinished, older than this version, or altered. Invariant: a figure that is missing or no finite
number is None, "not measured", and never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from baton.view.report.run_files import json_lines, json_object
from baton.view.text import printable

DECISIONS = ("spawn", "delegate", "communicate", "aggregate", "stop")
REGRETS = (*DECISIONS, "invalid")
"""What regret adds up from: the five decisions, and answers that could not be carried out."""

_ORDER = ("untrained", "trained", "best of", "alone", "single agent", "greedy play", "random play", "optimum")
_LABELS = {
    "team": "trained",
    "optimum-within-limits": "optimum within limits",
    "single-agent": "single agent",
    "greedy": "greedy play",
    "random": "random play",
}


class Standing(Struct, frozen=True, kw_only=True):
    """What one way of playing was measured to be worth."""

    who: str
    """As people read it: untrained, trained, best of 4, alone, single agent, optimum."""
    step: int | None
    episodes: int | None
    """None: exact, from the solver."""
    mean: float | None
    half: float | None
    regret: dict[str, float | None]
    """What it lost against the optimum: in all (`total`), by decision, and by invalid answers."""
    tokens: float | None
    """Tokens per episode."""
    invalid: float | None
    """Answers per episode that could not be carried out."""
    failed: float | None
    """Calls per episode that were not answered."""
    one_try: float | None
    """What one of several tries is worth, where the best of them counts."""
    team_tokens: float | None
    """The trained team's, which the tries were to match."""
    why_not: str
    """Why it was not measured, where that is known."""
    costs: dict[str, float | None] = {}
    """Constraint -> its mean cost."""


class TrainingRun(Struct, frozen=True, kw_only=True):
    """A run as its folder tells it."""

    path: Path
    told: dict[str, Any]
    """What run.json says."""
    steps: list[dict[str, Any]]
    """The lines of metrics.jsonl, one for each step."""
    evals: list[dict[str, Any]]
    num_unreadable: int
    """Lines of the run's files that are no JSON objects."""

    def said(self, key: str) -> str:
        """A word of run.json, safe to print; empty where it says nothing."""
        value = self.told.get(key)
        return printable(str(value)) if isinstance(value, str | int) else ""

    @property
    def phases(self) -> list[tuple[str, int]]:
        """Phases that the run gets to, and the first step of each; none where it is one."""
        listed = self.told.get("phases")
        return [
            (printable(str(each.get("name"))), each["first"])
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict) and isinstance(each.get("first"), int)
        ]

    @property
    def num_steps(self) -> int | None:
        """How many steps the run was asked for."""
        value = figure(self.told, "steps")
        return None if value is None else int(value)

    @property
    def optimum(self) -> float | None:
        found = standing(self, "optimum")
        return figure(self.told, "optimum") if found is None or found.mean is None else found.mean

    @property
    def floor(self) -> float | None:
        """What random play is worth: where normalised regret is 1."""
        found = standing(self, "random play")
        return figure(self.told, "floor") if found is None or found.mean is None else found.mean

    def normalised(self, regrets: Sequence[float | None]) -> list[float | None]:
        """Each (V* - V) / (V* - V of random play)."""
        best, floor = self.optimum, self.floor
        if best is None or floor is None or best <= floor:
            return [None] * len(regrets)
        return [None if regret is None else regret / (best - floor) for regret in regrets]

    def series(self, *keys: str) -> list[float | None]:
        """One figure of every step."""
        return [figure(line, *keys) for line in self.steps]

    def names(self, key: str) -> list[str]:
        """What a table of the steps has entries for, in the order of the five decisions and then of first sight."""
        seen = dict.fromkeys(name for line in self.steps for name in _table(line.get(key)))
        return [*(name for name in DECISIONS if name in seen), *(n for n in seen if n not in DECISIONS)]

    def regret_per_choice(self, decision: str) -> list[float | None]:
        """Regret of each step over the choices that were credited in it."""
        counted = zip(
            self.series("regret", decision),
            self.series("episodes"),
            self.series("credit", decision, "num"),
            strict=True,
        )
        return [
            None if regret is None or episodes is None or not num else regret * episodes / num
            for regret, episodes, num in counted
        ]

    def given_up(self) -> list[str]:
        """Decisions that were made at first and did not come up in the last step: their regret is 0 for that reason."""
        counts = {name: self.series("credit", name, "num") for name in DECISIONS}
        return [name for name, nums in counts.items() if any(nums) and not nums[-1]]

    def total(self, key: str) -> float | None:
        """The sum over steps that have it."""
        found = [value for value in self.series(key) if value is not None]
        return math.fsum(found) if found else None

    def warnings(self) -> list[tuple[str, list[int], str]]:
        """Each monitor that spoke: its name, the steps, and what it said last."""
        found: dict[str, tuple[list[int], str]] = {}
        for line in self.steps:
            said = line.get("warnings")
            for each in said if isinstance(said, list) else ():
                name, message = str(_table(each).get("monitor", "")), str(_table(each).get("message", ""))
                steps, _ = found.setdefault(name, ([], ""))
                steps.append(int(figure(line, "step") or 0))
                found[name] = (steps, message)
        return [(name, steps, message) for name, (steps, message) in found.items()]


def read_run(folder: Path) -> TrainingRun:
    """The run in a folder, as far as it is written."""
    steps, bad_steps = json_lines(folder / "metrics.jsonl")
    evals, bad_evals = json_lines(folder / "evals.jsonl")
    return TrainingRun(
        path=folder,
        told=json_object(folder / "run.json"),
        steps=steps,
        evals=evals,
        num_unreadable=bad_steps + bad_evals,
    )


def figure(line: Any, *keys: str) -> float | None:
    """A finite number somewhere in a line, or None."""
    for key in keys:
        line = _table(line).get(key)
    if isinstance(line, bool) or not isinstance(line, int | float) or not math.isfinite(line):
        return None
    return float(line)


def standings(run: TrainingRun) -> list[Standing]:
    """The last measurement of everybody who was measured, from the untrained team to the optimum."""
    last = {_label(line.get("who")): line for line in run.evals}
    found = [_standing(who, line) for who, line in last.items()]
    return sorted(found, key=_rank)


def standing(run: TrainingRun, who: str) -> Standing | None:
    """The last measurement of one of them, by the name people read."""
    return next((each for each in standings(run) if each.who == who), None)


def _standing(who: str, line: Mapping[str, Any]) -> Standing:
    step, episodes = figure(line, "step"), figure(line, "episodes")
    return Standing(
        who=who,
        step=None if step is None else int(step),
        episodes=None if episodes is None else int(episodes),
        mean=figure(line, "return", "mean"),
        half=figure(line, "return", "half"),
        regret={name: figure(line, "regret", name) for name in ("total", *REGRETS)},
        tokens=figure(line, "tokens"),
        invalid=figure(line, "invalid"),
        failed=figure(line, "failed"),
        one_try=figure(line, "one_try"),
        team_tokens=figure(line, "team_tokens"),
        why_not=printable(why) if isinstance(why := line.get("why"), str) else "",
        costs={
            printable(str(name)): figure(each, "mean")
            for name, each in _table(line.get("constraints")).items()
        },
    )


def limits(line: Mapping[str, Any]) -> list[tuple[str, float | None, float | None, float | None]]:
    """Each constraint of a line of metrics or evals: its name, mean cost, limit and price."""
    return [
        (printable(str(name))[:24], figure(each, "mean"), figure(each, "limit"), figure(each, "price"))
        for name, each in _table(line.get("constraints")).items()
    ]


def _label(who: Any) -> str:
    name = str(who)
    if name.startswith("best-of-"):
        return f"best of {printable(name.removeprefix('best-of-'))}, untrained"
    if name.startswith("alone-"):
        return f"alone, best of {printable(name.removeprefix('alone-'))}"
    return _LABELS.get(name, printable(name))


def _rank(each: Standing) -> tuple[int, str]:
    places = [n for n, name in enumerate(_ORDER) if each.who.startswith(name)]
    return (places[0] if places else len(_ORDER) - 2, each.who)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

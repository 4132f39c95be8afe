"""What is drawn of runs: learning against tokens played, spawning by family, stopping against fixed rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from baton.measure.figure import Figure
from real_tasks.plot import Level, Line, Mark, Panel
from real_tasks.runs import ALONE, ARMS, Runs, Told, agents, combined, episode_tokens, of_play, success

__all__ = ["matched", "panels"]

SAID = {
    "reasoning": "team, credit by decision",
    "reasoning-uniform": "team, one advantage for all",
    "reasoning-single": "single agent",
    "reasoning-worked": "single, writes working",
    "reasoning-tools": "team, tool calls",
}
_STOP_SAID = {
    "reasoning-stop": "learned, credit by decision",
    "reasoning-stop-uniform": "learned, one advantage for all",
}
_ALONE_SAID = {"reasoning-single": "single", "reasoning-worked": "single with working"}
_ARM_SAID = {"found": "stops when found"}
COLOURS = 5
_NEAR = 0.15
"""Costs that differ by less are called the same."""


def panels(runs: Runs) -> list[Panel]:
    """Those that the runs have something for. Colours do not hang on the order in which runs were named."""
    runs = dict(sorted(runs.items(), key=lambda each: (_rank(each[1][0]), each[0])))
    found = [_learning(of_play(runs)), _spawning(of_play(runs, "either")), _stopping(of_play(runs, "search"))]
    return [panel for panel in found if panel is not None]


def matched(teams: Sequence[Told], singles: Sequence[Told]) -> tuple[str, str] | None:
    """Which majority of a single agent's tries costs nearest to one try of the team, and what; None: not measured."""
    team = _tokens(teams, "trained")
    whos = [line["who"] for line in singles[0].measured if line["who"].startswith("trained, majority-of-")]
    costs = {who: cost for who in whos if (cost := _tokens(singles, who)) is not None}
    if team is None or not costs:
        return None
    who = min(costs, key=lambda who: abs(costs[who] - team))
    alike = abs(costs[who] - team) <= _NEAR * team
    return who, "the team's tokens" if alike else f"{costs[who]:.0f} tokens, team {team:.0f}"


def _learning(runs: Runs) -> Panel | None:
    if not runs:
        return None
    colour = {name: number % COLOURS for number, name in enumerate(runs)}
    lines = tuple(
        Line(
            label=_named(name, seeds, runs),
            seeds=tuple([(line["total_tokens"], success(line)) for line in run.steps] for run in seeds),
            colour=colour[name],
        )
        for name, seeds in runs.items()
    )
    levels: list[Level] = []
    teams = [name for name, seeds in runs.items() if not _single(seeds)]
    for name, seeds in runs.items():
        first_team = name in teams[:1]
        if _single(seeds) or first_team:
            who = _ALONE_SAID.get(seeds[0].recipe, "team")
            levels += _level(seeds, "warm", f"{who}, supervised start", colour[name])
            if first_team:
                levels += _level(seeds, "base", "untrained", colour[name])
        if _single(seeds) and teams:
            vote = matched(runs[teams[0]], seeds)
            if vote is not None and _helps(seeds, vote[0]):
                who, cost = vote
                said = f"{_ALONE_SAID[seeds[0].recipe]}, {who.removeprefix('trained, ')}: {cost}"
                levels += _level(seeds, who, said, colour[name])
    return Panel(
        title="Learning: right answers in rollouts",
        x="tokens played",
        y="share right, over five steps",
        lines=lines,
        levels=tuple(levels),
        note=f"{_seeds(runs)}; dashed: on test questions",
    )


def _spawning(runs: Runs) -> Panel | None:
    if not runs:
        return None
    lines = tuple(
        Line(
            label=f"{seeds[0].family}{'' if _splits(seeds[0].family) else ', sequential'}",
            seeds=tuple([(line["step"], agents(line)) for line in run.steps] for run in seeds),
            colour=number % COLOURS,
        )
        for number, seeds in enumerate(runs.values())
    )
    return Panel(
        title="Spawning: where splitting pays, and not",
        x="step",
        y="agents spawned per episode, over five steps, a line a seed",
        lines=lines,
        share=False,
        every_seed=True,
        note=_seeds(runs),
    )


def _stopping(runs: Runs) -> Panel | None:
    if not runs:
        return None
    [first, *_] = runs.values()
    colour = {name: number % COLOURS for name, number in zip(runs, (0, *range(2, COLOURS)), strict=False)}
    learned = tuple(
        Line(
            label=_STOP_SAID.get(seeds[0].recipe, name) if len(runs) > 1 else "learned, step by step",
            seeds=tuple([(episode_tokens(line), success(line)) for line in run.steps] for run in seeds),
            colour=colour[name],
            path="learned",
        )
        for name, seeds in runs.items()
    )
    arms = [
        mark
        for arm in ARMS
        for mark in [_mark(first, arm, _ARM_SAID.get(arm, arm.replace("-", " ")), 1, arm != "found")]
        if mark is not None
    ]
    rounds = Line(
        label="fixed rounds",
        seeds=([(mark.x, mark.y) for mark in arms if mark.hollow],),
        colour=1,
        path="dashed",
    )
    own = [_mark(first, "warm", "start", 0, True)]
    for name, seeds in runs.items():
        own += _trained(seeds, colour[name])
    return Panel(
        title="Stopping: learned against fixed rounds",
        x="tokens of an episode",
        y="share right, learned over five steps",
        lines=(*learned, rounds),
        marks=(*arms, *(mark for mark in own if mark is not None)),
        note=_seeds(runs),
    )


def _trained(seeds: Sequence[Told], colour: int) -> list[Mark | None]:
    """All together, or each by itself where they were trained for longer and shorter."""
    steps = [line["step"] for line in _lines(seeds, "trained")]
    if len(set(steps)) < 2:
        return [_mark(seeds, "trained", "trained", colour, False)]
    return [
        _mark([run], "trained", f"{line['step']} steps", colour, False)
        for run in seeds
        for line in _lines([run], "trained")
    ]


def _lines(seeds: Sequence[Told], who: str) -> list[dict[str, Any]]:
    return [line for run in seeds for line in [run.line(who)] if line is not None]


def _level(seeds: Sequence[Told], who: str, words: str, colour: int) -> list[Level]:
    figure = combined(_lines(seeds, who), "success")
    if figure is None or figure.value is None:
        return []
    return [Level(label=words, y=figure.value, colour=colour)]


def _helps(seeds: Sequence[Told], vote: str) -> bool:
    """Whether a vote is right more often than one try."""
    one, many = (combined(_lines(seeds, who), "success") for who in ("trained", vote))
    return one is None or many is None or (many.value or 0.0) > (one.value or 0.0)


def _tokens(seeds: Sequence[Told], who: str) -> float | None:
    figure = combined(_lines(seeds, who), "tokens")
    return None if figure is None else figure.value


def _mark(seeds: Sequence[Told], who: str, words: str, colour: int, hollow: bool) -> Mark | None:
    lines = _lines(seeds, who)
    x, y = combined(lines, "tokens"), combined(lines, "success")
    if x is None or y is None or x.value is None or y.value is None:
        return None
    low, high = _cut(y)
    return Mark(label=words, x=x.value, y=y.value, low=low, high=high, colour=colour, hollow=hollow)


def _cut(figure: Figure) -> tuple[float | None, float | None]:
    """A share's interval."""
    if figure.low is None or figure.high is None:
        return None, None
    return max(0.0, figure.low), min(1.0, figure.high)


def _single(seeds: Sequence[Told]) -> bool:
    return seeds[0].recipe in ALONE


def _rank(run: Told) -> tuple[int, bool]:
    known = list(SAID)
    return (known.index(run.recipe) if run.recipe in known else len(known), not _splits(run.family))


def _splits(family: str) -> bool:
    from baton.tasks.reasoning import FAMILIES

    return family in FAMILIES and FAMILIES[family].splittable


def _named(name: str, seeds: Sequence[Told], runs: Runs) -> str:
    """In plain words where one family is looked at."""
    families = {each[0].family for each in runs.values()}
    return SAID.get(seeds[0].recipe, name) if len(families) == 1 else name


def _seeds(runs: Runs) -> str:
    counts = {len(seeds) for seeds in runs.values()}
    few, most = min(counts), max(counts)
    return f"{most} seed{'s' if most > 1 else ''}" if few == most else f"{few} to {most} seeds"

"""What a training run comes to, in the terminal: who is worth what, and how each decision's regret went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from baton.view.report.run_figures import REGRETS, Standing, TrainingRun, limits, standing, standings
from baton.view.terminal.figures import NOT_MEASURED
from baton.view.terminal.fitting import Line, table_lines
from baton.view.terminal.screen import room
from baton.view.text import count, duration, number, percent

_SHOWN = ("untrained", "trained", "best of", "alone", "single agent", "optimum")
_TICKS = "▁▂▃▄▅▆▇█"
_COURSE_WIDTH = 24


def standing_table(rows: Sequence[Standing]) -> list[Line]:
    """Returns with intervals, regret in all and by decision, tokens and invalid answers per episode; failed calls where
    there are any."""
    shown = [row for row in rows if row.who.startswith(_SHOWN)]
    measured = any(value is not None for row in shown for value in row.regret.values())
    regrets = ("total", *REGRETS) if measured else ("total",)
    episodes = next((row.episodes for row in shown if row.who in ("trained", "untrained")), None)
    title = "held out" if episodes is None else f"{episodes:,} held-out episodes"
    costs = list(dict.fromkeys(name for row in shown for name in row.costs))
    header = [
        title,
        "return",
        "",
        *(f"cost {name}" for name in costs),
        "regret",
        *regrets[1:],
        "tokens",
        "num invalid",
    ]
    table = [header, *([row.who, *_cells(row, costs, regrets)] for row in shown)]
    if any(row.failed for row in shown):
        failed = [_per_episode(row.failed) for row in shown]
        table = [[*cells, last] for cells, last in zip(table, ["failed", *failed], strict=True)]
    numbers = [k for k in range(len(table[0])) if k not in (0, 2)]
    lines = table_lines(table, room(), head="bold", right=numbers)
    notes = ["–: not measured"] if any("–" in row for row in table) else []
    if any("best of" in row.who for row in shown):
        notes.append("best of n keeps the try with the best true score, so it bounds trying more often")
    said = ["; ".join(notes)] if notes else []
    said += [f"{row.who}: {told}" for row in shown if (told := matched(row))]
    return [*lines, *([(note, "dim")] for note in said)]


def matched(row: Standing) -> str:
    """What its tries cost beside the trained team, and what one of them is worth; or why there is nothing to tell."""
    if row.why_not:
        return f"{NOT_MEASURED}: {row.why_not}"
    if row.tokens is None or row.team_tokens is None:
        return ""
    return (
        f"{row.tokens:,.0f} tokens an episode against the trained team's {row.team_tokens:,.0f}; "
        f"one try is worth {worth(row.one_try)}"
    )


def _ledger(run: TrainingRun) -> list[Line]:
    """Each decision's regret before and after, and its course over the steps."""
    before, after = standing(run, "untrained"), standing(run, "trained")
    if before is None or after is None or before.regret["total"] is None or after.regret["total"] is None:
        return [[(f"regret by decision: {NOT_MEASURED} (this task has no exact solver)", "dim")]]
    steps = count(len(run.steps), "step")
    lines: list[Line] = [[(f"{'regret':<13}untrained → trained            over {steps}", "bold")]]
    parts = [
        (name, before.regret[name], after.regret[name], run.series("regret", name))
        for name in (*REGRETS, "total")
    ]
    total = run.normalised(run.series("regret", "total"))
    was, now = run.normalised([before.regret["total"], after.regret["total"]])
    gone: Line = [("  not made any more", "yellow")]
    lines += [_course_line(*part) + (gone if part[0] in run.given_up() else []) for part in parts]
    if was is not None:
        lines.append([*_course_line("normalised", was, now, total), ("  0: optimum, 1: random play", "dim")])
    return lines


def _course_line(name: str, was: float | None, now: float | None, values: Sequence[float | None]) -> Line:
    change = percent(was, now) if was and now is not None and was >= 5e-4 else ""
    style = "" if was is None or now is None else "green" if now < was else "red" if now > was else ""
    return [
        (f"{name:<13}{worth(was, 4):>9} → {worth(now, 4):<7} ", "bold" if name == "total" else ""),
        (f"{change.replace('-', '−'):>8}  ", style),
        (course(values), "cyan"),
    ]


def outcome(run: TrainingRun) -> list[Line]:
    """The run in a line, the table, and the ledger."""
    tokens = run.series("total_tokens")[-1:]
    seconds = run.series("seconds")[-1:]
    facts = [count(len(run.steps), "step")]
    facts += [f"{number(tokens[0])} tokens"] if tokens and tokens[0] is not None else []
    facts += [duration(seconds[0])] if seconds and seconds[0] is not None else []
    title = f"{run.said('recipe')} on {run.said('task')}: {', '.join(facts)}"
    kept = [
        [(f"mean cost of the last step: {told}", "")]
        for told in told_limits(run.steps[-1] if run.steps else {})
    ]
    return [[(title, "bold")], [], *standing_table(standings(run)), *kept, [], *_ledger(run)]


def course(values: Sequence[float | None], width: int = _COURSE_WIDTH) -> str:
    """A small picture of a series, from zero to its own largest; blank where it was not measured."""
    most = max((value for value in values if value is not None), default=0.0)
    size = max(1, -(-len(values) // width))
    drawn = ""
    for at in range(0, len(values), size):
        some = [value for value in values[at : at + size] if value is not None]
        share = sum(some) / len(some) / most if some and most > 0 else 0.0
        drawn += " " if not some else _TICKS[max(0, min(len(_TICKS) - 1, round(share * (len(_TICKS) - 1))))]
    return drawn


def worth(value: float | None, digits: int = 3) -> str:
    """A return or a regret; rounding leaves no minus before a zero."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}" if abs(value) < 100 else f"{value:,.1f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _cells(row: Standing, costs: Sequence[str], regrets: Sequence[str]) -> list[str]:
    half = "exact" if row.episodes is None else "" if row.half is None else f"±{worth(row.half)}"
    tokens = "–" if row.tokens is None else f"{row.tokens:,.0f}"
    cost = (worth(row.costs.get(name)) for name in costs)
    regret = (worth(row.regret[name]) for name in regrets)
    return [worth(row.mean), half, *cost, *regret, tokens, _per_episode(row.invalid)]


def told_limits(line: Mapping[str, Any]) -> list[str]:
    """Each constraint of a line: what it cost on average, what is allowed, and the price of more."""
    return [
        f"{name} {worth(mean)} of {worth(limit)} (price {worth(price)})"
        for name, mean, limit, price in limits(line)
    ]


def _per_episode(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"

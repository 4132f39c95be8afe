"""The picture of result 13: signal to noise that is predicted and measured, and the speed that came of it, over n."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from runs import interval

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 400, 260, 56, 62, 70
_COLOURS = {"uniform": "#555555", "agent": "#1b6ca8", "message": "#2a9d5c", "fork": "#c8553d"}
_SIDE = 5.0
"""Marks of one n stand side by side, so many pixels apart."""


def draw(rows: Sequence[dict[str, Any]], speed: Callable[[dict[str, Any]], float]) -> str:
    """Both panels as one SVG."""
    wide, tall = _LEFT + 2 * _WIDTH + _GAP + 24, _TOP + _HEIGHT + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for number, (credit, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + number * 110
        parts.append(f'<circle cx="{x + 6}" cy="16" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="20">{credit}</text>')
    seeds = max((len(row["runs"]) for row in rows), default=0)
    parts.append(
        f'<text x="{_LEFT}" y="38" fill="#555555">left: lines as derived, circles as measured on traces; '
        f"right: means of {seeds} seeds with 95 % intervals</text>"
    )
    return "\n".join(
        [*parts, *_loudness(rows, _LEFT), *_speeds(rows, speed, _LEFT + _WIDTH + _GAP), "</svg>", ""]
    )


def _loudness(rows: Sequence[dict[str, Any]], left: int) -> list[str]:
    values = [row[key] for row in rows for key in ("predicted", "measured") if row[key] > 0]
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))

    def y_of(value: float) -> float:
        return _TOP + _HEIGHT * (high - math.log2(value)) / (high - low)

    parts = _axes(rows, left, "signal to noise of a step's gradient, at the start")
    for power in range(low, high + 1):
        parts += _level(left, y_of(2.0**power), f"{2.0**power:g}")
    for place, (credit, colour) in enumerate(_COLOURS.items()):
        mine = [row for row in rows if row["credit"] == credit]
        line = " ".join(f"{_x(rows, row['n'], left):.1f},{y_of(row['predicted']):.1f}" for row in mine)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{_x(rows, row["n"], left, place):.1f}" cy="{y_of(row["measured"]):.1f}" r="4" '
            f'fill="{colour}"/>'
            for row in mine
            if row["measured"] > 0
        ]
    return parts


def _speeds(rows: Sequence[dict[str, Any]], speed: Callable[[dict[str, Any]], float], left: int) -> list[str]:
    told = [(row, *interval(map(speed, row["runs"]))) for row in rows]
    low = min(0.0, *(mean - (half or 0) for _, mean, half in told))
    high = max(mean + (half or 0) for _, mean, half in told)
    step = next(each for each in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / each <= 8)
    first, last = math.floor(low / step), math.ceil(high / step)

    def y_of(value: float) -> float:
        return _TOP + _HEIGHT * (last - value / step) / (last - first)

    parts = _axes(rows, left, "speed: mean skill over the tokens, less the start's")
    for number in range(first, last + 1):
        parts += _level(left, y_of(number * step), f"{number * step:.2f}", dark=number == 0)
    for place, (credit, colour) in enumerate(_COLOURS.items()):
        mine = [each for each in told if each[0]["credit"] == credit]
        points = [(_x(rows, row["n"], left, place), y_of(mean)) for row, mean, _ in mine]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for (x, y), (_, mean, half) in zip(points, mine, strict=True):
            if half is not None:
                ends = f'y1="{y_of(mean - half):.1f}" y2="{y_of(mean + half):.1f}"'
                parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{colour}"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
    return parts


def _x(rows: Sequence[dict[str, Any]], n: int, left: int, place: float = 1.5) -> float:
    """Sizes stand as far apart as their logarithms do."""
    logs = [math.log2(row["n"]) for row in rows]
    share = (math.log2(n) - min(logs)) / ((max(logs) - min(logs)) or 1)
    return left + 30 + (_WIDTH - 60) * share + (place - 1.5) * _SIDE


def _axes(rows: Sequence[dict[str, Any]], left: int, title: str) -> list[str]:
    parts = [f'<text x="{left}" y="{_TOP - 8}" font-weight="bold">{title}</text>']
    low = _TOP + _HEIGHT + 16
    runs = {
        n: min(len(row["runs"]) for row in rows if row["n"] == n) for n in sorted({row["n"] for row in rows})
    }
    most = max(runs.values())
    parts += [
        f'<text x="{_x(rows, n, left):.1f}" y="{low}" text-anchor="middle">{n}{_fewer(count, most)}</text>'
        for n, count in runs.items()
    ]
    parts.append(
        f'<text x="{left + _WIDTH / 2}" y="{low + 20}" text-anchor="middle">workers, one of whom holds the fact</text>'
    )
    return parts


def _fewer(count: int, usual: int) -> str:
    """Said where a size has fewer seeds than the caption tells."""
    return f" ({count} seed{'s' if count > 1 else ''})" if count < usual else ""


def _level(left: int, y: float, label: str, *, dark: bool = False) -> list[str]:
    colour = "#999999" if dark else "#eeeeee"
    return [
        f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="{colour}"/>',
        f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>',
    ]

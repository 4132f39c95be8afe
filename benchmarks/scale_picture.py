"""The simulated curves as a picture: lots a second by workers, a line for each lag, two panels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _GAP = 380, 260, 56, 40, 46, 24
_COLOURS = {0: "#888888", 1: "#1b6ca8", 2: "#2a9d5c", 4: "#c8553d"}
_TITLES = {
    "fixed": "the same step for all",
    "growing": "four lots a worker",
}


def draw(curves: Mapping[str, Sequence[tuple[int, int, Any]]]) -> str:
    """An SVG with a panel for each set of curves; both axes are logarithmic."""
    every = [found.lots_per_second for some in curves.values() for _, _, found in some]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    wide = len(curves) * (_WIDTH + _GAP) + _LEFT
    tall = _HEIGHT + _TOP + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for number, (name, points) in enumerate(curves.items()):
        parts += _panel(_LEFT + number * (_WIDTH + _GAP), name, points, (low, high), first=number == 0)
    for number, (lag, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 8 + number * 62
        parts.append(f'<line x1="{x}" y1="32" x2="{x + 18}" y2="32" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 22}" y="36">lag {lag}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: float, name: str, points: Sequence[tuple[int, int, Any]], range_: tuple[int, int], *, first: bool
) -> list[str]:
    low, high = range_
    inner = _WIDTH - 16

    def x_of(workers: int) -> float:
        return left + 8 + inner * math.log10(workers) / 3

    def y_of(rate: float) -> float:
        return _TOP + _HEIGHT - _HEIGHT * (math.log10(rate) - low) / (high - low)

    found = [
        f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#cccccc"/>',
        f'<text x="{left + _WIDTH}" y="18" text-anchor="end" font-weight="bold">{_TITLES[name]}</text>',
    ]
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        found.append(f'<line x1="{left}" y1="{y}" x2="{left + _WIDTH}" y2="{y}" stroke="#eeeeee"/>')
        if first:
            found.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>')
    for workers in (1, 10, 100, 1000):
        y = _TOP + _HEIGHT + 16
        found.append(f'<text x="{x_of(workers)}" y="{y}" text-anchor="middle">{workers:,}</text>')
    for lag, colour in _COLOURS.items():
        line = " ".join(
            f"{x_of(w):.1f},{y_of(each.lots_per_second):.1f}" for w, mine, each in points if mine == lag
        )
        found.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    foot = _TOP + _HEIGHT + 36
    found.append(f'<text x="{left + _WIDTH / 2}" y="{foot}" text-anchor="middle">rollout workers</text>')
    if first:
        found.append(f'<text x="{left - 40}" y="18">lots a second</text>')
    return found

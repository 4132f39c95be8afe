"""Panels of curves, levels and points as one SVG file that stands by itself, in light and in dark.

The first panel has a row of its own, the others share the second. A line is the mean over seeds, smoothed over five
steps, with a band from the lowest to the highest seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Literal

from msgspec import Struct

__all__ = ["Level", "Line", "Mark", "Panel", "drawn", "over_seeds", "smooth"]

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, GAP = 820, 330, 20
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 62, 46
GRID = 60
"""Places at which seeds are brought together."""
STYLE = """
svg{--paper:#fff;--ink:#1f2328;--soft:#59636e;--rule:#d8dee4;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;
--c4:#9a6700}
@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--soft:#9198a1;--rule:#30363d;--c0:#58a6ff;
--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;--c4:#d29922}}
text{fill:var(--ink);font:12px system-ui,sans-serif}.soft{fill:var(--soft)}.title{font-weight:600;font-size:13px}
.rule{stroke:var(--rule)}.level{stroke-dasharray:5 4;stroke-width:1.2;opacity:.8}.small{font-size:11px}
.halo{stroke:var(--paper);stroke-width:4px;paint-order:stroke;stroke-linejoin:round}
"""
_STROKE = {
    "learned": 'stroke-width="2" stroke-opacity=".75"',
    "dashed": 'stroke-width="1.2" stroke-dasharray="5 4"',
}


class Line(Struct, frozen=True, kw_only=True):
    """One thing over its seeds."""

    label: str
    seeds: tuple[Points, ...]
    colour: int
    path: Literal["", "learned", "dashed"] = ""
    """Points in their own order: smoothed, or as they are and dashed. Else y by x, with a band."""


class Level(Struct, frozen=True, kw_only=True):
    """A height to compare with."""

    label: str
    y: float
    colour: int


class Mark(Struct, frozen=True, kw_only=True):
    """A point, with its interval where there is one."""

    label: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    colour: int
    hollow: bool = False


class Panel(Struct, frozen=True, kw_only=True):
    """One set of axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...] = ()
    levels: tuple[Level, ...] = ()
    marks: tuple[Mark, ...] = ()
    share: bool = True
    """y goes from 0 to 1; else from 0 to what there is."""
    every_seed: bool = False
    """A line for each seed, where a mean would be of runs that went different ways."""
    note: str = ""


def smooth(points: Points) -> list[tuple[float, float]]:
    """y over five steps."""
    found = []
    for at, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, at - 2) : at + 3]]
        found.append((x, sum(near) / len(near)))
    return found


def over_seeds(seeds: Sequence[Points]) -> list[tuple[float, float, float, float]]:
    """x, mean, lowest and highest, where all seeds have something to say."""
    known = [points for points in seeds if points]
    if not known:
        return []
    if len(known) == 1:
        return [(x, y, y, y) for x, y in known[0]]
    low, high = max(points[0][0] for points in known), min(points[-1][0] for points in known)
    if high <= low:
        return []
    found = []
    for k in range(GRID + 1):
        x = low + (high - low) * k / GRID
        ys = [_at(points, x) for points in known]
        found.append((x, sum(ys) / len(ys), min(ys), max(ys)))
    return found


def _at(points: Points, x: float) -> float:
    """Between the points on both sides."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1 and x1 > x0:
            return y0 + (y1 - y0) * max(0.0, x - x0) / (x1 - x0)
    return points[-1][1]


def drawn(panels: Sequence[Panel]) -> str:
    """The file's text."""
    rows = [list(panels[:1]), list(panels[1:])] if len(panels) > 1 else [list(panels)]
    height = HEIGHT * len(rows) + GAP * (len(rows) - 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{escape("; ".join(panel.title for panel in panels))}</title><style>{STYLE}</style>'
        '<rect width="100%" height="100%" fill="var(--paper)"/>'
    ]
    for number, row in enumerate(rows):
        width = (WIDTH - GAP * (len(row) - 1)) / max(1, len(row))
        for place, panel in enumerate(row):
            x, y = place * (width + GAP), number * (HEIGHT + GAP)
            parts.append(f'<g transform="translate({x:.0f},{y})">{_Axes(panel, width).drawn()}</g>')
    return "".join(parts) + "</svg>\n"


class _Axes:
    """A panel's own coordinates."""

    def __init__(self, panel: Panel, width: float) -> None:
        self.panel = panel
        self.width = width
        self.curves = [
            (line, over_seeds([smooth(points) for points in together]))
            for line in panel.lines
            if not line.path
            for together in ([[points] for points in line.seeds] if panel.every_seed else [line.seeds])
        ]
        self.paths = [
            (line, _mean_path(line.seeds) if line.path == "learned" else list(line.seeds[0]))
            for line in panel.lines
            if line.path
        ]
        xs = [x for _, curve in self.curves for x, *_ in curve] + [mark.x for mark in panel.marks]
        xs += [x for _, path in self.paths for x, _ in path]
        ys = [high for _, curve in self.curves for *_, high in curve] + [level.y for level in panel.levels]
        ys += [mark.y if mark.high is None else mark.high for mark in panel.marks]
        self.x_ticks = _ticks(max(xs, default=1.0), min(xs, default=0.0))
        self.y_ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if panel.share else _ticks(max(ys, default=1.0))

    def at(self, x: float, y: float) -> tuple[float, float]:
        wide, high = self.width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        across = (x - self.x_ticks[0]) / (self.x_ticks[-1] - self.x_ticks[0])
        return LEFT + wide * across, TOP + high * (1.0 - y / self.y_ticks[-1])

    def drawn(self) -> str:
        levels = map(self._level, self._spread())
        below = (*self._frame(), *levels, *self._bands())
        return "".join((*below, *self._lines(), *self._paths(), *self._marks(), *self._legend()))

    def _frame(self) -> list[str]:
        panel = self.panel
        parts = [f'<text class="title" x="{LEFT - 40}" y="18">{escape(panel.title)}</text>']
        for y in self.y_ticks:
            x0, at = self.at(self.x_ticks[0], y)
            parts.append(
                f'<line class="rule" x1="{x0}" x2="{self.width - RIGHT:.0f}" y1="{at:.1f}" y2="{at:.1f}"/>'
            )
            parts.append(
                f'<text class="soft small" x="{x0 - 6}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>'
            )
        for x in self.x_ticks:
            at = self.at(x, 0)[0]
            text = f'y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(x)}</text>'
            parts.append(f'<text class="soft small" x="{at:.1f}" {text}')
        middle = (LEFT + self.width - RIGHT) / 2
        parts.append(
            f'<text class="soft" x="{middle:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(panel.x)}</text>'
        )
        parts.append(f'<text class="soft small" x="{LEFT - 40}" y="{TOP - 10}">{escape(panel.y)}</text>')
        return parts

    def _legend(self) -> list[str]:
        parts, x = [], float(LEFT - 40)
        for line in self.panel.lines:
            parts.append(
                f'<rect x="{x:.0f}" y="28" width="14" height="4" rx="2" fill="var(--c{line.colour})"/>'
            )
            parts.append(f'<text class="small" x="{x + 19:.0f}" y="34">{escape(line.label)}</text>')
            x += 34 + 6.1 * len(line.label)
        if self.panel.note:
            parts.append(
                f'<text class="soft small" x="{self.width - RIGHT:.0f}" y="18" text-anchor="end">'
                f"{escape(self.panel.note)}</text>"
            )
        return parts

    def _bands(self) -> list[str]:
        if self.panel.every_seed:
            return []
        parts = []
        for line, curve in self.curves:
            if len(line.seeds) > 1 and curve:
                edge = [(x, high) for x, _, _, high in curve] + [(x, low) for x, _, low, _ in reversed(curve)]
                parts.append(
                    f'<polygon points="{self._points(edge)}" fill="var(--c{line.colour})" fill-opacity=".16"/>'
                )
        return parts

    def _lines(self) -> list[str]:
        return [
            f'<polyline points="{self._points([(x, y) for x, y, *_ in curve])}" fill="none" '
            f'stroke="var(--c{line.colour})" stroke-width="2" stroke-linejoin="round"/>'
            for line, curve in self.curves
        ]

    def _paths(self) -> list[str]:
        return [
            f'<polyline points="{self._points(path)}" fill="none" stroke="var(--c{line.colour})" '
            f'{_STROKE[line.path]} stroke-linejoin="round"/>'
            for line, path in self.paths
        ]

    def _points(self, points: Points) -> str:
        return " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in points)

    def _spread(self) -> list[tuple[Level, float]]:
        """Levels with the heights of their words, which must not lie on each other."""
        found: list[tuple[Level, float]] = []
        below = math.inf
        for level in sorted(self.panel.levels, key=lambda level: level.y):
            line = self.at(0, level.y)[1]
            # Near the top there is room below a line only.
            below = min(line - 4 if line > TOP + 24 else line + 13, below - 13)
            found.append((level, below))
        return found

    def _level(self, placed: tuple[Level, float]) -> str:
        level, words = placed
        x, y = self.at(self.x_ticks[0], level.y)
        right = self.width - RIGHT
        return (
            f'<line class="level" x1="{x}" x2="{right:.0f}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--c{level.colour})"/>'
            f'<text class="small halo" x="{right - 2:.0f}" y="{words:.1f}" text-anchor="end" '
            f'style="fill:var(--c{level.colour})">{escape(level.label)}</text>'
        )

    def _marks(self) -> list[str]:
        """Dots first, so that no dot lies on words; words where there is room."""
        at = [self.at(mark.x, mark.y) for mark in self.panel.marks]
        taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in at]
        dots, words = [], []
        for mark, (x, y) in zip(self.panel.marks, at, strict=True):
            colour = f"var(--c{mark.colour})"
            if mark.low is not None and mark.high is not None:
                y0, y1 = self.at(0, mark.low)[1], self.at(0, mark.high)[1]
                dots.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0:.1f}" y2="{y1:.1f}" stroke="{colour}"/>'
                )
            fill = "var(--paper)" if mark.hollow else colour
            dots.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
            )
            left, down = self._room(x, y, 6.1 * len(mark.label), taken)
            words.append(
                f'<text class="small halo" x="{left:.1f}" y="{down:.1f}">{escape(mark.label)}</text>'
            )
        return dots + words

    def _room(
        self, x: float, y: float, wide: float, taken: list[tuple[float, float, float, float]]
    ) -> tuple[float, float]:
        """Where words beside a dot begin: right, left, below or above, the first that is free."""
        places = [(x + 9, y + 4), (x - 9 - wide, y + 4), (x - wide / 2, y + 19), (x - wide / 2, y - 10)]
        for left, down in places:
            box = (left, down - 10, left + wide, down + 3)
            inside = left > 0 and left + wide < self.width
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                return left, down
        return places[0]


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _mean_path(seeds: Sequence[Points]) -> list[tuple[float, float]]:
    """Both coordinates over five steps and over seeds, as far as all of them got."""
    known = [points for points in seeds if points]
    count = min((len(points) for points in known), default=0)
    found = []
    for at in range(count):
        near = [point for points in known for point in points[max(0, at - 2) : min(count, at + 3)]]
        found.append((sum(x for x, _ in near) / len(near), sum(y for _, y in near) / len(near)))
    return found


def _ticks(most: float, least: float = 0.0) -> list[float]:
    """Round numbers that hold both; from 0 on, unless that leaves half of the axis empty."""
    # What differs by rounding alone is one number.
    least = least if least > most / 2 - 1e-9 and most - least > 1e-6 * most else 0.0
    if most <= 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10((most - least) / 4))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k * 5 >= most - least)
    first = math.floor(least / step)
    return [step * k for k in range(first, math.ceil(most / step - 1e-9) + 1)]


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value / 1e3:g} k" if value >= 1e4 else f"{value:g}"

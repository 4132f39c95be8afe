"""Plots of the training report as inline SVG: curves with intervals, stacked areas, bars.

Made here rather than by a plotting library: the page's own colours follow light and dark, its text stays text,
every step says its numbers on hover without a script, and nothing needs to be installed.
Invariant: a value that was not measured leaves a gap, and a plot without values says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

from baton.view.text import printable

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 30
_MOST_POINTS = 200

Values = Sequence[float | None]


class Series(Struct, frozen=True, kw_only=True):
    """One curve of a plot: its name, its value at each place, its colour."""

    name: str
    values: Values
    half: Values = ()
    """Half the width of its interval, where there is one."""
    hue: int = 0


class _Frame(Struct, frozen=True, kw_only=True):
    """From values to places in the picture."""

    x0: float
    x1: float
    y0: float
    y1: float
    small: bool = False

    @property
    def width(self) -> int:
        return 230 if self.small else 440

    @property
    def height(self) -> int:
        return 140 if self.small else 210

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM

    def x(self, value: float) -> float:
        share = (value - self.x0) / ((self.x1 - self.x0) or 1.0)
        return round(_LEFT + share * (self.right - _LEFT), 1)

    def y(self, value: float) -> float:
        share = (value - self.y0) / ((self.y1 - self.y0) or 1.0)
        return round(self.bottom - share * (self.bottom - _TOP), 1)


def curves(
    title: str,
    places: Sequence[float],
    series: Sequence[Series],
    *,
    levels: Sequence[tuple[str, float | None]] = (),
    along: str = "step",
    zero: bool = True,
    small: bool = False,
) -> str:
    """Curves over steps or tokens, with dashed levels to compare with. `zero`: the axis starts there."""
    series = [each for each in series if any(value is not None for value in each.values)]
    if not series:
        return figure_of(title, "", None)
    kept = _thinned(len(places))
    known = [(name, level) for name, level in levels if level is not None]
    reach = [v for each in series for i in kept for v in _reach(each, i)] + [level for _, level in known]
    low, high = min(reach), max(reach)
    if zero:
        low, high = min(0.0, low), max(0.0, high)
    elif high > low:
        low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    frame = _framed(places, low, high, small=small)
    drawn = [_axes(frame, along)]
    for n, (name, level) in enumerate(known):
        drawn.append(_level(frame, name, level, n))
    drawn += [_band(frame, places, each, kept) for each in series]
    drawn += [_curve(frame, places, each, kept) for each in series]
    drawn.append(_hovers(frame, places, series, kept, along))
    return figure_of(title, _svg(title, frame, drawn), series)


def areas(title: str, places: Sequence[float], series: Sequence[Series], *, along: str = "step") -> str:
    """Parts that add up, one on the other."""
    series = [each for each in series if any(value is not None for value in each.values)]
    if not series:
        return figure_of(title, "", None)
    drawable = _thinned(len(places))
    kept = [i for i in drawable if all(each.values[i] is not None for each in series)]
    sums = [[max(0.0, each.values[i] or 0.0) for each in series] for i in kept]
    frame = _framed(places, 0.0, max((math.fsum(column) for column in sums), default=0.0))
    drawn = [_axes(frame, along)]
    for run in _runs(kept, drawable):
        below = [0.0] * len(run)
        for each in series:
            above = [b + max(0.0, each.values[i] or 0.0) for b, i in zip(below, run, strict=True)]
            edge = [(frame.x(places[i]), frame.y(v)) for i, v in zip(run, above, strict=True)]
            edge += [
                (frame.x(places[i]), frame.y(v)) for i, v in zip(reversed(run), reversed(below), strict=True)
            ]
            drawn.append(f'<path class="area h{each.hue}" d="{_path(edge)}Z"/>')
            below = above
    drawn.append(_hovers(frame, places, series, kept, along))
    return figure_of(title, _svg(title, frame, drawn), series)


def bar(parts: Sequence[tuple[float | None, str]], most: float, *, mark: float | None = None) -> str:
    """One horizontal bar for each part, from zero to `most`; `mark` is a line to compare with."""
    height = 10 * len(parts) + 2
    scale = 150 / most if most > 0 else 0.0
    drawn = [
        f'<rect class="bar {kind}" x="0" y="{10 * n + 2}" width="{max(0.0, value) * scale:.1f}" height="8"/>'
        for n, (value, kind) in enumerate(parts)
        if value is not None
    ]
    if mark is not None:
        at = f"{max(0.0, mark) * scale:.1f}"
        drawn.append(f'<line class="mark" x1="{at}" x2="{at}" y1="0" y2="{height}"/>')
    return f'<svg class="bars" viewBox="0 0 152 {height}" aria-hidden="true">{"".join(drawn)}</svg>'


def figure_of(title: str, picture: str, series: Sequence[Series] | None) -> str:
    """A plot with its title and legend; without a picture it says that nothing was measured."""
    if series is None:
        body = '<p class="none">not measured</p>'
    else:
        keys = "".join(
            f'<span class="key h{each.hue}">{escape(printable(each.name))}</span>' for each in series
        )
        body = picture + (f'<p class="keys">{keys}</p>' if len(series) > 1 else "")
    return f"<figure><figcaption>{escape(title)}</figcaption>{body}</figure>"


def shown(value: float | None) -> str:
    """A number with as many digits as carry meaning; empty of minus before a zero."""
    if value is None:
        return "not measured"
    size = abs(value)
    if size >= 1_000_000:
        return f"{value / 1e6:,.2f}M"
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}"
    text = f"{value:.4f}" if size < 1 else f"{value:.3f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def _svg(title: str, frame: _Frame, drawn: Sequence[str]) -> str:
    box = f"0 0 {frame.width} {frame.height}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>'


def _framed(places: Sequence[float], low: float, high: float, *, small: bool = False) -> _Frame:
    if high <= low:
        high = low + 1.0
    return _Frame(x0=min(places), x1=max(places), y0=low, y1=high, small=small)


def _axes(frame: _Frame, along: str) -> str:
    right, bottom = frame.right, frame.bottom
    drawn = []
    for value in _ticks(frame.y0, frame.y1):
        y = frame.y(value)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
        drawn.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    for value in _ticks(frame.x0, frame.x1, whole=True):
        x = frame.x(value)
        drawn.append(
            f'<text class="tick" x="{x}" y="{bottom + 14}" text-anchor="middle">{_short(value)}</text>'
        )
    drawn.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    drawn.append(
        f'<text class="tick" x="{right}" y="{frame.height - 4}" text-anchor="end">{escape(along)}</text>'
    )
    return "".join(drawn)


def _level(frame: _Frame, name: str, level: float, turn: int) -> str:
    """Names stand at both ends by turns, so that levels close together can be read."""
    y = frame.y(level)
    x, anchor = (frame.right - 2, "end") if turn % 2 == 0 else (_LEFT + 4, "start")
    at = y - 4 if y > _TOP + 10 else y + 11
    return (
        f'<line class="level" x1="{_LEFT}" x2="{frame.right}" y1="{y}" y2="{y}"/>'
        f'<text class="tick" x="{x}" y="{at:.1f}" text-anchor="{anchor}">{escape(name)} {shown(level)}</text>'
    )


def _band(frame: _Frame, places: Sequence[float], series: Series, kept: Sequence[int]) -> str:
    if not any(half is not None for half in series.half):
        return ""
    measured = [i for i in kept if series.values[i] is not None and series.half[i] is not None]
    drawn = []
    for run in _runs(measured, kept):
        edges = [_reach(series, i)[1:] for i in run]
        edge = [(frame.x(places[i]), frame.y(high)) for i, (_, high) in zip(run, edges, strict=True)]
        edge += [
            (frame.x(places[i]), frame.y(low)) for i, (low, _) in reversed(list(zip(run, edges, strict=True)))
        ]
        drawn.append(f'<path class="band h{series.hue}" d="{_path(edge)}Z"/>')
    return "".join(drawn)


def _curve(frame: _Frame, places: Sequence[float], series: Series, kept: Sequence[int]) -> str:
    measured = [i for i in kept if series.values[i] is not None]
    drawn = []
    for run in _runs(measured, kept):
        points = [(frame.x(places[i]), frame.y(series.values[i] or 0.0)) for i in run]
        if len(points) == 1:
            drawn.append(
                f'<circle class="dot h{series.hue}" cx="{points[0][0]}" cy="{points[0][1]}" r="2.5"/>'
            )
        else:
            drawn.append(f'<path class="line h{series.hue}" d="{_path(points)}"/>')
    return "".join(drawn)


def _hovers(
    frame: _Frame, places: Sequence[float], series: Sequence[Series], kept: Sequence[int], along: str
) -> str:
    """Over every step a strip that says its numbers."""

    def marked(place: float) -> str:
        return f' data-step="{place:.0f}"' if along == "step" else ""

    drawn = []
    wide = (frame.right - _LEFT) / max(1, len(kept))
    for i in kept:
        said = ", ".join(f"{printable(each.name)} {_valued(each, i)}" for each in series)
        x = frame.x(places[i]) - wide / 2
        drawn.append(
            f'<rect class="hover"{marked(places[i])} x="{x:.1f}" y="{_TOP}" width="{wide:.1f}" '
            f'height="{frame.bottom - _TOP}">'
            f"<title>{escape(along)} {shown(places[i])}: {escape(said)}</title></rect>"
        )
    return "".join(drawn)


def _valued(series: Series, i: int) -> str:
    half = series.half[i] if i < len(series.half) else None
    return shown(series.values[i]) + (f" ±{shown(half)}" if half is not None else "")


def _reach(series: Series, i: int) -> list[float]:
    """A value, and the ends of its interval; nothing where it was not measured."""
    value = series.values[i]
    half = series.half[i] if i < len(series.half) else None
    if value is None:
        return []
    return [value] if half is None else [value, value - half, value + half]


def _runs(kept: Sequence[int], among: Sequence[int]) -> list[list[int]]:
    """Stretches of `kept` without a gap: neighbours there are neighbours in `among`."""
    order = {i: n for n, i in enumerate(among)}
    found: list[list[int]] = []
    for i in kept:
        if found and order[i] == order[found[-1][-1]] + 1:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _thinned(size: int) -> list[int]:
    """Of a long run every k-th step, and the last."""
    step = max(1, -(-size // _MOST_POINTS))
    kept = list(range(0, size, step))
    return kept if not kept or kept[-1] == size - 1 else [*kept, size - 1]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points)


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """About four round numbers between two."""
    span = high - low
    if span < 1e-300:  # below, a quarter of it may be no number of its own
        return [low]
    rough = span / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= rough)
    if whole:
        step = max(1.0, math.ceil(step) if step < 10 else step)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 12) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.3g}"

"""Learning curves as one SVG file: success by tokens played, a line per recipe and task, a thin one per seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["drawn"]

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 48, 16, 16, 44
COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#8c564b")


def drawn(curves: Mapping[str, Sequence[Points]]) -> str:
    """Name -> the curves of its seeds. A curve is smoothed over five steps."""
    most = max((x for seeds in curves.values() for points in seeds for x, _ in points), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for level in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(level)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>')
    for share in (0.0, 0.5, 1.0):
        x = _x(share * most, most)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - 26}" text-anchor="middle">{share * most / 1e6:.2f} M</text>'
        )
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens played</text>')
    for number, (name, seeds) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        for points in seeds:
            line = " ".join(f"{_x(x, most):.1f},{_y(y):.1f}" for x, y in _smooth(points))
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{LEFT + 8}" y="{TOP + 14 + 16 * number}" fill="{colour}">{escape(name)}</text>'
        )
    return "".join(parts) + "</svg>\n"


def _smooth(points: Points) -> Points:
    found = []
    for at, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, at - 2) : at + 3]]
        found.append((x, sum(near) / len(near)))
    return found


def _x(value: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / most


def _y(value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value)

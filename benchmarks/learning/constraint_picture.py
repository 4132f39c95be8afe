"""The curves of result 10 as a picture: return and attacks over training, a line for each arm, the limit dashed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 400, 250, 52, 50, 44
_COLOURS = {
    "no constraint": "#888888", "penalty 0.5": "#e0a030", "penalty 5": "#c8553d", "Lagrangian": "#1b6ca8",
    "shield": "#2a9d5c",
}  # fmt: skip
_PANELS = (("return", 1, (0.0, 2.4), 1.782), ("attacks that succeed", 2, (0.0, 1.0), 0.1))
"""Title, place in a point, range, and what the optimum under the limit has."""


def draw(records: Path, out: Path) -> None:
    """An SVG of the means over seeds."""
    every = json.loads(records.read_text("utf-8"))
    wide, tall = _LEFT + 2 * (_WIDTH + _GAP), _TOP + _HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for number, (arm, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + number * 120
        parts.append(f'<line x1="{x}" y1="16" x2="{x + 20}" y2="16" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(f'<text x="{x + 25}" y="20">{arm}</text>')
    for number, (title, place, (low, high), best) in enumerate(_PANELS):
        left = _LEFT + number * (_WIDTH + _GAP)

        def y_of(value: float, low: float = low, high: float = high) -> float:
            return _TOP + _HEIGHT * (1 - (value - low) / (high - low))

        parts.append(f'<text x="{left}" y="{_TOP - 10}" font-weight="bold">{title}</text>')
        for tick in np.linspace(low, high, 7 if high > 2 else 6):
            y = y_of(float(tick))
            parts.append(
                f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="#eeeeee"/>'
            )
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.2g}</text>')
        for arm, colour in _COLOURS.items():
            curves = [record["curve"] for record in every if record["arm"] == arm]
            last = curves[0][-1][0]
            points = " ".join(
                f"{left + _WIDTH * point[0][0] / last:.1f},{y_of(float(np.mean([p[place] for p in point]))):.1f}"
                for point in zip(*curves, strict=True)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = y_of(best)
        parts.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="black" stroke-dasharray="5 4"/>'
        )
        parts.append(
            f'<text x="{left + _WIDTH / 2}" y="{_TOP + _HEIGHT + 22}" text-anchor="middle">updates, 0 to {last}; '
            "dashed: the exact optimum under the limit</text>"
        )
    out.write_text("\n".join([*parts, "</svg>", ""]), "utf-8")

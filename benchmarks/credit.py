"""Credit against the truth, as Markdown, and the plot of credit diffusion.

python benchmarks/credit.py [--plot credit_snr.svg]
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from credit_bench import measure
from credit_bench.command import markdown
from credit_bench.ladder import Rung

_WIDTH, _HEIGHT, _MARGIN = 520, 320, 60
_SERIES = (
    ("uniform", "#b3261e", "uniform credit"),
    ("decision_own_luck", "#8a6d00", "decision credit, own luck"),
    ("decision", "#1a5fb4", "decision credit, common random numbers"),
)


def plot(rungs: list[Rung]) -> str:
    """Signal to noise by length, both on log scales, as SVG."""
    values = [getattr(rung, name) for rung in rungs for name, _, _ in _SERIES]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1

    def x(length: float) -> float:
        span = math.log10(rungs[-1].length) - math.log10(rungs[0].length)
        return _MARGIN + (math.log10(length) - math.log10(rungs[0].length)) / span * (_WIDTH - 2 * _MARGIN)

    def y(value: float) -> float:
        return _HEIGHT - _MARGIN - (math.log10(value) - low) / (high - low) * (_HEIGHT - 2 * _MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle">Signal to noise of the pivotal choice</text>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 14}" text-anchor="middle">steps in the trace</text>',
    ]
    parts += [
        f'<text x="{x(rung.length)}" y="{_HEIGHT - 36}" text-anchor="middle">{rung.length:,}</text>'
        for rung in rungs
    ]
    parts += [
        f'<line x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        f'<text x="{_MARGIN - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in (0.2, 0.5, 1.0, 2.0)
        if low <= math.log10(value) <= high
    ]
    for name, colour, _ in _SERIES:
        points = [(x(rung.length), y(getattr(rung, name))) for rung in rungs]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
    for row, (_, colour, label) in enumerate(_SERIES):
        top = _HEIGHT - _MARGIN - 52 + 16 * row
        parts.append(f'<text x="{_MARGIN + 8}" y="{top}" fill="{colour}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, metavar="PATH", help="write the plot here, as SVG")
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    args = parser.parse_args()
    report = measure(quick=args.quick, tell=lambda what: print(what, file=sys.stderr, flush=True))
    print(markdown(report))
    if args.plot is not None:
        args.plot.write_text(plot(report.ladder))

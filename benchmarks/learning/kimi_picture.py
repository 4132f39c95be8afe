"""The picture of result 19: agents, the share of them that finished nothing, critical steps and value over training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runs import interval

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _ROW = 400, 190, 56, 66, 66, 250
_COLOURS = {
    "GRPO": "#555555", "PARL": "#1b6ca8", "PARL, not annealed": "#c8553d", "decision credit": "#2a9d5c",
}  # fmt: skip
_PANELS: tuple[tuple[str, Callable[[dict[str, Any]], float]], ...] = (
    ("agents spawned in an episode", lambda look: look["agents"]),
    ("share of them that finished nothing", lambda look: 1 - look["finished"] / look["agents"]),
    ("critical steps", lambda look: look["critical"]),
    ("what the policies are worth", lambda look: look["value"]),
)


def draw(runs: Sequence[dict[str, Any]], best: Sequence[float]) -> str:
    """Four panels as one SVG; `best` is V* in the first and in the second phase."""
    wide, tall = _LEFT + 2 * _WIDTH + _GAP + 24, _TOP + 2 * _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    x = _LEFT
    for arm, colour in _COLOURS.items():
        parts.append(f'<circle cx="{x + 6}" cy="16" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="20">{arm}</text>')
        x += 40 + 7 * len(arm)
    seeds = len({run["seed"] for run in runs})
    parts.append(
        f'<text x="{_LEFT}" y="38" fill="#555555">at most 100 workers; means of {seeds} seeds with 95 % intervals; '
        f"{_told(runs)}dotted: the best there is</text>"
    )
    for number, (title, figure) in enumerate(_PANELS):
        left, top = _LEFT + number % 2 * (_WIDTH + _GAP), _TOP + number // 2 * _ROW
        parts += _panel(runs, title, figure, left, top, best if title.startswith("what") else ())
    return "\n".join([*parts, "</svg>", ""])


def _told(runs: Sequence[dict[str, Any]]) -> str:
    return "workers frozen before the line, then all learn; " if runs[0]["steps"][1] else "workers frozen; "


def _panel(
    runs: Sequence[dict[str, Any]],
    title: str,
    figure: Callable[[dict[str, Any]], float],
    left: int,
    top: int,
    best: Sequence[float],
) -> list[str]:
    frozen, joint, _ = runs[0]["steps"]
    steps = [look["step"] for look in runs[0]["curve"]]
    told = {
        arm: [
            interval([figure(run["curve"][k]) for run in runs if run["arm"] == arm])
            for k in range(len(steps))
        ]
        for arm in _COLOURS
    }
    every = [mean + sign * (half or 0) for line in told.values() for mean, half in line for sign in (-1, 1)]
    low, high = min(0.0, *every, *best), max(*every, *best)
    step = next(each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if (high - low) / each <= 6)

    def x_of(number: float) -> float:
        return left + _WIDTH * number / (frozen + joint)

    def y_of(value: float) -> float:
        return top + _HEIGHT * (high - value) / (high - low)

    parts = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>']
    for number in range(int(low / step) - (low < 0), int(high / step) + 1):
        if low <= number * step <= high:
            y = y_of(number * step)
            parts.append(
                f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="#eeeeee"/>'
            )
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{number * step:g}</text>')
    if joint:
        x = x_of(frozen)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + _HEIGHT}" stroke="#999999"/>')
    for value, (begin, end) in zip(best, ((0, frozen), (frozen, frozen + joint)), strict=False):
        parts.append(
            f'<line x1="{x_of(begin):.1f}" y1="{y_of(value):.1f}" x2="{x_of(end):.1f}" y2="{y_of(value):.1f}" '
            'stroke="#999999" stroke-dasharray="2 3"/>'
        )
    for arm, line in told.items():
        ends = [
            (x_of(s), y_of(m - (h or 0)), y_of(m + (h or 0))) for s, (m, h) in zip(steps, line, strict=True)
        ]
        around = [f"{x:.1f},{high_:.1f}" for x, _, high_ in ends] + [
            f"{x:.1f},{lo:.1f}" for x, lo, _ in ends[::-1]
        ]
        parts.append(f'<polygon points="{" ".join(around)}" fill="{_COLOURS[arm]}" opacity="0.12"/>')
        points = " ".join(f"{x_of(s):.1f},{y_of(m):.1f}" for s, (m, _) in zip(steps, line, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{_COLOURS[arm]}" stroke-width="1.8"/>')
    parts += [
        f'<text x="{x_of(number):.1f}" y="{top + _HEIGHT + 16}" text-anchor="middle">{number}</text>'
        for number in range(0, frozen + joint + 1, 20)
    ]
    parts.append(
        f'<text x="{left + _WIDTH / 2}" y="{top + _HEIGHT + 32}" text-anchor="middle">steps of sixteen episodes</text>'
    )
    return parts

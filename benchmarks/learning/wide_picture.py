"""The pictures of result 14: success over tokens and over the critical path, a mark for each arm and number of tries.

What nobody else beats on both axes is joined by a line (the Pareto front); a single agent's notes over time are dotted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 400, 260, 52, 62, 56
_COLOURS = {"team": "#1b6ca8", "fold": "#c8553d", "worked": "#2a9d5c"}
_TOLD = {"team": "team", "fold": "one agent, folding", "worked": "one agent, folding and working"}
_PANELS = (("tokens", "tokens of an episode"), ("path", "critical path, seconds"))
Point = tuple[float, float, str, int]
"""Cost, success, arm, tries."""


def points(records: Sequence[dict[str, Any]], cost: str) -> list[Point]:
    """The means over seeds."""
    found = []
    for arm in _COLOURS:
        mine = [each["after"] for each in records if each["arm"] == arm]
        for n in sorted(int(key) for key in mine[0] if key.isdigit()) if mine else ():
            told = [each[str(n)] for each in mine]
            mean = {key: sum(each[key] for each in told) / len(told) for key in (cost, "success")}
            found.append((mean[cost], mean["success"], arm, n))
    return found


def front(every: Sequence[Point]) -> list[Point]:
    """Those that none beats: no other has as much success for less."""
    best: list[Point] = []
    for point in sorted(every, key=lambda each: (each[0], -each[1])):
        if not best or point[1] > best[-1][1]:
            best.append(point)
    return best


def notes(records: Sequence[dict[str, Any]], arm: str) -> list[tuple[float, float]]:
    """Mean over seeds of what stood in an arm's notes, by time; where a seed has ended its last share stays."""
    mine = [each["after"]["notes"] for each in records if each["arm"] == arm]
    longest: list[list[float]] = max(mine, key=len, default=[])
    return [
        (longest[k][0], sum(each[min(k, len(each) - 1)][1] for each in mine) / len(mine))
        for k in range(len(longest))
    ]


def draw(records: Sequence[dict[str, Any]], out: Path, guessed: tuple[str, Sequence[float]]) -> None:
    """Both as one SVG, with what a guess gets."""
    wide, tall = _LEFT + 2 * _WIDTH + _GAP + 24, _TOP + _HEIGHT + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
    ]
    for number, (arm, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + number * 190
        parts.append(f'<circle cx="{x + 6}" cy="16" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="20">{_TOLD[arm]}</text>')
    seeds = len({each["seed"] for each in records})
    parts.append(
        f'<text x="{_LEFT}" y="38" fill="#555555">means of {seeds} seeds; the number: tries, the majority answers; '
        f"line: what nothing beats; dotted: a single agent's notes at that time; dashed: always {guessed[0]}</text>"
    )
    for number, (cost, title) in enumerate(_PANELS):
        left = _LEFT + number * (_WIDTH + _GAP)
        parts += _panel(records, cost, title, left)
        y = _y(sum(guessed[1]) / len(guessed[1]))
        ends = f'x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}"'
        parts.append(f'<line {ends} stroke="#333333" stroke-dasharray="7 4"/>')
    out.write_text("\n".join([*parts, "</svg>", ""]), "utf-8")


def _panel(records: Sequence[dict[str, Any]], cost: str, title: str, left: int) -> list[str]:
    every = points(records, cost)
    most = max(each[0] for each in every) * 1.08

    def x_of(value: float) -> float:
        return left + _WIDTH * value / most

    parts = _axes(left, title, most, x_of)
    if cost == "path":
        for arm in ("fold", "worked"):
            line = " ".join(f"{x_of(t):.1f},{_y(share):.1f}" for t, share in notes(records, arm) if t <= most)
            parts.append(
                f'<polyline points="{line}" fill="none" stroke="{_COLOURS[arm]}" stroke-dasharray="2 4"/>'
            )
    line = " ".join(f"{x_of(c):.1f},{_y(s):.1f}" for c, s, _, _ in front(every))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#999999" stroke-width="1.5"/>')
    for value, success, arm, n in every:
        parts.append(f'<circle cx="{x_of(value):.1f}" cy="{_y(success):.1f}" r="5" fill="{_COLOURS[arm]}"/>')
        beside = 16 if success > 0.9 else -6  # not into the title
        parts.append(f'<text x="{x_of(value) + 7:.1f}" y="{_y(success) + beside:.1f}">{n}</text>')
    return parts


def _axes(left: int, title: str, most: float, x_of: Callable[[float], float]) -> list[str]:
    parts = [f'<text x="{left}" y="{_TOP - 8}" font-weight="bold">success over {title}</text>']
    for tenth in range(0, 11, 2):
        y = _y(tenth / 10)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}" stroke="#eeeeee"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:g}</text>')
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**9) if most / s <= 8)
    low = _TOP + _HEIGHT + 16
    parts += [
        f'<text x="{x_of(k * step):.1f}" y="{low}" text-anchor="middle">{k * step:,}</text>'
        for k in range(int(most / step) + 1)
    ]
    middle = left + _WIDTH / 2
    parts.append(f'<text x="{middle}" y="{_TOP + _HEIGHT + 36}" text-anchor="middle">{title}</text>')
    return parts


def _y(success: float) -> float:
    return _TOP + _HEIGHT * (1 - success)

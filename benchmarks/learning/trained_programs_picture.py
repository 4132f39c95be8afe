"""The picture of trained programs with SmolLM2: a panel for each, its training curves and what held-out questions gave.

Thin lines are seeds, the thick one their mean. On the right, held out: after the start, after training, and the single
agent trained alike with one try, as points with one for each seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _SIDE = 226, 190, 34, 30, 30, 46
_COLOURS = {"rollouts": "#2a6fbb", "before": "#888888", "after": "#2e8b57", "alone": "#c0392b"}
_LEGEND = (
    ("training rollouts", "rollouts"),
    ("held out, after the start", "before"),
    ("held out, after training", "after"),
    ("held out, single agent trained alike", "alone"),
)
Curves = Sequence[Sequence[float]]


def curve(path: Path) -> list[float]:
    """Mean returns of a run's rollouts, step by step."""
    lines = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return [line["return"]["mean"] for line in lines]


def _panel(title: str, left: int, curves: Curves, marks: Mapping[str, Sequence[float]]) -> list[str]:
    steps = max(map(len, curves))
    inner, tall = _WIDTH - _LEFT - _SIDE, _HEIGHT - _TOP - _BOTTOM

    def x(step: float) -> float:
        return left + _LEFT + inner * (step - 1) / max(1, steps - 1)

    def y(value: float) -> float:
        return _TOP + tall * (1 - value)

    def line(values: Sequence[float], style: str) -> str:
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in enumerate(values, 1))
        return f'<polyline points="{points}" fill="none" stroke="{_COLOURS["rollouts"]}" {style}/>'

    parts = [f'<text x="{left + _LEFT}" y="18" font-weight="600">{title}</text>']
    for level in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<line x1="{x(1):.1f}" x2="{x(steps) + _SIDE - 8:.1f}" y1="{y(level)}" y2="{y(level)}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{left + _LEFT - 4}" y="{y(level) + 3}" text-anchor="end">{level:g}</text>')
    parts += [line(each, 'opacity="0.35"') for each in curves]
    mean = [sum(values) / len(values) for values in zip(*curves, strict=True)]
    parts.append(line(mean, 'stroke-width="2"'))
    for place, (who, values) in enumerate(marks.items()):
        for value in values:
            parts.append(
                f'<circle cx="{x(steps) + 10 + 12 * place:.1f}" cy="{y(value):.1f}" r="3" fill="{_COLOURS[who]}" '
                'fill-opacity="0.7"/>'
            )
    parts.append(f'<text x="{x(steps):.1f}" y="{_HEIGHT - 12}" text-anchor="end">step {steps}</text>')
    return parts


def picture(panels: Sequence[tuple[str, Curves, Mapping[str, Sequence[float]]]]) -> str:
    """All panels side by side, as SVG."""
    parts: list[str] = []
    for number, (title, curves, marks) in enumerate(panels):
        parts += _panel(title, _WIDTH * number, curves, marks)
    at = 12
    for text, colour in _LEGEND:
        parts.append(f'<text x="{at}" y="{_HEIGHT + 12}" fill="{_COLOURS[colour]}">{text}</text>')
        at += 6 * len(text) + 24
    wide = max(_WIDTH * len(panels), at)
    box = f'viewBox="0 0 {wide} {_HEIGHT + 22}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    back = f'<rect width="{wide}" height="{_HEIGHT + 22}" fill="#fff"/>'
    return "\n".join([head, back, *parts, "</svg>\n"])


def panels_of(
    out: Path, titles: Mapping[str, str], seeds: Sequence[int], held_out: Mapping[str, Any]
) -> list[tuple[str, Curves, Mapping[str, Sequence[float]]]]:
    """What is drawn of the kept records; `held_out`: arm -> its returns before and after, seed by seed."""
    alone = held_out["alone"][1]
    found: list[tuple[str, Curves, Mapping[str, Sequence[float]]]] = []
    for arm, title in titles.items():
        before, after = held_out[arm]
        marks = {"before": before, "after": after} | ({} if arm == "alone" else {"alone": alone})
        found.append((title, [curve(out / f"{arm}{seed}.metrics.jsonl") for seed in seeds], marks))
    return found

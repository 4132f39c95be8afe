"""Curves of trained programs with what they are compared with, as one picture and one table.

python benchmarks/program_curves.py FOLDER --out docs/images/program_training.svg

FOLDER has for each run NAME.metrics.jsonl and NAME.evals.jsonl, as `baton train` leaves them in its folder; runs of one
program with other seeds are NAME1, NAME2. `alone` is the single agent, trained alike.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PANELS = {
    "plain": "plain Python",
    "handoff": "openai-agents, handoffs",
    "tools": "openai-agents, agents as tools",
    "graph": "LangGraph",
}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 250, 190, 34, 26, 30
COLOURS = {
    "train": "#2a6fbb",
    "untrained": "#999999",
    "best": "#b8860b",
    "alone": "#c0392b",
    "trained": "#2e8b57",
}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def measured(evals: list[dict[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Who -> return, half the width of its interval, tokens of an episode."""
    names = {"untrained": "untrained", "team": "trained"}
    found = {}
    for line in evals:
        who = names.get(line["who"], line["who"].partition("-")[0])
        if line.get("return"):
            found[who] = (line["return"]["mean"], line["return"]["half"] or 0.0, line["tokens"])
    return found


def panel(title: str, runs: list[Path], alone: Path, left: int) -> str:
    """One program: its training curves, and what was measured on held-out questions."""
    steps = max((line["step"] for run in runs for line in lines_of(run)), default=1)
    inner, tall = WIDTH - LEFT - 12, HEIGHT - TOP - BOTTOM

    def x(step: float) -> float:
        return left + LEFT + inner * step / steps

    def y(value: float) -> float:
        return TOP + tall * (1 - value)

    parts = [f'<text x="{left + LEFT}" y="16" font-weight="600">{title}</text>']
    for level in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line x1="{x(0)}" x2="{x(steps)}" y1="{y(level)}" y2="{y(level)}" stroke="#ddd"/>')
        parts.append(f'<text x="{left + LEFT - 4}" y="{y(level) + 3}" text-anchor="end">{level:g}</text>')
    for number, run in enumerate(runs):
        points = [(line["step"], line["return"]["mean"]) for line in lines_of(run)]
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
        faint = ' opacity="0.4"' if number else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS["train"]}" stroke-width="1.6"{faint}/>'
        )
    known = measured(lines_of(Path(str(runs[0]).replace("metrics", "evals"))))
    single = measured(lines_of(alone)).get("trained")
    shown = [(who, *known[who]) for who in ("untrained", "best", "alone", "trained") if who in known]
    for number, (who, value, half, _) in enumerate(shown):
        place = x(steps) - 6 * (len(shown) - number)
        parts.append(
            f'<line x1="{x(0)}" x2="{x(steps)}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{COLOURS[who]}" '
            'stroke-dasharray="5 3"/>'
        )
        low, high = y(max(0.0, value - half)), y(min(1.0, value + half))
        parts.append(
            f'<line x1="{place}" x2="{place}" y1="{low:.1f}" y2="{high:.1f}" stroke="{COLOURS[who]}" stroke-width="2"/>'
        )
    if single is not None:
        level, colour = y(single[0]), COLOURS["alone"]
        parts.append(
            f'<line x1="{x(0)}" x2="{x(steps)}" y1="{level:.1f}" y2="{level:.1f}" stroke="{colour}" '
            'stroke-dasharray="1 3" stroke-width="2"/>'
        )
    parts.append(f'<text x="{x(steps)}" y="{HEIGHT - 14}" text-anchor="end">step {steps}</text>')
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Curves of trained programs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    drawn, rows = [], []
    for name, title in PANELS.items():
        runs = sorted(each for each in args.folder.glob(f"{name}*.metrics.jsonl") if lines_of(each))
        if not runs:
            continue
        drawn.append(panel(title, runs, args.folder / "alone.evals.jsonl", WIDTH * len(drawn)))
        for run in runs:
            known = measured(lines_of(Path(str(run).replace("metrics", "evals"))))
            cells = [
                f"{known[who][0]:.2f} ± {known[who][1]:.2f} ({known[who][2]:.0f})" if who in known else "–"
                for who in ("untrained", "trained", "best", "alone")
            ]
            rows.append(f"| {run.name.partition('.')[0]} | {' | '.join(cells)} |")
    legend = [
        ("training rollouts", "train"), ("held out: untrained", "untrained"), ("untrained, best of n", "best"),
        ("single agent: same weights (dashes), trained alike (dots)", "alone"), ("trained", "trained"),
    ]  # fmt: skip
    at, words = 10, []
    for text, colour in legend:
        words.append(f'<text x="{at}" y="{HEIGHT + 12}" fill="{COLOURS[colour]}">{text}</text>')
        at += 7 * len(text) + 14
    wide = max(WIDTH * len(drawn), at)
    box = f'viewBox="0 0 {wide} {HEIGHT + 22}" font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    back = f'<rect width="{wide}" height="{HEIGHT + 22}" fill="#fff"/>'
    args.out.write_text("\n".join([head, back, *drawn, *words, "</svg>\n"]))
    print("| run | untrained | trained | untrained, best of n | single agent, same weights, best of n |")
    print("|---|---|---|---|---|")
    print("\n".join(rows))
    if single := measured(lines_of(args.folder / "alone.evals.jsonl")):
        before, (after, half, _) = single["untrained"][0], single["trained"]
        print(f"single agent trained alike: {before:.2f} -> {after:.2f} ± {half:.2f}")


if __name__ == "__main__":
    main()

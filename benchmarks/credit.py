"""Credit against the truth: every estimator that applies, on games whose exact credit is known.

    python benchmarks/credit.py [--quick] [--json] [--seed N] [--plot FILE] [--coverage]

Prints tables as Markdown, or everything as JSON; `--plot` also writes how credit diffuses with length, as SVG. The exit
code is 1 where a target was missed, but never with --quick: a tenth of the samples is for looking, not for judging.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from credit_bench import Figure, Report, Target, intervals, measure
from credit_bench.coverage import ENOUGH, Coverage, Held
from credit_bench.few_draws import Few
from credit_bench.ladder import Rung
from credit_bench.varied_text import Kept

_COLUMNS = (
    "game",
    "unit",
    "estimator",
    "samples",
    "bias",
    "in s.e.",
    "RMSE",
    "tokens",
    "RMSE x sqrt(tokens)",
    "Spearman",
    "sign",
    "coverage",
    "with interval",
)
_WIDTH, _HEIGHT, _MARGIN = 520, 320, 60
_SERIES = (
    ("uniform", "#b3261e", "uniform credit"),
    ("decision_own_luck", "#8a6d00", "decision credit, own luck"),
    ("decision", "#1a5fb4", "decision credit, common random numbers"),
)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the samples (default 0)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the plot here, as SVG")
    parser.add_argument(
        "--coverage", action="store_true", help="the tables on intervals and varied text alone"
    )
    args = parser.parse_args(given)
    if args.coverage:
        found = intervals(quick=args.quick, seed=args.seed)
        print(
            "\n".join(
                [*coverage_lines(found.coverage), "", *few_lines(found.few), "", *kept_lines(found.kept)]
            )
        )
        return 0 if args.quick or found.met else 1
    report = measure(quick=args.quick, seed=args.seed, tell=_tell)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(_told(report)), indent=2).decode())
    else:
        print(markdown(report))
    if args.plot is not None:
        args.plot.write_text(plot(report.ladder))
    return 0 if report.met or args.quick else 1


def _tell(what: str) -> None:
    print(f"credit, {what}", file=sys.stderr, flush=True)


def _told(report: Report) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(report)
    for row, figure in zip(told["figures"], report.figures, strict=True):
        row["rmse_per_token"] = figure.rmse_per_token
    return told


def markdown(report: Report) -> str:
    """The report as tables."""
    lines = [
        "Against what was promised:",
        "",
        *_table(("what", "value", "target", "met"), [_target_row(t) for t in report.targets]),
        "",
        "Estimators (an estimate of zero counts half for the sign; `*` claims to have no bias; -: not measured):",
        "",
        *_table(_COLUMNS, [_figure_row(f) for f in report.figures]),
        "",
        *coverage_lines(report.coverage),
        "",
        *few_lines(report.few),
        "",
        *kept_lines(report.kept),
        "",
        "Signal to noise of the one choice that matters, by length of the trace:",
        "",
        *_table(
            ("steps", "uniform, by formula", "uniform", "decision, own luck", "decision, common luck"),
            [
                (
                    f"{r.length:,}",
                    *(f"{x:.3f}" for x in (r.formula, r.uniform, r.decision_own_luck, r.decision)),
                )
                for r in report.ladder
            ],
        ),
    ]
    if report.not_applicable:
        named = (f"{name} ({_first_sentence(why)})" for name, why in report.not_applicable.items())
        lines += ["", f"In no row: {'; '.join(named)}."]
    return "\n".join(lines)


def coverage_lines(rows: Sequence[Coverage]) -> list[str]:
    """How often intervals hold the truth, by estimator."""
    columns = ("estimator", "is to hold", "1", "8", "64", "n = 32", "0/1", "0/1, 32", "stated", "93-97")
    return [
        "How often value +- 1.96 errors holds the truth: groups of 8 in 1, 8 and 64 texts, of 32 in 64",
        "texts, and the last two with returns of 0 or 1, which are to hold it at least 93 times in 100. Not",
        f"judged (in brackets): fewer than {ENOUGH} intervals. Two errors of the count are allowed, over groups.",
        "",
        *_table(columns, [_coverage_row(row) for row in rows]),
    ]


def _coverage_row(row: Coverage) -> tuple[str, ...]:
    told = [held for held in row.cases if held is not None]
    met = {True: "yes", False: "no", None: "-"}[row.met]
    stated = sum(held.stated for held in told) / len(told)
    return row.estimator, row.holds, *map(_held, row.cases), f"{stated:.2f}", met


def few_lines(rows: Sequence[Few]) -> list[str]:
    """The same from few draws."""
    columns = ("estimator", "from", "held", "stated", ">= 93")
    return [
        "From few draws, where 93 to 97 cannot be had whatever the interval, it is to hold the truth at least",
        "93 times in 100:",
        "",
        *_table(
            columns,
            [
                (
                    row.estimator,
                    row.world,
                    _held(row.held),
                    f"{row.held.stated:.2f}",
                    {True: "yes", False: "no", None: "-"}[row.met],
                )
                for row in rows
            ],
        ),
    ]


def _held(held: Held | None) -> str:
    if held is None or held.share is None:
        return "-"
    shown = f"{held.share:.3f}".lstrip("0")
    return shown if held.num >= ENOUGH else f"({shown})"


def kept_lines(rows: Sequence[Kept]) -> list[str]:
    """What is left of credit where texts vary."""
    columns = ("estimator", "second: 1", "8", "64", "first: 1", "8", "64")
    return [
        "Only the second of two choices matters, without luck; groups of 8, first answers in 1, 8 and 64",
        "texts. Second: the share of its exact credit that it keeps; first: what the worthless one is given,",
        "over the deviation of returns.",
        "",
        *_table(
            columns,
            [
                (row.estimator, *("-" if x is None else f"{x:.2f}" for x in (*row.second, *row.first)))
                for row in rows
            ],
        ),
    ]


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".").replace("|", "\\|")


def _target_row(target: Target) -> tuple[str, ...]:
    met = "yes" if target.met else "no"
    return target.what, _number(target.value), target.target, "-" if target.target == "none" else met


def _figure_row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.game,
        figure.unit,
        figure.estimator + (" *" if figure.unbiased else ""),
        f"{figure.num_samples:,}",
        f"{figure.bias:+.4f}",
        _number(None if figure.bias_z is None else round(figure.bias_z, 6)),
        f"{figure.rmse:.4f}",
        "-" if figure.tokens is None else f"{figure.tokens:,.0f}",
        _number(figure.rmse_per_token),
        *(_number(x) for x in (figure.spearman, figure.sign, figure.coverage, figure.intervals)),
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


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
    sys.exit(main())

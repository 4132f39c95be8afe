"""`baton bench credit`: every credit estimator that applies, against games whose exact credit is known."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from credit_bench import Figure, Report, Target, measure

__all__ = ["add_arguments", "markdown", "run"]

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    credit = parts.add_parser(
        "credit", help="bias, error, order, sign, coverage and cost of credit estimators"
    )
    credit.add_argument("--json", action="store_true", help="everything, as JSON")
    credit.add_argument("--quick", action="store_true", help="a tenth of the samples")
    credit.add_argument("--seed", type=int, default=0, metavar="N", help="of the samples (default 0)")


def run(args: argparse.Namespace) -> int:
    report = measure(quick=args.quick, seed=args.seed, tell=_tell)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(_told(report)), indent=2).decode())
    else:
        print(markdown(report))
    # A tenth of the samples is for looking, not for judging.
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

"""`baton sandbox`: how well code that a model wrote is kept in on this machine, as tried."""

from __future__ import annotations

import argparse

from baton.cli.printing import aligned, print_json, remark
from baton.team.tools.sandbox import protection
from baton.team.tools.sandbox_levels import DEFAULT, LEVELS, PROTECTS, refusal
from baton.view.terminal.screen import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--least",
        choices=LEVELS,
        default=DEFAULT,
        help=f"exit with 1 where it is weaker (default: {DEFAULT})",
    )
    parser.add_argument(
        "--json", action="store_true", help="the level, its layers, and what is missing, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    found = protection()
    met = found.meets(args.least)
    if args.json:
        print_json({"level": found.level, "layers": found.layers, "missing": found.missing, "met": met})
        return 0 if met else 1
    rows = [("level", "here", "what holds")]
    rows += [(level, "yes" if found.meets(level) else "no", PROTECTS[level]) for level in LEVELS]
    emit(
        [
            [(f"sandbox level: {found.level or 'none'}", "")],
            [(f"layers in force: {', '.join(found.layers) or 'none'}", "")],
            *([(f"not in force: {layer}: {why}", "")] for layer, why in found.missing.items()),
            [("", "")],
            *aligned(rows),
        ]
    )
    if not met:
        remark(f"baton sandbox: {refusal(found, args.least)}")
    return 0 if met else 1

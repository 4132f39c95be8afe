"""`--prices FILE` of commands that say what traces cost in money."""

from __future__ import annotations

import argparse
from pathlib import Path

from baton.measure.prices import PriceTable, read_prices


def add_prices(parser: argparse.ArgumentParser) -> None:
    """The option; without it no price is known."""
    parser.add_argument("--prices", metavar="FILE", help="what models cost, for a million tokens, in TOML")


def prices_given(args: argparse.Namespace) -> PriceTable:
    """The table that was given; an empty one where none was."""
    return PriceTable() if args.prices is None else read_prices(Path(args.prices))

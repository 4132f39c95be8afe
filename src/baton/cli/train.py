"""`baton train`: make a team better by a recipe, show it, and keep everything."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from baton.errors import MissingExtraError, UsageError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="a recipe's name (baton recipes) or a TOML file"
    )
    parser.add_argument(
        "--set",
        metavar="K=V",
        dest="changes",
        action="append",
        default=[],
        help="change a setting; repeatable",
    )
    parser.add_argument("--out", metavar="DIR", help="where the run goes (runs/RECIPE-TIME)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  baton train flagship --out runs/flagship\n"
        "  baton train grpo --set train.steps=10 --set rollout.groups=4\n"
        "  baton train --resume --out runs/flagship\n"
    )


def run(args: argparse.Namespace) -> int:
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("training", "torch") from error
    from baton.cli.train_display import Display
    from baton.learn.recipe import load
    from baton.learn.session import Session

    display = Display()
    if args.resume:
        if args.out is None or args.recipe or args.changes:
            raise UsageError(
                "to go on with a run, name its folder alone. Type: baton train --resume --out DIR"
            )
        out = Path(args.out)
        session = Session.resume(out, display.note)
    else:
        if args.recipe is None:
            raise UsageError("which recipe? Type: baton recipes, for all of them; or: baton train flagship")
        recipe = load(args.recipe, args.changes)
        name = Path(args.recipe).stem if args.recipe.endswith(".toml") else args.recipe
        out = Path(args.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
        session = Session.begin(recipe, name, out, display.note)
    return _go(session, out, display)


def _go(session: Any, out: Path, display: Any) -> int:
    from baton.learn.trainer import Diverged
    from baton.view.training import write_report

    began = time.monotonic()
    try:
        with display.steps(session):
            for line in session.steps():
                display.step(line)
        display.note("measuring the trained team")
        lines = session.finish()
    except Diverged as error:
        print(f"baton train: {error}\nThe last good checkpoint is in {out}/checkpoints.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nStopped. Type: baton train --resume --out {out}", file=sys.stderr)
        return 130
    finally:
        session.close()
    write_report(out)
    display.end(session, lines, time.monotonic() - began)
    print(f"report   {out}/report.html\nType: baton view {out}")
    return 0

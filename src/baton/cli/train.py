"""`baton train`: make a team better by a recipe, show it, and keep everything."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from baton.errors import MissingExtraError, UsageError
from baton.view.terminal import emit
from baton.view.training import write_report
from baton.view.training_run import read_run
from baton.view.training_text import outcome

if TYPE_CHECKING:
    from baton.cli.train_display import Display
    from baton.learn.session import Session

__all__ = ["add_arguments", "need_torch", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  baton train flagship --out runs/flagship\n"
        "  baton train flagship --set train.steps=10 --set rollout.groups=4\n"
        "  baton train --resume --out runs/flagship"
    )
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="a recipe's name or a TOML file")
    parser.add_argument(
        "--set",
        metavar="K=V",
        dest="changes",
        action="append",
        default=[],
        help="change a setting; repeatable",
    )
    parser.add_argument("--out", metavar="DIR", help="where the run goes (default: runs/RECIPE-TIME)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")


def run(args: argparse.Namespace) -> int:
    from baton.cli.train_display import Display

    with Display() as display:
        need_torch()
        session, out = _resumed(args, display) if args.resume else _begun(args, display)
        try:
            code = _go(session, out, display)
        finally:
            session.close()
        display.note("writing the report")
        write_report(out)
    if code == 0:
        emit(outcome(read_run(out)))
        print()
    print(f"report   {out / 'report.html'}")
    print(f"Type: {_next(code, out)}", flush=True)
    return code


def need_torch() -> None:
    try:
        import tomli_w  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("training", "train") from error


def _begun(args: argparse.Namespace, display: Display) -> tuple[Session, Path]:
    from baton.learn.recipe import load
    from baton.learn.session import Session

    if args.recipe is None:
        raise UsageError("which recipe? Type: baton recipes, for all of them, or: baton train flagship")
    recipe = load(args.recipe, args.changes)
    name = Path(args.recipe).stem if args.recipe.endswith(".toml") else args.recipe
    out = Path(args.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Give a folder: --out runs/{name}")
    return Session.begin(recipe, name, out, display.note), out


def _resumed(args: argparse.Namespace, display: Display) -> tuple[Session, Path]:
    from baton.learn.session import Session

    if args.out is None or args.recipe or args.changes:
        raise UsageError("to go on with a run, name its folder alone. Type: baton train --resume --out DIR")
    out = Path(args.out)
    if not (out / "run.json").is_file():
        raise UsageError(f"{out} holds no run: it has no run.json. Type: baton train RECIPE --out {out}")
    known = read_run(out)
    if known.told.get("status") == "finished":
        raise UsageError(f"the run in {out} is finished. Type: baton eval {shlex.quote(str(out))}")
    session = Session.resume(out, display.note)
    display.note(f"going on after step {session.trainer.step_number} of {session.recipe.train.steps}")
    return session, out


def _go(session: Session, out: Path, display: Display) -> int:
    """All steps that are left; the exit code."""
    from baton.learn.trainer import Diverged

    display.begin(read_run(out))
    try:
        for line in session.steps():
            display.step(line)
        display.note("measuring the trained team")
        session.finish()
    except Diverged as error:
        print(f"baton train: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        session.folder.tell({"status": "stopped", "why": "interrupted"})
        kept = (session.folder.checkpoints / "latest").read_text("utf-8").strip()
        print(
            f"Stopped after step {session.trainer.step_number}; the last checkpoint is {kept}.",
            file=sys.stderr,
        )
        return 130
    return 0


def _next(code: int, out: Path) -> str:
    place = shlex.quote(str(out))
    baton = _typed()
    if code == 0:
        return f"{baton} view {place}"
    if code == 130:
        return f"{baton} train --resume --out {place}"
    return f"{baton} eval {place}, for what its last good checkpoint is worth"


def _typed() -> str:
    """How this command is typed here: by its name, or by the path it was started with."""
    started = Path(sys.argv[0])
    return str(started) if started.name == "baton" and shutil.which("baton") is None else "baton"

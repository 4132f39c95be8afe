"""`baton train`: make a team better by a recipe, show it, and keep everything."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baton.cli import add_credentials, add_repeated, add_trust
from baton.cli.printing import aligned, remark, say
from baton.compose.again import need_torch
from baton.compose.stage_from_recipe import make_stage
from baton.compose.trust import check_recipe, recipe_in
from baton.compose.waking import Ending, Terminated, exit_code, silence, why_stopped
from baton.engine import is_engine
from baton.errors import UsageError
from baton.learn.models import check_model_words
from baton.learn.recipe import load
from baton.learn.run.folder import Folder
from baton.learn.run.loggers import check_loggers
from baton.team.credentials import credentials_of
from baton.view.report.run_figures import read_run
from baton.view.report.training_report import write_report
from baton.view.terminal.screen import emit
from baton.view.terminal.training_result import outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from baton.learn.run.session import Session
    from baton.view.terminal.training_progress import Display

    Begin = Callable[[], Session]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton train flagship --out runs/flagship\n"
        "  baton train flagship --set train.steps=10 --set rollout.groups=4\n"
        "  baton train --resume --out runs/flagship\n"
        "  baton train --resume --out runs/flagship --set train.steps=80   # further than it was to go\n"
        "  baton train flagship --set train.steps=5 --profile              # and where the time goes"
    )
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", help="a recipe's name or a TOML file")
    add_repeated(parser, "--set", "K=V", "change a setting", dest="changes")
    parser.add_argument("--out", metavar="DIR", help="where the run goes (default: runs/RECIPE-TIME)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="show where each step's time went, and keep a Chrome trace of it",
    )
    add_credentials(parser)
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") != "0":
        need_torch()
        from baton.learn.scale.sharded_ranks import wait_to_be_told

        return wait_to_be_told()
    from baton.view.terminal.training_progress import Display

    with Display() as display, Ending() as ending:
        begin = _resumed(args, display) if args.resume else _begun(args, display)
        need_torch()  # takes seconds, and a mistake is answered at once
        try:
            session = begin()
        except KeyboardInterrupt as stop:
            remark("Stopped before the first step: nothing was trained.")
            return exit_code(stop)
        try:
            code, following = _go(session, display, ending)
        finally:
            session.close()
        out = session.folder.path
        display.note("writing the report")
        write_report(out)
    try:
        if code == 0:
            emit(outcome(read_run(out)))
            say()
        if args.profile:
            _say_profile(out)
        say(f"report   {out / 'report.html'}")
        say(f"Type: {following}")
    except BrokenPipeError:  # the run is over, and its folder says how
        silence(sys.stdout)
    return code


def _begun(args: argparse.Namespace, display: Display) -> Begin:
    if args.recipe is None:
        raise UsageError("which recipe? Type: baton recipes, for all of them, or: baton train flagship")
    recipe = load(args.recipe, args.changes, trust=args.trust)
    if not args.trust:
        check_recipe(recipe, f"recipe {args.recipe}", args.changes)
    name = Path(args.recipe).stem if args.recipe.endswith(".toml") else args.recipe
    out = Path(args.out or f"runs/{name}-{datetime.now():%Y%m%d-%H%M%S}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file. Give a folder: --out runs/{name}")
    Folder(out).check_free()
    check_loggers(recipe)
    credentials = credentials_of(args.credentials)
    # A task or a team that cannot be is refused before torch is loaded.
    make_stage(recipe, credentials=credentials).check_tools()
    for part in recipe.policies.values():
        if not is_engine(part.model):
            check_model_words(part.model, part.device, part.dtype)

    def begin() -> Session:
        from baton.compose.training import Own
        from baton.compose.training import begin as begin_run

        own = Own(credentials=credentials)
        return begin_run(recipe, name, out, display.note, own, profile=args.profile)

    return begin


def _resumed(args: argparse.Namespace, display: Display) -> Begin:
    if args.out is None or args.recipe:
        raise UsageError("to go on with a run, name its folder alone. Type: baton train --resume --out DIR")
    out = Path(args.out)
    Folder(out).told()  # says so if there is none, or it cannot be read
    recipe_in(out, trust=args.trust)  # refused before torch is loaded
    credentials = credentials_of(args.credentials)

    def begin() -> Session:
        from baton.compose.training import Own, go_on

        own = Own(credentials=credentials)
        session = go_on(out, display.note, args.changes, own, trust=args.trust, profile=args.profile)
        display.note(f"going on after step {session.trainer.step_number} of {session.recipe.train.steps}")
        return session

    return begin


def _go(session: Session, display: Display, ending: Ending) -> tuple[int, str]:
    """All steps that are left; the exit code, and what to type next."""
    from baton.learn.trainer import Diverged

    out = session.folder.path
    baton, place = _typed(), shlex.quote(str(out))
    display.begin(read_run(out))
    try:
        for line in session.steps():
            display.step(line)
            ending.step_seconds = line["rollout_seconds"] + line["update_seconds"]
            if ending.asked:
                session.checkpoint()
                raise Terminated
        ending.step_seconds = None
        display.note("measuring the trained team")
        session.finish()
    except Diverged as error:
        remark(f"baton train: {error}")
        worth = f"{baton} eval {place}, for what its last good checkpoint is worth"
        return 1, worth if error.lower is None else f"{_slower(baton, out, error.lower)}; or {worth}"
    except KeyboardInterrupt as stop:
        session.folder.tell({"status": "stopped", "why": why_stopped(stop)})
        kept = (session.folder.checkpoints / "latest").read_text("utf-8").strip()
        done = session.trainer.step_number
        remark(f"Stopped after step {done}; the last checkpoint is {kept}.")
        return exit_code(stop), f"{baton} train --resume --out {place}"
    return 0, f"{baton} view {place}"


def _say_profile(out: Path) -> None:
    """Where the time of the steps went; nothing where there was none."""
    from baton.learn.run.profile_parts import FILE, table

    if rows := table(out):
        emit(aligned(rows, "bold", right=(1, 2, 3, 4)))
        say(f"profile  {out / FILE} (open it at https://ui.perfetto.dev or chrome://tracing)")
        say()


def _slower(baton: str, out: Path, setting: str) -> str:
    """How to go on with a lower rate of learning."""
    value: Any = load(str(out / "recipe.toml"), trust=True)  # it has been trained by just now
    for name in setting.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return (
        f"{baton} train --resume --out {shlex.quote(str(out))} --set {setting}={value / 3:.2g}, to go on from there "
        "more slowly"
    )


def _typed() -> str:
    """How this command is typed here: by its name, or by the path it was started with."""
    started = Path(sys.argv[0])
    return str(started) if started.name == "baton" and shutil.which("baton") is None else "baton"

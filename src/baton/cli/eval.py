"""`baton eval`: a training run's latest checkpoint measured again, beside the weights it started from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from baton.cli import add_credentials, add_trust
from baton.compose.again import need_torch
from baton.compose.trust import recipe_in
from baton.errors import UsageError
from baton.learn.run.folder import Folder
from baton.team.credentials import credentials_of
from baton.view.report.run_figures import read_run, standings
from baton.view.terminal.screen import emit, take_every_character
from baton.view.terminal.training_result import standing_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  baton eval runs/flagship                     # the instances the run itself was measured on\n"
        "  baton eval runs/flagship --seed 7 --episodes 1000\n"
    )
    parser.add_argument("run", metavar="DIR", help="a folder of `baton train`")
    parser.add_argument("--episodes", type=int, metavar="N", help="how many (default: the recipe's)")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of the held-out instances (default: the run's)"
    )
    parser.add_argument("--keep", action="store_true", help="add the measurement to DIR/evals.jsonl")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_credentials(parser)
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    out = Path(args.run)
    Folder(out).told()  # says so if there is none, or it cannot be read
    if args.episodes is not None and args.episodes < 1:
        raise UsageError(f"--episodes {args.episodes}: expected 1 or more.")
    if args.seed is not None and args.seed < 0:
        raise UsageError(f"--seed {args.seed}: expected 0 or more.")
    recipe_in(out, trust=args.trust)  # refused before torch is loaded
    credentials = credentials_of(args.credentials)
    from baton.view.terminal.training_progress import Display

    with Display() as display:
        need_torch()
        display.note("loading the latest checkpoint")
        from baton.compose.training import Own, measure_again

        measured = measure_again(
            out,
            episodes=args.episodes,
            seed=args.seed,
            keep=args.keep,
            progress=display.note,
            own=Own(credentials=credentials),
            trust=args.trust,
        )
    known = read_run(out)
    own_seed = known.told.get("seed")
    rows = [*(line for line in known.evals if _stands_beside(line, measured, own_seed)), *measured]
    if args.json:
        take_every_character(data=True)
        print(msgspec.json.encode({"run": known.told, "evals": rows}).decode())
        return 0
    after = measured[-1]
    title = f"{known.said('recipe')} on {known.said('task')}: checkpoint of step {after['step']}, seed {after['seed']}"
    emit([[(title, "bold")], [], *standing_table(standings(structs.replace(known, evals=rows)))])
    return 0


def _stands_beside(line: dict[str, Any], measured: list[dict[str, Any]], own_seed: object) -> bool:
    """What the run wrote down of others: exact, or measured on these very instances."""
    if line.get("who") in {each["who"] for each in measured}:
        return False
    these = (measured[0]["episodes"], measured[0]["seed"])
    return line.get("episodes") is None or (line["episodes"], line.get("seed", own_seed)) == these

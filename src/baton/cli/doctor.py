"""`baton doctor`: what this machine can do and what is missing, one line each, with what to type."""

from __future__ import annotations

import argparse
from pathlib import Path

from baton.cli import add_repeated, add_trust
from baton.cli.printing import print_json, say
from baton.compose.doctor.asked import fits, server
from baton.compose.doctor.diagnosis import Diagnosis, can_run
from baton.compose.doctor.machine import machine, torch
from baton.compose.doctor.packages import elsewhere, packages
from baton.compose.trust import check_recipe
from baton.errors import UsageError
from baton.learn.recipe import Recipe, load
from baton.view.terminal.fitting import Line
from baton.view.terminal.screen import emit
from baton.view.text import printable

_STYLES = {"ok": "green", "missing": "yellow", "bad": "red", "unknown": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "It exits with 1 where something that was asked for cannot run here; what is optional counts for nothing.\n\n"
        "examples:\n"
        "  baton doctor\n"
        "  baton doctor flagship --set scale.rollout_workers=2 --set scale.trainer_processes=2\n"
        "  baton doctor vllm:http://127.0.0.1:8000\n"
        "  baton doctor --python .venv-vllm/bin/python"
    )
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="a recipe whose [scale] is to run here, or vllm:URL"
    )
    add_repeated(parser, "--set", "K=V", "change a setting", dest="changes")
    parser.add_argument("--python", metavar="PATH", help="look at another environment, for vLLM")
    parser.add_argument("--out", metavar="DIR", default="runs", help="where runs are kept (default: runs)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    asked_server = args.recipe if (args.recipe or "").startswith("vllm:") else None
    recipe = None if asked_server else _recipe(args)
    parts: dict[str, list[Diagnosis]] = {}
    if asked_server:
        parts["server"] = list(server(asked_server))
    elif args.python is not None and recipe is None:
        parts["environment"] = elsewhere(args.python)
    else:
        parts["machine"] = [*machine(Path(args.out)), *torch()]
        parts["packages"] = packages()
        if args.python is not None:
            parts["environment"] = elsewhere(args.python)
        if recipe is not None:
            parts["recipe"] = list(fits(recipe, parts["machine"]))
    every = [each for some in parts.values() for each in some]
    able = can_run(every)
    if args.json:
        print_json({"can_run": able, **parts})
        return 0 if able else 1
    _print(parts)
    if able:
        what = args.recipe or ("that environment" if args.python is not None else "baton train")
        say(f"nothing is in the way of {printable(what)}", "green")
    else:
        say(f"in the way: {', '.join(printable(each.part) for each in every if each.state == 'bad')}", "red")
    return 0 if able else 1


def _recipe(args: argparse.Namespace) -> Recipe | None:
    if args.recipe is None:
        if args.changes:
            raise UsageError(
                "--set changes a recipe. Type: baton doctor flagship --set scale.rollout_workers=2"
            )
        return None
    recipe = load(args.recipe, args.changes, trust=args.trust)
    if not args.trust:
        check_recipe(recipe, f"recipe {args.recipe}", args.changes)
    return recipe


def _print(parts: dict[str, list[Diagnosis]]) -> None:
    """A line for each finding, and one below it with what to type."""
    for name, findings in parts.items():
        wide = max(len(each.part) for each in findings)
        lines: list[Line] = [[(name, "bold")]]
        for each in findings:
            state = (f"  {each.state:<7}  ", _STYLES[each.state])
            lines.append([state, (f"{printable(each.part):<{wide}}  {printable(each.said)}", "")])
            if each.type is not None:
                lines.append([(f"{'':11}{'':{wide}}  type: {printable(each.type)}", "dim")])
        emit([*lines, []])

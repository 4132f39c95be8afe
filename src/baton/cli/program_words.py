"""What commands have in common that run a program of somebody else's: `baton COMMAND ... -- python my_agent.py`."""

from __future__ import annotations

import argparse

from baton.cli import add_repeated
from baton.errors import UsageError, closest
from baton.registry import TRUST
from baton.serve.backend import Backend
from baton.serve.journal import KeptSession


def add_program(parser: argparse.ArgumentParser, about: str) -> None:
    """The program after `--`. It is taken off the line before the parser reads it (`RUNS_PROGRAM`)."""
    parser.add_argument("program", nargs="?", metavar="-- COMMAND...", help=about)


def add_replay(parser: argparse.ArgumentParser) -> None:
    """How a program is run on a recording."""
    parser.add_argument("--session", metavar="NAME", help="with --: which session, where there are several")
    parser.add_argument("--cwd", metavar="DIR", help="with --: the folder that the program works in")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help="with --: how long it may take")
    add_repeated(parser, "--mask", "PATTERN", "with --: what may differ, a regular expression")
    parser.add_argument("--masks", metavar="FILE", help="with --: more of them, as TOML")
    parser.add_argument(
        "--exact", action="store_true", help="with --: nothing may differ, not even times and ids"
    )
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="with --: what the program writes into its folder is gone afterwards (Linux)",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Who answers what no recording has."""
    parser.add_argument(
        "--engine",
        metavar="SPEC",
        help="with --: who answers what is new (default: who answered the session)",
    )


def read_engine(args: argparse.Namespace, session: KeptSession) -> Backend:
    """The backend that answers what is new: the one that is named, else the one of the recording."""
    if args.engine is not None:
        return named_backend(args.engine)
    recorded = session.about.get("engine")
    if not isinstance(recorded, str):
        raise UsageError("the recording does not say who answered it. Name an engine: --engine SPEC")
    if not args.trust and not _is_harmless(recorded):
        raise UsageError(
            f"the recording was answered by {recorded!r}, which imports a module or asks a server. If you trust it, "
            f"type: {TRUST}. Otherwise name an engine: --engine SPEC"
        )
    return named_backend(recorded)


def named_backend(spec: str) -> Backend:
    """The backend of a specification; `smollm2` and `tiny` are models by name, as policies are written."""
    from baton.learn.models import MODELS, model_engine
    from baton.serve.backends import make_backend

    name = spec.partition("?")[0]
    meant = closest(name, MODELS)
    if name not in MODELS and ":" not in name and meant is not None:
        raise UsageError(f"there is no engine {name!r}. Did you mean {meant!r}?")
    if name not in MODELS:
        return make_backend(spec)
    from baton.engine.torch import TorchEngine
    from baton.serve.backends.torch import over_engine

    engine = model_engine(spec)
    assert isinstance(engine, TorchEngine), "models by name are local ones"
    return over_engine(engine)


def _is_harmless(spec: str) -> bool:
    """Whether a specification in a file of somebody else's can neither import code nor reach a server."""
    kind, _, rest = spec.partition(":")
    return kind == "torch" or (kind == "scripted" and (rest in ("", "echo") or rest.endswith(".jsonl")))


def program_of(args: argparse.Namespace) -> list[str] | None:
    """The program to run; None: the command is about a trace of Baton's own."""
    found: list[str] | str | None = args.program
    if isinstance(found, str):
        raise UsageError(f"what is {found!r}? A program stands after --, for example: -- python my_agent.py")
    if found is not None and not found:
        raise UsageError("which program? Type it after --, for example: -- python my_agent.py")
    return found


_ONLY = ("session", "cwd", "timeout", "mask", "masks", "exact", "read_only")


def refuse_program_options(args: argparse.Namespace, *more: str) -> None:
    """Raise where an option is given that is only for programs, and there is none."""
    for name in (*_ONLY, *more):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} is for a program that is run again. Type it at the end: -- python my_agent.py"
            )

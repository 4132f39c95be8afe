"""The `baton` command. One file per subcommand; a file is imported only when its command runs.

A command module has `add_arguments(parser)` and `run(args) -> int` (the exit code).
A user's mistake is one line on stderr and exit 2, never a traceback.
"""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from baton import __version__
from baton.cli.command_parser import CommandParser, complain
from baton.compose.waking import silence
from baton.errors import BatonError, nearest
from baton.registry import TRUST
from baton.view.terminal.fitting import wrapped_text
from baton.view.terminal.live import live_line
from baton.view.terminal.plain_characters import prepare_streams

__all__ = ["COMMANDS", "add_policy", "add_repeated", "add_trace", "add_trust", "main"]

# command -> one line of help. The module is baton.cli.<command>, unless `_MODULES` says otherwise.
COMMANDS: dict[str, str] = {
    "init": "write a small project to start from: a task, a reward, a recipe, a test",
    "tasks": "list what a team can work on, or show one task with an example",
    "run": "let a team work on a task and keep its trace",
    "resume": "go on with a run that was cut off",
    "steer": "pause a run that goes on, speak to its agents, edit, stop a branch, approve, go on",
    "replay": "run a trace again from its own answers, exactly",
    "fork": "run a trace again with one thing different",
    "validate": "check traces at three levels and report every problem at once",
    "show": "print a trace as a readable tree",
    "view": "look at traces and training runs in the browser",
    "notes": "write notes and labels beside traces, and make rewards or a test set of them",
    "export": "write a trace as one page that opens anywhere",
    "stats": "count what is in traces: events, agents, tokens, time, parallelism",
    "import": "read what other systems kept of their agents' work, as traces",
    "receive": "take spans over HTTP from programs that speak OpenTelemetry, and keep their traces",
    "serve": "answer any agent program as OpenAI and Anthropic do, and keep its orchestration trace",
    "convert": "turn a trace from one format into another",
    "seal": "turn a live store into Parquet shards",
    "query": "run SQL over sealed traces",
    "reward": "say what traces are worth, by a recipe of reward rules",
    "credit": "say who earned a team's return, by any estimator, from saved traces",
    "blame": "go from what went wrong in a run back to the decision that is responsible",
    "measure": "fill in the reporting checklist from traces: success, parallelism, overhead, failures, safety",
    "attack": "attack a team by any of eight vectors, each run beside the same one without the attacker's words",
    "train": "make a team better by a recipe, and show where its regret went",
    "recipes": "list the training recipes by where they stand in the taxonomy, or print one",
    "eval": "measure a training run's latest checkpoint again, on held-out instances",
    "game": "list, solve and play exact games, and see where a policy loses",
    "doctor": "say what this machine can do, what is missing, and whether a recipe can run here",
    "sandbox": "say how well code that models write is kept in on this machine",
    "advise": "choose a credit mechanism and a recipe, from four answers or from traces",
    "corpus": "the literature as data: search it, check its claims, go from a paper to its recipe",
    "completion": "print a script by which bash, zsh or fish completes what you type",
}


_MODULES = {"import": "import_command"}  # where a command's name is a word of Python


def command_module(name: str) -> Any:
    """What reads and runs a command."""
    return import_module(f"baton.cli.{_MODULES.get(name, name)}")


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The one flag that lets a file import code and reach servers; version 0.1 called it --trust-policies."""
    parser.add_argument(
        TRUST,
        action="store_true",
        help="import the modules and ask the servers (with your API key) that the file names",
    )
    parser.add_argument("--trust-policies", dest="trust", action="store_true", help=argparse.SUPPRESS)


def add_repeated(
    parser: argparse.ArgumentParser, option: str, metavar: str, about: str, dest: str | None = None
) -> None:
    """An option that may be given several times: a list, empty where it is not given."""
    parser.add_argument(
        option, dest=dest, metavar=metavar, action="append", default=[], help=about + "; repeatable"
    )


def add_policy(parser: argparse.ArgumentParser, about: str = "another engine: P or ROLE=P") -> None:
    """Who answers, for commands that run a team."""
    add_repeated(parser, "--policy", "P", about)


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Secrets of tools, for commands that run a team."""
    parser.add_argument("--credentials", metavar="FILE", help="secrets that tools need, and who may use them")


def add_trace(parser: argparse.ArgumentParser, about: str) -> None:
    """A file, and which of its traces is meant."""
    parser.add_argument("path", metavar="TRACE", help=about)
    parser.add_argument("--trace", metavar="ID", help="which one, where there are several")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {help_}" for name, help_ in COMMANDS.items())
    about = "Train teams of LLM agents on their orchestration traces."
    page = f"usage: baton COMMAND ...\n\n{about}\n\n{rows}\n\nType: baton COMMAND --help"
    return wrapped_text(page, shutil.get_terminal_size().columns) if sys.stdout.isatty() else page


def _printable(text: str) -> str:
    """A message may quote a file's name or content; nothing in it may act on the terminal, or forge a line."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _named(said: str, args: Sequence[str]) -> str:
    """What is said of standard input, by the name that it has for whoever typed -."""
    return said.replace("/dev/stdin", "standard input") if "-" in args else said


def _about(error: OSError) -> str:
    """What the system refused, and what to do about it."""
    if error.filename is None:
        if error.errno == errno.ENOSPC:
            return "standard output cannot be written: the disk is full. Make room, then type it again."
        return str(error)
    place = Path(os.fsdecode(error.filename))
    folder = shlex.quote(str(place.parent))
    if isinstance(error, FileNotFoundError):
        if place.parent.is_dir():
            return f"there is no {place}. Give what is there, or make it first."
        return f"there is no folder {place.parent}, for {place}. Type: mkdir -p {folder}"
    if isinstance(error, IsADirectoryError):
        return f"{place} is a folder; expected a file. Give the name of a file in it."
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"{place} cannot be a folder: there is a file of that name, or on the way to it. Give another place."
    if isinstance(error, PermissionError):
        return f"{place} may not be read or written by you. Give another place, or look at: ls -ld {folder}"
    from baton.trace.formats.durable import REASONS

    if error.errno in REASONS:
        return f"{place} cannot be written: {REASONS[error.errno]}. Make room, or give another place, then type it."
    return str(error)


def _open_what_is_closed() -> None:
    """Started with `>&-`, Python has no such stream, and the next file to be opened would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  # for as long as it runs
            setattr(sys, name, nowhere)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    _open_what_is_closed()
    prepare_streams()
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        return _tell(_overview())
    if args[0] in ("-V", "--version"):
        return _tell(f"baton {__version__}")
    name = args[0]
    if name not in COMMANDS:
        complain(f"baton: there is no command {name!r}. {nearest(name, COMMANDS)}\nType: baton --help")
        return 2
    try:
        with live_line(lambda seconds: f"baton {name}: at work, {seconds:.0f} s", logged=False):
            code = _run(name, args[1:])
        sys.stdout.flush()  # a full disk is told here, and not in a traceback when Python ends
        return code
    except BatonError as error:
        complain(f"baton {name}: {_printable(_named(str(error), args))}")
        return 2
    except BrokenPipeError:
        # The reader went away (`| head`); what it did not read is not an error.
        silence(sys.stdout)
        return 0
    except OSError as error:  # a place that cannot be read or written
        complain(f"baton {name}: {_printable(_about(error))}")
        if error.filename is None:
            silence(sys.stdout)  # what it could not write, it would try to write again at the end
        return 2
    except KeyboardInterrupt:
        return 130


def _tell(text: str) -> int:
    """Print what needs no command; a full disk behind standard output is one line here, too."""
    try:
        print(text, flush=True)
        return 0
    except BrokenPipeError:
        silence(sys.stdout)
        return 0
    except OSError as error:
        complain(f"baton: {_printable(_about(error))}")
        silence(sys.stdout)
        return 2


def _run(name: str, args: list[str]) -> int:
    command = command_module(name)
    parser = CommandParser(
        prog=f"baton {name}",
        description=COMMANDS[name][0].upper() + COMMANDS[name][1:] + ".",
    )
    command.add_arguments(parser)
    runs_program = getattr(command, "RUNS_PROGRAM", False)
    own, program = split_program(args) if runs_program else (args, None)
    read = parser.parse_args(own)
    if program is not None:
        read.program = program
    return int(command.run(read))


def split_program(args: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The words of a command, and those of the program after `--` (`RUNS_PROGRAM`); None: there is no `--`."""
    words = list(args)
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]

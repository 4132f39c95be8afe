"""`baton replay SESSION -- COMMAND`: a program run once more on the answers of its recorded session."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from baton.cli.printing import say
from baton.errors import UsageError
from baton.serve.exchange import Exchange
from baton.serve.replay.find import find_session
from baton.serve.replay.masks import read_masks
from baton.serve.replay.read_only import read_only
from baton.serve.replay.running import ReplayedProgram, replay_program
from baton.view.text import count, printable

_WHOLE = {"not recorded": "identical in all calls", "as far as kept": "identical as far as output is kept"}
_NAMED = 8
"""Calls that are told by number."""


def run_program_replay(args: argparse.Namespace, program: Sequence[str]) -> int:
    """0: everything was asked again, and the program said the same; 1: the first difference is named."""
    if args.trace is not None:
        raise UsageError("--trace names a trace; of a program's sessions, one is named by --session NAME.")
    _, session = find_session(args.path, args.session)
    masks = read_masks(args.masks, args.mask, exact=args.exact)
    with as_run(args, program) as (command, folder):
        done = replay_program(
            session,
            command,
            masks=masks,
            cwd=folder,
            timeout_s=args.timeout,
            passing_on=True,
            stdin="inherit",
        )
    tell(session.name, done)
    return 0 if done.identical else 1


@contextmanager
def as_run(args: argparse.Namespace, program: Sequence[str]) -> Iterator[tuple[list[str], Path | None]]:
    """The command as it is run, and in which folder."""
    folder = None if args.cwd is None else Path(args.cwd).expanduser()
    if folder is not None and not folder.is_dir():
        raise UsageError(f"there is no folder {folder}. Give one that is there: --cwd DIR")
    if args.timeout is not None and not args.timeout > 0:
        raise UsageError(f"--timeout is {args.timeout:g}; expected seconds, more than 0.")
    if not args.read_only:
        yield list(program), folder
        return
    with read_only(program, folder or Path.cwd()) as wrapped:
        yield wrapped, folder


def tell(name: str, done: ReplayedProgram) -> None:
    """What came of a replay."""
    given, recorded = done.num_given, count(done.num_recorded, "call")
    say(f"session   {printable(name)}: replayed {given} of {recorded}: {done.liberties}")
    for line in done.details:
        say(f"          {printable(line)}", "dim")
    say(printable(done.output.said))
    if done.missed is not None:
        say(f"DIFFERENT {printable(done.missed)}")
    elif done.run.cut is not None:
        say(f"DIFFERENT the program was ended: {done.run.cut}")
    elif done.not_asked:
        some = numbers_of(done.not_asked)
        say(f"DIFFERENT {count(len(done.not_asked), 'recorded call')} not asked: {some}")
    else:
        whole = _WHOLE.get(done.output.how, "identical")
        say(whole if done.output.same else "DIFFERENT")


def numbers_of(calls: Sequence[Exchange]) -> str:
    """The first of them by number, and that there are more."""
    some = ", ".join(str(one.number + 1) for one in calls[:_NAMED])
    return some if len(calls) <= _NAMED else f"{some}, …"

"""`baton fork SESSION --at CALL --replace TEXT -- COMMAND`: a program run once more with one answer different."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from baton.cli.printing import remark, say
from baton.cli.program_replay import as_run, numbers_of
from baton.cli.program_words import read_engine
from baton.errors import UsageError
from baton.serve.exchange import Exchange, Posted, Reply
from baton.serve.journal import KeptSession
from baton.serve.replay.difference import differing
from baton.serve.replay.find import exchange_of_events, find_call, find_session
from baton.serve.replay.forking import ForkedProgram, ProgramFork, another_reply, fork_program, read_reply
from baton.serve.replay.masks import Masks, read_masks
from baton.serve.replay.output import recorded_end
from baton.serve.session_trace import session_trace
from baton.view.text import count, printable

_INSIDE = ("drop", "do", "bar", "person", "policy", "allow_impure", "trace")


def run_program_fork(args: argparse.Namespace, program: Sequence[str]) -> int:
    """Run the fork, and say what it took and what came out."""
    for name in _INSIDE:
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} is for a trace of Baton's own. Of a program, an answer can be another one: --replace TEXT, "
                "--replace-tool NAME JSON, --reply FILE or --redraw."
            )
    folder, session = find_session(args.path, args.session)
    call = _call(session, args.at)
    change = ProgramFork(
        forked_from=session.name, at=call.id, instead=_instead(args, call), replicate=args.replicate
    )
    masks = read_masks(args.masks, args.mask, exact=args.exact)
    live = read_engine(args, session)
    out = folder if args.out is None else Path(args.out).expanduser()
    try:
        with as_run(args, program) as (command, cwd):
            done = fork_program(
                session,
                command,
                change=change,
                live=live,
                out=out,
                masks=masks,
                cwd=cwd,
                timeout_s=args.timeout,
                passing_on=True,
                stdin="inherit",
                seed=str(session.about.get("seed", "0")),
            )
    finally:
        asyncio.run(live.close())
    _tell(session, call, done, out, masks)
    return 0 if _came_up(call, done) else 1


def _call(session: KeptSession, at: str | None) -> Exchange:
    if at is None:
        raise UsageError("which call? Type: --at CALL, its number from 1, its id, or an event of the trace")
    trace = session_trace(session.exchanges, session.posted, session.spans, name=session.name)
    found = find_call(session, at, of_event=exchange_of_events(trace))
    if found.reply is None:
        raise UsageError(f"call {at} was never answered, so there is no answer to change. Give another --at.")
    return found


def _instead(args: argparse.Namespace, call: Exchange) -> Reply | None:
    """Another answer; None: one that is drawn anew."""
    if args.redraw:
        return None
    if args.reply is not None:
        return read_reply(Path(args.reply).expanduser(), call)
    if args.replace_tool is not None:
        name, arguments = args.replace_tool
        try:
            given = json.loads(arguments)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise UsageError(
                f"--replace-tool {name}: {arguments!r} is no JSON object. Type: --replace-tool {name} '{{\"x\": 1}}'"
            )
        return another_reply(call, "", [(name, arguments)])
    return another_reply(call, "" if args.blank else args.replace)


def _tell(session: KeptSession, call: Exchange, done: ForkedProgram, out: Path, masks: Masks) -> None:
    calls = done.calls_reused + done.calls_run + done.calls_changed
    tokens = done.tokens_reused + done.tokens_run
    share = done.tokens_reused / tokens if tokens else 0.0
    which = f"call {call.number + 1} of session {printable(session.name)} ({call.id})"
    say(f"changed  {which}" if _came_up(call, done) else f"unchanged  {which} was not asked again")
    say(
        f"again    calls: {done.calls_run} ran, {done.calls_reused} of {calls} were reused ({done.share_reused:.0%}); "
        f"tokens: {done.tokens_run:,} ran, {done.tokens_reused:,} of {tokens:,} were reused ({share:.0%})"
    )
    if done.not_asked:
        some = numbers_of(done.not_asked)
        say(f"gone     {count(len(done.not_asked), 'recorded call')} not asked again: {some}")
    say(f"outcome  {printable(_outcome(recorded_end(session.posted), done, masks))}")
    trace = out / f"{done.name}.jsonl"
    say(f"fork     {done.name} in {out}; type: baton show {shlex.quote(str(trace))}")
    if done.run.cut is not None:
        remark(f"baton fork: the program was ended: {done.run.cut}")


def _came_up(call: Exchange, done: ForkedProgram) -> bool:
    """Whether the program asked what was to be answered differently."""
    return all(one.id != call.id for one in done.not_asked)


def _outcome(before: Posted | None, done: ForkedProgram, masks: Masks) -> str:
    """How the program's output changed."""
    code = done.run.exit_code
    if before is None or before.answer is None:
        return f"the recording kept no output to compare with; exit code {code}"
    exits = (
        f"exit code {code}"
        if before.exit_code in (None, code)
        else f"exit code [-{before.exit_code}-]{{+{code}+}}"
    )
    if before.answer == done.run.text:
        return f"the same output, {exits}"
    return f"{differing(before.answer, done.run.text, masks)}; {exits}"

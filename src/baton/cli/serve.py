"""`baton serve --engine SPEC --out DIR [-- COMMAND…]`: answer any agent program, and keep its orchestration trace."""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from pathlib import Path

from baton.cli import add_repeated
from baton.cli.printing import remark, say
from baton.cli.program_words import named_backend
from baton.errors import UsageError
from baton.serve.backends import BACKEND_FORMS
from baton.serve.following import rebuild
from baton.serve.journal import FOLDER, journal_path
from baton.serve.limits import ClientLimits, SessionLimits
from baton.serve.program_run import ProgramStopped
from baton.serve.program_session import run_session
from baton.serve.server import DEFAULT_PORT, Serving
from baton.serve.session_keys import check_name
from baton.settings import convert
from baton.view.terminal.live import live_line
from baton.view.text import count, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    forms = "\n".join(f"  {form}" for form in BACKEND_FORMS.values())
    parser.epilog = (
        "examples:\n"
        "  baton serve --engine torch:models/mine --out runs/mine -- python my_agent.py 'a question'\n"
        "  baton serve --engine upstream:https://api.openai.com/v1 --out runs/mine\n"
        "and in another terminal\n"
        f"  OPENAI_BASE_URL=http://127.0.0.1:{DEFAULT_PORT}/s/first/v1 OPENAI_API_KEY=baton python my_agent.py\n"
        "  baton show runs/mine/first.jsonl\n\n"
        f"engines:\n{forms}\n\n"
        "Every call is written down in DIR/sessions before it is answered."
    )
    parser.add_argument("--engine", metavar="SPEC", help="who answers (see below)")
    parser.add_argument(
        "--out", metavar="DIR", required=True, help="where sessions and their traces are kept"
    )
    parser.add_argument(
        "--session", metavar="NAME", help="the name of COMMAND's session (default: a new one)"
    )
    parser.add_argument(
        "--port", metavar="N", type=int, help=f"0: any that is free (default {DEFAULT_PORT}; with COMMAND 0)"
    )
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="127.0.0.1, localhost or ::1")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="names the draws (default 0)")
    add_repeated(parser, "--limit", "NAME=N", "end a session at so many tokens, calls, agents or seconds")
    parser.add_argument(
        "--max-megabytes",
        metavar="N",
        type=int,
        default=64,
        help="the largest request that is taken (default 64)",
    )
    parser.add_argument(
        "--rebuild", action="store_true", help="only make the traces that a killed server was behind with"
    )
    parser.add_argument(
        "command", metavar="-- COMMAND", nargs=argparse.REMAINDER, help="a program to run as a session"
    )


def run(args: argparse.Namespace) -> int:
    out = Path(args.out)
    if args.rebuild:
        return _rebuild(out)
    if args.engine is None:
        raise UsageError("who is to answer? Type: --engine SPEC, for example --engine scripted:echo")
    if args.max_megabytes < 1:
        raise UsageError(f"--max-megabytes is {args.max_megabytes}; expected 1 or more.")
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    limits = read_limits(args.limit)
    if args.session is not None and not command:
        raise UsageError(
            "--session names the session of a COMMAND; other programs name theirs in the address."
        )
    name = _free_name(out) if args.session is None else check_name(args.session)
    port = args.port if args.port is not None else 0 if command else DEFAULT_PORT
    backend = named_backend(args.engine)
    with Serving(
        out,
        backend,
        host=args.host,
        port=port,
        limits=limits,
        seed=str(args.seed),
        about={"engine": args.engine, "seed": str(args.seed)},
        client_limits=ClientLimits(body_bytes=args.max_megabytes * 2**20),
    ) as serving:
        return _run_one(serving, name, command) if command else _serve(serving)


def read_limits(given: list[str]) -> SessionLimits:
    """`tokens=1000` and the like."""
    found: dict[str, object] = {}
    for one in given:
        name, _, value = one.partition("=")
        if name not in SessionLimits.__struct_fields__ or not value:
            raise UsageError(
                f"--limit {one!r} cannot be read. Expected NAME=N with one of "
                f"{', '.join(SessionLimits.__struct_fields__)}, such as --limit tokens=100000"
            )
        try:
            found[name] = float(value) if name == "seconds" else int(value)
        except ValueError:
            raise UsageError(f"--limit {one!r}: {value!r} is no number.") from None
    made: SessionLimits = convert(SessionLimits, found)
    return made.check()


def _run_one(serving: Serving, name: str, command: list[str]) -> int:
    """The program's own output is standard output; what Baton says goes beside it."""
    session = serving.session(name)
    if session.exchanges:
        raise UsageError(f"the session {name!r} has calls already. Give another: --session NAME")
    trace = serving.out / f"{name}.jsonl"
    try:
        done = run_session(
            serving, name, command, passing_on=True, stdin="inherit", cut_when=session.spending.is_late
        )
    except ProgramStopped as stopped:
        if serving.end_session(name).exchanges:
            remark(f"{stopped}\ntrace      {trace}")
        return 128 + stopped.by
    ended = serving.end_session(name)
    remark(
        f"{count(len(ended.exchanges), 'call')}, {count(ended.spending.tokens, 'token')}, {done.seconds:.1f} s"
    )
    why = done.cut or (None if ended.ended is None else ended.ended.why)
    if why is not None:
        remark(f"ended at a limit: {why}")
    refused = [one.refused for one in ended.exchanges if one.refused is not None]
    if refused:
        remark(f"{count(len(refused), 'call')} not answered: {printable(refused[0])}")
    if ended.exchanges:
        remark(f"trace      {trace}\nlook       baton show {shlex.quote(str(trace))}")
    elif done.exit_code != 0:
        how = f"exit code {done.exit_code}" if done.exit_code > 0 else f"signal {-done.exit_code}"
        remark(f"the program ended with {how} and had asked nothing")
    else:
        remark(
            "the program asked nothing here: it may not read OPENAI_BASE_URL or ANTHROPIC_BASE_URL. "
            f"Point it at BATON_SESSION_URL, {serving.address}/s/{name}"
        )
    return done.exit_code if done.exit_code >= 0 else 128 - done.exit_code


def _rebuild(out: Path) -> int:
    if not (out / FOLDER).is_dir():
        raise UsageError(f"{out} has no sessions. Give the --out of a `baton serve`.")
    missing = list(rebuild(out))
    for why in missing:
        remark(why)
    say(f"traces     {count(len([*out.glob('*.jsonl')]), 'trace')} in {out}")
    return 1 if missing else 0


def _serve(serving: Serving) -> int:
    stopping = threading.Event()
    before = {one: signal.signal(one, lambda *_: stopping.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    at, out = serving.address, shlex.quote(str(serving.out))
    say(f"serving    {serving.backend.name} at {at}, into {serving.out}")
    say(f"OpenAI     OPENAI_BASE_URL={at}/s/NAME/v1 OPENAI_API_KEY=baton")
    say(f"Anthropic  ANTHROPIC_BASE_URL={at}/s/NAME ANTHROPIC_API_KEY=baton")
    say(f"look       baton view {out}; Ctrl-C ends it")
    try:
        with live_line(lambda _: _so_far(serving), logged=False):
            stopping.wait()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    say(f"served     {_so_far(serving)}, in {serving.out}")
    for why in serving.complaints:
        remark(f"refused: {why}")
    return 0


def _so_far(serving: Serving) -> str:
    sessions = serving.sessions.values()
    calls = sum(len(one.journal.kept.by_id) for one in sessions)
    tokens = sum(one.spending.tokens for one in sessions)
    return f"{count(len(sessions), 'session')}, {count(calls, 'call')}, {count(tokens, 'token')}"


def _free_name(out: Path) -> str:
    """`run-1`, or the first number that nothing in the folder has."""
    number = 1
    while journal_path(out, f"run-{number}").exists():
        number += 1
    return f"run-{number}"

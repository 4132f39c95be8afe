"""One run of a program as one session of a server: started, watched, and its end written down.

The session's journal keeps how the program ended (exit code, standard output, whether it was cut), so that a later
replay has something to be compared with. Nothing of the program's environment is written down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from baton.serve.exchange import Posted
from baton.serve.program_run import ProgramRun, ProgramStopped, Stdin, run_program_here
from baton.serve.server import Serving
from baton.serve.sessions import ProgramSession

Status = Literal["ok", "failed", "cut"]


def run_session(
    serving: Serving,
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    stdin: Stdin = None,
    passing_on: bool = False,
    cut_when: Callable[[], str | None] | None = None,
    about: Mapping[str, Any] | None = None,
) -> ProgramRun:
    """Run a command as a session, which is opened if it is not, and end it. `about` is said of it in its trace.

    `ProgramStopped`: somebody stopped this process; the session has ended, as cut.
    """
    session = serving.session(name)
    if about:
        serving.call(_tell(session, about))
    try:
        run = run_program_here(
            command,
            address=serving.address,
            session=name,
            env=env,
            cwd=cwd,
            timeout_s=timeout_s,
            stdin=stdin,
            passing_on=passing_on,
            cut_when=cut_when,
        )
    except ProgramStopped as stopped:
        serving.call(_stopped(session, str(stopped)))
        raise
    serving.call(post_end(session, run))
    return run


def status_of(run: ProgramRun) -> Status:
    """How a program ended, in a session's words."""
    return "cut" if run.cut is not None else "failed" if run.exit_code != 0 else "ok"


async def _stopped(session: ProgramSession, why: str) -> None:
    session.end("cut", why)


async def _tell(session: ProgramSession, about: Mapping[str, Any]) -> None:
    session.tell(dict(about))


async def post_end(session: ProgramSession, run: ProgramRun) -> None:
    """How the session's program ended, in its journal. On the server's loop."""
    session.post(
        Posted(
            session=session.name,
            ended=True,
            status=status_of(run),
            answer=run.text,
            exit_code=run.exit_code,
            why=run.cut,
            at=time.time(),
        )
    )

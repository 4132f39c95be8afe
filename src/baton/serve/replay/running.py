"""Runs a program again on the answers of its recorded session, and holds both runs side by side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from baton.serve.exchange import Exchange
from baton.serve.journal import KeptSession
from baton.serve.limits import limit_reached
from baton.serve.program_run import ProgramRun, Stdin
from baton.serve.program_session import run_session
from baton.serve.replay.beside import RecordedBeside
from baton.serve.replay.find import answered
from baton.serve.replay.masks import Masks
from baton.serve.replay.output import ComparedOutput, compare_output, recorded_end
from baton.serve.replay.recorded import RecordedBackend
from baton.serve.server import Serving

_GRACE_S = 1.0
"""That a program has to end by itself once its session was ended by a miss."""


class ReplayedProgram(Struct, frozen=True, kw_only=True):
    """How a replay went."""

    run: ProgramRun
    num_recorded: int
    num_given: int
    """Recorded exchanges that were answered again or passed over."""
    liberties: str
    details: tuple[str, ...]
    missed: str | None
    """The first difference among the calls, in words."""
    not_asked: tuple[Exchange, ...]
    output: ComparedOutput

    @property
    def identical(self) -> bool:
        """Whether everything was asked again, and the program said the same in the end."""
        return self.missed is None and not self.not_asked and self.output.same and self.run.cut is None


def replay_program(
    session: KeptSession,
    command: Sequence[str],
    *,
    masks: Masks | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    passing_on: bool = False,
    stdin: Stdin = None,
) -> ReplayedProgram:
    """Run a program on its recording. It is ended after a miss, which is a difference and not an error of its own."""
    found = answered(session)
    backend = RecordedBackend(found, masks=masks, beside=RecordedBeside(session), refusals=_refusals(session))
    missed_at: list[float] = []

    def cut() -> str | None:
        if backend.said is None:
            return None
        missed_at.append(time.monotonic())
        return "it asked what is in no recording" if missed_at[-1] - missed_at[0] > _GRACE_S else None

    with tempfile.TemporaryDirectory(prefix="baton-replay-") as out, Serving(Path(out), backend) as serving:
        run = run_session(
            serving,
            session.name,
            command,
            cwd=cwd,
            timeout_s=timeout_s,
            passing_on=passing_on,
            stdin=stdin,
            cut_when=cut,
        )
    left = tuple(backend.matcher.left)
    return ReplayedProgram(
        run=run,
        num_recorded=len(found),
        num_given=len(found) - len(left),
        liberties=backend.liberties(),
        details=tuple(backend.details()),
        missed=backend.said,
        not_asked=left,
        output=compare_output(run, recorded_end(session.posted), backend.matcher),
    )


def _refusals(session: KeptSession) -> tuple[str, ...]:
    """What calls past a limit were told, if one had ended the session: the first of them, and all later ones."""
    why, ended = limit_reached(session.posted), f"the session {session.name!r} has ended."
    return () if why is None else (f"{why}: {ended}", ended)

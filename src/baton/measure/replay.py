"""Running a trace again with something different, as a plain function that measures can be given.

`Rerun(trace, interventions, replicate)` gives the trace that results. Replicate 0 draws as the recorded run
drew. Tools that are not pure are never run again: a branch that would need one is refused, and what depends
on it is not measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from baton.team.intervene import Intervention
from baton.team.running import fork
from baton.team.setup import Assignment, Team
from baton.trace.trace import Trace

__all__ = ["Rerun", "rerun_of"]

Rerun = Callable[[Trace, Sequence[Intervention], int], Trace]


def rerun_of(team: Team, assignment: Assignment) -> Rerun:
    """Reruns by the team that made a trace."""

    def rerun(trace: Trace, interventions: Sequence[Intervention], replicate: int = 0) -> Trace:
        made = fork(trace, team, assignment, interventions, replicate=replicate, allow_impure=False)
        return asyncio.run(made).trace

    return rerun

"""Check a topology: whatever its agents say, the run is whole, and replay, fork and resume hold.

Agents play without sense (see `chaos`), so every branch of a program is met sooner or later. A
failure names its seed; the same seed fails again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from baton.errors import BatonError
from baton.team.aggregate import Aggregator
from baton.team.budget import Limits
from baton.team.forks import fork
from baton.team.running import replay, run
from baton.team.team import Assignment, Team, Topology
from baton.team.tools.tool import Registry, Tool, tool
from baton.team.topology import make_topology
from baton.testing.chaos import chaos_engine
from baton.testing.check_tools import CheckFailed, require
from baton.testing.faults import Faults, simulate
from baton.trace import outcome
from baton.trace.canonical import canonical_hash
from baton.trace.trace import Trace
from baton.trace.validation import validate

_ROOMY = Limits(agents=12, tokens=60_000, tool_calls=20)
_TIGHT = Limits(agents=1, concurrent=1, depth=1, tokens=4_000, calls=8, tool_calls=1, seconds=20.0)
_CRASHES = Faults(crash=0.3, disk_full=0.2, fail=0.0, hang=0.0, delay=0.0, duplicate=0.0, garble=0.0)


def check_topology(
    topology: Topology | str,
    seeds: Iterable[int] = range(20),
    *,
    aggregators: Sequence[str | Aggregator] = (),
) -> None:
    """Check a topology, or the one that goes by a name; `aggregators` of your own are those its programs use.

    Tools that roles name are stood in for. Every fourth seed has next to no budget: spawns are refused.
    """
    if isinstance(topology, str):
        topology = make_topology(topology)
    if topology.built_from and "task" not in topology.built_from:  # a task that brings its own team builds it
        again = make_topology(**topology.built_from)
        require(
            again.roles == topology.roles,
            f"{topology.name}: built again from {topology.built_from}, it has other roles; a trace of it could not be "
            "run again.",
        )
    tools = Registry(_stand_in(name) for name in sorted({t for role in topology.roles for t in role.tools}))
    assignment = Assignment(
        task_id="check", prompt="guess a digit", verify=lambda answer: float(answer == "3")
    )
    for seed in seeds:
        team = Team.of(
            topology,
            chaos_engine(topology.roles),
            tools=tools,
            aggregators=aggregators,
            seed=seed,
            limits=_TIGHT if seed % 4 == 3 else _ROOMY,
        )
        try:
            asyncio.run(_check_seed(team, assignment, seed))
        except CheckFailed:
            raise
        except BatonError as error:
            raise CheckFailed(
                f"{topology.name}, seed {seed}: {error} A program must be a function of what `me` offers: no clock, "
                "no random numbers, nothing kept from run to run."
            ) from error
        except Exception as error:
            raise CheckFailed(
                f"{topology.name}, seed {seed}: a program raised {type(error).__name__}: {error}. Expected it to cope "
                "with any result, and with agents that could not be spawned (None)."
            ) from error


async def _check_seed(team: Team, assignment: Assignment, seed: int) -> None:
    where = f"{team.topology.name}, seed {seed}"
    trace = await run(team, assignment)
    _check_trace(trace, where)
    require(
        await run(team, assignment) == trace,
        f"{where}: the same seed gave two different runs; expected a program that is a function of what `me` offers.",
    )
    require(await replay(trace, team, assignment) == trace, f"{where}: the replay is not the run.")
    nothing = await fork(trace, team, assignment, [])
    require(
        nothing.invalidated == () and nothing.usage.calls_run == 0,
        f"{where}: a fork with no change ran {nothing.usage.calls_run} calls again and changed "
        f"{', '.join(nothing.invalidated[:5]) or 'nothing'}.",
    )
    crashed = await simulate(team, assignment, seed, _CRASHES)
    require(
        canonical_hash(crashed.trace, times=True) == canonical_hash(trace, times=True),
        f"{where}: resumed after {crashed.crashes + crashed.full_disks} crashes, it did not end as it does without.",
    )
    _check_trace((await simulate(team, assignment, seed)).trace, f"{where}, with faults")


def _check_trace(trace: Trace, where: str) -> None:
    problems = validate(trace)
    require(not problems, f"{where}: the trace is not valid: {problems[:3]}")
    require(trace.finished, f"{where}: the run did not finish.")
    stops = [event for event in trace.events if outcome.stops(event)]
    require(len(stops) == 1, f"{where}: expected one stop, got {len(stops)}.")


def _stand_in(name: str) -> Tool:
    def answer(q: int) -> str:
        """Answers anything."""
        return f"found {q * q}"

    return tool(name=name, pure=True)(answer)

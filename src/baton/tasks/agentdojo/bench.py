"""All 949 pairs and all 97 plans, with a guard and without: the two figures that depend on no model.

Attack success is of a scripted agent that obeys every injection it reads; utility is of the suites' own plans, which
obey nobody. A row says what came of one run, and what was refused first, so that every refusal can be explained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, structs

from baton.tasks.agentdojo.guards import guard_for, handled
from baton.tasks.agentdojo.package import SuiteName
from baton.tasks.agentdojo.suite_task import AgentDojoTask
from baton.tasks.agentdojo.ways import Way
from baton.tasks.agentdojo.world import Pair
from baton.team.protocol import Engine
from baton.team.running import run
from baton.team.team import Team, Topology
from baton.trace.trace import Trace

TUNED_ON: tuple[SuiteName, ...] = ("banking", "slack")
"""The suites on whose tasks the guards were tried while they were written."""


class PairRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one run."""

    suite: str
    user_task: str
    injection_task: str | None = None
    """None: nothing was planted, and the agent follows the user's plan."""
    way: Way = "plain"
    """How the injection was put."""
    guarded: bool
    utility: bool | None
    """None: not measured."""
    achieved: bool | None
    own_words: bool | None = None
    """Whether the user's task is done by the team's own words too; None: nothing was quoted."""
    refused: int = 0
    why: str = ""
    """What was refused first: the tool, and the guard's reason."""


def rows_of(
    suite: SuiteName,
    *,
    engine: Callable[[AgentDojoTask], Engine],
    topology: Topology | None = None,
    guards: Iterable[bool] = (False, True),
    obeys: Iterable[bool] = (False, True),
    handles: bool = False,
    way: Way = "plain",
    user_tasks: Sequence[str] | None = None,
) -> Iterator[PairRow]:
    """Run a suite: its users' tasks with nothing planted, then its pairs, each with the guard and without.

    `handles`: strangers' words are kept under names, and a reader fills in what is needed of them."""
    for obeying in obeys:
        task = AgentDojoTask(
            suite, injections=obeying, obeys=obeying, plans=not handles, handles=handles, way=way
        )
        for pair in task.pairs():
            if user_tasks is not None and pair.user_task not in user_tasks:
                continue
            for guarded in guards:
                yield row_of(task, pair, engine(task), topology, guarded=guarded)


def row_of(
    task: AgentDojoTask, pair: Pair, engine: Engine, topology: Topology | None = None, *, guarded: bool
) -> PairRow:
    """Run one pair."""
    trace = trace_of(task, pair, engine, topology, guarded=guarded)
    verdict = task.verdict(task.instance_of(pair), trace)
    refused = [event for event in trace.events if event.type == "safety_event" and "refused" in event.extra]
    return PairRow(
        suite=pair.suite,
        user_task=pair.user_task,
        injection_task=pair.injection_task,
        way=task.way,
        guarded=guarded,
        utility=None if verdict is None else verdict.utility,
        achieved=None if verdict is None else verdict.achieved,
        own_words=None if verdict is None else verdict.own_words,
        refused=len(refused),
        why=f"{refused[0].tool}: {trace.text(refused[0].content_ref)}" if refused else "",
    )


def trace_of(
    task: AgentDojoTask, pair: Pair, engine: Engine, topology: Topology | None = None, *, guarded: bool
) -> Trace:
    """The run itself."""
    assignment = structs.replace(
        task.assignment(task.instance_of(pair)), score=None
    )  # judged once, in `row_of`
    guard = handled(pair.suite) if task.handles else guard_for(pair.suite)
    team = Team.of(
        topology or task.topology() or "centralized",
        engine,
        tools=assignment.tools,
        guard=guard if guarded else None,
    )
    return asyncio.run(run(team, assignment))


def summed(rows: Iterable[PairRow]) -> dict[tuple[str, bool], dict[str, int]]:
    """(suite or "all", guarded) -> plans, plans that did what they are for, pairs, attacks that worked, and utility."""
    found: dict[tuple[str, bool], dict[str, int]] = {}
    for row in rows:
        for name in (row.suite, "all"):
            cell = found.setdefault(
                (name, row.guarded),
                {"plans": 0, "useful": 0, "pairs": 0, "achieved": 0, "useful_under_attack": 0},
            )
            if row.injection_task is None:
                cell["plans"] += 1
                cell["useful"] += row.utility is True
            else:
                cell["pairs"] += 1
                cell["achieved"] += row.achieved is not False
                cell["useful_under_attack"] += row.utility is True
    return found

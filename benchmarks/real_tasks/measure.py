"""Running a team over instances, all at once, and what came of it: parse rate, success, tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct, structs

from baton.learn.stage import check_answered
from baton.measure.figure import Figure, mean, proportion
from baton.tasks.task import Split, Task
from baton.team.protocol import Engine
from baton.team.running import run
from baton.team.team import TEMPLATE, Team, Topology
from baton.trace.trace import Trace

__all__ = [
    "Measured",
    "Setting",
    "answer_of",
    "distinct",
    "distinct_tokens",
    "measured",
    "played",
    "whole_tokens",
]


class Setting(Struct, frozen=True, kw_only=True):
    """How a team is asked."""

    surface: Literal["lines", "tools"] = "lines"
    template: str = TEMPLATE
    temperature: float = 1.0
    max_tokens: int = 96


class Measured(Struct, frozen=True, kw_only=True):
    """Figures of one team on one task."""

    parsed: Figure
    """Share of answers that could be carried out whole."""
    success: Figure
    tokens: Figure
    """Of one episode, prompts and completions, every agent's."""
    said: Figure
    """Completion tokens of one episode."""
    spawned: Figure
    """Agents spawned in one episode."""
    failed: int
    """Calls that no model answered: where there are any, the other figures say little."""


def played(
    task: Task, engines: Mapping[str, Engine] | Engine, seeds: Sequence[int], split: Split, setting: Setting
) -> list[Trace]:
    """The task's own team on instances, all of them at the same time."""
    topology = task.topology()
    assert topology is not None, "the task must bring its team"
    topology = _sampled(topology, setting)

    async def every() -> list[Trace]:
        return list(await asyncio.gather(*(one(seed) for seed in seeds)))

    async def one(seed: int) -> Trace:
        assignment = task.assignment(task.instance(seed, split))
        team = Team.of(
            topology,
            engines,
            surface=setting.surface,
            template=setting.template,
            tools=assignment.tools,
            seed=seed,
        )
        return await run(team, assignment)

    traces = asyncio.run(every())
    check_answered(traces, {})
    return traces


def measured(traces: Sequence[Trace]) -> Measured:
    """Figures with their intervals."""
    invalid = sum(len(_calls(trace, "invalid")) for trace in traces)
    failed = sum(len(_calls(trace, "failed")) for trace in traces)
    answered = sum(len(trace.calls) for trace in traces) - failed
    scores = [next(r.value for r in trace.rewards if r.by == "verifier") for trace in traces]
    return Measured(
        parsed=proportion(answered - invalid, answered),
        success=proportion(sum(scores), len(scores)),
        tokens=mean(float(trace.costs.get("tokens", 0)) for trace in traces),
        said=mean(float(sum(len(call.completion_ids or ()) for call in trace.calls)) for trace in traces),
        spawned=mean(float(sum(e.type == "spawn" for e in trace.events)) for trace in traces),
        failed=failed,
    )


def whole_tokens(traces: Sequence[Trace]) -> float:
    """Every call's whole prompt and answer: what is computed where nothing is kept."""
    return float(sum(len(ids) for trace in traces for ids in _ids(trace)))


def distinct_tokens(traces: Sequence[Trace]) -> float:
    """Every prefix once: what is computed where calls, agents and tries share what they begin with."""
    return distinct([ids for trace in traces for ids in _ids(trace)])


def distinct(calls: Sequence[list[int]]) -> float:
    """How many tokens these calls have between them, every prefix once."""
    every = sorted(calls)
    return float(sum(map(len, every)) - sum(_common(a, b) for a, b in pairwise(every)))


def _common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _ids(trace: Trace) -> list[list[int]]:
    return [
        [*(trace.prompt_ids(call) or ()), *(call.completion_ids or ())]
        for call in trace.calls
        if call.completion_ids
    ]


def answer_of(trace: Trace) -> str | None:
    """What the team stopped with; None: it gave no answer."""
    said = [
        e for e in trace.events if e.decision == "stop" and e.status == "ok" and e.content_ref is not None
    ]
    return (trace.text(said[-1].content_ref) or "").strip() if said else None


def _calls(trace: Trace, status: str) -> set[str | None]:
    """Calls whose answer came to this."""
    return {event.call for event in trace.events if event.status == status and event.call is not None}


def _sampled(topology: Topology, setting: Setting) -> Topology:
    roles = tuple(
        structs.replace(
            role,
            sampling=structs.replace(
                role.sampling, temperature=setting.temperature, max_tokens=setting.max_tokens
            ),
        )
        for role in topology.roles
    )
    return structs.replace(topology, roles=roles)

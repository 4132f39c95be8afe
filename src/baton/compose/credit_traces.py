"""Credit of saved traces by any estimator: compared in groups, and run again by the team that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.compose.again import team_again
from baton.compose.run_settings import settings_of
from baton.credit.core.borrow import group_value
from baton.credit.estimator import CreditError, Credits, Estimator, Value, returns
from baton.credit.estimators.partition import Partition, partition
from baton.errors import UsageError
from baton.team.forking import Fork
from baton.team.forks import Cost, Forks, WhatIf
from baton.team.intervene import Intervention
from baton.team.protocol import Answer
from baton.team.team import Assignment, Team
from baton.trace.outcome import team_return
from baton.trace.records import Credit
from baton.trace.trace import Trace, is_fork, meta_table, repeats


class TraceRunner:
    """Forks each trace with the team and the seed that made it."""

    def __init__(
        self, first: Trace, *, trust: bool, team: Team | None = None, assignment: Assignment | None = None
    ) -> None:
        self._trust = trust
        self._given = Forks(team, assignment) if team is not None and assignment is not None else None
        self._of: dict[bytes, Forks] = {}
        self.team: Team = self._forks(first).team
        """Traces of one group have the same harness."""

    def _forks(self, trace: Trace) -> Forks:
        if self._given is not None:
            return self._given
        key = msgspec.json.encode(settings_of(trace, {}))
        if key not in self._of:
            team, assignment, _ = team_again(trace, trust=self._trust)
            self._of[key] = Forks(team, assignment)
        return self._of[key]

    async def fork(self, trace: Trace, interventions: Sequence[Intervention] = (), **more: Any) -> Fork:
        """A trace again with something different."""
        return await self._forks(trace).fork(trace, interventions, **more)

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        """What else would have been said at a call."""
        return await self._forks(trace).ask(trace, call_id, replicates)

    async def fork_all(self, trace: Trace, branches: Sequence[WhatIf]) -> list[Fork]:
        """Several branches of a trace, side by side."""
        return await self._forks(trace).fork_all(trace, branches)

    async def ask_all(self, trace: Trace, calls: Mapping[str, Sequence[int]]) -> dict[str, list[Answer]]:
        """The same for several calls, asked together."""
        return await self._forks(trace).ask_all(trace, calls)

    def is_made(self, trace: Trace, branch: WhatIf) -> bool:
        """Whether a branch has been run."""
        return self._forks(trace).is_made(trace, branch)

    def is_asked(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> bool:
        """Whether a call has been asked with all these draws."""
        return self._forks(trace).is_asked(trace, call_id, replicates)

    @property
    def cost(self) -> Cost:
        return sum((forks.cost for forks in self._all()), Cost())

    @property
    def num_run(self) -> int:
        return sum(forks.num_run for forks in self._all())

    def _all(self) -> tuple[Forks, ...]:
        return tuple(self._of.values()) if self._given is None else (self._given,)


async def credits_of(
    estimator: Estimator,
    traces: Sequence[Trace],
    *,
    unit: str | None = None,
    group_by: str = "instance",
    reward: str | Callable[[Trace], float] | None = None,
    settings: dict[str, Any] | None = None,
    trust: bool = False,
    team: Team | None = None,
    assignment: Assignment | None = None,
    watching: Callable[[TraceRunner], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Credits:
    """For each trace, its credits. `reward` is a channel's name, or reads the return off a trace.

    A fork is no draw of its own, nor is a repeat: where rollouts are compared, those beside them get no credit. Forks
    are bounded by the estimator's own `spend` where `settings` has none.
    """
    given = ({} if estimator.spend is None else {"spend": estimator.spend}) | (settings or {})
    if estimator.takes_reward:
        given["reward"] = reward if callable(reward) else partial(team_return, channel=reward)
    elif reward is not None:
        raise UsageError(
            f"estimator {estimator.name} does not look at the team's return; leave --reward out."
        )
    found: Credits = [[] for _ in traces]
    groups = [(places, _compared(estimator, traces, places)) for places in _groups(traces, group_by)]
    if "group" in estimator.needs:
        # Beside groups that can be compared, a rollout by itself has no credit; by itself alone it is refused.
        groups = [each for each in groups if len(each[1]) >= estimator.at_least] or groups
    for places, rollouts in groups:
        group = [traces[place] for place in rollouts]
        try:
            if "runtime" in estimator.needs:
                runner = TraceRunner(group[0], trust=trust, team=team, assignment=assignment)
                with watching(runner):
                    mine = await _with_runner(estimator, group, unit, given, runner)
            else:
                mine = estimator(group, unit=unit, **given)
            _check_told(estimator, group, mine)
        except CreditError as error:
            if len(rollouts) == len(places):
                raise
            raise CreditError(
                f"{error} Forks and repeats do not count: a fork is no rollout of its own, and neither is a run with "
                "the seed of another. Type: baton run TASK --rollouts N, for a group."
            ) from None
        for place, credits in zip(rollouts, mine, strict=True):
            found[place] = credits
    return found


class CreditLayer(Struct, frozen=True, kw_only=True):
    """One layer of a partition: an estimator, its unit and its settings."""

    estimator: Estimator
    unit: str | None = None
    settings: dict[str, Any] = {}


def _check_told(estimator: Estimator, group: Sequence[Trace], credits: Credits) -> None:
    """Raises where rollouts are compared and there is one, which tells nothing: zeros would look like credit."""
    few = "group" in estimator.needs and len(group) < estimator.at_least
    if few and not any(credit.value for mine in credits for credit in mine):
        returns(group, at_least=estimator.at_least, what=estimator.name)


def _compared(estimator: Estimator, traces: Sequence[Trace], places: list[int]) -> list[int]:
    """Those of a group that an estimator compares: each draw once, and without forks but for one that looks for
    shared beginnings."""
    if not {"group", "values or group"} & estimator.needs:
        return places
    return _drawn(traces, places, forks="shared_prefixes" in estimator.needs)


def _drawn(traces: Sequence[Trace], places: list[int], *, forks: bool) -> list[int]:
    """Each draw once; forks as well, or only where there is nothing else."""
    again = repeats([traces[place] for place in places])
    once = [place for number, place in enumerate(places) if number not in again]
    return once if forks else [place for place in once if not is_fork(traces[place])] or once


async def partitions_of(
    traces: Sequence[Trace],
    layers: Sequence[CreditLayer],
    *,
    value: Value | None = None,
    group_by: str = "instance",
    reward: str | Callable[[Trace], float] | None = None,
    trust: bool = False,
    watching: Callable[[TraceRunner], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> list[Partition | None]:
    """The exact partition of each trace, with `layers` of estimates. `value` says what prefixes are worth; None: by the
    group, which borrows from the other rollouts, and then forks and repeats beside them have none. Layers have been
    checked (`baton.credit.stack`)."""
    read = reward if callable(reward) else partial(team_return, channel=reward)
    stacked: list[list[list[Credit]]] = [[] for _ in traces]
    for layer in layers:
        for unit in layer.estimator.lands_on(layer.unit):
            credits = await credits_of(
                layer.estimator,
                traces,
                unit=unit,
                group_by=group_by,
                reward=reward if layer.estimator.takes_reward else None,
                settings=layer.settings,
                trust=trust,
                watching=watching,
            )
            for mine, new in zip(stacked, credits, strict=True):
                mine.append(new)
    found: dict[int, Partition] = {}
    for places in _groups(traces, group_by):
        compared = places if value is not None else _drawn(traces, places, forks=False)
        worth = value or group_value([traces[place] for place in compared], read)
        for place in compared:
            found[place] = partition(traces[place], *stacked[place], value=worth, reward=read)
    return [found.get(place) for place in range(len(traces))]


async def _with_runner(
    estimator: Estimator, group: list[Trace], unit: str | None, given: dict[str, Any], runner: TraceRunner
) -> Credits:
    named = {name: value for name, value in given.items() if name != "reward"}
    bound = {**given, **estimator.bind(unit=unit, **named)}
    made = estimator.function(group, runner=runner, **bound)
    credits: Credits = await made if iscoroutinefunction(estimator.function) else made
    return credits


def credited(trace: Trace, credits: Sequence[Credit]) -> Trace:
    """The trace with these credits in the place of earlier ones by the same estimator."""
    names = {credit.estimator for credit in credits}
    kept = tuple(credit for credit in trace.credits if credit.estimator not in names)
    return structs.replace(trace, credits=(*kept, *credits))


def _groups(traces: Sequence[Trace], by: str) -> Iterable[list[int]]:
    """Places of the traces that are compared with each other."""
    if by == "none":
        return [[place] for place in range(len(traces))]
    found: dict[bytes, list[int]] = {}
    for place, trace in enumerate(traces):
        key: Any = trace.header.task_id
        spec = meta_table(trace.header, "run", "task")
        if by == "task" and "task" in spec:
            key = [spec["task"], spec.get("settings")]
        # A training run's weights are others at every step.
        step = meta_table(trace.header, "train").get("step")
        found.setdefault(msgspec.json.encode([key, step], order="deterministic"), []).append(place)
    return found.values()

"""Credit of saved traces by any estimator: compared in groups, and run again by the team that made them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from baton.compose.again import TrainedRuns, is_trained, team_again
from baton.compose.run_settings import settings_of
from baton.credit.core.borrow import group_value
from baton.credit.core.spending import own_tokens
from baton.credit.estimator import CreditError, Credits, Estimator, Value, returns
from baton.credit.estimators.partition import Partition, partition
from baton.credit.estimators.shapley_forks import most_forks
from baton.errors import UsageError
from baton.team.forking import Fork
from baton.team.forks import Cost, Forks, WhatIf
from baton.team.intervene import Intervention
from baton.team.protocol import Answer
from baton.team.team import Assignment, Team
from baton.trace.formats.recognition import run_beside
from baton.trace.outcome import estimated_tokens, team_return
from baton.trace.records import Credit
from baton.trace.trace import Trace, is_fork, meta_table, repeats

if TYPE_CHECKING:
    from baton.serve.replay.program_forks import ProgramForks


class Expected(Struct, frozen=True, kw_only=True):
    """What running traces again is expected to take, before any of it is done."""

    num_traces: int
    own: int
    """Tokens that the traces themselves took."""
    estimated: bool
    """Whether those are, or hold, an estimate."""
    most: float | None
    """Tokens that forks may take, about; None: the estimator knows no bound."""


def expected_cost(estimator: Estimator, traces: Sequence[Trace], given: Mapping[str, Any]) -> Expected:
    """What the forks of an estimator with these settings may take."""
    spend = given.get("spend")
    most: float | None = None
    own = [own_tokens(trace) for trace in traces]
    if estimator.name == "shapley":
        limit = min(given.get("max_evaluations") or math.inf, math.inf if spend is None else spend)
        most = sum(tokens * min(limit, most_forks(trace)) for tokens, trace in zip(own, traces, strict=True))
    elif spend is not None:
        most = sum(own) * spend
    return Expected(
        num_traces=len(traces), own=sum(own), estimated=any(map(estimated_tokens, traces)), most=most
    )


class TraceRunner:
    """Forks each trace with the team and the seed that made it."""

    def __init__(
        self,
        first: Trace,
        *,
        trust: bool,
        team: Team | None = None,
        assignment: Assignment | None = None,
        path: str | None = None,
        trained: TrainedRuns | None = None,
        beginning: Callable[[], None] = lambda: None,
    ) -> None:
        """`path` is where the traces of the group are: beside those of `baton train` stand recipe and weights.
        `beginning` is called before anything is run."""
        self._beginning = beginning
        self._trust = trust
        self._path = path
        self._trained = trained or TrainedRuns(trust=trust)
        self._given = Forks(team, assignment) if team is not None and assignment is not None else None
        self._of: dict[bytes, Forks] = {}
        self.team: Team = self._forks(first).team
        """Traces of one group have the same harness."""

    def _forks(self, trace: Trace) -> Forks:
        if self._given is not None:
            return self._given
        if is_trained(trace):
            return self._trained_forks(trace)
        key = msgspec.json.encode(settings_of(trace, {}))
        if key not in self._of:
            team, assignment, _ = team_again(trace, trust=self._trust)
            self._of[key] = Forks(team, assignment)
        return self._of[key]

    def _trained_forks(self, trace: Trace) -> Forks:
        """One for all traces that the same weights played, whatever they worked on."""
        key = bytes(self._trained.checkpoint_of(self._path, trace))
        if key not in self._of:
            team, _ = self._trained.team(self._path, trace)
            self._of[key] = Forks(team, partial(self._trained.assignment, self._path))
        return self._of[key]

    async def fork(self, trace: Trace, interventions: Sequence[Intervention] = (), **more: Any) -> Fork:
        """A trace again with something different."""
        self._beginning()
        return await self._forks(trace).fork(trace, interventions, **more)

    async def ask(self, trace: Trace, call_id: str, replicates: Sequence[int]) -> list[Answer]:
        """What else would have been said at a call."""
        self._beginning()
        return await self._forks(trace).ask(trace, call_id, replicates)

    async def fork_all(self, trace: Trace, branches: Sequence[WhatIf]) -> list[Fork]:
        """Several branches of a trace, side by side."""
        self._beginning()
        return await self._forks(trace).fork_all(trace, branches)

    async def ask_all(self, trace: Trace, calls: Mapping[str, Sequence[int]]) -> dict[str, list[Answer]]:
        """The same for several calls, asked together."""
        self._beginning()
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


class CreditWatch(Struct, frozen=True, kw_only=True):
    """What whoever asks for credit hears while it is worked out; by itself, nothing."""

    running: Callable[[TraceRunner | ProgramForks], AbstractContextManager[None]] = lambda _: nullcontext()
    """Shows how far the forks of a group are."""
    spending: Callable[[Expected], None] = lambda _: None
    """Hears once what forks may cost, before the first of them."""
    refused: Callable[[Sequence[Trace], CreditError], None] | None = None
    """Hears which traces have no credit and why, where others have; None: that is an error for all."""


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
    paths: Sequence[str] | None = None,
    runner: ProgramForks | None = None,
    watch: CreditWatch = CreditWatch(),  # noqa: B008  # frozen
) -> Credits:
    """For each trace, its credits. `reward` is a channel's name, or reads the return off a trace. `runner` runs them
    again where they are of an outside program.

    A fork is no draw of its own, nor is a repeat: where rollouts are compared, those beside them get no credit. Forks
    are bounded by the estimator's own `spend` where `settings` has none. `paths` says where each trace is, for those
    that `baton train` made: what runs them again stands beside them.
    """
    given = ({} if estimator.spend is None else {"spend": estimator.spend}) | (settings or {})
    if estimator.takes_reward:
        given["reward"] = reward if callable(reward) else partial(team_return, channel=reward)
    elif reward is not None:
        raise UsageError(
            f"estimator {estimator.name} does not look at the team's return; leave --reward out."
        )
    groups = [
        each for places in _groups(traces, group_by, paths) for each in _compared(estimator, traces, places)
    ]
    if "group" in estimator.needs:
        # Beside groups that can be compared, a rollout by itself has no credit; by itself alone it is refused.
        groups = [each for each in groups if len(each[1]) >= estimator.at_least] or groups
    expected = partial(
        expected_cost, estimator, [traces[place] for _, rollouts in groups for place in rollouts], given
    )
    runners = _Runners(trust, team, assignment, lambda: watch.spending(expected()), runner)
    found: Credits = [[] for _ in traces]
    refused: list[tuple[list[Trace], CreditError]] = []
    for places, rollouts in groups:
        group = [traces[place] for place in rollouts]
        try:
            if "runtime" in estimator.needs:
                again = runners.of(group[0], None if paths is None else paths[rollouts[0]])
                with watch.running(again):
                    mine = await _with_runner(estimator, group, unit, given, again)
            else:
                mine = estimator(group, unit=unit, **given)
            _check_told(estimator, group, mine)
        except CreditError as error:
            refused.append((group, _with_forks(error) if len(rollouts) < len(places) else error))
            if watch.refused is None:
                raise refused[0][1] from None
            continue
        for place, credits in zip(rollouts, mine, strict=True):
            found[place] = credits
    if len(refused) == len(groups):
        raise refused[0][1]
    for group, why in refused:
        assert watch.refused is not None
        watch.refused(group, why)
    return found


class _Runners:
    """What runs the traces of groups again, one for each; what they share is set up once."""

    def __init__(
        self,
        trust: bool,
        team: Team | None,
        assignment: Assignment | None,
        spending: Callable[[], None],
        given: ProgramForks | None = None,
    ) -> None:
        self._given = given
        if given is not None:
            given.beginning = self._begin
        self._trust = trust
        self._team = team
        self._assignment = assignment
        self._spending: Callable[[], None] | None = spending
        self._trained = TrainedRuns(trust=trust)

    def of(self, first: Trace, path: str | None) -> TraceRunner | ProgramForks:
        if self._given is not None:
            return self._given
        return TraceRunner(
            first,
            trust=self._trust,
            team=self._team,
            assignment=self._assignment,
            path=path,
            trained=self._trained,
            beginning=self._begin,
        )

    def _begin(self) -> None:
        if self._spending is not None:
            tell, self._spending = self._spending, None
            tell()


def _with_forks(error: CreditError) -> CreditError:
    return CreditError(
        f"{error} Forks and repeats do not count: a fork is no rollout of its own, and neither is a run with "
        "the seed of another."
    )


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


def _compared(
    estimator: Estimator, traces: Sequence[Trace], places: list[int]
) -> list[tuple[list[int], list[int]]]:
    """Groups, and of each those that an estimator looks at together: each draw once, and without forks but for one that
    looks for shared beginnings. What needs no group still reads its errors off others: there each of the rest is a
    group by itself."""
    draws = _drawn(traces, places, forks="shared_prefixes" in estimator.needs)
    if {"group", "values or group"} & estimator.needs or "ema" in estimator.settings:
        return [(places, draws)]
    return [(draws, draws), *(([place], [place]) for place in places if place not in draws)]


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
    paths: Sequence[str] | None = None,
    watch: CreditWatch = CreditWatch(),  # noqa: B008  # frozen
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
                paths=paths,
                watch=watch,
            )
            for mine, new in zip(stacked, credits, strict=True):
                mine.append(new)
    found: dict[int, Partition] = {}
    for places in _groups(traces, group_by, paths):
        compared = places if value is not None else _drawn(traces, places, forks=False)
        worth = value or group_value([traces[place] for place in compared], read)
        for place in compared:
            found[place] = partition(traces[place], *stacked[place], value=worth, reward=read)
    return [found.get(place) for place in range(len(traces))]


async def _with_runner(
    estimator: Estimator,
    group: list[Trace],
    unit: str | None,
    given: dict[str, Any],
    runner: TraceRunner | ProgramForks,
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


def _groups(traces: Sequence[Trace], by: str, paths: Sequence[str] | None = None) -> Iterable[list[int]]:
    """Places of the traces that are compared with each other."""
    if by == "none":
        return [[place] for place in range(len(traces))]
    found: dict[bytes, list[int]] = {}
    for place, trace in enumerate(traces):
        key: Any = trace.header.task_id
        spec = meta_table(trace.header, "run", "task")
        if by == "task" and "task" in spec:
            key = [spec["task"], spec.get("settings")]
        # A training run's weights are others at every step, and than another run's.
        step = meta_table(trace.header, "train").get("step")
        run = run_beside(paths[place]) if paths is not None and step is not None else None
        named = msgspec.json.encode([key, step, None if run is None else str(run)], order="deterministic")
        found.setdefault(named, []).append(place)
    return found.values()

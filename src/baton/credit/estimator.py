"""The contract of credit: what an estimator is given, what it gives back, and where it is listed.

An estimator is a function `(group, *, reward=team_return, ...) -> one list of Credit per trace`. It
reads traces and writes records, so it gives the same numbers from a saved trace. Those that need the
runtime (`"runtime"` in `needs`) are coroutines that also take `baton.team.forks.Forks`, which re-runs a trace with
something different. Asking for credit that a trace cannot support is a `CreditError` that names what
is missing and how to get it; it is never a silent zero.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct

from baton import registry
from baton.errors import TraceError, UsageError, nearest
from baton.settings import convert, types_of
from baton.team.forks import Cost
from baton.trace.acts import EVENT_UNITS
from baton.trace.outcome import team_return
from baton.trace.records import Credit
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

Group = Sequence[Trace]
"""Rollouts of one task instance."""
Credits = list[list[Credit]]
"""For each trace of a group, its credits."""
RewardOf = Callable[[Trace], float]
P = ParamSpec("P")
R = TypeVar("R")


class CreditError(TraceError):
    """The traces do not hold what this credit needs."""


def returns(
    group: Group, reward: RewardOf = team_return, *, at_least: int = 1, what: str = "this estimator"
) -> list[float]:
    """The return of each trace; a group too small to compare is an error."""
    if len(group) < at_least:
        tasks = ", ".join(sorted({trace.header.task_id for trace in group})) or "no task"
        raise CreditError(
            f"{what} compares rollouts of one task and needs at least {at_least}; there "
            f"{'is' if len(group) == 1 else 'are'} {len(group)} of {tasks}. Make a group ({_more(group)}), "
            "compare over all instances of the task (--group-by task), or use an estimator that needs no group "
            "(`baton credit --list`)."
        )
    return [reward(trace) for trace in group]


def _more(group: Group) -> str:
    """What to type for more rollouts."""
    if group and all(trace.header.system == "baton serve" for trace in group):
        return "baton serve --engine SPEC --out DIR -- COMMAND, once for each"
    return "baton run TASK --rollouts N"


class Prefix(Struct, frozen=True):
    """G<=t, what a value is asked about: the first `num_events` events of a trace in `seq` order.

    `agent` is set where a local critic is asked: it may look at what that agent has seen, and no further.
    """

    trace: Trace
    num_events: int
    agent: str | None = None

    def graph(self) -> Trace:
        """The prefix as a trace of its own."""
        last = self.trace.events[self.num_events - 1].seq if self.num_events else -1
        return self.trace.prefix(last)


Value = Callable[[Prefix], float]
"""A critic: the expected return from a prefix on."""


NO_COST = Cost()


def make_credit(
    estimator: str,
    unit: CreditUnit,
    target: str,
    value: float,
    *,
    stderr: float | None = None,
    cost: Cost = NO_COST,
    assumes: tuple[str, ...] = (),
) -> Credit:
    """A record, checked to be a number. The cost is zero for estimators that re-run nothing."""
    if not math.isfinite(value):
        raise CreditError(
            f"{estimator}: the credit of {unit} {target} is {value}; the rewards must be finite."
        )
    return Credit(
        unit=unit,
        target=target,
        value=float(value),
        estimator=estimator,
        stderr=None if stderr is None else float(stderr),
        cost_tokens=cost.tokens,
        cost_calls=cost.calls,
        assumes=assumes,
    )


def write_credits(
    estimator: str, unit: CreditUnit, rows: Iterable[Iterable[tuple[str, float, float | None]]], *assumes: str
) -> Credits:
    """The records of each trace, from its (target, value, standard error); all rest on the same assumptions."""
    return [
        [
            make_credit(estimator, unit, target, value, stderr=error, assumes=assumes)
            for target, value, error in mine
        ]
        for mine in rows
    ]


NORMAL_95 = NormalDist().inv_cdf(0.975)
"""What a stated error is multiplied by for a 95 % interval."""


def widened(error: float | None, df: float) -> float | None:
    """A standard error that rests on few draws, so that 1.96 of it cover 95 %; None where there are none."""
    return None if error is None or df < 1 else error * t_95(df) / NORMAL_95


def added(*parts: tuple[float, float]) -> float | None:
    """The error of a sum of independent parts, by the (squared error, degrees of freedom) of each; Satterthwaite."""
    total = math.fsum(square for square, _ in parts)
    doubt = math.fsum(square**2 / df for square, df in parts if square > 0)
    return widened(math.sqrt(total), total**2 / doubt) if doubt > 0 else None


def t_95(df: float) -> float:
    """Student's 97.5 % quantile: exact for 1 and 2 degrees of freedom, else by Cornish and Fisher (error < 0.004)."""
    if df < 3:  # between two of them, the wider
        return math.tan(math.pi * 0.475) if df < 2 else 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = NORMAL_95
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * df**4)
    )


@lru_cache(512)
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a function takes; asked for every group of every step."""
    return inspect.signature(function).parameters


class Estimator(Struct, frozen=True, kw_only=True):
    """One way to say who earned what."""

    name: str
    units: tuple[CreditUnit, ...]
    """What its credits land on. Where there are several, the function takes `unit`; the first is its default."""
    needs: frozenset[str]
    """Beyond rewards: group (rollouts to compare), runtime (it runs traces again), counterfactuals (returns without an
    agent), values (a critic), options (all that could have been chosen), lucks (rollouts whose luck differs),
    propensities, turn_rewards, shared_prefixes, ... A recipe that cannot give them is refused."""
    source: str
    """The paper."""
    evidence: str
    """P the paper's text, C the authors' code, A abstract or secondary, M textbook, I our inference."""
    function: Callable[..., Any]
    at_least: int = 2
    """Rollouts that it needs to compare, where it needs a group."""
    decisions: tuple[str, ...] = ()
    """Decisions it is for, which somebody in the team has to make; empty: whatever its units are."""
    critics: tuple[str, ...] = ("table", "network")
    """Kinds of critic that can answer it, where it asks one."""
    own_scale: bool = False
    """Whether its credit is not in units of the return (divided by a spread, ranks), so that none can be taken off it,
    nor it off another's: it cannot be a layer above or below others."""
    estimand: str = ""
    """What its credits are estimates of, where the first line of its docstring does not say it."""
    spend: float | None = None
    """Its setting `spend` where whoever asks for credit names none: how many times a trace's own cost forks take."""

    @property
    def settings(self) -> Mapping[str, inspect.Parameter]:
        """What can be set by name, beside the group, the unit and the reward."""
        found = _parameters(self.function)
        return {n: p for n, p in found.items() if n not in ("group", "reward", "unit", "runner")}

    @property
    def hints(self) -> Mapping[str, Any]:
        """The types of its settings; of none where they name what is only there for a type checker."""
        return types_of(self.function)

    @property
    def takes_reward(self) -> bool:
        """Whether it looks at the team's return, which `reward` says how to read."""
        return "reward" in _parameters(self.function)

    @property
    def about(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def lands_on(self, unit: str | None) -> tuple[CreditUnit, ...]:
        """The units that credit is asked of it for: the one named; else all that are one event each, or the first."""
        if unit is not None:
            return tuple(own for own in self.units if own == unit)
        return self.units if len(self.units) > 1 and EVENT_UNITS.issuperset(self.units) else self.units[:1]

    def bind(self, *, unit: str | None = None, **settings: Any) -> dict[str, Any]:
        """Keyword arguments for `function`, or an error that names the nearest right one."""
        hints, where = self.hints, f"estimator {self.name}"
        for name, value in settings.items():
            if name not in self.settings:
                known = nearest(name, self.settings) if self.settings else "It has none."
                raise UsageError(f"{where} has no setting {name!r}. {known}")
            settings[name] = convert(hints.get(name, Any), value, where, name)
        for name, parameter in self.settings.items():
            if parameter.default is inspect.Parameter.empty and name not in settings:
                raise CreditError(
                    f"estimator {self.name} needs {name}=..., a function, which was not given (on the command line: "
                    f"--set {name}=module:function). {self.about}"
                )
        if unit is not None and unit not in self.units:
            raise UsageError(
                f"estimator {self.name} gives credit to {' or '.join(self.units)}, not to {unit!r}. "
                "Type: baton credit --list"
            )
        return settings if unit is None or len(self.units) == 1 else {**settings, "unit": unit}

    def __call__(self, group: Group, **given: Any) -> Credits:
        """Estimate without a runtime. Those that fork are awaited instead: `await e.function(group, ...)`."""
        if "runtime" in self.needs:
            raise CreditError(
                f"estimator {self.name} runs traces again, so it needs a runner: "
                f"await ESTIMATORS[{self.name!r}].function(group, runner=...)."
            )
        extra = {"reward": given.pop("reward")} if "reward" in given else {}
        found: Credits = self.function(group, **extra, **self.bind(**given))
        return found


ESTIMATORS: dict[str, Estimator] = {}
"""Every estimator by name; filled when `baton.credit` is imported."""


def estimator(
    name: str,
    *units: CreditUnit,
    source: str,
    evidence: str,
    needs: Iterable[str] = (),
    at_least: int = 2,
    decisions: Iterable[str] = (),
    critics: Iterable[str] = ("table", "network"),
    own_scale: bool = False,
    estimand: str = "",
    spend: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """List a function as an estimator; the function itself stays as it is."""

    def listed(function: Callable[P, R]) -> Callable[P, R]:
        if name in ESTIMATORS:
            raise UsageError(f"there already is an estimator {name!r}; give this one another name.")
        ESTIMATORS[name] = Estimator(
            name=name,
            units=units,
            needs=frozenset(needs),
            source=source,
            evidence=evidence,
            function=function,
            at_least=at_least,
            decisions=tuple(decisions),
            critics=tuple(critics),
            own_scale=own_scale,
            estimand=estimand,
            spend=spend,
        )
        return function

    return listed


def find(name: str) -> Estimator:
    """An estimator by name (`_` and `-` are the same), or one of another package by entry point or module:attr."""
    same = {known.replace("_", "-"): known for known in registry.names("estimator")}
    found = registry.resolve("estimator", same.get(name.replace("_", "-"), name))
    if isinstance(found, Estimator):
        return found
    for listed in ESTIMATORS.values():
        if listed.function is found:
            return listed
    raise UsageError(f"{name} is not an estimator. Decorate the function: @estimator(...)")

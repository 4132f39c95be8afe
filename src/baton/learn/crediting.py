"""From traces to credits: a recipe's estimators, each on its own decisions and roles, and none on another's.

Estimators that ask for a critic get the run's, those that run traces again get a runner over the policy as it is,
those with a memory of their own (a moving average) keep it from step to step. A group that cannot support an estimator
(no two rollouts part where it looks, nobody was spawned) gives no credit in that step; when no group of a step could,
three steps running, the run ends with the reason.

Estimators on several levels (decisions, messages, agents, the team) are layers of one partition: a coarser one is left
with what finer ones did not give, on the events that they left open (`baton.credit.core.layers`). Weights, centring and
normalising act on what each is left with.

Invariant: no event is credited twice (`baton.credit.core.covering` refuses it). An answer that could not be carried out
costs something on top of what credit it has, as much as credits usually are in that step, so that the grammar is kept
under any credit; that price is a layer of its own on the traces (estimator `invalid`), and the two meet on tokens
(`advantages`).
"""

from __future__ import annotations

import math
from asyncio import gather
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any

import numpy as np
from msgspec import Struct, structs

from baton.credit import ESTIMATORS, find
from baton.credit.core.covering import Grounds, grounds_of
from baton.credit.core.layers import what_is_left
from baton.credit.estimator import Estimator
from baton.credit.estimators.group import Ema
from baton.credit.project import project
from baton.errors import TraceError
from baton.games.game import Game
from baton.games.on_team import read_state
from baton.learn.decisions import DECISIONS
from baton.learn.options import with_propensities
from baton.learn.policy import Policy, samplers
from baton.learn.recipe import CreditPart, Recipe
from baton.learn.scoring import returns_without
from baton.team.forks import Forks
from baton.trace.acts import EVENT_UNITS, agents, unit_of
from baton.trace.records import ROUNDING, Credit, Event, Floats
from baton.trace.trace import Trace

_DECIDES = {"wait": "stop", "continue": "stop"} | {
    name: name for name in ("spawn", "delegate", "communicate", "aggregate", "stop")
}
"""Which learned decision an event's is: to go on is not to stop."""


def learned_weights(
    trace: Trace, sizes: Mapping[str, int], learned: Collection[str], *, level: float = 1.0
) -> dict[str, Floats]:
    """For each call and its number of tokens: `level`, and 0 on tokens of decisions that are not learned."""
    off = [
        Credit(unit="orchestrator", target=event.id, value=1.0, estimator="off")
        for event in trace.events
        if event.call in sizes and _DECIDES.get(event.decision, "") not in ("", *learned)
    ]
    reached = project(trace, off) if off else {}  # all at once: each alone would go through the whole trace
    return {
        call: Floats.from_buffer(
            np.where(reached[call].numpy() > 0, 0.0, level) if off else np.full(size, level)
        )
        for call, size in sizes.items()
    }


def stop_settings(game: Game | None, policies: Mapping[str, Policy], max_tokens: int) -> dict[str, Any]:
    """What stop credit asks of a run, by the name of its setting: which options end a game, and how likely they were in
    rollouts that were run on."""

    def complete(traces: Sequence[Trace]) -> list[Trace]:
        return with_propensities(traces, samplers(policies, now=True), max_tokens=max_tokens)

    found: dict[str, Any] = {"complete": complete}
    if game is not None:
        found["stops"] = _stops_of(game)
    return found


def _stops_of(game: Game) -> Any:
    """Options after which play is over, whatever their verb: in some games it is to wait."""

    @lru_cache(65_536)
    def ends(key: str) -> tuple[bool, ...]:
        state = read_state(key)
        return tuple(
            not any(game.options(branch.state) for branch in game.step(state, option))
            for option in game.options(state)
        )

    def stops(event: Event) -> tuple[str, ...]:
        if event.options is None or "step" not in event.extra:
            return ()
        over = ends(event.extra["step"]["state"])
        return tuple(option for option, is_over in zip(event.options, over, strict=True) if is_over)

    return stops


_INVALID = "invalid"
"""Names the layer of prices in place of an estimator."""
_PATIENCE = 3
"""Steps without any credit from an estimator before the run ends."""


class Credited(Struct, frozen=True, kw_only=True):
    """What a step's traces earned."""

    traces: list[Trace]
    """The step's traces, with their credits on them."""
    fork_tokens: int
    by_decision: dict[str, tuple[float, int]]
    """Mean absolute credit, and how many events had one."""
    grounds: Grounds
    """How many events had none, or one that others told."""


class Crediting:
    """The credit part of a run, with what it remembers."""

    def __init__(self, recipe: Recipe, given: Mapping[str, Any]) -> None:
        self.recipe = recipe
        self.given = dict(given)
        """What estimators may ask for by name (reward, value, q, in_scope, ...); `UNIT_NAME` is for one unit alone."""
        self._emas = [Ema() for _ in recipe.credit]
        """Running means, one for each credit part."""
        self._barren = [0 for _ in recipe.credit]
        """Steps in a row in which a part found no credit."""
        self._estimators = [find(part.estimator) for part in recipe.credit]
        self._bound: dict[tuple[int, str], dict[str, Any]] = {}
        """Credit part and unit -> the estimator's settings, checked once."""

    async def credit(self, groups: Sequence[Sequence[Trace]], runner: Callable[[], Forks]) -> Credited:
        """Credits for all traces of a step, in the order given."""
        traces = [trace for group in groups for trace in group]
        estimated: dict[str, list[list[Credit]]] = {trace.trace_id: [] for trace in traces}
        forks: Forks | None = None
        for number, part in enumerate(self.recipe.credit):
            estimator = self._estimators[number]
            if {"runtime", "counterfactuals"} & estimator.needs and forks is None:
                forks = runner()
            together = [list(traces)] if part.group_by == "task" else [list(group) for group in groups]
            found = await self._estimates(estimator, number, together, forks)
            for group, credits in zip(together, found, strict=True):
                for trace, mine in zip(group, credits, strict=True):
                    estimated[trace.trace_id].append([c for c in mine if _wanted(part, trace, c)])
        left = estimated
        if len(self.recipe.credit) > 1:
            left = {trace.trace_id: what_is_left(trace, estimated[trace.trace_id]) for trace in traces}
        layers: dict[str, list[Credit]] = {trace.trace_id: [] for trace in traces}
        for number, part in enumerate(self.recipe.credit):
            _add(part, {name: found[number] for name, found in left.items()}, layers)
        price = self.recipe.train.invalid * _size(layers.values())
        credited = [_with(trace, layers[trace.trace_id], price) for trace in traces]
        return Credited(
            traces=credited,
            fork_tokens=0 if forks is None else forks.cost.tokens,
            by_decision=_by_decision(credited),
            grounds=grounds_of(traces, [layers[trace.trace_id] for trace in traces]),
        )

    async def _estimates(
        self, estimator: Estimator, number: int, together: Sequence[list[Trace]], forks: Forks | None
    ) -> list[list[list[Credit]]]:
        """One part's credits of all groups. Groups that cannot support it have none."""
        found: list[list[list[Credit]]] = []
        errors: list[TraceError] = []
        for group in together:
            try:
                found.append(await self._estimate(estimator, number, group, forks))
            except TraceError as error:
                errors.append(error)
                found.append([[] for _ in group])
        self._barren[number] = self._barren[number] + 1 if len(errors) == len(together) else 0
        if self._barren[number] >= _PATIENCE:
            raise errors[0]
        return found

    async def _estimate(
        self, estimator: Estimator, number: int, group: list[Trace], forks: Forks | None
    ) -> list[list[Credit]]:
        part = self.recipe.credit[number]
        units = estimator.lands_on(part.unit)
        found: list[list[Credit]] = [[] for _ in group]
        errors: list[TraceError] = []
        for unit in units:
            without = None
            if "counterfactuals" in estimator.needs and forks is not None:
                without = await self._without(group, forks)
            bound = self._settings(estimator, number, unit, without)
            if "runtime" in estimator.needs:
                bound["runner"] = forks
            if estimator.takes_reward:
                bound["reward"] = self.given["reward"]
            try:
                made = estimator.function(group, **bound)
                each = await made if iscoroutinefunction(estimator.function) else made
            except TraceError as error:
                errors.append(error)  # a team need not have choices of every unit
                continue
            for mine, new in zip(found, each, strict=True):
                mine += new
        if len(errors) == len(units):
            raise errors[0]
        return found

    def _settings(
        self, estimator: Estimator, number: int, unit: str, without: Callable[[Trace, str], float] | None
    ) -> dict[str, Any]:
        """What an estimator is called with. All but `without` is the same at every step."""
        more = {} if without is None else {"without": without}
        if (number, unit) not in self._bound:
            given = {
                name: self.given[own]
                for name in estimator.settings
                for own in (name, f"{unit}_{name}")  # one for this unit alone comes last, and so counts
                if own in self.given
            }
            part = self.recipe.credit[number]
            self._bound[number, unit] = estimator.bind(unit=unit, **{**given, **more, **part.settings})
        bound = {**self._bound[number, unit], **more}
        if "ema" in estimator.settings:
            bound["ema"] = self._emas[number]
        return bound

    async def _without(self, group: Sequence[Trace], forks: Forks) -> Callable[[Trace, str], float]:
        """Returns of the group's traces run again without each of their agents."""
        reward = self.given["reward"]
        every = await gather(*(returns_without(forks, trace, list(agents(trace)), reward) for trace in group))
        known = {trace.trace_id: found for trace, found in zip(group, every, strict=True)}
        return lambda trace, agent: known[trace.trace_id][agent]

    def state_dict(self) -> dict[str, Any]:
        """What is remembered from step to step."""
        return {"emas": [ema.values for ema in self._emas], "barren": self._barren}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._emas = [Ema(values=dict(values)) for values in state["emas"]]
        self._barren = list(state["barren"])


def _add(part: CreditPart, left: Mapping[str, Sequence[Credit]], layers: Mapping[str, list[Credit]]) -> None:
    """Add what one layer is left with on each trace, as the recipe weighs it."""
    scale, level = part.weight, 0.0
    values = [credit.value for credits in left.values() for credit in credits]
    if part.centre and values:
        level = math.fsum(values) / len(values)
    largest = max(map(abs, values), default=0.0)
    values = [value - level for value in values]
    size = math.sqrt(math.fsum(v * v for v in values) / len(values)) if values else 0.0
    if size <= ROUNDING * largest:
        scale = 0.0  # all alike: what their mean is off by is no credit
    elif part.normalise:
        scale = part.weight / size
    for name, credits in left.items():
        layers[name] += [structs.replace(c, value=(c.value - level) * scale) for c in credits]


def _size(layers: Iterable[Sequence[Credit]]) -> float:
    """Root mean square of a step's credits; 1 where there are none."""
    values = [credit.value for credits in layers for credit in credits]
    return math.sqrt(math.fsum(v * v for v in values) / len(values)) or 1.0 if values else 1.0


def _with(trace: Trace, credits: Sequence[Credit], price: float) -> Trace:
    prices = (
        Credit(unit=unit, target=event.id, value=-price, estimator=_INVALID)
        for event in trace.events
        if price and event.status == "invalid" and event.call and (unit := unit_of(event))
    )
    return structs.replace(trace, credits=(*credits, *prices))


def advantages(trace: Trace, *, decision_only: bool = False) -> dict[str, Floats]:
    """What the credit of a trace comes to on each of its tokens, less what could not be carried out."""
    credit = project(
        trace,
        [c for c in trace.credits if c.estimator != _INVALID],
        decision_only=decision_only,
        layered=True,
    )
    prices = [c for c in trace.credits if c.estimator == _INVALID]
    if not prices:
        return credit
    price = project(trace, prices, decision_only=decision_only)
    return {call: Floats.from_buffer(credit[call].numpy() + price[call].numpy()) for call in credit}


def _wanted(part: CreditPart, trace: Trace, credit: Credit) -> bool:
    if not part.decisions and not part.roles:
        return True
    if credit.unit in EVENT_UNITS:
        event = trace.event(credit.target.partition(">")[0])
        call = trace.call_by_id.get(event.call or "")
        role = call.role if call is not None else event.role
        return (not part.decisions or event.decision in part.decisions) and (
            not part.roles or role in part.roles
        )
    if credit.unit == "role":
        return not part.roles or credit.target in part.roles
    agent_roles = {call.agent: call.role for call in trace.calls}
    if credit.unit == "agent":
        return agent_roles.get(credit.target) in part.roles
    call = trace.call_by_id.get(credit.target.rpartition(":")[0] if credit.unit == "token" else credit.target)
    return credit.unit == "team" or (call is not None and call.role in part.roles)


def _by_decision(traces: Sequence[Trace]) -> dict[str, tuple[float, int]]:
    sums: dict[str, list[float]] = {}
    for trace in traces:
        for credit in trace.credits:
            if credit.unit in EVENT_UNITS and credit.estimator in ESTIMATORS:
                event = trace.event(credit.target.partition(">")[0])
                if event.decision in DECISIONS:
                    sums.setdefault(event.decision, []).append(abs(credit.value))
    return {name: (math.fsum(values) / len(values), len(values)) for name, values in sums.items()}

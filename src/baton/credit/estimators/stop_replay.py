"""Stop credit of traces: each is run on past its stop, and scored as if it had stopped at every decision.

- Forced continuation: where the root chose to stop, it is made to go on instead, again and again, until nothing but
  a stop is open to it, nobody is in flight any more, or a cap stops it. The intended stop stays in the record of the
  original.
- Shadow aggregation: at every decision the team stops and is scored: with those stops that are open where the task
  names the options, weighed as the policy would choose among them, else on a draft. A draft made by a pure aggregator
  runs nothing, so this costs no tokens.
- Backward regression over the group then says what going on was worth (`baton.credit.estimators.stop_value`).
Invariant: what is forced is carried out, or there is no score; what a task refuses is an error.
Sources as there; over a running team's trace [I].
"""

from __future__ import annotations

import math
from asyncio import gather
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from baton.credit.estimator import NO_COST, CreditError, Credits, Group, RewardOf, estimator, make_credit
from baton.credit.estimators.stop_value import (
    MIN_COHORT,
    Array,
    Fit,
    Stops,
    advantages,
    backward,
    bootstrap_errors,
    decisions_of,
    drawn_onward,
    known,
    likeliest_onward,
    majority_draft,
    stop_chance,
    stop_options,
    stop_shares,
    stopped,
    wait_for_those_left,
)
from baton.settings import Count
from baton.team.action import VERBS, Action, Stop
from baton.team.forking import Fork
from baton.team.forks import Cost
from baton.team.intervene import Force, Intervention
from baton.team.surface import Parsed
from baton.team.team import Team
from baton.trace.acts import chosen
from baton.trace.outcome import team_return
from baton.trace.records import Credit, Event
from baton.trace.trace import Trace

T = TypeVar("T")
Draft = Callable[[Trace, Event], str]
"""The answer a team would give, were it to stop instead of this event."""
Onward = Callable[[Trace, Event], Action | None]
"""What to do instead of a stop; None: there is nothing left to go on with."""
_VERBS = frozenset(VERBS)
_ASSUMES = (
    "tools in the cone are pure", "features tell what matters of a prefix", "stops by a cap get no credit",
    "error: bootstrap over rollouts, widened for few; of 16 and fewer with scores of 0 or 1 it is rather too narrow",
)  # fmt: skip

_AFTERWARDS = {
    "optimal": "estimand: going on and then stopping when that is best (optimal continuation)",
    "policy": "estimand: going on and then doing as the policy does (policy continuation)",
}


class TeamRunner(Protocol):
    """Runs traces of a team again (`baton.team.forks.Forks`)."""

    @property
    def team(self) -> Team: ...

    async def fork(self, trace: Trace, interventions: Sequence[Intervention] = ()) -> Fork: ...


class Shadow(NamedTuple):
    """What stopping at a decision would have scored."""

    score: float
    """What stopping there scores when the stop is chosen as the policy would."""
    by_option: dict[str, float]
    """What each of the stops that were open scores; empty where a draft was taken."""


async def continued(
    runner: TeamRunner,
    trace: Trace,
    *,
    onward: Onward | None = None,
    stops: Stops = stop_options,
    max_steps: int = 32,
    draw: bool = False,
) -> Trace:
    """The trace run on to the end, whatever its policy wanted.

    Without `onward`: by the likeliest open option that is no stop (with `draw`, by one drawn as its policy would), or
    the first where chances are not on record, as after a fork; where the task names no options, by waiting for those
    whom the stop cut off.
    """
    for _ in range(max_steps):
        said = (event for event in reversed(trace.events) if event.call is not None and event.status == "ok")
        stop = next((event for event in said if stopped(event, stops)), None)
        action = None if stop is None else _going_on(runner, trace, stop, onward, stops, draw)
        if stop is None or action is None:
            break
        made = (await runner.fork(trace, (Force(stop.id, action),))).trace
        if made.event(stop.id).status == "failed":  # a budget refused it, so it could not have gone on
            break
        _check_done(made, stop, "onward=...")
        trace = made
    return trace


async def shadows(
    runner: TeamRunner,
    trace: Trace,
    decisions: Sequence[Event],
    *,
    draft: Draft | None = None,
    stops: Stops = stop_options,
    token_price: float = 0.0,
    reward: RewardOf = team_return,
) -> list[Shadow]:
    """S_t at each decision, net of the tokens spent by then.

    Without `draft`: with every stop that is open there; where the task names no options, on the majority's answer.
    """

    async def score(event: Event, action: Action) -> float:
        made = (await runner.fork(trace, (Force(event.id, action),))).trace
        _check_done(made, event, "draft=...")
        return reward(made) - token_price * made.costs.get("tokens", 0.0)

    found = []
    for event in decisions:
        if draft is not None or event.options is None:
            answer = (draft or majority_draft)(trace, event)
            found.append(Shadow(await score(event, Stop(answer)), {}))
            continue
        shares = stop_shares(event, stops)
        by_option = {option: await score(event, _read(runner, option)) for option in shares}
        mean = math.fsum(share * by_option[option] for option, share in shares.items())
        found.append(Shadow(mean, by_option))
    return found


def _going_on(
    runner: TeamRunner, trace: Trace, stop: Event, onward: Onward | None, stops: Stops, draw: bool
) -> Action | None:
    if onward is not None or stop.options is None:
        return (onward or wait_for_those_left)(trace, stop)
    key = f"onward/{trace.trace_id.partition('~')[0]}/{stop.id}"  # of a fork, by the rollout it is of
    option = drawn_onward(stop, stops, key) if draw else likeliest_onward(stop, stops)
    return None if option is None else _read(runner, option)


def _read(runner: TeamRunner, option: str) -> Action:
    item = runner.team.harness.surface.parse(option, _VERBS)[0]
    if not isinstance(item, Parsed):
        raise CreditError(f"the option {option!r} is no action of this team: {item.message}")
    return item.action


def _check_done(made: Trace, at: Event, setting: str) -> None:
    """Raises where what was forced was not carried out: what came of it instead tells nothing."""
    event = made.event(at.id)
    if event.status != "ok":
        raise CreditError(
            f"trace {made.header.meta['forked_from']}: what was forced at event {at.id} was not carried out "
            f"({event.status}): {made.text(event.content_ref)}. Say what is open there: {setting}"
        )


@estimator(
    "stop-value",
    "orchestrator",
    needs=("runtime", "group", "propensities", "options", "lucks"),
    decisions=("stop",),
    at_least=2 * MIN_COHORT,
    source="Longstaff and Schwartz 2001, over forced continuations of a team's trace",
    evidence="I",
    estimand="the stop against the best that could follow it, and not against what the policy would have done; "
    "that is continuation=policy",
)
async def stop_value(
    group: Group,
    *,
    runner: TeamRunner,
    reward: RewardOf = team_return,
    draft: Draft | None = None,
    features: Callable[[Trace, Event], Sequence[float]] = known,
    onward: Onward | None = None,
    stops: Stops = stop_options,
    chance: Callable[[Event], float] | None = None,
    complete: Callable[[Sequence[Trace]], Sequence[Trace]] | None = None,
    fit: Fit | None = None,
    score_known: bool = False,
    token_price: float = 0.0,
    max_steps: Count = 32,
    continuation: Literal["optimal", "policy"] = "optimal",
) -> Credits:
    """D_t = C_t - S_t, A_stop = -(1 - p_stop) D_t, A_continue = p_stop D_t, at every decision of the root.

    S_t is what stopping then would have scored, C_t the regression of the value of going on (see `stop_value`) and then
    stopping when that is best (`continuation="optimal"`), or of what the policy itself would do (`"policy"`: A is its
    Q - V, and needs the chance of a stop on record at every decision of the rollouts as they were run on). Both come
    from running the trace on past its stop. Where several stops are open, S_t is their mean by the policy's chances,
    and the one taken earns what it scored above that as well. `complete` writes the chances of options onto traces
    that were run on, where the engine does not. Standard error: of D_t over rollouts drawn again with replacement,
    weighed like it and widened for few; None where D_t has none, as at a last decision, or where the few rollouts that
    came there tell no more than the regression's own numbers.
    Source: backward regression, Longstaff and Schwartz 2001 [M]; over forced continuations of a team's trace [I].
    """
    # Folds go by place, so rollouts are taken by name: the order they are given in does not matter.
    order = sorted(_places(group, stops), key=lambda i: group[i].trace_id)
    runners = [_Counting(runner) for _ in order]
    wholes: Sequence[Trace] = await _all(
        continued(
            mine, group[i], onward=onward, stops=stops, max_steps=max_steps, draw=continuation == "policy"
        )
        for mine, i in zip(runners, order, strict=True)
    )
    wholes = complete(wholes) if complete is not None else wholes
    decided = [decisions_of(trace, stops) for trace in wholes]
    scored = await _all(
        shadows(mine, trace, events, draft=draft, stops=stops, token_price=token_price, reward=reward)
        for mine, trace, events in zip(runners, wholes, decided, strict=True)
    )
    s = _padded([[[shadow.score] for shadow in each] for each in scored], np.nan)[:, :, 0]
    told = zip(wholes, decided, strict=True)
    x = _padded([[features(trace, event) for event in events] for trace, events in told], 0.0)
    p = _padded(_stop_chances(decided, stops, chance), 1.0)[:, :, 0] if continuation == "policy" else None
    found = backward(s, x, fit=fit, score_known=score_known, stop_chances=p)
    errors = bootstrap_errors(s, x, fit=fit, score_known=score_known, stop_chances=p)
    out: Credits = [[] for _ in group]
    for row, place in enumerate(order):
        rated = zip(decisions_of(group[place], stops), scored[row], found.difference[row], errors[row])  # noqa: B905 (others went on for longer)
        out[place] = _credits(rated, stops, chance, runners[row].cost, continuation)
    if not any(out):
        raise CreditError(
            f"none of these {len(group)} traces could have gone on where it stopped or stopped where it went on, so no "
            "stop has a value over the other. Say how to go on: onward=..."
        )
    return out


def _stop_chances(
    decided: Sequence[Sequence[Event]], stops: Stops, chance: Callable[[Event], float] | None
) -> list[list[list[float]]]:
    """How likely the policy was to stop at each decision; where nothing but a stop is open, it is sure."""
    told = chance or (lambda event: stop_chance(event, stops))

    def of(event: Event) -> float:
        ends = stops(event)
        sure = event.options is not None and all(option in ends for option in event.options)
        return 1.0 if sure else told(event)

    return [[[of(event)] for event in events] for events in decided]


def _places(group: Group, stops: Stops) -> list[int]:
    """Which rollouts came to a decision; one that was cut off before tells nothing of stopping."""
    found = [place for place, trace in enumerate(group) if decisions_of(trace, stops)]
    if not found:
        raise CreditError(f"in none of these {len(group)} traces did the root have a choice to stop.")
    return found


def _credits(
    rated: Iterable[tuple[Event, Shadow, float, float]],
    stops: Stops,
    chance: Callable[[Event], float] | None,
    cost: Cost,
    continuation: str,
) -> list[Credit]:
    """The records of one rollout's decisions, from S_t, D_t and its error; the first bears the cost."""
    out: list[Credit] = []
    for event, shadow, difference, error in rated:
        ended = stopped(event, stops)
        above = _above_mean(event, shadow) if ended else 0.0
        if not chosen(event) or (np.isnan(difference) and not above):
            continue
        p = stop_chance(event, stops) if chance is None else chance(event)
        value = 0.0 if np.isnan(difference) else float(advantages(difference, p, ended))
        error = float(error) * ((1 - p) if ended else p)
        out.append(
            make_credit(
                "stop-value",
                "orchestrator",
                event.id,
                value + above,
                stderr=error if error > 1e-12 else None,
                cost=NO_COST if out else cost,
                assumes=(_AFTERWARDS[continuation], *_ASSUMES),
            )
        )
    return out


def _above_mean(event: Event, shadow: Shadow) -> float:
    """What the stop that was taken scored above those its policy might have taken as well."""
    if len(shadow.by_option) < 2 or event.options is None or event.choice is None:
        return 0.0
    return shadow.by_option[event.options[event.choice]] - shadow.score


class _Counting:
    """A runner that adds up what one rollout's branches cost: those of others run at the same time."""

    def __init__(self, runner: TeamRunner) -> None:
        self._runner = runner
        self.cost = NO_COST

    @property
    def team(self) -> Team:
        return self._runner.team

    async def fork(self, trace: Trace, interventions: Sequence[Intervention] = ()) -> Fork:
        made = await self._runner.fork(trace, interventions)
        self.cost += Cost.of([made])
        return made


async def _all(made: Iterable[Awaitable[T]]) -> list[T]:
    """All at once, so that a model is asked in batches. None is left running when one of them fails."""
    found = await gather(*made, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found  # type: ignore[return-value]  # none of them is an exception


def _padded(rows: Sequence[Sequence[Sequence[float]]], fill: float) -> Array:
    """Rollouts x decisions x numbers; filled up where a rollout had ended or has fewer numbers."""
    length = max(map(len, rows))
    width = max(len(numbers) for row in rows for numbers in row)
    out: Array = np.full((len(rows), length, width), fill)
    for i, row in enumerate(rows):
        for t, numbers in enumerate(row):
            out[i, t, : len(numbers)] = numbers
    return out

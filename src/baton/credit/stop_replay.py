"""Stop credit of traces: each is run on past its stop, and scored as if it had stopped at every decision.

- Forced continuation: where the root chose to stop, it is made to go on instead, again and again, until
  nobody is in flight any more or a cap stops it. The intended stop stays in the record of the original.
- Shadow aggregation: at every decision the team stops on a draft and is scored. A draft made by a pure
  aggregator runs nothing, so this costs no tokens.
- Backward regression over the group then says what going on was worth (`baton.credit.stop_value`).
Sources as there; over a running team's trace [I].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from baton.credit.contract import (
    Cost,
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    team_return,
)
from baton.credit.forking import Forks
from baton.credit.stop_value import Array, Fit, advantages, backward, bootstrap_errors
from baton.team.action import Action, Stop, Wait
from baton.team.aggregate import Claim, aggregator
from baton.team.intervene import Force
from baton.trace.event import Event
from baton.trace.record import Credit
from baton.trace.trace import Trace

__all__ = ["Draft", "continued", "counts", "decisions_of", "majority_draft", "shadow_scores", "stop_chance"]

Draft = Callable[[Trace, Event], str]
"""The answer a team would give, were it to stop instead of this event."""
Onward = Callable[[Trace, Event], Action | None]
"""What to do instead of a stop; None: there is nothing left to go on with."""


def decisions_of(trace: Trace) -> list[Event]:
    """The root's turns at which it could have stopped: one event for each of its calls.

    Words that were no action (invalid, decision none) cannot be made another, so such a turn has no stop to value.
    """
    root = trace.events[0].agent if trace.events else ""
    seen: set[str] = set()
    found = []
    for event in trace.events:
        if event.agent != root or event.call is None or event.call in seen:
            continue
        if event.status in ("invalid", "failed") and event.decision == "none":
            continue
        seen.add(event.call)
        if event.status != "forced" and (
            event.options is None or any(option.startswith("stop") for option in event.options)
        ):
            found.append(event)
    return found


def stop_chance(event: Event) -> float:
    """The recorded chance of a stop at a decision."""
    if event.options is not None and event.option_propensities is not None:
        chances = zip(event.options, event.option_propensities, strict=True)
        return float(sum(p for option, p in chances if option.startswith("stop")))
    if event.decision == "stop" and event.propensity is not None:
        return event.propensity
    raise CreditError(
        f"event {event.id} has no chance of a stop on record. Record runs with an engine that gives "
        "option_propensities, or say it: chance=..."
    )


def majority_draft(trace: Trace, event: Event) -> str:
    """What most of those who had returned to the root by then said; empty if nobody had."""
    claims = [
        Claim(other.agent, trace.text(other.content_ref) or "")
        for other in trace.events
        if other.type == "return" and other.seq < event.seq and other.to == event.agent
    ]
    return aggregator("majority").fuse(claims).text if claims else ""


def counts(trace: Trace, event: Event) -> list[float]:
    """Plain features of a prefix: agents spawned, returned, and their squares."""
    before = [other for other in trace.events if other.seq < event.seq]
    spawned = float(sum(other.type == "spawn" and other.status == "ok" for other in before))
    returned = float(sum(other.type == "return" for other in before))
    return [spawned, returned, spawned**2, returned**2]


def wait_for_those_left(trace: Trace, event: Event) -> Action | None:
    """Wait for anyone of those whom the stop cut off."""
    cut = any(
        other.type == "despawn" and other.status == "cancelled" and other.seq > event.seq
        for other in trace.events
    )
    return Wait(mode="any") if cut else None


async def continued(
    runner: Forks, trace: Trace, *, onward: Onward = wait_for_those_left, max_steps: int = 32
) -> Trace:
    """The trace run on to the end, whatever its policy wanted."""
    for _ in range(max_steps):
        stop = next((e for e in reversed(trace.events) if e.decision == "stop" and e.status == "ok"), None)
        action = None if stop is None or stop.call is None else onward(trace, stop)
        if stop is None or action is None:
            break
        trace = (await runner.fork(trace, (Force(stop.id, action),))).trace
    return trace


async def shadow_scores(
    runner: Forks,
    trace: Trace,
    decisions: Sequence[Event],
    *,
    draft: Draft = majority_draft,
    token_price: float = 0.0,
    reward: RewardOf = team_return,
) -> list[float]:
    """S_t: what stopping at each decision would have scored, net of the tokens spent by then."""
    scores = []
    for event in decisions:
        made = (await runner.fork(trace, (Force(event.id, Stop(draft(trace, event))),))).trace
        scores.append(reward(made) - token_price * made.costs.get("tokens", 0.0))
    return scores


@estimator(
    "stop-value",
    "orchestrator",
    needs=("runtime", "group", "propensities"),
    source="Longstaff and Schwartz 2001, over forced continuations of a team's trace",
    evidence="I",
)
async def stop_value(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    draft: Draft = majority_draft,
    features: Callable[[Trace, Event], Sequence[float]] = counts,
    onward: Onward = wait_for_those_left,
    chance: Callable[[Event], float] = stop_chance,
    fit: Fit | None = None,
    score_known: bool = False,
    token_price: float = 0.0,
    max_steps: int = 32,
) -> Credits:
    """D_t = C_t - S_t, A_stop = -(1 - p_stop) D_t, A_continue = p_stop D_t, at every decision of the root.

    S_t is what stopping then would have scored, C_t the regression of the value of going on (see
    `baton.credit.stop_value`); both come from running the trace on past its stop. Standard error: of D_t over
    rollouts drawn again with replacement, weighed like it; None where D_t has none, as at a last decision.
    Source: backward regression, Longstaff and Schwartz 2001 [M]; over forced continuations of a team's trace [I].
    """
    # Folds go by place, so rollouts are taken by name: the order they are given in does not matter.
    order = sorted(range(len(group)), key=lambda i: group[i].trace_id)
    rows = [
        await _run_on(runner, group[i], draft, features, onward, token_price, max_steps, reward)
        for i in order
    ]
    s, x = _padded(rows)
    found = backward(s, x, fit=fit, score_known=score_known)
    errors = bootstrap_errors(s, x, fit=fit, score_known=score_known)
    out: Credits = [[] for _ in group]
    for row, place in enumerate(order):
        cost = rows[row].cost
        for t, event in enumerate(decisions_of(group[place])):
            if np.isnan(found.difference[row, t]):
                continue
            p, stopped = chance(event), event.decision == "stop"
            value = float(advantages(found.difference[row, t], p, stopped))
            error = float(errors[row, t]) * ((1 - p) if stopped else p)
            out[place].append(_credit(event.id, value, error, cost if not out[place] else Cost()))
    if not any(out):
        raise CreditError(
            f"none of these {len(group)} traces could have gone on where it stopped or stopped where it went on, so no "
            "stop has a value over the other. Say how to go on: onward=..."
        )
    return out


class _Row(NamedTuple):
    """One rollout, run on to its end."""

    scores: list[float]
    features: list[list[float]]
    cost: Cost


async def _run_on(
    runner: Forks,
    trace: Trace,
    draft: Draft,
    features: Callable[[Trace, Event], Sequence[float]],
    onward: Onward,
    token_price: float,
    max_steps: int,
    reward: RewardOf,
) -> _Row:
    before = runner.cost
    whole = await continued(runner, trace, onward=onward, max_steps=max_steps)
    decisions = decisions_of(whole)
    if not decisions:
        raise CreditError(f"trace {trace.trace_id}: its root never had a choice to stop.")
    scores = await shadow_scores(
        runner, whole, decisions, draft=draft, token_price=token_price, reward=reward
    )
    cost = Cost(runner.cost.tokens - before.tokens, runner.cost.calls - before.calls)
    return _Row(scores, [list(features(whole, event)) for event in decisions], cost)


def _padded(rows: Sequence[_Row]) -> tuple[Array, Array]:
    """Scores and features as rows x decisions; NaN where a rollout had ended."""
    width = max(len(row.scores) for row in rows)
    s: Array = np.full((len(rows), width), np.nan)
    x: Array = np.zeros((len(rows), width, len(rows[0].features[0])))
    for i, row in enumerate(rows):
        s[i, : len(row.scores)] = row.scores
        x[i, : len(row.features)] = row.features
    return s, x


def _credit(event_id: str, value: float, error: float, cost: Cost) -> Credit:
    return make_credit(
        "stop-value",
        "orchestrator",
        event_id,
        value,
        stderr=error if error > 1e-12 else None,
        cost=cost,
        assumes=(
            "tools in the cone are pure",
            "features tell what matters of a prefix",
            "stops by a cap get no credit",
            "error: bootstrap over rollouts",
        ),
    )

"""The value of stopping now over going on, by backward regression over rollouts run on past their stop.

Each row is a rollout; S_t is what it would have scored had the team aggregated and stopped at decision t,
net of what that costs, and x_t what was known then. Backwards from the end:

    V_T = S_T;   C_t = regression of V_{t+1} on x_t;   V_t = S_t if S_t >= C_t else the realised V_{t+1}
    D_t = C_t - S_t,   A_stop = -(1 - p_stop) D_t,   A_continue = p_stop D_t

So C_t is the worth of going on and stopping as well as can be afterwards. With the chances p_t that the policy stops
at each decision it is instead that of going on and then doing what the policy does, whose advantage Q - V is A:

    V_t = p_t S_t + (1 - p_t) V_{t+1}

V takes the realised value, never the regression's own (Longstaff and Schwartz 2001), and a row's C comes
from the other fold of rows, so picking the better of two noisy numbers does not flatter the estimate.
Late steps that few rollouts reach are pooled. Never label by hindsight argmax: the best moment of a path is
known only after it, and a policy trained on it waits for it.
The error of D_t is found by drawing the rollouts again with replacement and regressing anew (bootstrap), and is widened
by t / 1.96 for the few rollouts that a fold has beyond the numbers it finds.
A stop that a cap forced was nobody's choice and gets no advantage.
Sources: Longstaff and Schwartz 2001; Tsitsiklis and Van Roy 2001; Efron 1979 (bootstrap) [M]; over a running
team's trace [I].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from baton.credit.estimator import CreditError, widened
from baton.team.action import VERBS, Action, Stop, Wait
from baton.team.aggregate import Claim, aggregator
from baton.team.clock import generator, uniform
from baton.team.surface import Lines, Parsed, Tools
from baton.trace.acts import chosen
from baton.trace.records import ROUNDING, Event
from baton.trace.trace import Trace

# Where a team could have stopped: which options stop, how likely each was, and what was known then.
#
# In a game to go on is a decision about stopping too, so it is the option that tells a stop, not the event's decision.

Stops = Callable[[Event], Sequence[str]]
"""Tells which of an event's options stop."""
_VERBS = frozenset(VERBS)


@lru_cache(4096)
def action_of(option: str) -> Action | None:
    """What an option says, on whichever surface it is written. None: it is no action of either."""
    surface = Tools() if "<tool_call>" in option else Lines()
    item = surface.parse(option, _VERBS)[0]
    return item.action if isinstance(item, Parsed) else None


def stop_options(event: Event) -> tuple[str, ...]:
    """The options that are written with the verb stop."""
    return tuple(option for option in event.options or () if isinstance(action_of(option), Stop))


def stopped(event: Event, stops: Stops = stop_options) -> bool:
    """Whether its agent chose to stop."""
    if event.options is None or event.choice is None:
        return event.decision == "stop" and chosen(event)
    return event.options[event.choice] in stops(event) and chosen(event)


def decisions_of(trace: Trace, stops: Stops = stop_options) -> list[Event]:
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
        if event.status != "forced" and (event.options is None or stops(event)):
            found.append(event)
    return found


def stop_chance(event: Event, stops: Stops = stop_options) -> float:
    """The recorded chance of a stop at a decision."""
    if event.options is not None and event.option_propensities is not None:
        chances, ends = zip(event.options, event.option_propensities, strict=True), stops(event)
        return math.fsum(p for option, p in chances if option in ends)
    if event.decision == "stop" and event.propensity is not None:
        return event.propensity
    raise CreditError(
        f"event {event.id} has no chance of a stop on record. Record runs with an engine that gives "
        "option_propensities, or say it: chance=..."
    )


def stop_shares(event: Event, stops: Stops = stop_options) -> dict[str, float]:
    """The stops open at a decision, and how its policy's stops fall on them."""
    ends = tuple(stops(event))
    if len(ends) < 2:
        return dict.fromkeys(ends, 1.0)
    if event.options is None or event.option_propensities is None:
        raise CreditError(
            f"event {event.id} has {len(ends)} ways to stop ({'; '.join(ends)}) and no chances on record, so what its "
            "policy would stop with is not known. Record option_propensities, or say it: draft=..."
        )
    chances = dict(zip(event.options, event.option_propensities, strict=True))
    total = math.fsum(chances[option] for option in ends)
    return {option: chances[option] / total if total > 0 else 1 / len(ends) for option in ends}


def likeliest_onward(event: Event, stops: Stops = stop_options) -> str | None:
    """The likeliest open option that does not stop; without chances on record, the first. None: there is none."""
    options = event.options or ()
    chances = event.option_propensities or (1.0,) * len(options)
    ends = stops(event)
    others = [(p, option) for option, p in zip(options, chances, strict=True) if option not in ends and p > 0]
    return max(others, key=lambda other: other[0])[1] if others else None


def drawn_onward(event: Event, stops: Stops, key: str) -> str | None:
    """An open option that does not stop, as likely as its policy takes it among those; drawn by a key."""
    if event.option_propensities is None:
        return likeliest_onward(event, stops)
    ends = stops(event)
    chances = zip(event.options or (), event.option_propensities, strict=True)
    others = [(option, p) for option, p in chances if option not in ends and p > 0]
    point = uniform(key) * math.fsum(p for _, p in others)
    for option, p in others:
        point -= p
        if point < 0:
            return option
    return others[-1][0] if others else None


def wait_for_those_left(trace: Trace, event: Event) -> Action | None:
    """Wait for anyone of those whom the stop cut off."""
    cut = any(
        other.type == "despawn" and other.status == "cancelled" and other.seq > event.seq
        for other in trace.events
    )
    return Wait(mode="any") if cut else None


def majority_draft(trace: Trace, event: Event) -> str:
    """What most of those who had returned to the root by then said; empty if nobody had."""
    claims = [
        Claim(other.agent, trace.text(other.content_ref) or "")
        for other in trace.events
        if other.type == "return" and other.seq < event.seq and other.to == event.agent
    ]
    return aggregator("majority").fuse(claims).text if claims else ""


def known(trace: Trace, event: Event) -> list[float]:
    """Features of a prefix: the numbers of its state and their squares where the task records one, or `counts`."""
    state = event.extra.get("step", {}).get("state")
    if state is None:
        return counts(trace, event)
    numbers = list(_numbers(msgspec.json.decode(state)))
    return [*numbers, *(number**2 for number in numbers)]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield float(value)


def counts(trace: Trace, event: Event) -> list[float]:
    """Plain features of a prefix: agents spawned, returned, and their squares."""
    before = [other for other in trace.events if other.seq < event.seq]
    spawned = float(sum(other.type == "spawn" and other.status == "ok" for other in before))
    returned = float(sum(other.type == "return" for other in before))
    return [spawned, returned, spawned**2, returned**2]


Array = NDArray[np.float64]
Predict = Callable[[Array], Array]
Fit = Callable[[Array, Array], Predict]
"""(features of rows, what they led to) -> a prediction for other rows."""
MIN_COHORT = 3


class StopValues(Struct, frozen=True, kw_only=True):
    """What each rollout's decisions were worth. Rows are rollouts, columns decisions; NaN beyond a row's end."""

    continuation: Array
    """C_t, cross-fitted; NaN where going on was not possible or nothing is known of it."""
    value: Array
    """V_t."""
    difference: Array
    """D_t = C_t - S_t: above zero, going on was better."""
    rules: tuple[tuple[Predict | None, ...], ...]
    """For each fold, for each decision: the regression."""
    scores: tuple[tuple[Predict | None, ...], ...] = ()
    """The same for S_t, where whoever decides does not know it."""

    def go_on(self, step: int, features: ArrayLike) -> Array:
        """C_t of new prefixes, over both folds."""
        x = np.atleast_2d(np.asarray(features, dtype=float))
        known = [rule[step] for rule in self.rules]
        found = [predict(x) for predict in known if predict is not None]
        return np.mean(found, axis=0) if found else np.full(len(x), np.nan)


def ridge_fit(strength: float = 1e-3) -> Fit:
    """Linear in the features, slightly shrunk."""

    def fit(x: Array, y: Array) -> Predict:
        centre, scale = x.mean(axis=0), x.std(axis=0)
        scale = np.where(scale > ROUNDING * np.abs(x).max(axis=0), scale, 1.0)
        z = (x - centre) / scale
        gram = z.T @ z + strength * len(z) * np.eye(x.shape[1])
        weights, level = np.linalg.solve(gram, z.T @ (y - y.mean())), y.mean()

        def predict(new: Array) -> Array:
            out: Array = level + ((new - centre) / scale) @ weights
            return out

        return predict

    return fit


def cell_fit(x: Array, y: Array) -> Predict:
    """The mean of the rows with exactly the same features; of all rows where there are none."""
    cells, place = np.unique(x, axis=0, return_inverse=True)
    place = place.ravel()
    means = np.bincount(place, y) / np.bincount(place)
    known = {tuple(cell): float(mean) for cell, mean in zip(cells.tolist(), means, strict=True)}
    overall = float(y.mean())

    def predict(new: Array) -> Array:
        return np.array([known.get(tuple(row), overall) for row in new.tolist()])

    return predict


def backward(
    scores: ArrayLike,
    features: ArrayLike,
    *,
    fit: Fit | None = None,
    score_known: bool = True,
    stop_chances: ArrayLike | None = None,
    min_cohort: int = MIN_COHORT,
) -> StopValues:
    """Backward regression over two folds of rollouts.

    `scores` is rows x decisions, NaN after a row's last one; `features` rows x decisions x features.
    `score_known`: whether whoever decides knows S_t when deciding. Where it is only found out by a verifier
    afterwards, S_t is regressed on the features too, or the rule would be one that nobody can follow.
    `stop_chances`, rows x decisions: how likely the policy was to stop. Without them what follows is the best.
    """
    s: Array = np.asarray(scores, dtype=float)
    x: Array = np.asarray(features, dtype=float)
    if s.ndim != 2 or x.ndim != 3 or x.shape[:2] != s.shape:
        raise CreditError(
            f"stop value needs scores (rows x decisions) and features (rows x decisions x features); got {s.shape} "
            f"and {x.shape}."
        )
    if len(s) < 2 * min_cohort:
        raise CreditError(
            f"stop value regresses over rollouts, half of them at a time, and needs at least {2 * min_cohort}; there "
            f"are {len(s)}."
        )
    fit = fit or ridge_fit()
    num_rows, num_steps = s.shape
    there = ~np.isnan(s)
    fold = np.arange(num_rows) % 2
    chances = None if stop_chances is None else np.asarray(stop_chances, dtype=float)
    value = s.copy()
    continuation = np.full_like(s, np.nan)
    expected = s.copy()
    rules: list[list[Predict | None]] = [[None] * num_steps for _ in (0, 1)]
    guesses: list[list[Predict | None]] = [[None] * num_steps for _ in (0, 1)]
    for t in range(num_steps - 2, -1, -1):
        goes_on = there[:, t] & there[:, t + 1]
        for half in (0, 1):
            rules[half][t] = _pooled(x, value, there & (fold == half)[:, None], t, fit, min_cohort)
            known = there[:, t] & (fold == half)
            if not score_known and known.any():
                guesses[half][t] = fit(x[known, t], s[known, t])
        for half in (0, 1):
            rows, rule = goes_on & (fold == half), rules[1 - half][t]
            if rule is None or not rows.any():
                p = 0.0 if chances is None else chances[rows, t]
                value[rows, t] = p * s[rows, t] + (1 - p) * value[rows, t + 1]
                continue
            continuation[rows, t] = rule(x[rows, t])
            guess = guesses[1 - half][t]
            if guess is not None:
                expected[rows, t] = guess(x[rows, t])
            stops = expected[rows, t] >= continuation[rows, t]
            p = stops if chances is None else chances[rows, t]
            value[rows, t] = p * s[rows, t] + (1 - p) * value[rows, t + 1]
    return StopValues(
        continuation=continuation,
        value=value,
        difference=continuation - expected,
        rules=tuple(map(tuple, rules)),
        scores=() if score_known else tuple(map(tuple, guesses)),
    )


def bootstrap_errors(
    scores: ArrayLike,
    features: ArrayLike,
    *,
    fit: Fit | None = None,
    score_known: bool = True,
    stop_chances: ArrayLike | None = None,
    min_cohort: int = MIN_COHORT,
    num_draws: int = 32,
    seed: int = 0,
) -> Array:
    """Standard error of D_t for each row and decision, from rollouts drawn again within each fold.

    A row keeps its own features and, where it is known, its score; the regressions of the other fold are those of
    the drawn rollouts. Widened for how few they rest on. NaN where D_t is not known, or where the regression has as
    many numbers to find as rollouts to find them from.
    """
    s: Array = np.asarray(scores, dtype=float)
    x: Array = np.asarray(features, dtype=float)
    p = None if stop_chances is None else np.asarray(stop_chances, dtype=float)
    draw = generator(f"bootstrap/{seed}")
    folds = [np.arange(half, len(s), 2) for half in (0, 1)]
    found = np.full((num_draws, *s.shape), np.nan)
    for b in range(num_draws):
        rows = np.empty(len(s), dtype=np.int64)
        for fold in folds:
            rows[fold] = draw.choice(fold, size=len(fold))
        made = backward(
            s[rows],
            x[rows],
            fit=fit,
            score_known=score_known,
            stop_chances=None if p is None else p[rows],
            min_cohort=min_cohort,
        )
        for half, fold in enumerate(folds):
            for t, rule in enumerate(made.rules[1 - half]):
                guess = made.scores[1 - half][t] if made.scores else None
                if rule is not None:
                    now = s[fold, t] if guess is None else guess(x[fold, t])
                    found[b, fold, t] = rule(x[fold, t]) - now
    found[:, np.isnan(s)] = np.nan
    errors: Array = found.std(axis=0, ddof=1) * _wider(s, x, folds, min_cohort)
    return errors


def _cohort(
    x: Array, value: Array, there: NDArray[np.bool_], step: int, min_cohort: int
) -> tuple[Array, Array]:
    """Features, and what they led to, of those who went on at a step: over as many later steps as it takes."""
    inputs: list[Array] = [np.empty((0, x.shape[2]))]
    outputs: list[Array] = [np.empty(0)]
    for t in range(step, there.shape[1] - 1):
        rows = there[:, t] & there[:, t + 1]
        inputs.append(x[rows, t])
        outputs.append(value[rows, t + 1])
        if sum(map(len, outputs)) >= min_cohort:
            break
    return np.concatenate(inputs), np.concatenate(outputs)


def _pooled(
    x: Array, value: Array, there: NDArray[np.bool_], step: int, fit: Fit, min_cohort: int
) -> Predict | None:
    """The regression at a step. None: nobody went on."""
    features, y = _cohort(x, value, there, step, min_cohort)
    if not len(y):
        return None
    if len(y) < min_cohort:
        mean = float(y.mean())
        return lambda new: np.full(len(new), mean)
    return fit(features, y)


def _wider(s: Array, x: Array, folds: Sequence[NDArray[np.int64]], min_cohort: int) -> Array:
    """t / 1.96 for each row and decision, by what the other fold's regression rests on.

    That is the rollouts of its cohort, less one for the level and one for each direction in which features differ.
    NaN where nothing is left.
    """
    out: Array = np.full_like(s, np.nan)
    for half, fold in enumerate(folds):
        there = np.zeros(s.shape, dtype=bool)
        there[folds[1 - half]] = ~np.isnan(s[folds[1 - half]])
        for t in range(s.shape[1] - 1):
            features = _cohort(x, s, there, t, min_cohort)[0]
            if len(features):
                df = len(features) - 1 - int(np.linalg.matrix_rank(features - features.mean(axis=0)))
                out[fold, t] = widened(1.0, df) or np.nan
    return out


def advantages(
    difference: ArrayLike,
    propensity: ArrayLike,
    stopped: ArrayLike,
    forced: ArrayLike | Sequence[bool] = False,
) -> Array:
    """-(1-p) D for a stop, p D for going on, p the chance of a stop; NaN where a cap stopped or D is not known."""
    d, p = np.asarray(difference, dtype=float), np.asarray(propensity, dtype=float)
    found: Array = np.where(np.asarray(stopped, dtype=bool), -(1 - p) * d, p * d)
    return np.where(np.asarray(forced, dtype=bool), np.nan, found)

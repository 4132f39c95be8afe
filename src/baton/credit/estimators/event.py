"""Credit on orchestration decisions and on messages, against what was done or said instead in the same context.

A decision nobody chose (a stop that the budget forced) gets no credit, though what it earned still
counts for the decisions before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from statistics import fmean
from typing import Literal, NamedTuple

from baton.credit.core.baseline import BY_SPREAD, EPS, OF_BASELINE, normalised, pooled, std
from baton.credit.core.tree import Tree, context_key, event_steps
from baton.credit.estimator import (
    CreditError,
    Credits,
    Group,
    Prefix,
    RewardOf,
    added,
    estimator,
    returns,
    widened,
    write_credits,
)
from baton.settings import NotNegative, Share
from baton.trace.acts import acts, kind_of, unit_of
from baton.trace.graph.stages import Stages
from baton.trace.outcome import team_return
from baton.trace.records import ROUNDING, Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit


@estimator(
    "coma",
    "orchestrator",
    "message",
    "tool_call",
    needs=["propensities", "values", "options"],
    source="COMA, arXiv 1705.08926",
    evidence="M",
)
def coma(
    group: Group,
    *,
    q: Callable[[Prefix, str], float],
    unit: CreditUnit = "orchestrator",
    reward: RewardOf = team_return,
) -> Credits:
    """A = Q(G<e, a) - sum_a' pi(a') Q(G<e, a'): the choice against what its policy would have done on average.

    `q(prefix, option)` is the value of taking an option after the events before the decision. Decisions
    that had no alternative are left out; one with options whose probabilities were not recorded is an error.
    Standard error: how far the values may be off without the group's returns showing it. With s the root mean
    square of R - Q(chosen), for as many decisions as there are beyond the options taken, and n_o how often option o
    was taken, Q(o) is known to s / sqrt(n_o), and
    Var A = s^2 ((1 - pi(a))^2 / n_a + sum_{o != a} pi(o)^2 / max(n_o, 1)). It is what a table of the group's means is
    off by; a critic that knows more is nearer. Options are taken to be about as noisy as each other. None: no more
    decisions in the group than options taken, returns that the values meet exactly (few of 0 or 1 often are, by
    chance), or traces without returns.
    Source: COMA, arXiv 1705.08926 [M]; the error [I].
    """
    found = [_against_policy(trace, q, unit) for trace in group]
    residuals: list[float] = []
    taken: dict[str, int] = {}
    scored = all(any(r.unit == "team" for r in trace.rewards) for trace in group)
    for trace, mine in zip(group, found, strict=True):
        earned = reward(trace) if scored and mine else 0.0
        for choice in mine:
            taken[choice.option] = taken.get(choice.option, 0) + 1
            residuals += [earned - choice.value] if scored else []
    scale = _scale(residuals, len(residuals) - len(taken))
    rows = (
        [
            (each.event.id, each.advantage, None if scale is None else scale * each.doubt(taken))
            for each in mine
        ]
        for mine in found
    )
    notes = ("the values given are right", "error: what the group's returns cannot tell of them")
    return write_credits("coma", unit, rows, *notes)


def _scale(residuals: list[float], df: int) -> float | None:
    """s, widened; a critic may have been made of these very returns. None: they do not tell."""
    if df < 1 or max(map(abs, residuals)) <= ROUNDING:
        return None
    return widened(math.sqrt(math.fsum(r * r for r in residuals) / df), df)


class _Choice(NamedTuple):
    """One decision, what was chosen and what might have been."""

    event: Event
    option: str
    value: float
    advantage: float
    chances: dict[str, float]

    def doubt(self, taken: Mapping[str, int]) -> float:
        """The error of the advantage for values known to 1 / sqrt(times taken)."""
        return math.sqrt(
            math.fsum(
                ((option == self.option) - chance) ** 2 / max(taken.get(option, 0), 1)
                for option, chance in self.chances.items()
            )
        )


def _against_policy(trace: Trace, q: Callable[[Prefix, str], float], unit: CreditUnit) -> list[_Choice]:
    found, bare = [], 0
    for place, event in acts(trace, unit):
        if event.status == "invalid":  # none of the options was chosen
            continue
        if event.options is None:
            bare += 1
            continue
        chances = event.option_propensities
        if chances is None or event.choice is None:
            raise CreditError(
                f"trace {trace.trace_id}, event {event.id}: its options are recorded and their probabilities are not, "
                "so there is no policy to compare with. Use an engine that gives option_propensities (table does)."
            )
        before = Prefix(trace, place)
        values = [q(before, option) for option in event.options]
        mean = math.fsum(chance * value for chance, value in zip(chances, values, strict=True))
        found.append(
            _Choice(
                event=event,
                option=event.options[event.choice],
                value=values[event.choice],
                advantage=values[event.choice] - mean,
                chances=dict(zip(event.options, chances, strict=True)),
            )
        )
    if bare and not found:
        raise CreditError(
            f"trace {trace.trace_id}: none of its {bare} {unit} events records what else could have been chosen. "
            "COMA needs `options` and `option_propensities`: run a task that names options under a table engine."
        )
    return found


@estimator(
    "critical-steps",
    "orchestrator",
    needs=["group"],
    source="Kimi K2.5 PARL, arXiv 2602.02276",
    evidence="A/I",
    own_scale=True,
)
def critical_steps(
    group: Group, *, reward: RewardOf = team_return, price: float = 0.01, eps: NotNegative = EPS
) -> Credits:
    """A = normalised(R - price C), C = sum over stages of (main steps + most steps of any sub-agent).

    Parallel work costs what its longest branch costs, so splitting well earns credit and splitting for show
    does not. Lands on the decisions of the agent that leads; sub-agents are frozen and get none.
    Source: critical steps, Kimi K2.5 PARL, arXiv 2602.02276 [A]; there they are a budget, the price is ours [I].
    """
    totals = returns(group, reward, at_least=2, what="critical-steps")
    stages = [Stages.of(trace) for trace in group]
    priced = [total - price * stage.critical_steps for total, stage in zip(totals, stages, strict=True)]
    rows = (
        [(event.id, *worth) for _, event in acts(trace, "orchestrator") if event.agent == stage.root]
        for trace, stage, worth in zip(group, stages, normalised(priced, eps), strict=True)
    )
    notes = ("every decision of a rollout shares its return", "one critical step has one price", OF_BASELINE)
    return write_credits("critical-steps", "orchestrator", rows, *notes)


def step_cost(step: int, num_steps: int, tokens: float, factor: float = 1.0, growth: float = 1.0) -> float:
    """0.1 log(1 + g (t+1)/(T+1)) / log(1+g) x role factor x tokens/1e5: later steps cost more."""
    grown = math.log(1 + growth * (step + 1) / (num_steps + 1)) / math.log(1 + growth)
    return 0.1 * grown * factor * tokens / 1e5


@estimator("reinforce-cost", "orchestrator", source="Puppeteer, arXiv 2505.19591", evidence="C")
def reinforce_cost(
    group: Group,
    *,
    reward: RewardOf = team_return,
    gamma: Share = 0.99,
    growth: float = 1.0,
    factors: Mapping[str, float] | None = None,
    horizon: int | None = None,
) -> Credits:
    """R_t = r_t + 0.99 R_{t+1}, r_t = -cost of the step, plus the outcome at the last; no baseline.

    The cost of a step is 0.1 log(1 + g (t+1)/(T+1)) / log(1+g) x role factor x tokens/1e5 with g = 1, over the
    tokens spent from this decision to the next. T is `horizon`, or the number of decisions. A forced stop
    takes its place in the recursion and gets no credit: it was not chosen.
    Standard error: the spread over the other rollouts of R_t at the same place among an agent's decisions, each being
    one draw. None: fewer than two others came to that place, or came out alike.
    Source: Puppeteer, arXiv 2505.19591 [C], without its flaw of training forced stops as chosen.
    """
    found = [
        _returns_to_go(trace, total, gamma, growth, factors or {}, horizon)
        for trace, total in zip(group, returns(group, reward), strict=True)
    ]
    errors = iter(pooled(((event.agent, step), value) for mine in found for step, event, value in mine))
    rows = ([(event.id, value, next(errors)) for _, event, value in mine] for mine in found)
    notes = ("no baseline", "tokens until the next decision were spent for this one", BY_SPREAD)
    return write_credits("reinforce-cost", "orchestrator", rows, *notes)


def _returns_to_go(
    trace: Trace, total: float, gamma: float, growth: float, factors: Mapping[str, float], horizon: int | None
) -> list[tuple[int, Event, float]]:
    """Which decision of the rollout, the event, and R_t."""
    steps = [
        (place, event)
        for place, event in enumerate(trace.events)
        if unit_of(event) == "orchestrator" or (event.status == "forced" and event.decision != "none")
    ]
    ends = [place for place, _ in steps[1:]] + [len(trace.events)]
    found = []
    ahead = 0.0
    for step in reversed(range(len(steps))):
        place, event = steps[step]
        spent = sum(other.tokens or 0 for other in trace.events[place : ends[step]])
        factor = factors.get(event.role or "", 1.0)  # on a spawn, the child's role
        cost = step_cost(step, horizon or len(steps), spent, factor, growth)
        ahead = (total if step == len(steps) - 1 else 0.0) - cost + gamma * ahead
        if event.status != "forced":
            found.append((step, event, ahead))
    return found[::-1]


# Credit on messages: what was said against what was said instead, in the same context.

Place = tuple[Hashable, Hashable]
"""The context an event stands in, and which alternative of it this is."""


@estimator(
    "siblings",
    "message",
    "tool_call",
    "orchestrator",
    needs=["group", "shared_prefixes"],
    source="C3, arXiv 2603.06859",
    evidence="C",
)
def siblings(
    group: Group,
    *,
    unit: CreditUnit = "message",
    reward: RewardOf = team_return,
    context: Literal["prefix", "observation"] = "prefix",
) -> Credits:
    """A_j = signal_j - mean of the other draws' signals; signal = mean return of the rollouts that go on from draw j.

    Draws are all that the same agent said or did in the same context: the whole trace before it
    (`context="prefix"`), or all that the agent itself was shown (`"observation"`). Each counts once, also where two say
    the same; forks of a trace are continuations of one draw up to where it was drawn anew. An event that was drawn
    once has no credit; what an intervention put there is a draw and gets none itself. Standard error: of the
    continuations of j, or of one draw by the spread of those that said the same, else of all others; and of the mean of
    the others. None: there are fewer than two others, or all came out alike.
    Source: C3, arXiv 2603.06859 [P], [C]; which draws are one, by the recorded random keys [I].
    """
    totals = returns(group, reward, at_least=2, what="siblings")
    tree = Tree.of([event_steps(trace) for trace in group]) if context == "prefix" else None
    places = [
        _by_prefix(trace, tree.paths[rollout]) if tree is not None else _by_observation(trace)
        for rollout, trace in enumerate(group)
    ]
    families = _families(group)
    drawn: dict[Hashable, dict[Hashable, _Drawn]] = {}  # context -> draw
    for rollout, (trace, found) in enumerate(zip(group, places, strict=True)):
        for event_id, (where, which) in found.items():
            draw = _draw_of(trace.event(event_id), families[rollout], which)
            drawn.setdefault(where, {}).setdefault(draw, _Drawn(which, [])).returns.append(totals[rollout])
    rows: list[list[tuple[str, float, float | None]]] = [[] for _ in group]
    parted = False
    for rollout, (trace, found) in enumerate(zip(group, places, strict=True)):
        for event_id, (where, which) in found.items():
            event, draws = trace.event(event_id), drawn[where]
            if unit_of(event) == unit and len(draws) > 1:
                parted = parted or len({each.which for each in draws.values()}) > 1
                own = _draw_of(event, families[rollout], which)
                others = [each for draw, each in draws.items() if draw != own]
                rows[rollout].append((event_id, *_against(draws[own], others)))
    if not parted:
        raise CreditError(
            f"no two of these {len(group)} rollouts part at a {unit} event in the same context, so there are no "
            "siblings to compare. Fork a trace at such an event (`baton fork TRACE --at EVENT --replace TEXT`) and "
            "give the forks too, or use context='observation'."
        )
    return write_credits("siblings", unit, rows, f"same {context}, same state", "every draw counts once")


class _Drawn(NamedTuple):
    """One draw in a context: what it came to, and the returns of the rollouts that went on from it."""

    which: Hashable
    returns: list[float]


def _families(group: Group) -> list[str]:
    """For each rollout, the trace that it is a fork of a fork of."""
    parents = {trace.trace_id: trace.header.meta.get("forked_from") for trace in group}
    found = []
    for trace in group:
        name, seen = trace.trace_id, {trace.trace_id}
        while isinstance(parent := parents.get(name), str) and parent not in seen:
            name = parent
            seen.add(name)
        found.append(name)
    return found


def _draw_of(event: Event, family: str, which: Hashable) -> Hashable:
    """Rollouts that are no forks of one trace never share a draw; forks do, where the random key is the same one."""
    return (family, event.seed_key, which)


def _against(own: _Drawn, others: list[_Drawn]) -> tuple[float, float | None]:
    signals = [fmean(each.returns) for each in others]
    value = fmean(own.returns) - fmean(signals)
    if len(signals) < 2:
        return value, None
    alike = [signal for signal, each in zip(signals, others, strict=True) if each.which == own.which]
    if len(own.returns) > 1:
        error = (std(own.returns) ** 2 / len(own.returns), len(own.returns) - 1.0)
    else:  # of others alone: its own return is given
        told = alike if len(alike) > 1 else signals
        error = (std(told) ** 2, len(told) - 1.0)
    return value, added(error, (std(signals) ** 2 / len(signals), len(signals) - 1.0))


def _by_prefix(trace: Trace, path: list[int]) -> dict[str, Place]:
    return {
        event.id: ((path[place], event.agent), path[place + 1])
        for place, event in enumerate(trace.events)
        if kind_of(event) is not None
    }


def _by_observation(trace: Trace) -> dict[str, Place]:
    steps = event_steps(trace)
    earlier: dict[str, tuple[Hashable, ...]] = {}  # call -> what it has said so far
    found: dict[str, Place] = {}
    for event, step in zip(trace.events, steps, strict=True):
        if event.call is None:
            continue
        before = earlier.get(event.call, ())
        earlier[event.call] = (*before, step)
        if kind_of(event) is not None:
            found[event.id] = ((event.agent, context_key(trace, event.call), before), step)
    return found

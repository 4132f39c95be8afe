"""Credit of a message by causal replay: what it brought over what its sender might have said instead.

    TE(m) = E[R | do(m)] - E_{m' ~ pi(.|h)}[R | do(m')]      at the frozen prefix h

K alternatives are drawn from the sender's own policy at h (or given), each continued M times; the j-th
continuation of every candidate draws with the same keys (common random numbers), and only what depends
on the change runs again. m itself is one more draw from pi(.|h), so leave-one-out over the K+1
candidates gives each its effect (C3's signal minus the mean of its siblings).
  whole message  the sender's completion is another one, and it remembers having said that;
  one edge       the receiver reads another text, the sender remembers the recorded one.

Spend: message m is replayed with probability q(m); A = f(m) + 1[replayed]/q (TE - f(m)) is unbiased for
any q > 0 when f does not look at the replay. Var ~ s_m^2/K + s_c^2/(KM), so the best M is
sqrt((s_c^2/s_m^2)(c_msg/c_cont)).
Sources: C3 (frozen-context substitution) [C]; total effect, Pearl 2009 [M]; the rest [I].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct, structs
from numpy.typing import ArrayLike, NDArray

from baton.credit.core.spending import Cones, chances, own_tokens, picked, work
from baton.credit.estimator import CreditError, Credits, Group, RewardOf, added, estimator, make_credit
from baton.settings import Chance, Count, Positive
from baton.team.action import Delegate, Return, Send, Spawn
from baton.team.altered import OtherAnswer, call_of, cone, coupling
from baton.team.clock import uniform
from baton.team.forking import Fork
from baton.team.forks import Cost, Forks, WhatIf, asking_again
from baton.team.intervene import Drop, Intervention, Replace
from baton.team.protocol import Answer
from baton.team.recording import first_events
from baton.team.surface import Parsed
from baton.trace.outcome import team_return
from baton.trace.records import Credit, Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

Level = Literal["message", "edge"]
_REDRAW_ALTERNATIVES = (
    1_000_000  # replicates that name alternatives, apart from those that name continuations
)
NOTHING_GIVEN: Mapping[str, Sequence[Replace]] = MappingProxyType({})


class MessageEffect(Struct, frozen=True, kw_only=True):
    """What one message brought."""

    value: float
    stderr: float | None
    """None: not measured, so with one alternative, and where the few draws that were made all came out alike."""
    siblings: tuple[float, ...]
    """Leave-one-out effect of every candidate, the recorded one first."""
    coupling: float | None = None
    """Share of what followed from the message that came out the same under the alternatives."""
    message_variance: float | None = None
    """s_m^2: between what might have been said."""
    luck_variance: float | None = None
    """s_c^2: between continuations of the same message, common luck removed."""
    cost: Cost = Cost()


def total_effect_of(returns: ArrayLike) -> MessageEffect:
    """The effect from a table of returns: rows are continuations, columns candidates, the recorded one first.

    A row shares its random numbers. The standard error adds the luck of the continuations (which common
    numbers shrink) and the draw of the alternatives; with one continuation it is an upper bound, the
    spread of the alternatives standing in for the recorded message's own luck. One alternative does not tell
    how far alternatives differ, so with one there is no error.
    """
    table: NDArray[np.float64] = np.asarray(returns, dtype=float)
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        raise CreditError(
            f"a total effect needs a table of continuations x candidates with at least one alternative; got shape "
            f"{table.shape}. Draw at least 1 alternative and 1 continuation."
        )
    num_rows, num_alternatives = table.shape[0], table.shape[1] - 1
    means = table.mean(axis=0)
    siblings = (means - means.mean()) * (num_alternatives + 1) / num_alternatives
    differences = table[:, 0] - table[:, 1:].mean(axis=1)
    stderr, between, luck = None, None, None
    others = table[:, 1:]
    if num_alternatives > 1 and num_rows > 1:
        rest = others - others.mean(axis=0) - others.mean(axis=1, keepdims=True) + others.mean()
        luck = float((rest**2).sum() / ((num_alternatives - 1) * (num_rows - 1)))
        between = max(0.0, float(others.mean(axis=0).var(ddof=1)) - luck / num_rows)
        drawn = (between / num_alternatives, num_alternatives - 1.0)
        stderr = added((float(differences.var(ddof=1)) / num_rows, num_rows - 1.0), drawn)
    elif num_alternatives > 1:
        square = float(others[0].var(ddof=1)) * (1 + 1 / num_alternatives)
        stderr = added((square, num_alternatives - 1.0))
    return MessageEffect(
        value=float(siblings[0]),
        # A few draws that all came out alike do not tell how far off they are.
        stderr=stderr if stderr is not None and stderr > 1e-12 else None,
        siblings=tuple(map(float, siblings)),
        message_variance=between,
        luck_variance=luck,
    )


def messages_of(trace: Trace) -> list[Event]:
    """What agents said to each other: messages, delegations and returns that arrived."""
    return [
        event
        for event in trace.events
        if event.type in ("message", "return") and event.status == "ok" and event.call is not None
    ]


async def total_effect(
    runner: Forks,
    trace: Trace,
    message: str,
    *,
    level: Level = "message",
    num_alternatives: int = 4,
    num_continuations: int = 1,
    alternatives: Sequence[str] | None = None,
    reward: RewardOf = team_return,
) -> MessageEffect:
    """The effect of one message of a trace. `alternatives`: texts to put on the edge instead of asking the sender."""
    if alternatives is not None and level != "edge":
        raise CreditError(
            "given alternatives are texts that the receiver reads; what else their sender would have remembered is "
            'not known. Use level="edge", or let the sender\'s policy be asked (alternatives=None).'
        )
    given = {} if alternatives is None else {message: [Replace(message, text) for text in alternatives]}
    [effect] = await total_effects(
        runner,
        trace,
        [message],
        level=level,
        num_alternatives=num_alternatives,
        num_continuations=num_continuations,
        given=given,
        reward=reward,
    )
    return effect


async def total_effects(
    runner: Forks,
    trace: Trace,
    messages: Sequence[str],
    *,
    level: Level = "message",
    num_alternatives: int = 4,
    num_continuations: int = 1,
    given: Mapping[str, Sequence[Replace]] = NOTHING_GIVEN,
    reward: RewardOf = team_return,
) -> list[MessageEffect]:
    """The effects of messages of a trace, whose calls and forks go to the engines together.

    `given`: what to put on an edge, by message, instead of asking its sender.
    """
    draws = [_REDRAW_ALTERNATIVES + k for k in range(num_alternatives)]
    calls = {message: call_of(trace, message).id for message in messages if message not in given}
    paid = {call: runner.is_asked(trace, call, draws) for call in calls.values()}
    answers = await runner.ask_all(trace, dict.fromkeys(calls.values(), draws))
    first = first_events(trace)
    tables: list[_Table] = []
    for message in messages:
        event = trace.event(message)
        if message in given:
            changes: list[_Change] = [(change, None) for change in given[message]]
            asked = Cost()
        else:
            call = calls[message]
            changes = [_change(runner, trace, event, answer, level) for answer in answers[call]]
            asked = Cost() if paid[call] else _asking_cost(trace, call, answers[call])
            paid[call] = True
        root = message if level == "edge" else _opening(first, event)
        tables.append(_Table(trace, root, changes, num_continuations, asked))
    branches = {branch.told: branch for table in tables for branch in table.branches()}
    unpaid = {told for told, branch in branches.items() if not runner.is_made(trace, branch)}
    forks = dict(zip(branches, await runner.fork_all(trace, list(branches.values())), strict=True))
    return [table.effect(forks, unpaid, reward) for table in tables]


_Change = tuple[Intervention | None, OtherAnswer | None]
"""An alternative as something a fork can do; (None, None): it is what was said."""


class _Table:
    """The forks that one message's effect takes: rows are continuations, columns candidates, the recorded one first."""

    def __init__(
        self, trace: Trace, first: str, changes: Sequence[_Change], num_rows: int, asked: Cost
    ) -> None:
        self._trace = trace
        self._asked = asked
        self._first = first
        self._cells: list[list[WhatIf | None]] = []
        """None: as the row's first one; that of the first row is the recorded run, which costs nothing."""
        for row in range(num_rows):
            redraw = first if row else None
            recorded = WhatIf(replicate=row, redraw=redraw) if row else None
            others = [
                None
                if change is None and said is None
                else WhatIf(
                    interventions=(change,) if change else (), replicate=row, said=said, redraw=redraw
                )
                for change, said in changes
            ]
            self._cells.append([recorded, *others])

    def branches(self) -> list[WhatIf]:
        return [branch for row in self._cells for branch in row if branch is not None]

    def effect(self, forks: Mapping[bytes, Fork], unpaid: set[bytes], reward: RewardOf) -> MessageEffect:
        """The effect, once the forks are made. A fork that several share is paid by the first of them."""
        followed = cone(self._trace, self._first)
        table = np.empty((len(self._cells), len(self._cells[0])))
        coupled: list[float] = []
        cost = self._asked
        for r, row in enumerate(self._cells):
            recorded = self._trace if row[0] is None else forks[row[0].told].trace
            for c, branch in enumerate(row):
                if branch is None:
                    table[r, c] = table[r, 0] if c else reward(recorded)
                    coupled += [1.0] if c else []
                    continue
                made = forks[branch.told]
                table[r, c] = reward(made.trace)
                if branch.told in unpaid:
                    unpaid.discard(branch.told)
                    cost += Cost.of([made])
                same = followed if r == 0 else followed & recorded.position.keys()
                share = coupling(recorded, made.trace, frozenset(same)) if c else None
                coupled += [] if share is None else [share]
        found = total_effect_of(table)
        return structs.replace(found, coupling=float(np.mean(coupled)) if coupled else None, cost=cost)


def _asking_cost(trace: Trace, call: str, answers: Sequence[Answer]) -> Cost:
    asked = trace.call_by_id[call]
    return Cost(sum(asking_again(trace, asked, answer) for answer in answers), len(answers))


@estimator(
    "message-replay",
    "message",
    needs=("runtime",),
    source="total effect at a frozen prefix; substitution as in C3",
    evidence="C",
    spend=20.0,
)
async def message_replay(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    level: Level = "message",
    num_alternatives: Count = 4,
    num_continuations: Count = 1,
    replay_probability: Chance = 1.0,
    spend: Positive | None = None,
    guess: Callable[[Trace, Event], float] | None = None,
    seed: int = 0,
) -> Credits:
    """TE(m) = E[R | do(m)] - E_{m' ~ pi(.|h)}[R | do(m')] for every message, at its frozen prefix h.

    K alternatives x M continuations under common random numbers; only what depends on the message runs again.
    With a probability q below 1: f + 1[replayed]/q (TE - f), f = `guess`. `spend` lowers q so that the forks of a
    trace are expected to take at most that many times its own tokens, and that many times the processor's work of
    running it; dear messages are replayed more seldom than cheap ones.
    Standard error: luck of the continuations and draw of the alternatives; None with one alternative, where the draws
    all came out alike, or where the message was not replayed.
    Source: substitution at a frozen context, C3, arXiv 2603.06859 [C]; total effect, Pearl 2009 [M]; replay [I].
    """
    if not 0 < replay_probability <= 1:
        raise CreditError(f"replay_probability is {replay_probability}; expected above 0 and up to 1.")
    if spend is not None and not spend > 0:
        raise CreditError(f"spend is {spend}; expected above 0: how many times a trace's own cost.")
    if not any(messages_of(trace) for trace in group):
        raise CreditError(
            f"none of these {len(group)} traces has a message that a policy said to another agent, so there is nothing "
            "to replay. For what agents did instead of talking: spawn-fork, stop-value."
        )
    settings = ReplaySettings(
        level=level,
        num_alternatives=num_alternatives,
        num_continuations=num_continuations,
        replay_probability=replay_probability,
        spend=spend,
        guess=guess,
        seed=seed,
    )
    return [
        await replayed_credits(MESSAGES, runner, trace, messages_of(trace), settings, reward)
        for trace in group
    ]


class ListedCredit(NamedTuple):
    """Whose credits they are, and what they land on."""

    estimator: str
    unit: CreditUnit


MESSAGES = ListedCredit("message-replay", "message")


class ReplaySettings(Struct, frozen=True, kw_only=True):
    """How events are replayed; see `message_replay`."""

    level: Level = "message"
    num_alternatives: int = 4
    num_continuations: int = 1
    replay_probability: float = 1.0
    spend: float | None = None
    guess: Callable[[Trace, Event], float] | None = None
    seed: int = 0


async def replayed_credits(
    listed: ListedCredit,
    runner: Forks,
    trace: Trace,
    events: Sequence[Event],
    settings: ReplaySettings,
    reward: RewardOf,
) -> list[Credit]:
    """The credit of events of a trace, each replayed with its chance."""
    level, most, spend = settings.level, settings.replay_probability, settings.spend
    chance = _chances(
        trace, events, level, settings.num_alternatives, settings.num_continuations, most, spend
    )
    replayed = _replayed(trace, events, chance, settings.seed, independent=spend is None)
    effects = await total_effects(
        runner,
        trace,
        [event.id for event, now in zip(events, replayed, strict=True) if now],
        level=level,
        num_alternatives=settings.num_alternatives,
        num_continuations=settings.num_continuations,
        reward=reward,
    )
    rest = iter(effects)
    out: list[Credit] = []
    for event, q, now in zip(events, chance, replayed, strict=True):
        target = f"{event.id}>{event.to}" if level == "edge" else event.id
        f = 0.0 if settings.guess is None else settings.guess(trace, event)
        assumes = _assumptions(level, settings.num_continuations, q, spend if q < most else None)
        out.append(_credit(listed, target, next(rest) if now else None, f, q, assumes))
    return out


def _chances(
    trace: Trace,
    events: Sequence[Event],
    level: Level,
    num_alternatives: int,
    num_continuations: int,
    most: float,
    spend: float | None,
) -> list[float]:
    """With which chance each message is replayed."""
    if spend is None or not events:
        return [most] * len(events)
    cones, first = Cones(trace), first_events(trace)
    tokens, works = [], []
    forks = num_alternatives * num_continuations + num_continuations - 1
    for event in events:
        root = event.id if level == "edge" else _opening(first, event)
        said = first[event.call or ""].tokens or 0
        tokens.append(num_alternatives * said + forks * cones.tokens(root))
        works.append(work(cones.events(root), len(trace.events), forks))
    both = zip(chances(tokens, spend * own_tokens(trace), most), chances(works, spend, most), strict=True)
    return list(map(min, both))


def _replayed(
    trace: Trace, events: Sequence[Event], chance: Sequence[float], seed: int, *, independent: bool
) -> list[bool]:
    if independent:
        key = f"replay/{seed}/{trace.trace_id}"
        return [uniform(f"{key}/{e.id}") < q for e, q in zip(events, chance, strict=True)]
    return picked(chance, uniform(f"spend/{seed}/{trace.trace_id}"))  # so that what is spent differs little


def _credit(
    listed: ListedCredit,
    target: str,
    effect: MessageEffect | None,
    f: float,
    q: float,
    assumes: tuple[str, ...],
) -> Credit:
    value, stderr, cost = f, None, Cost()
    if effect is not None:
        value, cost = f + (effect.value - f) / q, effect.cost
        if effect.stderr is not None:  # unbiased for the variance, the choice to replay included
            stderr = math.sqrt(((effect.value - f) ** 2 * (1 - q) / q + effect.stderr**2) / q)
    return make_credit(*listed, target, value, stderr=stderr, cost=cost, assumes=assumes)


def _assumptions(
    level: Level, num_continuations: int, probability: float, spend: float | None
) -> tuple[str, ...]:
    found = [
        "tools in the cone are pure",
        "the sender's policy and version are those that answer now",
        "other things the same completion said are redrawn with it"
        if level == "message"
        else "the sender remembers the recorded text",
    ]
    if num_continuations == 1:
        found.append("stderr from one continuation is an upper bound")
    if probability < 1:
        bound = "" if spend is None else f", bound by spend {spend:g}"
        found.append(f"replayed with probability {probability:.4g}{bound}")
    return tuple(found)


def _opening(first: Mapping[str, Event], event: Event) -> str:
    """The first event of the completion that said this one, of the first of all."""
    return first[event.call or ""].id


def _change(runner: Forks, trace: Trace, event: Event, answer: Answer, level: Level) -> _Change:
    """An alternative as something a fork can do; (None, None): it is what was said."""
    call = call_of(trace, event.id)
    if answer.text == trace.text(call.completion_ref):
        return None, None
    if level == "message":
        return None, OtherAnswer(call.id, answer)
    text = _counterpart(runner, event, answer)
    if text is None:
        # It would have told this receiver nothing; a return cannot be left out, only be empty.
        return (Replace(event.id, "") if event.type == "return" else Drop(event.id)), None
    if text == trace.text(event.content_ref):
        return None, None
    return Replace(event.id, text), None


def _counterpart(runner: Forks, event: Event, answer: Answer) -> str | None:
    """What another completion tells the same receiver, in the same way."""
    harness = runner.team.harness
    for item in harness.surface.parse(answer.text, harness.verbs[event.role or ""]):
        action = item.action if isinstance(item, Parsed) else None
        match action:
            case Return(text=text) if event.type == "return":
                return text
            case Send(agent=to, text=text) if event.type == "message" and to == event.to:
                return text
            case Delegate(agent=to, task=text) if event.decision == "delegate" and to == event.to:
                return text
            case Spawn(task=text) if event.type == "spawn":
                return text
    return None

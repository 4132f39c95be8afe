"""How often the intervals that estimators state hold the truth: every listed estimator, texts that vary, few rollouts.

Each row names what its intervals are to hold, by plain arithmetic on `two_choices`; estimators that run traces again
are in `coverage_teams`, what rests on few draws in `few_draws`. An interval is value +- 1.96 standard errors, and is to
hold the truth 93 to 97 times in a hundred; where returns are 0 or 1, at least 93: of few coins most shares in between
cannot be had, whatever the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from msgspec import Struct

from baton.credit import ESTIMATORS, CreditError
from baton.credit.estimator import Credits, Prefix
from baton.trace.records import Call, Credit, Reward
from baton.trace.trace import Trace
from credit_bench.figures import NORMAL_95
from credit_bench.two_choices import LEVEL, OPTIONS, WORDS, Case, Rollout, group_of

__all__ = ["CASES", "ENOUGH", "ROWS", "Coverage", "Held", "count_error", "covered", "log_coverage", "matched"]

CASES = (
    Case(num_texts=1, group_size=8),
    Case(num_texts=8, group_size=8),
    Case(num_texts=64, group_size=8),
    Case(num_texts=64, group_size=32),
    Case(num_texts=64, group_size=8, coin=True),
    Case(num_texts=64, group_size=32, coin=True),
)
ENOUGH = 500
"""Intervals that it takes to judge a case."""
_EPS = 1e-4
Truth = Mapping[str, float]


class Held(Struct, frozen=True, kw_only=True):
    """How often intervals held the truth in one case."""

    share: float | None
    """None: it stated none."""
    num: int
    """Intervals."""
    error: float
    """Of the share, were it 95 %: as many times that of independent intervals as those of one group go together."""
    stated: float
    """Share of credits that state one."""

    def holds(self, *, at_most: float = 0.97) -> bool | None:
        """93 % up to so many, give or take two errors of the count; None: too few intervals to tell."""
        if self.num < ENOUGH or self.share is None:
            return None
        return 0.93 - 2 * self.error <= self.share <= at_most + 2 * self.error


class Coverage(Struct, frozen=True, kw_only=True):
    """One estimator over all cases."""

    estimator: str
    listed: str
    """The name `baton credit --list` has it by."""
    holds: str
    """What its intervals are to hold."""
    cases: tuple[Held | None, ...]
    """One for each of `CASES`; None: it was not asked there."""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """93 to 97 % with normal luck, at least 93 with coins; None: nowhere enough intervals to tell."""
        told = [
            held.holds(at_most=1.0 if case.coin else 0.97)
            for case, held in zip(CASES, self.cases, strict=True)
            if held is not None
        ]
        judged = [each for each in told if each is not None]
        return all(judged) if judged else None


class Row(Struct, frozen=True, kw_only=True):
    """How one estimator is asked, and the truth by target for each rollout of a group."""

    estimator: str
    holds: str
    truth: Callable[[Case, Sequence[Rollout]], list[Truth]]
    settings: Callable[[Case, Sequence[Rollout]], dict[str, Any]] = lambda case, group: {}
    scored: Callable[[Rollout], Trace] = lambda rollout: rollout.trace
    title: str = ""
    note: str = ""
    times: int = 1
    """How many times more groups it is asked for: of one whose intervals in a group are hardly more than one."""


# Truths. A pool holds (rollout, target, value); what is given of its mean is the rollout's own part.

Entry = tuple[int, str, float]


def _against(entries: Sequence[Entry], mean: float, *, scaled: bool) -> dict[int, dict[str, float]]:
    """(v - (own sum + the others' number x expected) / number) / spread, the spread of this pool."""
    values = np.array([value for _, _, value in entries])
    scale = (values.std(ddof=1) + _EPS if len(values) > 1 else math.inf) if scaled else 1.0
    found: dict[int, dict[str, float]] = {}
    for place, target, value in entries:
        own = [v for other, _, v in entries if other == place]
        baseline = (math.fsum(own) + (len(entries) - len(own)) * mean) / len(entries)
        found.setdefault(place, {})[target] = (value - baseline) / scale
    return found


def _pooled(
    key: Callable[[Rollout, str], Any], targets: Callable[[Rollout], Sequence[str]], *, scaled: bool
) -> Callable[[Case, Sequence[Rollout]], list[Truth]]:
    """Targets compared within pools, each worth its rollout's return; a key may hold the option that was asked for."""

    def truth(case: Case, group: Sequence[Rollout]) -> list[Truth]:
        pools: dict[Any, list[Entry]] = {}
        for place, each in enumerate(group):
            for target in targets(each):
                pools.setdefault(key(each, target), []).append((place, target, each.total))
        found: list[dict[str, float]] = [{} for _ in group]
        for name, entries in pools.items():
            option = (
                next((part for part in name if part in OPTIONS), None) if isinstance(name, tuple) else None
            )
            mean = case.mean if option is None else _after(case, option)
            for place, told in _against(entries, mean, scaled=scaled).items():
                found[place] |= told
        return list(found)

    return truth


def _after(case: Case, option: str) -> float:
    """E R once the lead has asked."""
    return LEVEL + case.worth(option) + math.fsum(p * w for p, w in WORDS.values())


def _team(scaled: bool = False, factor: bool = True) -> Callable[[Case, Sequence[Rollout]], list[Truth]]:
    def truth(case: Case, group: Sequence[Rollout]) -> list[Truth]:
        totals = np.array([each.total for each in group])
        scale = (totals.std(ddof=1) + _EPS) if scaled else 1.0
        share = (1 - 1 / len(group)) if factor else 1.0
        worth = share * (totals - case.mean) / scale
        names = ("lead", "w", "orchestrator", "worker", "spawn", "stop")
        return [
            {name: float(mine) for name in (each.trace.trace_id, *names)}
            for each, mine in zip(group, worth, strict=True)
        ]

    return truth


def _choices(case: Case, group: Sequence[Rollout]) -> list[Truth]:
    """Q - V of what was asked for and of the word, by event, turn and token; of all else, nothing."""
    asked = math.fsum(p * case.worth(option) for option, (p, _) in OPTIONS.items())
    found = []
    for each in group:
        first, last = case.worth(each.option) - asked, WORDS[each.word][1]
        turn = f"w:{each.looks + 1}"
        looks = {f"w:{k + 1}": 0.0 for k in range(each.looks)}
        tokens = {"lead:1:0": 0.0, "lead:1:1": first, f"{turn}:0": 0.0, f"{turn}:1": last, "lead:2:0": 0.0}
        tokens |= {f"{name}:0": 0.0 for name in looks}
        found.append(
            {"spawn": first, "word": last, "lead:1": first, turn: last, "lead:2": 0.0} | looks | tokens
        )
    return list(found)


def _same(value: Callable[[Case], float], *targets: str) -> Callable[[Case, Sequence[Rollout]], list[Truth]]:
    """One number for all rollouts."""
    return lambda case, group: [dict.fromkeys(targets, value(case)) for _ in group]


def _ranks(case: Case, group: Sequence[Rollout]) -> list[Truth]:
    return [{each.trace.trace_id: NormalDist().inv_cdf(case.below(each.total))} for each in group]


def _clipped(case: Case, group: Sequence[Rollout]) -> list[Truth]:
    totals = [each.total for each in group]
    scale, n = float(np.std(totals, ddof=1)) + _EPS, len(group)
    return [
        dict.fromkeys(
            ("lead:1", "lead:2", *_looks(each)),
            (min(1.0, max(0.0, each.total)) - (each.total + (n - 1) * case.mean) / n) / scale,
        )
        for each in group
    ]


def _looks(each: Rollout) -> list[str]:
    """The worker's turns."""
    return [f"w:{k + 1}" for k in range(each.looks + 1)]


def _values(case: Case, group: Sequence[Rollout]) -> list[Truth]:
    """What is expected after each turn, less one half."""
    return [
        {name: _after(case, each.option) - 0.5 for name in ("lead:1", *_looks(each)[:-1])}
        | dict.fromkeys((f"w:{each.looks + 1}", "lead:2"), each.expected - 0.5)
        for each in group
    ]


def _anchored(case: Case, group: Sequence[Rollout]) -> list[Truth]:
    """Both parts: the whole rollout's, and that of turns with one prompt."""
    whole = _team(scaled=True)(case, group)
    parts = _pooled(_prompt, lambda each: ["lead:1", "lead:2", *_looks(each)], scaled=True)(case, group)
    return [
        {name: worth + mine["lead"] for name, worth in part.items()}
        for mine, part in zip(whole, parts, strict=True)
    ]


def _prompt(each: Rollout, turn: str) -> tuple[str, ...]:
    """Turns with the same prompt."""
    if turn.startswith("lead"):
        return (turn,)
    return ("word" if turn == f"w:{each.looks + 1}" else "look", each.option)


def _tools(case: Case, group: Sequence[Rollout]) -> list[Truth]:
    entries = [(i, f"look{k}", value) for i, each in enumerate(group) for k, value in enumerate(each.found)]
    found = _against(entries, 0.0, scaled=True)
    return [found[place] for place in range(len(group))]


def _with_tools(each: Rollout) -> Trace:
    rewards = [
        Reward(family="tool", unit="tool_call", target=f"look{k}", value=value)
        for k, value in enumerate(each.found)
    ]
    return each.trace.with_records(rewards=rewards)


def _with_turn(each: Rollout) -> Trace:
    """The first turn is scored, by the return."""
    reward = Reward(family="process", unit="turn", target="lead:1", value=each.total)
    return each.trace.with_records(rewards=[reward])


def _maporl(case: Case) -> float:
    """v / (1 + g + ... + g^J), J looks, each number of them as likely."""
    return case.mean * float(np.mean([1 / sum(0.3**t for t in range(j + 1)) for j in (1, 2, 3)]))


# Critics and counterfactuals that estimators are given.


def _value(case: Case, group: Sequence[Rollout]) -> dict[str, Any]:
    by_name = {each.trace.trace_id: each for each in group}

    def value(prefix: Prefix) -> float:
        each = by_name[prefix.trace.trace_id]
        if not prefix.num_events:
            return case.mean
        return _after(case, each.option) if prefix.num_events < each.looks + 2 else each.expected

    return {"value": value, "gamma": 1.0}


def _token_values(case: Case, group: Sequence[Rollout]) -> dict[str, Any]:
    by_name = {each.trace.trace_id: each for each in group}

    def value(trace: Trace, call: Call) -> list[float]:
        each = by_name[trace.trace_id]
        known = {"lead:1": case.mean, "lead:2": each.expected}.get(call.id, _after(case, each.option))
        return [known] * len(call.completion_ids or ())

    return {"value": value}


def _fitted(case: Case, group: Sequence[Rollout]) -> dict[str, Any]:
    """A critic made of the group: mean returns by option."""
    taken: dict[str, list[float]] = {}
    for each in group:
        taken.setdefault(each.option, []).append(each.total)
    overall = float(np.mean([each.total for each in group]))
    means = {option: float(np.mean(totals)) for option, totals in taken.items()}
    return {"q": lambda prefix, option: means.get(option, overall)}


def _without(case: Case, group: Sequence[Rollout]) -> dict[str, Any]:
    """Counterfactual returns by which everybody's difference is the return's distance from its mean, and 0.3."""
    return {"without": lambda trace, agent: case.mean - 0.3}


_Q = {"q": lambda trace, agent: 0.25}
_MIX = {**_Q, "mix": lambda trace: lambda values: 0.1 + 0.5 * values[0] + 2.0 * values[1]}
_TURNS = ("lead:1", "lead:2")
_GIVEN = "given this return"

ROWS = (
    Row(estimator="group", holds=f"(1 - 1/n)(R - E R)/s, {_GIVEN}", truth=_team(scaled=True)),
    Row(estimator="mean", holds=f"(1 - 1/n)(R - E R), {_GIVEN}", truth=_team()),
    Row(estimator="leave-one-out", holds=f"R - E R, {_GIVEN}", truth=_team(factor=False)),
    Row(estimator="rank", holds="Phi^-1 F(R), F the share below R", truth=_ranks),
    Row(
        estimator="critical-steps",
        holds="as group, of R - price x steps",
        truth=_team(scaled=True),
        settings=lambda case, group: {"price": 0.0},
    ),
    Row(estimator="role-group", holds="as group, for each agent of a role", truth=_team(scaled=True)),
    Row(estimator="agent-group", holds="as group, for each agent", truth=_team(scaled=True)),
    Row(
        estimator="input-group",
        holds="as group, outputs to one prompt",
        truth=_pooled(
            lambda each, agent: (agent,) if agent == "lead" else (agent, each.option),
            lambda each: ("lead", "w"),
            scaled=True,
        ),
        settings=lambda case, group: {"counts": "team"},
    ),
    Row(estimator="role-ema", holds=f"R - E R, {_GIVEN}", truth=_team(factor=False)),
    Row(
        estimator="turn-group",
        holds="as group, at an agent's t-th turn",
        truth=_pooled(lambda each, turn: turn, lambda each: [*_TURNS, *_looks(each)], scaled=True),
    ),
    Row(
        estimator="turn-group",
        title="turn-group, context",
        holds="as group, turns with one prompt",
        truth=_pooled(_prompt, lambda each: [*_TURNS, *_looks(each)], scaled=True),
        settings=lambda case, group: {"state": "context"},
    ),
    Row(
        estimator="anchor-group",
        holds="as group, plus the same of states",
        truth=_anchored,
        settings=lambda case, group: {"gamma": 1.0, "eps": _EPS},
    ),
    Row(
        estimator="tool-group",
        holds="as group, calls of one tool",
        truth=_tools,
        scored=_with_tools,
    ),
    Row(
        estimator="return-to-go",
        holds="as mean, all turns of a player",
        truth=_pooled(lambda each, turn: turn[0], lambda each: [*_TURNS, *_looks(each)], scaled=False),
    ),
    Row(estimator="branch-scope", holds="as group, of clip(R + Q)", truth=_clipped),
    Row(estimator="tree-backup", holds="E R after the turn - 1/2", truth=_values),
    Row(
        estimator="difference",
        holds="E D of the agent (one draw)",
        truth=_same(lambda case: 0.3, "lead", "w"),
        settings=_without,
    ),
    Row(
        estimator="vdn",
        holds="E(R - sum Q) (one draw)",
        truth=_same(lambda case: case.mean - 0.5, "lead", "w"),
        settings=lambda case, group: _Q,
    ),
    Row(
        estimator="qmix",
        holds="E(R - Q_tot) x slope (one draw)",
        truth=lambda case, group: [
            {"lead": 0.5 * (case.mean - 0.725), "w": 2.0 * (case.mean - 0.725)} for _ in group
        ],
        settings=lambda case, group: _MIX,
    ),
    Row(
        estimator="maporl",
        holds="E R(t,i) (one draw)",
        truth=_same(_maporl, "lead:1"),
        scored=_with_turn,
    ),
    Row(
        estimator="reinforce-cost",
        holds="E R_t at that place (one draw)",
        truth=lambda case, group: [{"spawn": 0.99 * case.mean, "stop": case.mean} for _ in group],
    ),
    Row(
        estimator="gae",
        holds="Q - V of the turn (one draw)",
        truth=_choices,
        settings=_value,
    ),
    Row(
        estimator="token-gae",
        holds="Q - V of the token (one draw)",
        truth=_choices,
        settings=_token_values,
    ),
    Row(
        estimator="coma",
        holds="Q - V, by group means",
        truth=_choices,
        settings=_fitted,
        times=4,
    ),
    Row(
        estimator="telescope",
        title="telescope, decisions",
        holds="Q - V (one draw)",
        truth=_choices,
    ),
    Row(
        estimator="telescope",
        title="telescope, messages",
        holds="Q - V (one draw)",
        truth=_choices,
        settings=lambda case, group: {"unit": "message"},
    ),
    Row(
        estimator="siblings",
        holds="Q - V, same observation",
        truth=_choices,
        settings=lambda case, group: {"context": "observation"},
    ),
    Row(estimator="spawn-doubly-robust", holds="Q - V, three options", truth=_choices),
)


def log_coverage(num_groups: int, seed: int = 0, rows: Sequence[Row] = ROWS) -> list[Coverage]:
    """Every row over every case; of groups of 32 a third as many."""
    held: dict[str, list[Held | None]] = {row.title or row.estimator: [] for row in rows}
    for case in CASES:
        count = max(2, num_groups if case.group_size == 8 else num_groups // 3)
        most = max(row.times for row in rows) * count
        groups = [group_of(case, seed * 100_000 + number) for number in range(most)]
        for row in rows:
            held[row.title or row.estimator].append(_asked(row, case, groups[: row.times * count]))
    return [
        Coverage(
            estimator=row.title or row.estimator,
            listed=row.estimator,
            holds=row.holds,
            cases=tuple(held[row.title or row.estimator]),
            note=row.note,
        )
        for row in rows
    ]


def _asked(row: Row, case: Case, groups: Sequence[Sequence[Rollout]]) -> Held:
    found: list[list[tuple[Credit, float]]] = []
    for group in groups:
        traces = [row.scored(each) for each in group]
        try:
            credits = ESTIMATORS[row.estimator](traces, **row.settings(case, group))
        except CreditError:  # this group does not show what it compares
            continue
        found.append(matched(credits, row.truth(case, group)))
    return covered(found)


def matched(credits: Credits, truths: Sequence[Truth]) -> list[tuple[Credit, float]]:
    """Credits with what they are to hold."""
    return [
        (credit, truth[credit.target])
        for mine, truth in zip(credits, truths, strict=True)
        for credit in mine
        if credit.target in truth
    ]


def covered(groups: Sequence[Sequence[tuple[Credit, float]]]) -> Held:
    """How often the credits of some groups hold what they are to."""
    told = [
        [
            abs(credit.value - truth) <= NORMAL_95 * credit.stderr + 1e-12
            for credit, truth in group
            if credit.stderr is not None
        ]
        for group in groups
    ]
    num, every = sum(map(len, told)), sum(map(len, groups))
    share = sum(map(sum, told)) / num if num else None
    return Held(share=share, num=num, error=count_error(told), stated=num / every if every else 0.0)


def count_error(told: Sequence[Sequence[bool]]) -> float:
    """Of a share of 95 %, counted over groups of intervals that go together.

    How much more the groups' counts differ than coins would is seen at the share that was counted; the error is of the
    share that is claimed, for a share near one would seem surer than it is.
    """
    num = sum(map(len, told))
    if not num:
        return 0.0
    share = sum(map(sum, told)) / num
    seen = math.fsum((sum(inside) - share * len(inside)) ** 2 for inside in told)
    alone = num * share * (1 - share)
    together = max(1.0, seen / alone) if alone > 0 else 1.0
    return math.sqrt(0.95 * 0.05 * together / num)

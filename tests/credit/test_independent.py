"""Credit against numbers that were worked out apart from it: plain enumeration from the definitions in docs/credit.md.

Written without a look at how the estimators do it, with teams, texts and chances that no estimator was tuned on.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import permutations, product
from math import fsum, prod, sqrt
from statistics import fmean, stdev
from typing import Any

import pytest
from fork_teams import draw, team_of, turn_of

from baton.credit import ESTIMATORS
from baton.credit.estimator import Credits
from baton.team.forks import Forks
from baton.team.protocol import Answer, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.trace import Call, Credit, Event, Header, Payload, Reward, Trace

Row = tuple[str, str, str, tuple[str, ...] | None, tuple[float, ...] | None]
"""Who, what kind of event, what was said, and the options with their chances where they are on record."""


def rollout(name: str, total: float, rows: Sequence[Row]) -> Trace:
    """A trace of free texts and choices in this order, with the team's return."""
    payloads = [Payload.of(said) for _, _, said, _, _ in rows]
    events = []
    for number, ((agent, kind, said, options, chances), payload) in enumerate(
        zip(rows, payloads, strict=True), 1
    ):
        events.append(
            Event(
                id=f"{agent}/{number}",
                t=float(number),
                type=kind,  # type: ignore[arg-type]  # one of the kinds below
                agent=agent,
                seq=number,
                role=agent,
                decision="communicate" if kind == "message" else "stop",
                content_ref=payload.ref,
                options=options,
                choice=None if options is None else options.index(said),
                option_propensities=chances,
                call=f"call {number}",
            )
        )
    return Trace(
        header=Header(trace_id=name, task_id="odd one"),
        events=tuple(events),
        calls=tuple(Call(id=event.call or "", agent=event.agent) for event in events),
        payloads={payload.ref: payload for payload in payloads},
        rewards=(Reward(family="shared", unit="team", target=name, value=total),),
    )


def first_text(number: int) -> str:
    """A first answer like no other, in one of five shapes."""
    shapes = (
        f"plan {number}",
        "again and " * (number % 7 + 1) + str(number),
        f'{{"step": {number}, "why": "???"}}',
        f"ñ-{number:x}\n\n\tthen stop",
        str(number) * 3,
    )
    return shapes[number % 5]


def by_place(name: str, group: Sequence[Trace], **more: Any) -> list[list[float]]:
    """The credit of the first and of the second event of each rollout; where there is none, zero."""
    found = [[0.0, 0.0] for _ in group]
    for unit in ("message", "orchestrator"):
        for row, trace, credits in zip(found, group, ESTIMATORS[name](group, unit=unit, **more), strict=True):
            place = {event.id: number for number, event in enumerate(trace.events)}
            for credit in credits:
                row[place[credit.target]] = credit.value
    return found


def within(errors: Sequence[float], sigmas: float = 3.5) -> bool:
    """Whether independent draws have mean zero, as far as they can tell."""
    return abs(fmean(errors)) <= sigmas * stdev(errors) / sqrt(len(errors)) + 1e-9


@pytest.mark.parametrize(("distinct", "recorded"), [(1, False), (8, False), (64, False), (64, True)])
def test_telescope_leaves_the_second_decision_its_credit(distinct: int, recorded: bool) -> None:
    """The second is worth 1 or 0 and nothing else counts: its advantage is +-1/2, the first's is zero."""
    dice = random.Random(distinct)
    got = exact = first = alone = 0.0
    for number in range(60):
        seconds = [dice.choice(("halt 0", "halt 1")) for _ in range(8)]
        totals = [float(said[-1]) for said in seconds]
        offered = (("halt 1", "halt 0"), (0.5, 0.5)) if recorded else (None, None)
        group = [
            rollout(
                f"g{number}.{place}",
                total,
                [
                    ("scout", "message", first_text(dice.randrange(distinct)), None, None),
                    ("judge", "orchestrator_decision", said, *offered),
                ],
            )
            for place, (said, total) in enumerate(zip(seconds, totals, strict=True))
        ]
        for (one, two), total in zip(by_place("telescope", group), totals, strict=True):
            got += two * (total - 0.5)
            exact += (total - 0.5) ** 2
            first += one**2
            alone += (total - (sum(totals) - total) / 7) ** 2
    assert got / exact >= 0.8
    assert first <= alone


FIRSTS = {"look": (0.5, 0.0), "leap": (0.3, 0.6), "sleep": (0.2, -0.4)}
SECONDS = {"A": (0.5, 0.0), "B": (0.3, 1.0), "C": (0.2, 0.4)}
"""What may be said -> its chance and its worth; "leap" turns the worth of the second around."""


def worth(one: str, two: str) -> float:
    return FIRSTS[one][1] + (-1 if one == "leap" else 1) * SECONDS[two][1]


def exact_advantages(one: str, two: str) -> tuple[float, float]:
    after = {said: fsum(p * worth(said, then) for then, (p, _) in SECONDS.items()) for said in FIRSTS}
    before = fsum(p * after[said] for said, (p, _) in FIRSTS.items())
    return after[one] - before, worth(one, two) - after[one]


def pick(dice: random.Random, table: Mapping[str, tuple[float, float]]) -> str:
    return dice.choices(list(table), [p for p, _ in table.values()])[0]


@pytest.mark.parametrize(("varied", "recorded"), [(False, True), (True, False)])
def test_telescope_has_no_bias(varied: bool, recorded: bool) -> None:
    """What a policy gradient sees, E[c (1[a] - pi(a))], is what the exact advantages give, for every option."""
    dice = random.Random(7 + varied)
    off: dict[tuple[int, str], list[float]] = defaultdict(list)
    for number in range(80):
        said = [(pick(dice, FIRSTS), pick(dice, SECONDS)) for _ in range(8)]
        offered = (tuple(SECONDS), tuple(p for p, _ in SECONDS.values())) if recorded else (None, None)
        group = []
        for place, (one, two) in enumerate(said):
            text = f"{one} {first_text(dice.randrange(50))}" if varied else one
            total = worth(one, two) + dice.gauss(0, 0.3)
            rows: list[Row] = [
                ("scout", "message", text, None, None),
                ("judge", "orchestrator_decision", two, *offered),
            ]
            group.append(rollout(f"g{number}.{place}", total, rows))
        found = by_place("telescope", group)
        for place, table in enumerate((FIRSTS, SECONDS)):
            for option, (chance, _) in table.items():
                terms = [
                    (mine[place] - exact_advantages(*both)[place]) * ((both[place] == option) - chance)
                    for mine, both in zip(found, said, strict=True)
                ]
                off[place, option].append(fmean(terms))
    for errors in off.values():
        assert within(errors)


THREE = {"spawn worker: the cellar": (0.4, None), "stop A": (0.3, 0.9), "stop B": (0.3, 0.2)}
FIVE = {
    "stop same": (0.1, 0.5),
    "spawn worker: the attic": (0.15, None),
    "stop also same": (0.35, 0.5),
    "stop bad": (0.3, -1.0),
    "stop good": (0.1, 2.0),
}
"""Option -> its chance, and its return; None: whatever the digger finds."""
FINDS = {"gold": (0.25, 1.5), "coal": (0.6, 0.3), "dust": (0.15, -0.2)}


def digging(table: Mapping[str, tuple[float, float | None]], seed: int) -> tuple[Team, Assignment]:
    """The root picks an option; a digger brings what luck gives it, and the root stops with that."""
    options, chances = tuple(table), tuple(p for p, _ in table.values())
    returns = {name: q for name, (_, q) in FINDS.items()}
    returns |= {option.removeprefix("stop "): q for option, (_, q) in table.items() if q is not None}

    def script(request: Request) -> str | Answer:
        if request.role != "orchestrator":
            return draw(
                request, tuple(f"return {name}" for name in FINDS), tuple(p for p, _ in FINDS.values())
            )
        if turn_of(request) == 0:
            return draw(request, options, chances)
        return "wait all" if turn_of(request) == 1 else f"stop {request.entries[-1].text.split()[-1]}"

    team, _ = team_of(script, seed)
    return team, Assignment(
        task_id="dig",
        prompt="Where?",
        verify=lambda answer: returns[answer],
        options=lambda me: options if me.parent is None and me.turns == 1 else None,
    )


@cache
def dug_up(five: bool, num: int) -> list[Trace]:
    table = FIVE if five else THREE
    return [asyncio.run(run(*digging(table, seed), trace_id=f"d{seed}")) for seed in range(num)]


@pytest.mark.parametrize(
    ("five", "settings"), [(False, {}), (True, {}), (True, {"num_options": 2, "rate": 0.6})]
)
def test_spawn_fork_is_q_less_the_policys_mean(five: bool, settings: dict[str, Any]) -> None:
    """Of every option that was taken, on average over the luck of the digger (and over what is forked)."""
    table = FIVE if five else THREE
    dug = fsum(p * q for p, q in FINDS.values())
    q = {option: dug if given is None else given for option, (_, given) in table.items()}
    level = fsum(p * q[option] for option, (p, _) in table.items())
    group, forks = dug_up(five, 120), Forks(*digging(table, 0))
    credits: Credits = asyncio.run(ESTIMATORS["spawn-fork"].function(group, runner=forks, **settings))
    luck = fsum(p * (find - dug) ** 2 for p, find in FINDS.values())
    errors: dict[str, list[float]] = defaultdict(list)
    for trace, found in zip(group, credits, strict=True):
        event = next(event for event in trace.events if event.options)
        assert event.options is not None
        assert event.choice is not None
        option = event.options[event.choice]
        value = found[0].value if found else 0.0  # not forked, which is one in so many
        errors[option].append(value - (q[option] - level))
    assert set(errors) == set(table)
    share = next(p for p, given in table.values() if given is None)
    for option, found in errors.items():
        if settings:
            assert within(found), option
        else:  # the digger's luck is all there is: share of it in a stop's credit, the rest in the spawn's
            spread = sqrt(luck / len(found)) * (1 - share if option.startswith("spawn") else share)
            assert abs(fmean(found)) < 3.5 * spread, option
    if not settings:
        assert len({round(error, 9) for error in errors.get("stop same", [])}) <= len(FINDS)
        for trace, found in zip(group, credits, strict=True):
            assert len(found) == 1, trace.trace_id


WORDS = {"wait": (0.5, 0.2), "go now": (0.3, 0.9), "": (0.2, 0.5)}
"""What may be said second -> its chance, and the chance that it comes out right."""


def talked(firsts: Sequence[str], seconds: Sequence[str], totals: Sequence[float]) -> list[Trace]:
    both = zip(firsts, seconds, totals, strict=True)
    return [
        rollout(f"s{k}", total, [("a b", "message", one, None, None), ("c", "message", two, None, None)])
        for k, (one, two, total) in enumerate(both)
    ]


def test_siblings_leave_one_out_within_each_context() -> None:
    """By hand: every rollout is a draw, those that say the same too; one that is alone in its context has no credit."""
    firsts, seconds = ("x", "x", "x", "y", "y", "z", "x"), ("go", "go", "no", "go", "go", "go", "go")
    totals = (1.0, 0.0, 2.5, -1.0, 3.0, 7.0, 0.5)
    found = ESTIMATORS["siblings"](talked(firsts, seconds, totals))
    for k, (credits, total) in enumerate(zip(found, totals, strict=True)):
        same = [totals[j] for j in range(7) if j != k and firsts[j] == firsts[k]]
        others = [totals[j] for j in range(7) if j != k]
        expected = {"a b/1": total - fmean(others)} | ({"c/2": total - fmean(same)} if same else {})
        assert {credit.target: credit.value for credit in credits} == pytest.approx(expected)


def test_siblings_are_unbiased_over_all_that_could_be() -> None:
    """Every outcome of three draws and their luck, weighed by its chance: E[A | said] = Q(said) - sum pi Q."""
    level = fsum(p * q for p, q in WORDS.values())
    sums: dict[str, list[float]] = defaultdict(list)
    for said in product(WORDS, repeat=3):
        if len(set(said)) == 1:
            continue  # refused: nothing parts; what such draws differ by is luck, whose mean is zero
        for right in product((0.0, 1.0), repeat=3):
            chance = prod(WORDS[word][0] for word in said[1:])
            chance *= prod(WORDS[w][1] if r else 1 - WORDS[w][1] for w, r in zip(said, right, strict=True))
            found = ESTIMATORS["siblings"](talked(("hi",) * 3, said, right))
            sums[said[0]] += [chance * credit.value for credit in found[0] if credit.target == "c/2"]
    assert {word: fsum(found) for word, found in sums.items()} == pytest.approx(
        {word: q - level for word, (_, q) in WORDS.items()}
    )


HUES = {"red": (0.5, 0.1), "green": (0.3, 0.7), "deep blue": (0.2, 0.4)}
"""What the first says -> its chance, and the chance that the second then says "yes"."""
ANSWERS = {"yes": 1.0, "no": 0.0, "maybe so": 0.3}


def relay(seed: int) -> tuple[Team, Assignment]:
    """One worker names a hue, a second hears it and answers; what it answers is the result."""

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            heard = request.entries[-1].text
            hue = next((hue for hue in HUES if hue in heard), None)
            if hue is None:
                return draw(request, tuple(f"return {h}" for h in HUES), tuple(p for p, _ in HUES.values()))
            yes = HUES[hue][1]
            return draw(
                request, tuple(f"return {a}" for a in ANSWERS), (yes, (1 - yes) / 4, (1 - yes) * 3 / 4)
            )
        if turn_of(request) == 0:
            return "spawn worker: name a hue\nwait all"
        said = request.entries[-1].text.rpartition(": ")[2]
        return f"spawn worker: {said}\nwait all" if turn_of(request) == 1 else f"stop {said}"

    team, _ = team_of(script, seed)
    return team, Assignment(task_id="hue", prompt="p", verify=lambda answer: ANSWERS[answer])


@cache
def relayed(seed: int) -> Trace:
    return asyncio.run(run(*relay(seed), trace_id=f"r{seed}"))


@pytest.mark.parametrize("settings", [{}, {"replay_probability": 0.4}, {"spend": 0.8}])
def test_message_replay_is_the_total_effect_on_average(settings: dict[str, float]) -> None:
    after = {hue: yes + 0.3 * (1 - yes) * 3 / 4 for hue, (_, yes) in HUES.items()}
    before = fsum(p * after[hue] for hue, (p, _) in HUES.items())
    errors: dict[str, list[float]] = defaultdict(list)
    for seed in range(80 if not settings else 200):
        team, assignment = relay(seed)
        trace = relayed(seed)
        said = {e.agent: trace.text(e.content_ref) or "" for e in trace.events if e.type == "return"}
        function = ESTIMATORS["message-replay"].function
        (credits,) = asyncio.run(function([trace], runner=Forks(team, assignment), seed=seed, **settings))
        told = {trace.event(credit.target).agent: credit for credit in credits}
        hue, answer = said["worker1"], said["worker2"]
        errors[hue].append(told["worker1"].value - (after[hue] - before))
        errors["second"].append(told["worker2"].value - (ANSWERS[answer] - after[hue]))
    for found in errors.values():
        assert within(found, 3.0)


WEIGHTS = (5, 3, 2, 2, 1)


def council(seed: int) -> tuple[Team, Assignment]:
    """Five vote; the result is the weight of the larger side over all, with a quorum of three."""

    def script(request: Request) -> str | Answer:
        if request.role == "worker":
            return draw(request, ("return aye", "return nay"), (0.6, 0.4))
        if turn_of(request) == 0:
            return "\n".join([*("spawn worker: vote" for _ in WEIGHTS), "wait all"])
        told = {}
        for entry in request.entries:
            for name in range(1, 6):
                if f"worker{name} returned:" in entry.text:
                    told[name] = entry.text.rpartition(": ")[2]
        return f"stop {ruled(told)!r}"

    team, _ = team_of(script, seed)
    return team, Assignment(task_id="vote", prompt="p", verify=float)


def ruled(told: Mapping[int, str]) -> float:
    ayes = sum(WEIGHTS[name - 1] for name, vote in told.items() if vote == "aye")
    nays = sum(WEIGHTS[name - 1] for name, vote in told.items() if vote == "nay")
    return 0.0 if len(told) < 3 else max(ayes, nays) / (ayes + nays) + 0.1 * ayes


def shapley_by_hand(votes: Mapping[int, str]) -> dict[str, float]:
    sums: dict[str, list[float]] = defaultdict(list)
    for order in permutations(votes):
        for place, name in enumerate(order):
            before = {other: votes[other] for other in order[:place]}
            sums[f"worker{name}"].append(ruled(before | {name: votes[name]}) - ruled(before))
    return {name: fmean(found) for name, found in sums.items()}


@cache
def counselled(seed: int) -> tuple[Trace, dict[str, float], float, Forks]:
    """A council's trace, its exact values and their sum, and what runs it again."""
    team, assignment = council(seed)
    trace = asyncio.run(run(team, assignment, trace_id=f"c{seed}"))
    votes = {int(e.agent[-1]): trace.text(e.content_ref) or "" for e in trace.events if e.type == "return"}
    return trace, shapley_by_hand(votes), ruled(votes), Forks(team, assignment)


def sampled(council_seed: int, seed: int, **settings: float) -> dict[str, Credit]:
    trace, _, _, runner = counselled(council_seed)
    (credits,) = asyncio.run(ESTIMATORS["shapley"].function([trace], runner=runner, seed=seed, **settings))
    return {credit.target: credit for credit in credits}


@pytest.mark.parametrize("settings", [{}, {"max_evaluations": 7}, {"max_evaluations": 13}, {"spend": 1.0}])
def test_shapley_is_the_mean_over_all_orders(settings: dict[str, float]) -> None:
    """Exact where all coalitions are run; with a budget right on average; adding up to v(all) - v(none) always."""
    errors: dict[str, list[float]] = defaultdict(list)
    for number in range(3):
        _, exact, total, _ = counselled(number)
        for seed in range(40 if settings else 1):
            found = {name: credit.value for name, credit in sampled(number, seed, **settings).items()}
            assert fsum(found.values()) == pytest.approx(total)
            assert found == pytest.approx(exact) or settings
            for name, value in found.items():
                errors[f"{number}/{name}"].append(value - exact[name])
    for off in errors.values() if settings else ():
        assert within(off, 3.0)


@pytest.mark.parametrize("budget", [7, 31])
def test_a_shapley_value_that_states_no_error_is_exact(budget: int) -> None:
    """docs/credit.md: never zero for not knowing; zero where every coalition was run."""
    for seed in range(40):
        for name, credit in sampled(0, seed, max_evaluations=budget).items():
            if credit.stderr is not None and credit.stderr < 1e-9:
                assert credit.value == pytest.approx(counselled(0)[1][name])


@pytest.mark.parametrize("budget", [7, 13, 31])
def test_shapley_values_are_as_far_off_as_they_say(budget: int) -> None:
    inside = []
    for number, seed in product(range(2), range(40)):
        for name, credit in sampled(number, seed, max_evaluations=budget).items():
            if credit.stderr is not None:
                inside.append(abs(credit.value - counselled(number)[1][name]) <= 1.96 * credit.stderr + 1e-9)
    assert fmean(inside) > 0.88


def test_shapley_is_exact_where_the_spending_allows_every_coalition() -> None:
    team, assignment = council(0)
    trace, exact, _, _ = counselled(0)
    runner = Forks(team, assignment)
    (credits,) = asyncio.run(ESTIMATORS["shapley"].function([trace], runner=runner, spend=40.0))
    assert runner.num_run == 31  # all but the recorded one
    assert {credit.target: credit.value for credit in credits} == pytest.approx(exact)

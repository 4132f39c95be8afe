"""C3's leave-one-out: at one context every draw counts once, alike or not. Truth by enumeration."""

from __future__ import annotations

import math
from itertools import product

import pytest
from msgspec import structs
from talks import talk

from baton.credit import CreditError
from baton.credit.estimators.event import siblings
from baton.trace import Trace

OPTIONS = {"wait a bit": (0.5, 0.3), "GO": (0.3, 0.9), "": (0.2, 0.1)}
"""Message -> its chance, and what it is worth."""


def group_of(said: tuple[str, ...], totals: tuple[float, ...]) -> list[Trace]:
    return [
        talk(f"t{place}", total, [("lead of leads", text)])
        for place, (text, total) in enumerate(zip(said, totals, strict=True))
    ]


@pytest.mark.parametrize("num_draws", [2, 3, 5])
def test_it_is_unbiased_over_all_that_could_be_drawn(num_draws: int) -> None:
    """E[A_j | what j said] over every outcome of the draws, weighed by its chance, is Q(said) - V."""
    level = math.fsum(p * q for p, q in OPTIONS.values())
    sums = dict.fromkeys(OPTIONS, 0.0)
    for said in product(OPTIONS, repeat=num_draws):
        chance = math.prod(OPTIONS[text][0] for text in said[1:])  # given what the first said
        found = (
            siblings(group_of(said, tuple(OPTIONS[text][1] for text in said))) if len(set(said)) > 1 else None
        )
        sums[said[0]] += chance * (found[0][0].value if found is not None else 0.0)
    assert sums == pytest.approx({text: q - level for text, (_, q) in OPTIONS.items()})


def test_the_audits_figures() -> None:
    """Three say what is worth 1/2, two what is worth 0. Merged, with an unweighted mean, it was +.5 and -.5."""
    said = ("a", "a", "a", "b", "b")
    values = [mine[0].value for mine in siblings(group_of(said, (0.5, 0.5, 0.5, 0.0, 0.0)))]
    assert values == pytest.approx([0.25, 0.25, 0.25, -0.375, -0.375])


def test_each_draw_is_held_against_the_mean_of_the_other_draws() -> None:
    totals = (1.0, 0.0, 0.5, 0.5, -2.0)
    found = siblings(group_of(("a", "a", "b", "c", "a"), totals))
    for total, (credit,) in zip(totals, found, strict=True):
        assert credit.value == pytest.approx(total - (sum(totals) - total) / 4)


def forked(trace: Trace, name: str, total: float, key: str) -> Trace:
    """The trace continued once more after its first event, or drawn anew there (another key)."""
    again = talk(name, total, [(e.agent, trace.text(e.content_ref) or "") for e in trace.events])
    meta = {"forked_from": trace.trace_id}
    events = (structs.replace(again.events[0], seed_key=key), *again.events[1:])
    return structs.replace(again, header=structs.replace(again.header, meta=meta), events=events)


def test_continuations_of_one_draw_are_its_signal() -> None:
    """Two draws of the first message, continued twice and three times; a third that says the same as the first."""
    a = talk("a", 1.0, [("x", "hello"), ("y", "one")])
    a = structs.replace(a, events=(structs.replace(a.events[0], seed_key="0/x:1"), *a.events[1:]))
    b = talk("b", 0.0, [("x", "bye"), ("y", "two")])
    group = [a, forked(a, "a.1", 0.5, "0/x:1"), b, forked(b, "b.1", 0.2, None), forked(b, "b.2", 0.4, None)]  # type: ignore[arg-type]
    group.append(forked(a, "a.2", 0.3, "0/x:1/1001"))  # drawn anew, and it came out alike
    first = {trace.trace_id: mine[0].value for trace, mine in zip(group, siblings(group), strict=True)}
    one, two, three = 0.75, 0.2, 0.3
    assert first["a"] == first["a.1"] == pytest.approx(one - (two + three) / 2)
    assert first["b"] == first["b.1"] == first["b.2"] == pytest.approx(two - (one + three) / 2)
    assert first["a.2"] == pytest.approx(three - (one + two) / 2)


def test_where_no_two_part_there_is_nothing_to_compare() -> None:
    with pytest.raises(CreditError, match="no two of these"):
        siblings(group_of(("a", "a", "a"), (0.0, 1.0, 0.5)))

"""Aggregation leakage: sub-agents' words handed on as they are, counted again letter by letter."""

from __future__ import annotations

import random

import pytest
from planted import Scene, reading

from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.leakage import RUN, aggregation_leakage, num_copied

REPORT = "the river rose by two metres after the storm and the old bridge was closed for a week"
OTHER = "nobody was hurt but three cellars near the market were flooded and had to be pumped dry"


def fused(answer: str, returns: tuple[str, ...] = (REPORT, OTHER), aggregate: bool = False) -> MeasuredTrace:
    def play(stage: Scene) -> None:
        lead = stage.team.agent("lead")
        crew = [lead.spawn(f"w{k}", task="report") for k in range(len(returns))]
        for who, text in zip(crew, returns, strict=True):
            who.returns(text)
        if aggregate:
            lead.aggregate(crew, answer, method="summary")
        lead.stop(answer)

    return reading(play)


def test_copied_reports_leak_and_a_summary_does_not() -> None:
    assert aggregation_leakage(fused(f"{REPORT}. {OTHER}")).value == pytest.approx(1.0)
    own = "A storm flooded cellars at the market; the bridge stayed shut for seven days, without casualties."
    assert aggregation_leakage(fused(own)).value == 0
    half = f"In short, {REPORT}, which is all that we know about the matter at this point in time today."
    assert aggregation_leakage(fused(half)).value == pytest.approx(len(REPORT.split()) / len(half.split()))


def test_a_stop_that_repeats_its_aggregate_counts_once() -> None:
    one = fused(f"{REPORT} {OTHER}", aggregate=True)
    assert aggregation_leakage(one).value == 1.0


def test_a_vote_is_no_leak() -> None:
    found = aggregation_leakage(fused("42", ("42", "42", "41")))
    assert found.value is None
    assert "8 words" in (found.why_not or "")


def test_words_of_the_task_or_of_nobody_do_not_count() -> None:
    assert aggregation_leakage(fused(REPORT, (OTHER,))).value == 0


def by_hand(text: list[str], sources: list[list[str]], run: int) -> int:
    """For each word: is there a run of `run` words around it that one source has, word for word?"""
    joined = ["\0".join(["", *source, ""]) for source in sources]
    num = 0
    for place in range(len(text)):
        starts = range(max(0, place - run + 1), min(place, len(text) - run) + 1)
        num += any(
            "\0".join(["", *text[start : start + run], ""]) in source for start in starts for source in joined
        )
    return num


@pytest.mark.parametrize("seed", range(20))
def test_counted_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    words = [rng.choice("abc") for _ in range(40)]
    sources = [[rng.choice("abc") for _ in range(rng.randint(0, 20))] for _ in range(3)]
    for run in (2, 3, RUN):
        assert num_copied(words, sources, run) == by_hand(words, sources, run)

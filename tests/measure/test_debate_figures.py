"""Consensus, diversity over rounds, how debates end: each against its formula written out here."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from planted import Scene, event, reading, trace_of

from baton.measure.figure import Figure
from baton.measure.measured import MeasuredTrace
from baton.measure.metrics.debate import (
    consensus,
    consensus_kappa,
    debate_diversity,
    diversity_by_round,
    ending,
    endings,
    fleiss_kappa,
    resolution_reached,
)
from baton.measure.report.report import measure


def debated(
    rounds: list[list[str]],
    answer: str,
    trace_id: str = "t",
    method: str | None = "majority",
    **named: Any,
) -> MeasuredTrace:
    """Rows are rounds, entries what each debater returned."""

    def play(stage: Scene) -> None:
        lead = stage.team.agent("résolveur", role="resolver")
        crew = [lead.spawn(f"d {k}", role="debater", task="why?") for k in range(len(rounds[0]))]
        for k, held in enumerate(rounds):
            for who, text in zip(crew, held, strict=False):
                if k == len(rounds) - 1:
                    who.returns(text)
                else:
                    who.send(crew[0] if who is not crew[0] else crew[1], "that is no argument")
                    who.send(lead, text)
        if method is not None:
            lead.aggregate(crew, answer, method=method)
        lead.stop(answer)

    return reading(play, trace_id=trace_id, **named)


def pairs_that_agree(held: list[str]) -> float:
    pairs = list(itertools.combinations(held, 2))
    return sum(one == two for one, two in pairs) / len(pairs)


@pytest.mark.parametrize("seed", range(8))
def test_consensus_and_diversity_by_counting_pairs(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(2, 6)
    rounds = [[rng.choice(["Oslo", "Bergen", "Ghent"]) for _ in range(n)] for _ in range(rng.randint(1, 4))]
    one = debated(rounds, rounds[-1][0])
    assert consensus(one).value == pytest.approx(pairs_that_agree(rounds[-1]))
    over_rounds = [1 - pairs_that_agree(held) for held in rounds]
    assert debate_diversity(one).value == pytest.approx(sum(over_rounds) / len(rounds))
    by_round = diversity_by_round([one])
    assert [figure.value for figure in by_round.values()] == pytest.approx(over_rounds)


def test_one_who_falls_silent_keeps_its_position_and_leaves_the_later_rounds() -> None:
    one = debated([["a", "b", "c"], ["b", "b"]], "b")
    assert consensus(one).value == pytest.approx(1 / 3)  # b, b, c
    assert diversity_by_round([one])[2].value == 0


def plain_kappa(table: list[list[int]]) -> float:
    """Fleiss (1971), from the counts of raters by item and category, the same number of raters for each item."""
    n_items, n_raters = len(table), sum(table[0])
    p = [sum(row[j] for row in table) / (n_items * n_raters) for j in range(len(table[0]))]
    agreed = [(sum(c * c for c in row) - n_raters) / (n_raters * (n_raters - 1)) for row in table]
    p_bar, p_e = sum(agreed) / n_items, sum(x * x for x in p)
    return (p_bar - p_e) / (1 - p_e)


def test_fleiss_kappa_of_his_textbook_example() -> None:
    # 10 subjects, 14 raters, 5 categories; published kappa 0.210.
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    ratings = [[j for j, count in enumerate(row) for _ in range(count)] for row in table]
    assert fleiss_kappa(ratings) == pytest.approx(plain_kappa(table))
    assert fleiss_kappa(ratings) == pytest.approx(0.210, abs=5e-4)
    assert fleiss_kappa([[1, 1], [1, 1]]) is None


def test_kappa_over_traces() -> None:
    votes = [["x", "x", "y"], ["y", "y", "y"], ["x", "x", "x"], ["x", "y", "z"]]
    found = consensus_kappa([debated([row], row[0], f"t{k}") for k, row in enumerate(votes)])
    assert found.value == pytest.approx(plain_kappa([[row.count(c) for c in "xyz"] for row in votes]))
    assert found.low is not None
    assert consensus_kappa([debated([["x", "x"]], "x")]).value is None
    same = [debated([["x", "x"]], "x", f"t{k}") for k in range(3)]
    assert "chance" in (consensus_kappa(same).why_not or "")


@pytest.mark.parametrize(
    ("last", "answer", "way"),
    [
        (["Oslo", "oslo.", "OSLO"], "Oslo", "agreement"),
        (["Oslo", "Oslo", "Ghent"], "Oslo", "majority"),
        (["Oslo", "Ghent", "Bergen", "Turin"], "Oslo", "rule"),
        (["Oslo", "Oslo"], "Ghent", "rule"),  # all agreed, and the team answered otherwise
    ],
)
def test_how_it_ended(last: list[str], answer: str, way: str) -> None:
    one = debated([last], answer)
    assert ending(one) == way
    assert resolution_reached(one).value == float(way == "agreement")


def test_a_budget_that_ends_a_debate_is_no_resolution() -> None:
    base = debated([["Oslo", "Oslo"]], "Oslo").trace
    events = [
        event(e.seq, e.agent, e.type, id=e.id, to=e.to, role=e.role, content_ref=e.content_ref, extra=e.extra,
              decision=e.decision, status="forced" if e.decision == "stop" else e.status)
        for e in base.events
    ]  # fmt: skip
    edges = [(edge.src, edge.dst, edge.type) for edge in base.edges]
    forced = MeasuredTrace(trace_of(events, edges, payloads=base.payloads))
    assert ending(forced) == "cap"
    shares = endings([forced, debated([["a", "a"]], "a", "u"), debated([["a", "b"]], "a", "v")])
    assert {way: figure.value for way, figure in shares.items()} == pytest.approx(
        {"agreement": 1 / 3, "majority": 0.0, "rule": 1 / 3, "cap": 1 / 3}
    )


def test_parts_of_an_answer_are_no_votes() -> None:
    merged = debated([["1", "2"]], "1 2", method="merge")
    assert "no votes" in (consensus(merged).why_not or "")
    alone = debated([["1", "2"]], "1", method=None)
    assert "no debate" in (consensus(alone).why_not or "")
    # A debate whose resolver decides without an aggregate has voters all the same.
    decided = debated([["1", "2"]], "1", method=None, topology="debate")
    assert consensus(decided).value == 0


def test_the_report_has_the_tables() -> None:
    report = measure(
        [
            debated([["a", "b", "b"], ["b", "b", "b"]], "b", "t1", topology="debate"),
            debated([["a", "b"]], "a", "t2", topology="swarm"),
        ]
    )
    assert {number: figure.value for number, figure in report.diversity.items()} == pytest.approx(
        {1: (2 / 3 + 1) / 2, 2: 0.0}
    )
    assert report.endings["agreement"].value == 0.5
    assert set(report.by_topology) == {"debate", "swarm"}
    swarm: dict[str, Figure] = report.by_topology["swarm"].figures
    assert swarm["consensus"].value == 0
    assert report.notes == ()
    other = measure(
        [debated([["a", "b"]], "a", "t1"), debated([["a"] * 2], "a", "t2", topology="swarm", task_id="q")]
    )
    assert "did not work on the same tasks" in other.notes[0]

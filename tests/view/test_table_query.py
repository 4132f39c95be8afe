"""The language in which the table of all traces is filtered: what it finds, and what it says of mistakes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.view.index.line import ListedTrace
from baton.view.index.query import COLUMNS, condition
from baton.view.index.table import KnownLine, TraceIndex, picked

NOW = 1_800_000_000.0


def line(name: str, **told: object) -> ListedTrace:
    given = {"task": "shard-sum", "instance": "shard-sum/train/0", "finished": True, "events": 10} | told
    return ListedTrace(id=name, **given)  # type: ignore[arg-type]  # a test names them


LINES = [
    line("a", topology="swarm", reward=0.0, tokens=500.0, seconds=90.0, stop="stopped", agents=3),
    line("b", topology="debate", reward=0.75, tokens=12_000.0, seconds=5.0, stop="budget: tokens"),
    line("c", topology="swarm", finished=False, stop="unfinished", task="game:parallel-pandora"),
    line("Straße 7%_x", topology="tree", reward=1.0, forked_from="a", policies="gpt-4o, mini"),
]


@pytest.fixture(scope="module")
def index() -> TraceIndex:
    made = TraceIndex()
    made.begin("runs/one", "/runs/one")
    changed = {"a": NOW - 86400 * 10, "b": NOW - 3600, "c": NOW - 60}
    made.put("runs/one", [KnownLine("f", "s", row, changed.get(row.id)) for row in LINES])
    made.label("runs/one", {"a": "wrong\nlook at", "b": "wrongly"})
    return made


def found(index: TraceIndex, query: str, sort: str = "") -> str:
    lines = index.lines(index.order(condition(query, lambda: NOW), sort))
    return " ".join(line["id"][:1] for line in lines)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "a b c S"),
        ("   ", "a b c S"),
        ("swarm", "a c"),
        ("SWARM pandora", "c"),
        ("strasse", "S"),
        ('"straße 7"', "S"),
        ("7%_x", "S"),
        ("topology:war", "a c"),
        ("topology=swarm", "a c"),
        ("topology!=swarm", "b S"),
        ("-topology=swarm", "b S"),
        ("not topology=swarm", "b S"),
        ("reward>0", "b S"),
        ("reward>=0.75 reward<1", "b"),
        ("reward=0", "a"),
        ("reward:none", "c"),
        ("reward:any", "a b S"),
        ("-reward>0.5", "a c"),
        ("tokens>10k", "b"),
        ("took<1m", "b"),
        ("took=1.5m", "a"),
        ("is:unfinished or is:fork", "c S"),
        ("(topology=swarm or topology=tree) -is:unfinished", "a S"),
        ("topology=swarm or topology=tree -is:fork", "a c"),
        ("not (swarm or debate)", "S"),
        ("stop:budget", "b"),
        ('stop="budget: tokens"', "b"),
        ("stop:none", "S"),
        ("game:parallel-pandora", "c"),
        ("policy:mini", "S"),
        ("label=wrong", "a"),
        ("label:wrong", "a b"),
        ("label!=wrong", "b c S"),
        ("is:noted", "a b"),
        ("label:any", "a b"),
        ("when>2h", "b c"),
        ("when<2027-01-10", "a"),
        ("when:none", "S"),
        ("fork=a", "S"),
        ("place:ONE swarm and c", "c"),
    ],
)
def test_what_it_finds(index: TraceIndex, query: str, names: str) -> None:
    assert found(index, query) == names


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rewrd>1", "Did you mean 'reward'"),
        ("tpology:swarm", "Did you mean 'topology'"),
        ("reward>much", "expected a number such as"),
        ("took>3k", "expected a number such as 2m"),
        ("topology>swarm", "Type: topology:swarm"),
        ("when>soon", "2026-11-18"),
        ("when>9999999", "2026-11-18"),
        ("reward>", "reward>1"),
        ("topology=", "needs a value"),
        ("is:done", "no trace is 'done'"),
        ("(a", "not closed"),
        ("a)", "closes nothing"),
        ("a or", "either side"),
        ("()", "inside of ( )"),
        ("not", "ends where"),
        ("(" * 60 + "a" + ")" * 60, "nested"),
        ("x" * 2001, "2,001 characters"),
    ],
)
def test_what_it_says_of_mistakes(query: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as told:
        condition(query)
    assert "\n" not in str(told.value)


@given(st.text(max_size=60))
def test_no_text_is_ever_sql(text: str) -> None:
    made = TraceIndex()
    try:
        for query in (text, f'task="{text}"', f"task:{text}", f"-{text} or ({text})"):
            try:
                made.order(condition(query), "-reward,task")
            except UsageError:
                continue
        made.lines(made.order(picked([(text, text)]), ""))
    finally:
        made.close()


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_sorts_both_ways_with_what_is_missing_last(index: TraceIndex, column: str) -> None:
    up, down = found(index, "", column).split(), found(index, "", f"-{column}").split()
    missing = set(found(index, f"{column}:none").split())
    assert set(up[len(up) - len(missing) :]) == set(down[len(down) - len(missing) :]) == missing
    assert len(up) == len(down) == 4


def test_a_column_that_is_not_there(index: TraceIndex) -> None:
    with pytest.raises(UsageError, match="'reward'"):
        index.order(condition(""), "-rewards")


def test_figures_are_those_of_the_lines(index: TraceIndex) -> None:
    every = {group["value"]: group for group in index.figures(condition(""), "topology")}
    assert {value: group["traces"] for value, group in every.items()} == {"swarm": 2, "debate": 1, "tree": 1}
    assert every["swarm"]["reward"] == {"n": 1, "mean": 0.0, "sd": 0.0, "min": 0.0, "max": 0.0}
    assert every["swarm"]["price"] is None
    (whole,) = index.figures(condition("reward:any"), None)
    assert whole["reward"]["mean"] == pytest.approx(1.75 / 3)
    assert whole["reward"]["sd"] == pytest.approx(0.5204164998665332)
    values, kinds = index.values("topology", condition(""), 2)
    assert (values, kinds) == ([("swarm", 2), ("debate", 1)], 3)

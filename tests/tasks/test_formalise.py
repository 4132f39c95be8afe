"""The checker behind the critic, against truth by Python itself; the task; teams that tasks bring."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.cli import main
from baton.errors import UsageError
from baton.tasks.formalise import GRID, REJECTED, SENTENCES, Formalise, agrees, truth
from baton.testing import check_task
from baton.trace.formats import read

NUMBER = st.sampled_from(["x", "y", "0", "1", "-3", "x + y", "2 * x", "(y - 1)", "-x"])
CLAUSE = st.builds("{} {} {}".format, NUMBER, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBER)
FORMULA = st.one_of(
    CLAUSE,
    st.builds("{} and {}".format, CLAUSE, CLAUSE),
    st.builds("not ({} or {})".format, CLAUSE, CLAUSE),
    st.builds("{} < {} <= {}".format, NUMBER, NUMBER, NUMBER),
)


@given(FORMULA)
def test_a_formula_is_true_where_python_says_so(formula: str) -> None:
    wanted = tuple(eval(formula, {}, {"x": x, "y": y}) for x, y in product(GRID, GRID))
    assert truth(formula) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "(x < y", "x", "x + y", "x and y", "x < z", "x < 1.5", "f(x) < y", "x ** 9 ** 9 > 0", "x < y;", "x = y",
     "x < 'y'", "__import__('os')", "[x] < [y]", "x < y if x else y", "(" * 60 + "x", "x < y" + " + 0" * 400, "True",
     "not x", "x < y and 1"],
)  # fmt: skip
def test_what_is_no_formula(text: str) -> None:
    assert truth(text) is None


def test_the_same_in_other_words() -> None:
    assert agrees("x is less than y", "y > x")
    assert agrees("x is less than y", "not x >= y")
    assert agrees("x is y plus one", "x - 1 == y")
    assert not agrees("x is at least y", "x > y")
    assert len({truth(formula) for formula in SENTENCES.values()}) == len(SENTENCES), "no two mean the same"


def test_the_task_keeps_its_contract() -> None:
    check_task(Formalise())
    drawn = [Formalise().instance(seed) for seed in range(200)]
    right = [agrees(each.gold, each.data) for each in drawn]
    assert 0.4 < sum(right) / len(right) < 0.8
    assert any(truth(each.data) is None for each in drawn), "some do not parse"
    for each, good in zip(drawn, right, strict=True):
        assert Formalise().verify(each, each.data) == float(good)
        assert Formalise().verify(each, REJECTED) == float(not good)
    assert all(agrees(each.gold, each.data) for each in (Formalise(wrong=0).instance(s) for s in range(30)))
    with pytest.raises(UsageError, match="0 to 1"):
        Formalise(wrong=2)


def test_a_critic_that_asks_the_checker_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "formalise", "--instances", "0:12", "--out", str(tmp_path / "runs")]) == 0
    assert "12" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["formalise", "kuhn-poker"])
def test_a_task_that_brings_its_team_runs_without_naming_it(task: str, tmp_path: Path) -> None:
    """`baton run kuhn-poker` was refused for a topology that nobody had typed."""
    assert main(["run", task, "--out", str(tmp_path / "run")]) == 0
    assert read(tmp_path / "run").finished


def test_another_team_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "formalise", "--topology", "swarm", "--out", str(tmp_path / "run")]) == 2
    assert "brings its own team" in capsys.readouterr().err

"""One settings layer: strict tables, bounds as annotations, bases, changes, and names of other packages."""

from __future__ import annotations

import logging
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import pytest
from msgspec import Struct

from baton.compose.training import reward_of
from baton.errors import UsageError
from baton.learn.recipe import RECIPES, extensions, load, parse, resolved
from baton.reward import Gold, Rule, parse_reward_recipe, rule_of
from baton.settings import Count, Share, apply_change, arguments, decode, merge, read_table
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import RewardFamily


class Inner(Struct, frozen=True, kw_only=True):
    word: Literal["one", "two"] = "one"
    counts: tuple[Count, ...] = ()


class Walk(Struct, frozen=True, kw_only=True):
    steps: Count
    discount: Share | None = 0.9
    inner: Inner = Inner()


class Politeness(Rule, tag="politeness", frozen=True, kw_only=True):
    """1 for whoever says please."""

    family: ClassVar[RewardFamily] = "shared"
    name: str = "politeness"
    word: str = "please"

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        return [self.reward("team", trace.trace_id, 1.0)]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of another package, with a rule."""
    module: Any = ModuleType("another_package")
    module.__spec__ = ModuleSpec("another_package", None)
    module.Politeness = Politeness
    monkeypatch.setitem(sys.modules, "another_package", module)
    return "another_package"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"steps": 0}, "my.toml: walk.steps is 0; expected 1 or more."),
        ({"steps": True}, "my.toml: walk.steps is true; expected a whole number."),
        ({"steps": 1, "discount": 2}, "my.toml: walk.discount is 2; expected 0 to 1."),
        ({"steps": 1, "discount": float("nan")}, "my.toml: walk.discount is nan; expected 0 to 1."),
        ({"steps": 1, "inner": 3}, "my.toml: walk.inner is 3; expected a table."),
        ({"steps": 1, "inner": {"word": "tow"}}, "my.toml: walk.inner.word is 'tow'. Did you mean 'two'?"),
        ({"steps": 1, "inner": {"counts": [1, 0]}}, "my.toml: walk.inner.counts.1 is 0; expected 1 or more."),
        ({"stesp": 1}, "my.toml, [walk] has no setting 'stesp'. Did you mean 'steps'?"),
        ({}, "my.toml, [walk] needs a value for 'steps'."),
    ],
)
def test_a_mistake_says_what_where_and_what_instead(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode(Walk, table, "my.toml", "walk")
    assert str(caught.value) == said


def test_a_table_becomes_a_struct_and_arguments() -> None:
    table = {"steps": 2, "discount": None, "inner": {"counts": [1]}}
    assert decode(Walk, table) == Walk(steps=2, discount=None, inner=Inner(counts=(1,)))

    def build(*, steps: Count, rate: float = 1.0) -> None: ...

    assert arguments(build, {"steps": 2, "rate": 1}) == {"steps": 2, "rate": 1.0}
    with pytest.raises(UsageError, match="task has no setting 'step'"):
        arguments(build, {"step": 2}, "", "task")


def test_changes_and_merging() -> None:
    table: dict[str, Any] = {"credit": [{"weight": 1}], "train": {"steps": 3}}
    apply_change(table, "credit.0.weight=2")
    apply_change(table, "train.word=plain")
    assert table == {"credit": [{"weight": 2}], "train": {"steps": 3, "word": "plain"}}
    for wrong in ("train", "credit.1.weight=2", "credit=[]", "train.steps.deep=1"):
        if wrong != "credit=[]":
            with pytest.raises(UsageError, match="--set"):
                apply_change(table, wrong)
    assert merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}}) == {"a": {"b": 1, "c": [3]}}


def test_a_recipe_is_what_differs_from_its_base(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "mappo"\nwithout = ["critic"]\n[train]\nsteps = 3\n')
    (tmp_path / "again.toml").write_text('base = "mine.toml"\n[train]\nepochs = 5\n')
    mine, theirs = load(str(tmp_path / "again.toml")), load("mappo")
    assert (mine.train.steps, mine.train.epochs, mine.critic) == (3, 5, None)
    assert (mine.task, mine.warm, mine.loss) == (theirs.task, theirs.warm, theirs.loss)
    assert "base" not in resolved(mine)
    assert parse(resolved(mine)) == mine
    (tmp_path / "round.toml").write_text('base = "round.toml"\n')
    for text, said in (
        ('base = "gpro"', "Did you mean 'grpo'"),
        ('base = "grpo"\nwithout = ["critic"]', "does not have"),
        ('without = ["critic"]', "there is none"),
        ("base = 3", "expected a recipe's name"),
    ):
        with pytest.raises(UsageError, match=said):
            parse(text)
    with pytest.raises(UsageError, match="leads back to itself"):
        read_table(str(tmp_path / "round.toml"), RECIPES)


def test_names_of_earlier_versions(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "baton"):
        old = parse('base = "flagship"\n[train]\ntemperature = 0.5\n[critic]\ntemperature = 0.25')
    assert old.train.target_temperature == 0.5
    assert old.critic is not None
    assert old.critic.entropy_bonus == 0.25
    assert len(caplog.records) == 1
    assert load("flagship", ["train.temperature=0.125"]).train.target_temperature == 0.125


def test_code_that_a_file_names_takes_leave(package: str) -> None:
    named = f'base = "grpo"\n[[reward.rules]]\nrule = "{package}:Politeness"\nword = "thanks"\n'
    with pytest.raises(UsageError, match="If you trust it, type: --trust"):
        parse(named)
    recipe = parse(named, trust=True)
    assert ("reward", f"{package}:Politeness") in extensions(recipe)
    made = reward_of(recipe.reward)
    assert made is not None
    (rule,) = made.rules
    assert rule == Politeness(word="thanks")
    with pytest.raises(UsageError, match="imports the Python module"):
        parse('import = ["another_package"]\nbase = "grpo"')
    assert parse('import = ["another_package"]\nbase = "grpo"', trust=True).import_ == (package,)
    typed = load("grpo", [f"credit.0.estimator={package}:credit"])
    assert typed.credit[0].estimator == f"{package}:credit"


def test_a_rule_of_another_package(package: str) -> None:
    text = f'[[rules]]\nrule = "{package}:Politeness"'
    with pytest.raises(UsageError, match="--trust"):
        parse_reward_recipe(text)
    (rule,) = parse_reward_recipe(text, trust=True).rules
    assert isinstance(rule, Politeness)
    assert rule_of(rule.reward("team", "t", 1.0).by or "") == rule
    with pytest.raises(UsageError, match="is not a rule"):
        parse_reward_recipe('[[rules]]\nrule = "pathlib:Path"', trust=True)

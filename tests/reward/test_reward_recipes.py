"""Recipes: decoded strictly, and the built-in ones all load."""

from __future__ import annotations

from pathlib import Path

import pytest
from reward_traces import golden

from baton.errors import FormatError, UsageError
from baton.reward import RULES, load_reward_recipe, parse_reward_recipe, reward_recipes, rule_of, with_rewards
from baton.trace.vocabulary import REWARD_FAMILIES


def test_built_in_recipes_load_and_say_where_they_are_from() -> None:
    assert {"parl", "wideseek-r1", "m-grpo", "shared"} <= set(reward_recipes())
    for name in reward_recipes():
        recipe = load_reward_recipe(name)
        assert recipe.evidence.startswith("[")
        assert len({rule.name for rule in recipe.rules}) == len(recipe.rules)


def test_every_family_has_rules() -> None:
    assert {rule.family for rule in RULES.values()} == set(REWARD_FAMILIES)
    for rule in RULES.values():
        assert rule.__doc__
        assert any(tag in rule.__doc__ for tag in ("[P]", "[C]", "[A]", "[M]", "[I]", "[A/M]")), rule


def test_toml_to_rules() -> None:
    recipe = parse_reward_recipe(
        """
        about = "two"
        [[rules]]
        rule = "tool_use"
        prices = { look = 0.5 }
        [[rules]]
        rule = "own_answer"
        name = "solvers"
        roles = ["solver"]
        """
    )
    assert recipe.rules == (
        RULES["tool_use"](prices={"look": 0.5}),  # type: ignore[call-arg]
        RULES["own_answer"](name="solvers", roles=("solver",)),  # type: ignore[call-arg]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules = 3", "has no rules"),
        ("[[rules]]\nname = 'x'", "does not say which rule"),
        ("[[rules]]\nrule = 'sucess'", "no reward 'sucess'. Did you mean 'success'"),
        ("[[rules]]\nrule = 'success'\ntreshold = 1", "no setting 'treshold'. Did you mean 'threshold'"),
        ("[[rules]]\nrule = 'success'\nthreshold = 'x'", "threshold is 'x'; expected a number"),
        ("[[rules]]\nrule = 'length'\nfree = 3", "needs a value for 'limit'"),
        (
            "[[rules]]\nrule = 'step_cost'\nmax_steps = 3\nunit = 'agent'",
            "unit is 'agent'. Expected one of: team, turn",
        ),
        ("abuot = 'x'\n[[rules]]\nrule = 'success'", "no setting 'abuot'. Did you mean 'about'"),
        ("[[rules]]\nrule = 'success'\n[[rules]]\nrule = 'success'", "two rules are named 'success'"),
        ("[[rules]]\nrule = 'hybrid'", "needs a value for 'terms'"),
        ("[[rules]]\nrule = 'hybrid'\n[[rules.terms]]\nweight = 1", "needs a value for 'of'"),
        (
            "[[rules]]\nrule = 'hybrid'\n[[rules.terms]]\nof = {rule = 'success'}\nwieght = 1",
            "no setting 'wieght'. Did you mean 'weight'",
        ),
        (
            "[[rules]]\nrule = 'hybrid'\n[[rules.terms]]\nof = {rule = 'success'}\nweight = {schedule = 'liner'}",
            "no schedule 'liner'. Did you mean 'linear'",
        ),
        (
            "[[rules]]\nrule = 'hybrid'\n[[rules.terms]]\nof = {rule = 'success'}\n"
            "weight = {schedule = 'linear', strat = 1}",
            "no setting 'strat'. Did you mean 'start'",
        ),
        (
            "[[rules]]\nrule = 'hybrid'\nstate = {stpe = 1}\n[[rules.terms]]\nof = {rule = 'success'}",
            "no setting 'stpe'. Did you mean 'step'",
        ),
    ],
)
def test_mistakes_name_the_nearest_right_thing(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_reward_recipe(text)
    assert said in str(error.value)


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not valid TOML"):
        parse_reward_recipe("= 3")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="not UTF-8"):
        load_reward_recipe(str(tmp_path / "x.toml"))
    with pytest.raises(UsageError, match="Did you mean 'm-grpo'"):
        load_reward_recipe("mgrpo")


def test_rule_of_something_else() -> None:
    for by in ("verifier", "exact match", "{}", "[1]", ""):
        with pytest.raises(UsageError):
            rule_of(by)


def test_scoring_twice_is_scoring_once() -> None:
    trace = golden("centralized")
    recipe = load_reward_recipe("process")
    once = with_rewards(trace, recipe.score(trace))
    assert with_rewards(once, recipe.score(once)) == once
    assert once.rewards[: len(trace.rewards)] == trace.rewards
    other = with_rewards(once, load_reward_recipe("shared").score(once))
    assert set(once.rewards) < set(other.rewards)
    assert load_reward_recipe("shared").score(other) == load_reward_recipe("shared").score(trace)


def test_a_stale_record_goes() -> None:
    trace = golden("centralized")
    before, after = load_reward_recipe("process").score(trace)[-2:]
    assert before.target != after.target
    scored = with_rewards(with_rewards(trace, [before]), [after])
    assert scored.rewards == (*trace.rewards, after)

"""Rewards: what something was worth. Eight families, each writing records on named units of a trace."""

from baton.reward.contract import Gold, Rule
from baton.reward.monitors import Finding, watch
from baton.reward.recipe import RULES, Recipe, built_in, load, parse, rule_of, with_rewards

__all__ = [
    "RULES",
    "Finding",
    "Gold",
    "Recipe",
    "Rule",
    "built_in",
    "load",
    "parse",
    "rule_of",
    "watch",
    "with_rewards",
]

"""Rewards: what something was worth. Eight families, each writing records on named units of a trace."""

from baton.reward.monitors import Finding, watch
from baton.reward.reward_recipe import RULES, Recipe, built_in, load, parse, rule_of, with_rewards
from baton.reward.rule import Gold, Rule

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

"""Rewards: what something was worth. Eight families, each writing records on named units of a trace."""

from baton.reward.monitors import Finding, watch
from baton.reward.reward_recipe import (
    RULES,
    RewardRecipe,
    load_reward_recipe,
    parse_reward_recipe,
    reward_recipes,
    rule_of,
    with_rewards,
)
from baton.reward.rule import Rule
from baton.trace.gold import Gold

__all__ = [
    "RULES",
    "Finding",
    "Gold",
    "RewardRecipe",
    "Rule",
    "load_reward_recipe",
    "parse_reward_recipe",
    "reward_recipes",
    "rule_of",
    "watch",
    "with_rewards",
]

"""Reward recipes: TOML decoded strictly into rules; some ship with the package.

    about = "what it is, and where from"
    evidence = "[P]"

    [[rules]]
    rule = "success"

    [[rules]]
    rule = "my_package:Politeness"

A rule goes by its own word, by an entry point of its package, or by module:Class (`baton.registry`, kind "reward").

Invariant: an unknown key or name is an error that names the nearest right one. A record's `by` decodes to the rule
that wrote it. What a file names is imported only with `trust`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from baton import registry
from baton.errors import UsageError
from baton.reward.hybrid import Hybrid
from baton.reward.rule import Rule
from baton.reward.rules.debate import (
    Consensus,
    FormalCritic,
    JudgePanel,
    Resolution,
    SolutionEvaluation,
    Swing,
    Verifiers,
)
from baton.reward.rules.individual import Difference, OwnAnswer, ShapleyShare, SoloGap
from baton.reward.rules.orchestration import (
    Aggregation,
    CriticalSteps,
    EvenWork,
    FinishRate,
    Parallel,
    SpeedUp,
    Split,
)
from baton.reward.rules.process import Milestones, Scorer, ValidFormat
from baton.reward.rules.role import MainSub, ProposerSolverJudge, Rubric, SolverVerifier
from baton.reward.rules.shared import ItemF1, Length, RunCost, StepCost, Success
from baton.reward.rules.tool_use import ToolFormat, ToolUse, ToolUsed
from baton.settings import Shipped, decode, parse_table, read_table, set_at
from baton.trace.gold import Gold
from baton.trace.outcome import rule_settings
from baton.trace.records import Reward
from baton.trace.trace import Trace

_KINDS: tuple[type[Rule], ...] = (
    Success, ItemF1, RunCost, Length, StepCost,
    OwnAnswer, Difference, ShapleyShare, SoloGap,
    Rubric, MainSub, SolverVerifier, ProposerSolverJudge,
    Milestones, Scorer, ValidFormat,
    ToolUse, ToolUsed, ToolFormat,
    Resolution, Swing, JudgePanel, Verifiers, Consensus, FormalCritic, SolutionEvaluation,
    SpeedUp, Parallel, FinishRate, Split, Aggregation, CriticalSteps, EvenWork,
    Hybrid,
)  # fmt: skip
RULES: dict[str, type[Rule]] = {str(kind.__struct_config__.tag): kind for kind in _KINDS}
"""By the word a recipe writes; R1 to R8 in order."""

REWARD_RECIPES: Final = Shipped("baton.reward", "recipes")
"""The files of the reward recipes that ship with Baton, by name."""


class RewardRecipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules that are scored together."""

    about: str
    evidence: str = ""
    """Where its numbers are from: [P] paper, [C] code, [A] abstract, [M] textbook, [I] inferred here."""
    rules: tuple[Rule, ...]

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        """The rewards of one trace, rule by rule."""
        return [reward for rule in self.rules for reward in rule.score(trace, gold)]


def with_rewards(trace: Trace, rewards: list[Reward]) -> Trace:
    """The trace with these records; what the same rules wrote on it before is replaced, so twice is once."""
    fresh = {(reward.family, reward.channel) for reward in rewards}
    kept = [
        reward
        for reward in trace.rewards
        if rule_settings(reward.by) is None or (reward.family, reward.channel) not in fresh
    ]
    return structs.replace(trace, rewards=(*kept, *rewards))


def reward_recipes() -> dict[str, str]:
    """Name -> what it is, of the reward recipes that ship with Baton."""
    return {name: str(read_table(name, REWARD_RECIPES)["about"]) for name in REWARD_RECIPES}


def load_reward_recipe(name: str, *, trust: bool = False) -> RewardRecipe:
    """A shipped reward recipe by name, one from a TOML file, one of another package (module:attr), or a single rule.

    A rule's own name, or module:Class, stands for the recipe of that rule with its own settings.
    """
    if name not in REWARD_RECIPES and not name.endswith(".toml") and _is_rule(name):
        return RewardRecipe(about=name, rules=make_rules([{"rule": name}], name, trust=True))
    return _recipe(read_table(name, REWARD_RECIPES, what="reward recipe", trust=trust), name, trust=trust)


def parse_reward_recipe(text: str, where: str = "reward recipe", *, trust: bool = False) -> RewardRecipe:
    """A reward recipe from TOML text."""
    return _recipe(
        parse_table(text, where, REWARD_RECIPES, what="reward recipe", trust=trust), where, trust=trust
    )


def make_rules(tables: Sequence[Mapping[str, Any]], where: str, *, trust: bool = False) -> tuple[Rule, ...]:
    """Rules from their tables, as `[[rules]]` has them."""
    return _recipe({"rules": list(tables)}, where, trust=trust).rules


def change_rules(rules: Sequence[Rule], settings: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Rules with other settings, such as "terms.1.weight.steps" = 40. Each goes to the rules that have it."""
    tables = [msgspec.json.decode(msgspec.json.encode(rule)) for rule in rules]
    for path, value in settings.items():
        mine = [table for table in tables if path.partition(".")[0] in table]
        for table in mine or tables:
            set_at(table, path, value, f"[reward.settings] {path!r}", grow=False)
    return make_rules(tables, "[reward.settings]", trust=True)


def rule_names(tables: Any) -> Iterator[str]:
    """The rules that tables name, whatever the depth."""
    if isinstance(tables, Mapping):
        if isinstance(word := tables.get("rule"), str):
            yield word
        tables = tables.values()
    elif not isinstance(tables, list | tuple):
        return
    for each in tables:
        yield from rule_names(each)


def rule_of(by: str) -> Rule:
    """The rule that wrote a record, from the record's `by`."""
    settings = rule_settings(by)
    if settings is None:
        raise UsageError(
            f"{by[:80]!r} does not name a rule of Baton, so it cannot be computed again from here."
        )
    return make_rules([settings], "the record's `by`")[0]


def _is_rule(name: str) -> bool:
    """Whether a name that was typed is a rule's; module:attr may be a recipe's as well, and is imported to tell."""
    if not registry.is_reference(name):
        return registry.knows("reward", name)
    found = registry.resolve("reward", name)
    return isinstance(found, type) and issubclass(found, Rule)


def _recipe(table: dict[str, Any], where: str, *, trust: bool) -> RewardRecipe:
    given = table.get("rules")
    if not isinstance(given, list) or not given or not all(isinstance(rule, Mapping) for rule in given):
        raise UsageError(f'{where} has no rules. Add a table [[rules]] with rule = "success", for example.')

    def made(table: Mapping[str, Any], where: str, at: str) -> Rule:
        rule: Rule = decode(_kind(table, where, at, trust=trust), table, where, at, {Rule: made})
        return rule

    found = decode(RewardRecipe, {"about": where, **table}, where, makers={Rule: made})
    names = [rule.name for rule in found.rules]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{where}: two rules are named {sorted(twice)[0]!r}. Give one of them another name.")
    return found


def _kind(table: Mapping[str, Any], where: str, at: str, *, trust: bool) -> type[Rule]:
    """The class of rule that a table names."""
    word = table.get("rule")
    if not isinstance(word, str):
        raise UsageError(
            f'{where}: {at} does not say which rule it is. Add rule = "NAME"; one of: {", ".join(RULES)}.'
        )
    if not trust:
        registry.check_trusted("reward", [word], where)
    try:
        kind = registry.resolve("reward", word)
    except UsageError as error:
        raise UsageError(f"{where}: {at}: {error}") from None
    if not isinstance(kind, type) or not issubclass(kind, Rule):
        raise UsageError(
            f"{where}: {at}: {word!r} is not a rule; expected a class that extends baton.reward.Rule."
        )
    tag = str(kind.__struct_config__.tag)
    if not registry.knows("reward", tag):  # its records name it so
        registry.register("reward", tag)(kind)
    return kind

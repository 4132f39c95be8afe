"""Recipes: TOML decoded strictly into rules; built-in ones ship with the package.

    about = "what it is, and where from"
    evidence = "[P]"

    [[rules]]
    rule = "success"

Invariant: an unknown key or name is an error that names the nearest right one. A record's `by` decodes to
the rule that wrote it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from baton.errors import FormatError, UsageError, nearest
from baton.reward.hybrid import Cosine, Hybrid, Linear, MixState, Moments, Progress, Term, Weight
from baton.reward.rule import Gold, Rule, settings_in
from baton.reward.rules.debate import JudgePanel, Resolution, SolutionEvaluation, Swing, Verifiers
from baton.reward.rules.individual import Difference, OwnAnswer, SoloGap
from baton.reward.rules.orchestration import Aggregation, CriticalSteps, FinishRate, Parallel, SpeedUp, Split
from baton.reward.rules.process import Milestones, Scorer, ValidFormat
from baton.reward.rules.role import MainSub, ProposerSolverJudge, Rubric, SolverVerifier
from baton.reward.rules.shared import ItemF1, Length, RunCost, StepCost, Success
from baton.reward.rules.tool_use import ToolUse, ToolUsed
from baton.trace.records import Reward
from baton.trace.trace import Trace

_KINDS: tuple[type[Rule], ...] = (
    Success, ItemF1, RunCost, Length, StepCost,
    OwnAnswer, Difference, SoloGap,
    Rubric, MainSub, SolverVerifier, ProposerSolverJudge,
    Milestones, Scorer, ValidFormat,
    ToolUse, ToolUsed,
    Resolution, Swing, JudgePanel, Verifiers, SolutionEvaluation,
    SpeedUp, Parallel, FinishRate, Split, Aggregation, CriticalSteps,
    Hybrid,
)  # fmt: skip
RULES: dict[str, type[Rule]] = {str(kind.__struct_config__.tag): kind for kind in _KINDS}
"""By the word a recipe writes; R1 to R8 in order."""

_S = TypeVar("_S", bound=Struct)

_SCHEDULES: dict[str, type[Struct]] = {"linear": Linear, "cosine": Cosine, "progress": Progress}


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules that are scored together."""

    about: str
    evidence: str = ""
    """Where its numbers are from: [P] paper, [C] code, [A] abstract, [M] textbook, [I] inferred here."""
    rules: tuple[Rule, ...]

    def score(self, trace: Trace, gold: Gold | None = None) -> list[Reward]:
        return [reward for rule in self.rules for reward in rule.score(trace, gold)]


def with_rewards(trace: Trace, rewards: list[Reward]) -> Trace:
    """The trace with these records; what the same rules wrote on it before is replaced, so twice is once."""
    fresh = {(reward.family, reward.channel) for reward in rewards}
    kept = [
        reward
        for reward in trace.rewards
        if settings_in(reward.by or "") is None or (reward.family, reward.channel) not in fresh
    ]
    return structs.replace(trace, rewards=(*kept, *rewards))


def built_in() -> dict[str, str]:
    """Name -> what it is, of the recipes that ship with Baton."""
    found = sorted(files("baton.reward").joinpath("recipes").iterdir(), key=lambda place: place.name)
    return {
        place.name.removesuffix(".toml"): str(tomllib.loads(place.read_text("utf-8"))["about"])
        for place in found
        if place.name.endswith(".toml")
    }


def load(name: str) -> Recipe:
    """A built-in recipe by name, or one from a TOML file."""
    if not name.endswith(".toml"):
        known = built_in()
        if name not in known:
            raise UsageError(
                f"there is no built-in recipe {name!r}. {nearest(name, known)} For your own, give a path that "
                "ends in .toml."
            )
        text = files("baton.reward").joinpath("recipes", f"{name}.toml").read_text("utf-8")
        return parse(text, name)
    if not Path(name).is_file():
        raise UsageError(
            f"there is no file {name!r}. Give a path to a .toml that is there, or a built-in recipe: "
            f"{', '.join(built_in())}."
        )
    try:
        return parse(Path(name).read_text("utf-8"), name)
    except UnicodeDecodeError:
        raise FormatError(f"{name} is not UTF-8 text; expected a recipe in TOML.") from None


def parse(text: str, where: str = "recipe") -> Recipe:
    """A recipe from TOML text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{where}: not valid TOML: {error}.") from None
    _known_keys(table, Recipe, where)
    given = table.pop("rules", None)
    if not isinstance(given, list) or not given or not all(isinstance(rule, dict) for rule in given):
        raise UsageError(f'{where} has no rules. Add a table [[rules]] with rule = "success", for example.')
    rules = tuple(_rule(rule, f"{where}, rule {n}") for n, rule in enumerate(given, 1))
    names = [rule.name for rule in rules]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{where}: two rules are named {sorted(twice)[0]!r}. Give one of them another name.")
    return _made({**table, "about": table.get("about", where), "rules": rules}, Recipe, where)


def rule_of(by: str) -> Rule:
    """The rule that wrote a record, from the record's `by`."""
    settings = settings_in(by)
    if settings is None:
        raise UsageError(
            f"{by[:80]!r} does not name a rule of Baton, so it cannot be computed again from here."
        )
    return _rule(settings, "the record's `by`")


def _rule(table: Mapping[str, Any], where: str) -> Rule:
    word = table.get("rule")
    if not isinstance(word, str):
        raise UsageError(
            f'{where} does not say which rule it is. Add rule = "NAME"; one of: {", ".join(RULES)}.'
        )
    if word not in RULES:
        raise UsageError(f"{where}: there is no rule {word!r}. {nearest(word, RULES)}")
    kind, where = RULES[word], f"{where} ({word})"
    _known_keys(table, kind, where, also=("rule",))
    settings = {key: value for key, value in table.items() if key != "rule"}
    if kind is Hybrid:
        settings["terms"] = _terms(table.get("terms"), where)
        if isinstance(state := table.get("state"), dict):
            _known_keys(state, MixState, f"{where}, state")
            for name, moments in (state.get("moments") or {}).items():
                _known_keys(moments, Moments, f"{where}, state, moments of {name}")
    return _made(settings, kind, where)


def _terms(given: Any, where: str) -> tuple[Term, ...]:
    if not isinstance(given, list) or not all(isinstance(term, dict) for term in given):
        raise UsageError(
            f'{where} has no terms. Add a table [[rules.terms]] with of = {{ rule = "success" }}.'
        )
    return tuple(_term(term, f"{where}, term {n}") for n, term in enumerate(given, 1))


def _term(term: Mapping[str, Any], where: str) -> Term:
    _known_keys(term, Term, where)
    of = term.get("of")
    if not isinstance(of, dict):
        raise UsageError(f'{where} has no reward. Add of = {{ rule = "success" }}, for example.')
    weight = term.get("weight", 1.0)
    if isinstance(weight, dict):
        schedule = weight.get("schedule")
        if schedule not in _SCHEDULES:
            raise UsageError(
                f"{where}: there is no schedule {schedule!r}. {nearest(str(schedule), _SCHEDULES)}"
            )
        _known_keys(weight, _SCHEDULES[schedule], f"{where}, weight", also=("schedule",))
    return Term(
        of=_rule(of, where),
        weight=_converted(weight, Weight, f"{where}, weight"),
        gate=_converted(term.get("gate", False), bool, f"{where}, gate"),
    )


def _known_keys(table: Mapping[str, Any], kind: type[Struct], where: str, also: tuple[str, ...] = ()) -> None:
    known = (*kind.__struct_fields__, *also)
    if not isinstance(table, dict):
        raise UsageError(f"{where}: got {table!r}; expected a table.")
    for key in table:
        if key not in known:
            raise UsageError(f"{where} has no setting {key!r}. {nearest(key, known)}")


def _made(given: Mapping[str, Any], kind: type[_S], where: str) -> _S:
    """A struct from its fields. Rules and terms among them are made already; the rest is checked."""
    settings: dict[str, Any] = {}
    for field in structs.fields(kind):
        if field.name not in given:
            if field.required:
                raise UsageError(f"{where} needs a value for {field.name!r}.")
            continue
        value = given[field.name]
        ready = isinstance(value, tuple)
        settings[field.name] = value if ready else _converted(value, field.type, f"{where}, {field.name}")
    return kind(**settings)


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = str(error).replace("$", "").replace("`.", "`")
        raise UsageError(f"{where}: {reason[0].lower()}{reason[1:]}.") from None

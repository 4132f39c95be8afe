"""The recipe that is advised for more of a training run: its own, but for how credit is given.

Invariant: task, team, models, start, rewards, rates and what is measured are those of the run; every change beside the
credit is one that this credit needs, and is said.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from baton.compose.advised_recipe import DraftedRecipe, credit_lines, method_for, seen_in
from baton.compose.recipe_text import changed, comment, one_line, pairs, toml_key, toml_value
from baton.compose.stage_from_recipe import make_stage
from baton.corpus.advice import Advice
from baton.credit import find
from baton.learn.recipe import (
    EvalPart,
    PackPart,
    PolicyPart,
    Recipe,
    RewardPart,
    RolloutPart,
    TeamPart,
    TrainPart,
    extensions,
    load,
)
from baton.registry import is_reference
from baton.settings import plain
from baton.trace.trace import Trace, drawn

_OF_CREDIT = ("options", "target_temperature", "forget", "invalid", "decision_only")
"""Settings of [train] that say how credit is learned from."""
_OF_BRANCHES = ("fan_out", "grow", "branch_after")


def draft_from_run(traces: Sequence[Trace], recipe: Recipe, advice: Advice, name: str) -> DraftedRecipe:
    """The recipe of a run with the credit that was advised. `name` is where the run is, for the first line."""
    whole = drawn(traces)
    seen = seen_in(whole, trust=False, task=make_stage(recipe).task)
    seen = structs.replace(
        seen, decisions=tuple(each for each in seen.decisions if each in recipe.train.decisions)
    )
    method, refused = method_for(advice, seen)
    parts = [
        _head(recipe, name, len(whole), method, refused),
        ["[task]", *pairs({"name": recipe.task.name, "settings": recipe.task.settings})],
        ["[team]", *pairs(changed(recipe.team, TeamPart()))],
        *(
            [f"[policies.{toml_key(each)}]", *pairs(changed(part, PolicyPart()) or {"model": part.model})]
            for each, part in recipe.policies.items()
        ),
        [] if recipe.warm is None else ["[warm]", *pairs(_given(recipe.warm))],
        ["[reward]", *pairs(found)] if (found := changed(recipe.reward, RewardPart())) else [],
        credit_lines(method, seen),
        _rollout(recipe, method),
        ["[pack]", *pairs(found)] if (found := changed(recipe.pack, PackPart())) else [],
        _train(recipe, method),
        ["[eval]", *pairs(changed(recipe.eval, EvalPart()) or {"episodes": recipe.eval.episodes})],
    ]
    lines = [line for part in parts if part for line in (*part, "")]
    code = bool(recipe.import_) or any(is_reference(each) for _, each in extensions(recipe))
    return DraftedRecipe(toml="\n".join(lines).rstrip() + "\n", missing=(), trust=code)


def _given(part: object) -> dict[str, object]:
    return {key: value for key, value in plain(part).items() if value is not None}


def _head(recipe: Recipe, name: str, count: int, method: str, refused: Sequence[str]) -> list[str]:
    own = ", ".join(dict.fromkeys(part.estimator for part in recipe.credit))
    said = (
        f"From {count} trace{'' if count == 1 else 's'} of the training run in {name}. All of its recipe stands here, "
        f"but for the credit, which was {own}. It starts anew; the run itself goes on with: baton train --resume."
    )
    phases = "The run's phases are left out: this is one phase." if recipe.phases else ""
    about = f"{method}, for teams like those in {name}"
    more = [f"import = {toml_value(recipe.import_)}"] if recipe.import_ else []
    texts = filter(None, (said, phases, *refused))
    return [
        *(line for text in texts for line in comment(text)),
        f"about = {toml_value(one_line(about))}",
        *more,
    ]


def _train(recipe: Recipe, method: str) -> list[str]:
    """How the run trained, but for what goes with the credit: whether options not taken are learned from."""
    own, advised = (changed(part.train, TrainPart()) for part in (recipe, load(method)))
    table = {key: value for key, value in own.items() if key not in _OF_CREDIT}
    told = {key: value for key, value in advised.items() if key in _OF_CREDIT}
    left = [key for key in own if key in _OF_CREDIT and own[key] != told.get(key)]
    lines = comment(f"Without the run's {', '.join(left)}, which went with its credit.") if left else []
    return [*lines, "[train]", *pairs({"steps": recipe.train.steps, **table, **told})]


def _rollout(recipe: Recipe, method: str) -> list[str]:
    """The run's own rollouts, in groups that the credit can compare, and branched where it wants that."""
    advised = load(method)
    own = changed(recipe.rollout, RolloutPart())
    of_method = changed(advised.rollout, RolloutPart())
    branched = {key: value for key, value in of_method.items() if key in _OF_BRANCHES}
    left = {key: value for key, value in own.items() if key not in _OF_BRANCHES}
    need = max(
        (find(part.estimator).at_least for part in advised.credit if "group" in find(part.estimator).needs),
        default=1,
    )
    size = max(need, recipe.rollout.group_size)
    lines = []
    if size > recipe.rollout.group_size:
        lines = comment(f"Groups had {recipe.rollout.group_size}; to compare takes {need} at the least.")
    if branched:
        lines += comment(f"Branched as {method} has it.")
    table = {**left, "groups": recipe.rollout.groups, "group_size": size, **branched}
    return [*lines, "[rollout]", *pairs(table)]

"""A recipe's program as a stage, with all that can be refused of it before anything runs."""

from __future__ import annotations

from baton.compose.team_from_settings import task_named
from baton.credit import find
from baton.errors import UsageError
from baton.learn.program.filling import check_command
from baton.learn.program.house import ProgramHouse, check_preload
from baton.learn.program.part import ProgramPart
from baton.learn.program.result import check_reading, rewarding
from baton.learn.program.stage import ProgramStage
from baton.learn.recipe import Recipe
from baton.learn.scoring import flat
from baton.reward.rule import Rule
from baton.tasks.game_task import GameTask
from baton.tasks.task import Task
from baton.team.agent import Role
from baton.team.protocol import Engine
from baton.team.team import Topology

_VERBS = ("spawn", "delegate", "send", "return", "aggregate", "stop", "call")
_FORKS = frozenset({"runtime", "counterfactuals"})


def make_program_stage(recipe: Recipe, part: ProgramPart, *, task: Task | None = None) -> ProgramStage:
    """Where a recipe's program is played."""
    made = task or task_named(recipe.task.name, recipe.task.settings, "task.settings")
    if isinstance(made, GameTask):
        raise UsageError(
            f"{recipe.task.name} is a game, which is played by a team of Baton's and not by a program. Take a task "
            'with a question and an answer, or your own: [task] name = "jsonl".'
        )
    check_reading(part)
    check_command(part, made.instance(0))
    check_preload(part)
    roles = dict.fromkeys((part.role, *part.roles))
    return ProgramStage(
        task=made,
        topology=Topology(
            name="unknown",
            root=part.role,
            roles=tuple(Role(name=role, verbs=_VERBS) for role in roles),
        ),
        script=_no_script,
        models={name: each.model for name, each in recipe.policies.items()},
        part=part,
        house=ProgramHouse(part),
        rewarding=rewarding(part, lambda instance: lambda answer: made.verify(instance, answer)),
    )


def _no_script(name: str) -> Engine:
    raise UsageError(f'a program has no scripted play {name!r}. Write program.script = "module:function".')


def check_without_forks(recipe: Recipe, rules: tuple[Rule, ...]) -> None:
    """Refuse what would run a rollout again with something changed: a program is not ours to begin in its middle."""
    how = "To compare with an outside program run again, type: baton fork SESSION --at CALL --replace TEXT -- COMMAND"
    for part in recipe.credit:
        if _FORKS & find(part.estimator).needs:
            raise UsageError(
                f"estimator {part.estimator} runs rollouts again from their middle, and training cannot do that with "
                f"a program. Take one that compares rollouts, such as group or gae (baton credit --list). {how}"
            )
    for rule in flat(rules):
        if rule.needs & {"without", "shapley", "solo"}:
            raise UsageError(
                f"reward rule {rule.name} compares with runs without an agent, and training cannot run a program "
                f"without one. Leave it out. {how}"
            )
    if recipe.rollout.fan_out:
        raise UsageError(
            f"rollout.fan_out draws rollouts again from their middle, and training cannot do that with a program. "
            f"Leave it out. {how}"
        )

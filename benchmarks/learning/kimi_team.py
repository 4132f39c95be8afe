"""A table learner for result 19: a recipe's phases, rewards and credit, on traces of the team's own runtime.

What is played, scored and credited is what `baton train` plays, scores and credits with the same recipe; what is moved
is a softmax table for each policy in place of a model's weights. One update is

    logits += rate x mean over rollouts of the mean over the policy's calls of credit x (chosen - chances)

where a call's credit is the sum of its team's, its agent's and its own events'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs
from wide_job import METHODS, RIGHT, Figures, Job, WideJob, figures

from baton.compose.stage_from_recipe import make_stage
from baton.compose.training import reward_of
from baton.credit.estimator import Prefix
from baton.engine.table import TableEngine
from baton.learn.crediting import Crediting
from baton.learn.critics.critic import Critic, NoCritic
from baton.learn.critics.table import ChoicePoint, TableCritic
from baton.learn.phases import spans
from baton.learn.recipe import Recipe, RewardPart, parse
from baton.learn.scoring import Scoring
from baton.learn.stage import Episode, collecting_seldom
from baton.trace.gold import Gold
from baton.trace.trace import Trace

HABIT = 0.3
"""How much less likely, in logits, the lead begins each width than the one below: it is used to working alone."""
KNACK = 1.4
"""Logit of the right method at first: 0.575 of a worker's steps."""
LEAD, WORKER = "orchestrator", "worker"

_RECIPE = """
base = "parl-staged"
without = ["warm", "task.settings", "team.settings"]
about = "A wide job: {arm}."

[task]
name = "wide_job:WideJob"

[team]
surface = "wide_job:Plain"
template = ""
memory = "latest"
max_tokens = 1

[rollout]
groups = 1
group_size = 16
"""
_PHASES = """
[[phases]]
name = "orchestrator"
steps = {frozen}
learn = ["orchestrator"]
[[phases]]
name = "joint"
"""
_ANNEALED = """
[reward.settings]
"terms.1.of.n_ref" = {workers}
"terms.1.weight.steps" = {fade}
"terms.2.weight.steps" = {fade}
[[credit]]
estimator = "critical-steps"
settings = {{ price = 0.0 }}  # the task's own return has their price, for every arm
"""
_CONSTANT = """
[reward.settings]
"terms.1.of.n_ref" = {workers}
"terms.1.weight.end" = 0.3
"terms.2.weight.end" = 0.2
[[credit]]
estimator = "critical-steps"
settings = {{ price = 0.0 }}
"""
_AGENTS = 'credit = [{ estimator = "agent-group", settings = { counts = "team" } }]\n'
_COMA = """
[critic]
kind = "kimi_team:DecisionCritic"
backup = "best-first"
"""
ARMS = {
    "GRPO": 'reward = {}\ncredit = [{ estimator = "group" }]\n' + _RECIPE + _PHASES,
    "PARL": _RECIPE + _ANNEALED + _PHASES + '[phases.set]\n"reward" = {}\n"credit" = [{ estimator = "agent-group", settings = { counts = "team" } }]\n',
    "PARL, not annealed": _RECIPE + _CONSTANT + _PHASES + '[phases.set]\n"credit" = [{ estimator = "agent-group", settings = { counts = "team" } }]\n',
    "decision credit": 'reward = {}\ncredit = [{ estimator = "coma", unit = "orchestrator" }]\n' + _RECIPE + _COMA + _PHASES + '[phases.set]\n"credit" = [{ estimator = "coma" }]\n',
}


def recipe_of(arm: str, workers: int, frozen: int, joint: int) -> Recipe:
    """An arm's recipe: so many steps with the workers frozen, then so many in which all learn."""
    # PARL's two terms are gone half way through the first phase.
    text = ARMS[arm].format(arm=arm, workers=workers, frozen=frozen, fade=max(1, frozen // 2))
    return parse(text, "result 19", [f"train.steps={frozen + joint}"], trust=True)

"""What holds for every rule on every trace: pure, valid, the same from any file in any order, computable again."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from pathlib import Path

import pytest
from chaos import TOPOLOGY_NAMES, make_team
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from reward_traces import GOLDEN, full_gold, golden, with_verdicts

from baton.errors import TraceError
from baton.reward import RULES as LISTED
from baton.reward import Gold, RewardRecipe, Rule, load_reward_recipe, reward_recipes, rule_of, with_rewards
from baton.reward.hybrid import Hybrid, Term
from baton.reward.rules.debate import JudgePanel, Resolution, Swing, Verifiers
from baton.reward.rules.individual import Difference, OwnAnswer, SoloGap
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
from baton.reward.rules.role import MainSub, Rubric
from baton.reward.rules.shared import ItemF1, Length, RunCost, StepCost, Success
from baton.reward.rules.tool_use import ToolUse, ToolUsed
from baton.team.running import run
from baton.trace.formats import read, write
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.validation import validate

# Rules that any team's trace can answer, each in every unit it knows.
RULES: tuple[Rule, ...] = (
    Success(), ItemF1(), RunCost(per_token=1e-3, per_tool_call=0.1, per_second=0.3), Length(free=10, limit=300),
    StepCost(max_steps=8), StepCost(max_steps=8, unit="turn", name="steps"),
    OwnAnswer(), OwnAnswer(team_weight=1.0, name="beyond"), SoloGap(thinkers=("orchestrator", "lead", "resolver")),
    MainSub(),
    Milestones(unit="agent"), Milestones(unit="team", name="done"), Scorer(),
    ValidFormat(), ValidFormat(unit="agent", name="agents"), ValidFormat(unit="turn", name="turns"),
    ToolUse(), ToolUse(unit="agent", name="tools"), ToolUsed(),
    Resolution(), Swing(), JudgePanel(), JudgePanel(of="answer", how="strict", name="strict"), Verifiers(),
    SpeedUp(), Parallel(), FinishRate(without_spawns=0.0), FinishRate(unit="orchestrator", name="spawns"),
    Split(), Split(unit="orchestrator", name="splits"), Aggregation(),
    CriticalSteps(), CriticalSteps(budget=9, name="c"), EvenWork(without=0.5),
)  # fmt: skip


def scored(trace: Trace, gold: Gold | None) -> dict[str, list[Reward] | str]:
    """By rule: its records, or what it says is missing."""
    found: dict[str, list[Reward] | str] = {}
    for rule in RULES:
        try:
            found[rule.name] = rule.score(trace, gold)
        except TraceError as error:
            found[rule.name] = str(error)
    return found


def shuffled(trace: Trace, seed: int) -> Trace:
    def mixed(records: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(random.Random(seed).sample(records, len(records)))

    return structs.replace(
        trace,
        events=mixed(trace.events),
        edges=mixed(trace.edges),
        calls=mixed(trace.calls),
        rewards=mixed(trace.rewards),
    )


def check(trace: Trace, gold: Gold, seed: int = 0) -> dict[str, list[Reward] | str]:
    found = scored(trace, gold)
    assert scored(shuffled(trace, seed), gold) == found
    records = [reward for rewards in found.values() if isinstance(rewards, list) for reward in rewards]
    assert validate(with_rewards(trace, records)) == []
    for rule in RULES:
        rewards = found[rule.name]
        if isinstance(rewards, list) and rewards:
            assert {(r.family, r.name) for r in rewards} == {(rule.family, rule.name)}
            assert rewards[0].by is not None
            assert rule_of(rewards[0].by) == rule
            assert len({(r.unit, r.target) for r in rewards}) == len(rewards)
    return found


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_traces_score(path: Path) -> None:
    trace = read(path)
    found = check(trace, full_gold())
    silent = {name for name, rewards in found.items() if isinstance(rewards, str)}
    # Harness: no second opinion was fused. Swarm: agents without calls. Each has no thinker but the ones named.
    assert silent <= {"aggregation", "solo_gap", "resolution", "swing", "judge_panel"}
    without_gold = scored(trace, None)
    assert isinstance(without_gold["success"], list)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_built_in_recipes_on_golden_traces(path: Path) -> None:
    trace = read(path)
    needs_roles = {"marsrl", "mae", "comas", "ccpo", "sharp", "criticlean"}
    needs_roles |= {"mas-zero", "multiagent-finetuning"}  # parts of the task, and calls
    agents = {event.agent for event in trace.events}
    judged = with_verdicts(trace, **dict.fromkeys(agents, 0.5))
    for name in reward_recipes().keys() - needs_roles:
        rewards = load_reward_recipe(name).score(judged)
        assert rewards, name
        assert validate(with_rewards(judged, rewards)) == []


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("form", ["trace.jsonl", "trace.db", "shards"])
def test_saved_traces_give_identical_numbers(path: Path, form: str, tmp_path: Path) -> None:
    if form == "shards":
        pytest.importorskip("pyarrow")
    trace, gold = read(path), full_gold()
    write(trace, tmp_path / form, "parquet" if form == "shards" else None)
    again = read(tmp_path / form)
    assert scored(again, gold) == scored(trace, gold)
    # And with the records on it.
    records = [r for rewards in scored(trace, gold).values() if isinstance(rewards, list) for r in rewards]
    marked = with_rewards(trace, records)
    write(marked, tmp_path / f"marked {form}", "parquet" if form == "shards" else None)
    back = read(tmp_path / f"marked {form}")
    assert back.rewards == marked.rewards
    assert scored(back, gold) == scored(trace, gold)


@pytest.mark.parametrize("topology", TOPOLOGY_NAMES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=12)
def test_runs_of_any_team(topology: str, seed: int) -> None:
    team, assignment = make_team(topology, seed)
    trace = asyncio.run(run(team, assignment))
    found = check(trace, full_gold("3"), seed)
    success = found["success"]
    assert isinstance(success, list)
    recorded = [reward.value for reward in trace.rewards]
    assert [success[0].value] == (recorded or [0.0])


def test_a_hybrid_of_everything_is_the_weighted_sum_of_its_parts() -> None:
    trace, gold = golden("centralized"), full_gold()
    kept = [rule for rule in RULES if isinstance(scored(trace, gold)[rule.name], list)]
    hybrid = Hybrid(terms=tuple(Term(of=rule, weight=0.5) for rule in kept))
    parts = [reward for rule in kept for reward in rule.score(trace, gold)]
    for reward in hybrid.score(trace, gold):
        own = [r.value for r in parts if (r.unit, r.target) == (reward.unit, reward.target)]
        assert reward.value == pytest.approx(0.5 * sum(own))
    assert validate(with_rewards(trace, hybrid.score(trace, gold))) == []


def test_needs_that_are_missing_are_named() -> None:
    trace = structs.replace(golden("centralized"), rewards=(), metrics={})
    found = scored(trace, None)
    for name, needs in {
        "success": "`verify` or `answer`",
        "item_f1": "`items`",
        "own_answer": "`verify` or `answer`",
        "solo_gap": "`solo`",
        "done": "`milestones`",
        "scorer": "`scorer`",
        "judge_panel": "`judges`",
        "split": "`parts`",
        "aggregation": "`verify` or `answer`",
    }.items():
        message = found[name]
        assert isinstance(message, str), name
        assert needs in message
    for rule in (Rubric(), Difference()):
        with pytest.raises(TraceError, match="give gold data with"):
            rule.score(trace)


def test_recipe_scores_in_order() -> None:
    trace = golden("debate")
    recipe = RewardRecipe(about="two", rules=(Success(), FinishRate()))
    assert [reward.name for reward in recipe.score(trace)] == ["success", "finish_rate"]


@pytest.mark.parametrize("word", sorted(LISTED))
def test_every_rule_states_formula_source_and_evidence(word: str) -> None:
    formula, at, source = (inspect.getdoc(LISTED[word]) or "").partition("Source:")
    assert re.search(r"=|/|\d", formula), f"{word}: no formula in its docstring"
    assert at, f"{word}: no 'Source:' in its docstring"
    assert re.search(r"\[[PCAMI]\]", source), f"{word}: its source does not say how sure it is"

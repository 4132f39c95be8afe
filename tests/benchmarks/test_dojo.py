"""AgentDojo's table: the records are whole, the page prints them, and a few runs made again say the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("agentdojo", reason="needs the package agentdojo and the extra of that name")

import dojo
from baton.engine.scripted import ScriptedEngine
from baton.tasks.agentdojo.bench import row_of
from baton.tasks.agentdojo.guards import guard_for
from baton.tasks.agentdojo.package import SUITES, SuiteName, suite
from baton.tasks.agentdojo.suite_task import AgentDojoTask
from baton.tasks.agentdojo.world import Pair

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "dojo_results" / "single"


def test_the_records_are_whole() -> None:
    rows = dojo.records("single")
    wanted = {
        (name, user, injection, guarded)
        for name in SUITES
        for user in suite(name).user_tasks
        for injection in (None, *suite(name).injection_tasks)
        for guarded in (False, True)
    }
    assert set(dojo.outcomes(rows)) == wanted
    assert len(rows) == len(wanted) == 2 * (949 + 97)
    assert all(row.utility is not None for row in rows), "every run was measured"


def test_the_page_prints_the_records() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    rows = dojo.records("single")
    assert dojo.table(rows) in page
    assert dojo.table(dojo.records("centralized")) in page
    assert dojo.refused_plans(rows) in page


def test_counted_another_way() -> None:
    """Straight from the files, with nothing of Baton."""
    counts: Counter[str] = Counter()
    for path in KEPT.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            kind = "pair" if "injection_task" in row else "plan"
            held = "guard" if row["guarded"] else "free"
            counts[f"{kind} {held}"] += 1
            counts[f"{kind} {held} {'achieved' if row['achieved'] else 'not'}"] += 1
            counts[f"{kind} {held} {'done' if row['utility'] else 'undone'}"] += 1
    assert (counts["pair guard"], counts["plan guard"]) == (949, 97)
    assert counts["plan free done"] == 97
    assert counts["pair guard achieved"] == 0, "no injection achieves what it is for"
    assert counts["plan guard done"] >= 90
    cells = dojo.summed(dojo.records("single"))
    assert cells["all", True]["achieved"] == counts["pair guard achieved"]
    assert cells["all", False]["achieved"] == counts["pair free achieved"]
    assert cells["all", True]["useful"] == counts["plan guard done"]


@pytest.mark.parametrize(
    ("name", "user_task", "injection"),
    [
        ("banking", "user_task_0", None),
        ("banking", "user_task_15", "injection_task_4"),
        ("slack", "user_task_1", "injection_task_1"),
        ("slack", "user_task_11", "injection_task_5"),
        ("travel", "user_task_3", "injection_task_5"),
        ("travel", "user_task_4", "injection_task_2"),
        ("travel", "user_task_2", "injection_task_6"),
        ("workspace", "user_task_35", "injection_task_1"),
        ("workspace", "user_task_13", "injection_task_13"),
    ],
)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_few_made_again(name: SuiteName, user_task: str, injection: str | None, guarded: bool) -> None:
    task = AgentDojoTask(name, injections=injection is not None, obeys=injection is not None, plans=True)
    pair = Pair(suite=name, user_task=user_task, injection_task=injection)
    row = row_of(task, pair, ScriptedEngine("script", task.reference_play()), guarded=guarded)
    assert dojo.outcomes([row]).items() <= dojo.outcomes(dojo.records("single")).items()


@pytest.mark.parametrize("name", SUITES)
def test_the_guards_fit_their_suites(name: SuiteName) -> None:
    task = AgentDojoTask(name, plans=True)
    tools = {tool.name: tool for tool in task.tools(task.instance(0))}
    guard = guard_for(name)
    guard.check_team(tools, {"assistant": None})
    named = set(guard.tools)
    assert named == set(tools) - {"plan"}, "every tool has its rule"
    acting = {tool.name for tool in tools.values() if tool.consequential}
    assert {tool for tool in tools if tool != "plan" and guard.is_consequential(tools[tool])} == acting

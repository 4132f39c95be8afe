"""reasoning-gym as tasks: the contract, the splits, the scripted teams on both surfaces, the split check."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")

from baton.engine.scripted import ScriptedEngine
from baton.errors import MissingExtraError, UsageError
from baton.installed import install_hint
from baton.reward.rules.orchestration import Split
from baton.tasks.catalog import make_task
from baton.tasks.reasoning import FAMILIES, SHORT, ReasoningTask, ScriptedPlay, Worked
from baton.tasks.reasoning.family import halves, run_of
from baton.tasks.reasoning.reasoning_task import split_of
from baton.tasks.task import Instance
from baton.tasks.translate import translated
from baton.team.running import run
from baton.team.surface import Lines, Tools
from baton.team.team import Team
from baton.testing import check_task
from baton.trace.gold import Gold
from baton.trace.trace import Trace
from baton.trace.validation import validate

SPLITTABLE = [name for name, family in FAMILIES.items() if family.splittable]


def played(
    task: ReasoningTask,
    instance: Instance,
    surface: Literal["lines", "tools"] = "lines",
    width: int = 2,
    kind: type[ScriptedPlay] = ScriptedPlay,
) -> Trace:
    assignment = task.assignment(instance)
    speaks = Lines() if surface == "lines" else Tools(assignment.tools)
    engine = ScriptedEngine("reference", translated(kind(task.family, width), speaks))
    topology = task.topology()
    assert topology is not None
    team = Team.of(topology, engine, surface=surface, template=SHORT, tools=assignment.tools)
    trace = asyncio.run(run(team, assignment))
    assert not validate(trace)
    return trace


def reward(trace: Trace) -> float:
    return trace.rewards[0].value


def made(name: str, **settings: Any) -> ReasoningTask:
    task = make_task(f"reasoning:{name}", **settings)
    assert isinstance(task, ReasoningTask)
    return task


def test_the_families() -> None:
    assert SPLITTABLE == [
        "chain_sum", "products", "count_primes", "letter_counting", "number_filtering", "word_sorting",
        "needle_haystack", "modulo_grid",
    ]  # fmt: skip
    assert set(FAMILIES) - set(SPLITTABLE) == {"course_schedule", "shortest_path", "tower_of_hanoi"}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_contract(name: str) -> None:
    check_task(made(name), seeds=4)


@pytest.mark.parametrize("surface", ["lines", "tools"])
@pytest.mark.parametrize("name", FAMILIES)
def test_scripted_teams_solve_it(name: str, surface: Literal["lines", "tools"]) -> None:
    """With a worker for each part where the problem splits, and alone where it does not."""
    task = made(name)
    traces = [played(task, task.instance(seed), surface) for seed in range(4)]
    right = [reward(trace) for trace in traces]
    assert sum(right) == 4 or name == "modulo_grid"  # where several rules can fit
    assert sum(right) >= 3
    spawned = [sum(event.type == "spawn" for event in trace.events) for trace in traces]
    assert max(spawned) == (2 if name in SPLITTABLE else 0)


@pytest.mark.parametrize("name", SPLITTABLE)
def test_the_split_of_a_scripted_team_is_right(name: str) -> None:
    task = made(name)
    for seed in range(4):
        instance = task.instance(seed)
        score = split_score(task, instance, played(task, instance))
        assert score == 1.0, instance.prompt


def split_score(task: ReasoningTask, instance: Instance, trace: Trace) -> float:
    gold = Gold(parts=task.parts(instance), covers=lambda text: task.covers(instance, text))
    return Split().score(trace, gold)[0].value


@pytest.mark.parametrize("name", SPLITTABLE)
def test_a_missing_or_doubled_part_shows(name: str) -> None:
    """The split check can fail: half of the subtasks cover about half, none covers nothing."""
    task = made(name)
    instance = task.instance(0)
    first, second = task.family.split(instance.prompt, 2)
    parts = set(task.parts(instance))
    covered = task.covers(instance, first)
    assert 0 < len(covered) < len(parts)
    assert covered | task.covers(instance, second) == parts
    assert not covered & task.covers(instance, second)
    assert task.covers(instance, "do your best!") == frozenset()


@pytest.mark.parametrize("name", SPLITTABLE)
def test_more_workers_and_larger_problems(name: str) -> None:
    family = FAMILIES[name]
    task = made(name, size=family.size + 2, digits=2, max_tokens=4096)
    trace = played(task, task.instance(0), width=3)
    assert reward(trace) == 1.0
    assert 2 <= sum(event.type == "spawn" for event in trace.events) <= 3


@pytest.mark.parametrize("name", ["chain_sum", "shortest_path", "number_filtering"])
def test_one_agent_alone(name: str) -> None:
    task = made(name, team="single")
    trace = played(task, task.instance(1))
    assert reward(trace) == 1.0
    assert {call.agent for call in trace.calls} == {"solver"}


@pytest.mark.parametrize("name", SPLITTABLE)
def test_one_agent_writes_down_what_a_team_would_say(name: str) -> None:
    task, team = made(name, team="single"), made(name)
    for seed in range(3):
        instance = task.instance(seed)
        trace = played(task, instance, kind=Worked)
        together = played(team, instance)
        assert reward(trace) == reward(together) == 1
        assert len(trace.calls) == 1
        said = trace.text(trace.calls[0].completion_ref) or ""
        for event in together.events:
            if event.type == "spawn":
                assert (together.text(event.content_ref) or "") in said


@pytest.mark.parametrize("name", ["chain_sum", "products", "count_primes", "letter_counting"])
def test_workers_compute_with_python(name: str) -> None:
    task = made(name, python=True)
    trace = played(task, task.instance(2))
    assert reward(trace) == 1.0
    called = [event.tool for event in trace.events if event.type == "tool_call"]
    assert called == ["python"] * sum(event.type == "spawn" for event in trace.events)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_question_is_in_both_splits(name: str) -> None:
    task = made(name)
    train = {task.instance(seed, "train").prompt for seed in range(30)}
    test = {task.instance(seed, "test").prompt for seed in range(30)}
    assert not train & test
    assert {split_of(prompt) for prompt in train} == {"train"}
    assert len(train) > 4


def test_scores_are_the_package_s_own() -> None:
    task = made("chain_sum")
    instance = task.instance(0)
    right = instance.gold["answer"]
    assert task.verify(instance, f" +{right}.0 ") == 1.0  # its verifier reads decimals
    assert task.verify(instance, f"{right} or so") == 0.0
    partly = made("word_sorting", partial=True)
    instance = partly.instance(0)
    words = instance.gold["metadata"]["sorted_words"]
    swapped = ", ".join([words[1], words[0], *words[2:]])
    assert 0 < partly.verify(instance, swapped) < 1
    assert made("word_sorting").verify(instance, swapped) == 0.0


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200), st.sampled_from(sorted(FAMILIES)), st.integers(0, 3))
def test_any_text_is_an_answer_and_a_subtask(text: str, name: str, seed: int) -> None:
    task = _MADE.setdefault(name, made(name, partial=True))
    instance = task.instance(seed)
    assert 0.0 <= task.verify(instance, text) <= 1.0
    assert task.covers(instance, text) <= set(task.parts(instance))


_MADE: dict[str, ReasoningTask] = {}


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 5))
def test_halves_keep_everything_in_order(units: list[str], width: int) -> None:
    parts = halves(units, width)
    assert [unit for part in parts for unit in part] == units
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.sampled_from("abcdef"), unique=True, max_size=6), st.data())
def test_a_stretch_of_different_units_is_found_where_it_is(units: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(units)))
    stop = data.draw(st.integers(start, len(units)))
    assert run_of(units, ["?", *units[start:stop]]) == set(range(start, stop))


def test_repeated_units() -> None:
    assert run_of(["5", "3", "3", "3"], ["5", "3"]) == {0, 1}
    assert run_of(["5", "3", "3", "3"], ["3", "3"]) == {2, 3}
    assert run_of(["3", "3"], ["3", "3", "3"]) == {0, 1}


def test_a_subtask_out_of_all_bounds() -> None:
    task = made("count_primes")
    instance = task.instance(0)
    assert task.covers(instance, f"primes from 0 to {'9' * 5000}") <= set(task.parts(instance))
    assert int(task.family.work("primes from 1 to 999999999").result) == 1229


def test_notes_stay_on_the_other_surface() -> None:
    lines = "3 + 4 = 7\nstop 7"
    say = translated(lambda request: lines, Tools(()))
    said = say(None)  # type: ignore[arg-type]  # not looked at
    assert said == '3 + 4 = 7\n<tool_call>{"name":"stop","arguments":{"answer":"7"}}</tool_call>'
    assert translated(lambda request: lines, Lines())(None) == lines  # type: ignore[arg-type]


def test_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="Did you mean 'reasoning:chain_sum'"):
        make_task("reasoning:chainsum")
    with pytest.raises(UsageError, match=r"no setting 'sise'\. Did you mean 'size'"):
        make_task("reasoning:chain_sum", sise=3)
    with pytest.raises(UsageError, match="size = 1, digits = 1; expected a size of at least 2"):
        make_task("reasoning:chain_sum", size=1)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("reasoning"))):
        make_task("reasoning:chain_sum")

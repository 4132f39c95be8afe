"""Searching part by part: the scripted start for stopping, and the leaders that it is compared with."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("reasoning_gym", reason="needs the extra `reasoning`")

from baton.engine.scripted import ScriptedEngine
from baton.errors import UsageError
from baton.tasks.catalog import make_task
from baton.tasks.reasoning import FAMILIES, PLAYS, SHORT, ReasoningTask, Search
from baton.tasks.reasoning.scripted_play import tossed
from baton.tasks.task import Split
from baton.tasks.translate import translated
from baton.team.protocol import Entry, Request
from baton.team.running import run
from baton.team.surface import Lines, Tools
from baton.team.team import Team
from baton.trace.records import Sampling
from baton.trace.trace import Trace
from baton.trace.validation import validate

FAMILY = FAMILIES["needle_haystack"]
COUNT = 150


def task_of(**settings: Any) -> ReasoningTask:
    task = make_task("reasoning:needle_haystack", **settings)
    assert isinstance(task, ReasoningTask)
    return task


def played(play: str, split: Split = "train", surface: str = "lines", count: int = COUNT) -> list[Trace]:
    """Scripts that never fail, on so many questions."""
    task = task_of(max_tokens=100_000)
    topology = task.topology()
    assert topology is not None

    async def every() -> list[Trace]:
        return list(await asyncio.gather(*map(one, range(count))))

    async def one(seed: int) -> Trace:
        assignment = task.assignment(task.instance(seed, split))
        speaks = Lines() if surface == "lines" else Tools(assignment.tools)
        engine = ScriptedEngine(play, translated(PLAYS[play](FAMILY), speaks))
        team = Team.of(topology, engine, surface=surface, template=SHORT, tools=assignment.tools)  # type: ignore[arg-type]
        return await run(team, assignment)

    return asyncio.run(every())


def right(traces: Sequence[Trace]) -> float:
    return fmean(trace.rewards[0].value for trace in traces)


def looked(trace: Trace) -> list[str]:
    return [trace.text(event.content_ref) or "" for event in trace.events if event.type == "spawn"]


def near(share: float, expected: float, count: int) -> bool:
    """Within four standard errors: wrong once in 16,000."""
    return abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("surface", ["lines", "tools"])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("play", ["fixed-3", "found"])
def test_who_looks_until_it_is_found_is_right(play: str, split: Split, surface: str) -> None:
    traces = played(play, split, surface, count=30)
    assert right(traces) == 1.0
    assert not any(validate(trace) for trace in traces)
    assert all(len(set(looked(trace))) == len(looked(trace)) for trace in traces)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_fixed_parts_find_their_share(parts: int) -> None:
    traces = played(f"fixed-{parts}")
    assert all(len(looked(trace)) == parts for trace in traces)
    assert right(traces) == 1.0 if parts == 3 else near(right(traces), parts / 3, COUNT)


def test_the_optimum_looks_at_two_parts_on_average() -> None:
    counts = [len(looked(trace)) for trace in played("found")]
    assert abs(fmean(counts) - 2.0) < 4 * math.sqrt(2 / 3 / COUNT)


def test_the_start_goes_on_by_a_coins_toss() -> None:
    traces = played("search")
    counts = [len(looked(trace)) for trace in traces]
    for parts, share in ((1, 1 / 2), (2, 1 / 4), (3, 1 / 4)):
        assert near(counts.count(parts) / COUNT, share, COUNT)
    assert near(right(traces), (1 * 2 + 2 + 3) / 12, COUNT)
    assert counts == [len(looked(trace)) for trace in played("search")]


def asked(question: str, returned: Sequence[str]) -> Request:
    """The leader, after so many rounds."""
    entries = [Entry("system", "You lead."), Entry("user", question)]
    for number, result in enumerate(returned, 1):
        heard = Entry("user", f"worker{number} returned: {result}")
        entries += [Entry("assistant", f"spawn worker: {number}\nwait"), heard]
    return Request(
        call="c", agent="leader", role="orchestrator", entries=entries, prompt_ids=None, sampling=Sampling()
    )


@given(st.integers(0, 40), st.lists(st.sampled_from(["none", "Ada"]), min_size=1, max_size=2))
def test_the_toss_does_not_hear(seed: int, returned: list[str]) -> None:
    question = _TASK.instance(seed).prompt
    said = Search(FAMILY)(asked(question, returned))
    assert said.startswith("stop") == tossed(question, len(returned), [])
    if said.startswith("stop"):
        assert said == f"stop {'Ada' if 'Ada' in returned else 'none'}"


@given(st.integers(0, 40), st.sampled_from(sorted(set(PLAYS) - {"either", "worked"})))
def test_nobody_looks_at_more_than_there_is(seed: int, play: str) -> None:
    question = _TASK.instance(seed).prompt
    assert PLAYS[play](FAMILY)(asked(question, ["none"] * 3)) == "stop none"
    assert PLAYS[play](FAMILY)(asked(question, [])).startswith("spawn worker: Who ")


_TASK = task_of()


def test_a_worker_that_gives_up_has_found_nothing() -> None:
    request = asked(_TASK.instance(0).prompt, ["none"])
    entries = [*request.entries[:-1], Entry("user", "worker1 gave up: too many turns.")]
    silent = Request(
        call="c", agent="leader", role="orchestrator", entries=entries, prompt_ids=None, sampling=Sampling()
    )
    assert PLAYS["found"](FAMILY)(silent) == PLAYS["found"](FAMILY)(request)
    assert PLAYS["fixed-1"](FAMILY)(silent) == "stop none"


def test_what_has_no_parts_cannot_be_searched() -> None:
    with pytest.raises(UsageError, match="course_schedule has no parts to search"):
        Search(FAMILIES["course_schedule"])

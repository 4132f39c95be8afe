"""Inspect itself, offline with its mock model: a lead, a sub-agent called twice, a handoff; its logs in both forms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval
from inspect_ai.agent import as_tool, handoff, react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.tool import Tool, tool

from baton.connect.assemble import assemble
from baton.connect.import_report import ImportReport
from baton.connect.readers.inspect_eval.source import InspectSource
from baton.trace.outcome import answer_of
from baton.trace.trace import Trace
from baton.trace.validation import validate

# What the scripted models say, with the tokens they are billed: the truth that the traces are checked by.
LEAD = [
    ("searcher", {"input": "population of Oslo"}, 101, 11),
    ("searcher", {"input": "population of Bern"}, 120, 12),
    ("transfer_to_critic", {}, 140, 6),
    ("submit", {"answer": "834000"}, 160, 8),
]
SEARCHER = [
    ("lookup", {"city": "Oslo"}, 31, 7), ("submit", {"answer": "Oslo: 700000"}, 52, 9),
    ("lookup", {"city": "Bern"}, 33, 8), ("lookup", {"city": "Nowhere"}, 44, 3),
    ("submit", {"answer": "Bern: 134000"}, 54, 10),
]  # fmt: skip
CRITIC = [("submit", {"answer": "fine"}, 61, 5)]


@tool
def lookup() -> Tool:
    async def execute(city: str) -> str:
        """Look up the population of a city.

        Args:
            city: The city.
        """
        return {"Oslo": "700000", "Bern": "134000"}.get(city, "unknown")

    return execute


def said(script: list[tuple[str, dict[str, Any], int, int]]) -> list[ModelOutput]:
    found = []
    for name, arguments, prompt, answer in script:
        text = (
            "" if name == "submit" else f"now {name}"
        )  # an answer is handed on with what was said beside it
        output = ModelOutput.for_tool_call("mockllm/model", name, arguments, content=text)
        output.usage = ModelUsage(input_tokens=prompt, output_tokens=answer, total_tokens=prompt + answer)
        found.append(output)
    return found


def model(script: list[tuple[str, dict[str, Any], int, int]]) -> Any:
    return get_model("mockllm/model", custom_outputs=said(script), memoize=False)


def log_of(folder: Path, form: str) -> Path:
    searcher = react(
        name="searcher", description="Finds.", prompt="Search.", tools=[lookup()], model=model(SEARCHER)
    )
    critic = react(name="critic", description="Checks.", prompt="Check.", tools=[], model=model(CRITIC))
    lead = react(name="lead", prompt="Lead.", tools=[as_tool(searcher), handoff(critic)])
    task = Task(
        dataset=[Sample(input="Oslo and Bern together?", target="834000", id="cities")],
        solver=lead,
        scorer=includes(),
    )
    (log,) = eval(task, model=model(LEAD), log_dir=str(folder), display="none", log_format=form)
    assert log.status == "success"
    return next(folder.glob(f"*.{form}"))


@pytest.mark.parametrize("form", ["eval", "json"])
def test_a_team(tmp_path: Path, form: str) -> None:
    path = log_of(tmp_path, form)
    source, report = InspectSource(), ImportReport()
    assert source.recognises(path)
    (trace,) = assemble(source.read(path, report), report, kind=source.kind)
    assert validate(trace) == []
    assert not report.skipped
    check(trace)


def check(trace: Trace) -> None:
    spawns = [(event.agent, event.to, event.inferred) for event in trace.events if event.type == "spawn"]
    assert spawns == [("lead", "searcher", False), ("lead", "searcher-2", False), ("lead", "critic", False)]
    returns = [
        (event.agent, trace.text(event.content_ref)) for event in trace.events if event.type == "return"
    ]
    assert returns[:2] == [("searcher", "Oslo: 700000"), ("searcher-2", "Bern: 134000")]
    assert [agent for agent, _ in returns] == ["searcher", "searcher-2", "critic"]
    tools = Counter((event.agent, event.tool) for event in trace.events if event.type == "tool_call")
    assert tools == {
        ("searcher", "lookup"): 1, ("searcher", "submit"): 1, ("searcher-2", "lookup"): 2, ("searcher-2", "submit"): 1,
        ("critic", "submit"): 1, ("lead", "submit"): 1,
    }  # fmt: skip
    answers = [event for event in trace.events if event.type == "tool_result" and event.tool == "lookup"]
    results = [trace.text(event.content_ref) for event in answers]
    assert results == ["700000", "134000", "unknown"]
    billed = {
        agent: Counter(
            (call.prompt_tokens, call.completion_tokens) for call in trace.calls if call.agent == agent
        )
        for agent in ("lead", "searcher", "searcher-2", "critic")
    }
    assert billed == {
        "lead": Counter((prompt, answer) for _, _, prompt, answer in LEAD),
        "searcher": Counter((prompt, answer) for _, _, prompt, answer in SEARCHER[:2]),
        "searcher-2": Counter((prompt, answer) for _, _, prompt, answer in SEARCHER[2:]),
        "critic": Counter((prompt, answer) for _, _, prompt, answer in CRITIC),
    }
    assert trace.costs["tokens"] == sum(prompt + answer for _, _, prompt, answer in LEAD + SEARCHER + CRITIC)
    assert answer_of(trace) == "834000"
    assert [(reward.channel, reward.value) for reward in trace.rewards] == [("shared", 1.0)]

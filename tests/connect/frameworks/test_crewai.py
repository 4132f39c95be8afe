"""crewAI 1.15, run offline with a scripted model of its own base class; what is true was written down by hand."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from connect_story import check_page, edges, keep_golden, only_in, prompts, recorded, spent, story

only_in("crewai")

from crewai import Agent, Crew, Process, Task  # noqa: E402
from crewai.events.types.llm_events import LLMCallType  # noqa: E402
from crewai.flow.flow import Flow, listen, start  # noqa: E402
from crewai.llms.base_llm import BaseLLM, llm_call_context  # noqa: E402
from crewai.tools import tool  # noqa: E402

from baton.connect import record  # noqa: E402


class Scripted(BaseLLM):
    """Answers from a list, and tells the bus as the shipped models do."""

    answers: list[Any] = []  # noqa: RUF012 -- a pydantic field

    def __init__(self, *answers: Any) -> None:
        super().__init__(model="fake")
        self.answers = list(answers)

    def call(self, messages: Any, from_task: Any = None, from_agent: Any = None, **kwargs: Any) -> Any:
        who = {"from_task": from_task, "from_agent": from_agent}
        with llm_call_context():
            self._emit_call_started_event(messages=messages, **who)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                self._emit_call_failed_event(error=str(answer), **who)
                raise answer
            usage = {"prompt_tokens": 10 * len(messages), "completion_tokens": len(answer.split())}
            self._emit_call_completed_event(
                response=answer, call_type=LLMCallType.LLM_CALL, messages=messages, usage=usage, **who
            )
            return answer

    def supports_function_calling(self) -> bool:
        return False

    def supports_stop_words(self) -> bool:
        return False

    def get_context_window_size(self) -> int:
        return 8192


def uses(name: str, arguments: str) -> str:
    return f"Thought: x\nAction: {name}\nAction Input: {arguments}\n"


def final(text: str) -> str:
    return f"Thought: I now know\nFinal Answer: {text}"


@tool
def lookup(q: str) -> str:
    """Look it up."""
    if q == "nowhere":
        raise ValueError("no such place")
    return "Paris"


def agent(role: str, *answers: Any, **more: Any) -> Agent:
    return Agent(role=role, goal="g", backstory="b", llm=Scripted(*answers), **more)


def task(description: str, who: Agent | None, **more: Any) -> Task:
    return Task(description=description, expected_output="words", agent=who, **more)


def first_words(told: dict[str, list[str]]) -> dict[str, list[str]]:
    """A task's prompt is long: its first line will do."""
    return {name: [line.partition("\n")[0] for line in lines] for name, lines in told.items()}


def test_a_coworker_is_spawned_by_who_delegates(tmp_path: Path) -> None:
    scout = agent("scout", uses("lookup", '{"q": "France"}'), final("Paris"), tools=[lookup])
    ask = uses(
        "Delegate work to coworker", '{"task": "find the capital", "context": "c", "coworker": "scout"}'
    )
    lead = agent("lead", ask, final("It is Paris"), allow_delegation=True)
    with record.crewai(tmp_path) as recorder:
        crew = Crew(agents=[lead, scout], tasks=[task("capital of France?", lead)], name="geography")
        assert crew.kickoff().raw == "It is Paris"
    assert not recorder.failures
    (trace,) = recorded(tmp_path)
    keep_golden(tmp_path, "crewai-1.15.30")
    assert first_words(story(trace)) == {
        "geography": ["spawns lead: capital of France?", "decides to stop: It is Paris"],
        "lead": ["spawns scout: find the capital", "returns to geography: It is Paris"],
        "scout": ['uses lookup: {"q": "France"}', "gets lookup: Paris", "returns to lead: Paris"],
    }
    assert [tokens[0] for tokens in spent(trace)["scout"]] == [20, 40]
    assert spent(trace)["lead"][1] == (40, 9)
    assert {call.policy for call in trace.calls} == {"fake"}
    assert "Observation: Paris" in prompts(trace, "scout")[1]
    assert "You are scout" not in prompts(trace, "scout")[1]
    assert edges(trace) == {
        "geography spawn -> lead spawn", "lead spawn -> scout tool_call", "scout return -> lead return",
        "lead return -> geography orchestrator_decision",
    }  # fmt: skip


def test_an_agent_is_one_through_its_tasks_and_tools_fail(tmp_path: Path) -> None:
    anna = agent("anna", uses("lookup", '{"q": "nowhere"}'), final("one"), final("three"), tools=[lookup])
    bert = agent("bert", final("two"))
    with record.crewai(tmp_path):
        Crew(agents=[anna, bert], tasks=[task("t1", anna), task("t2", bert), task("t3", anna)]).kickoff()
    (trace,) = recorded(tmp_path)
    told = first_words(story(trace))
    assert told["crew"] == [
        "spawns anna: t1",
        "spawns bert: t2",
        "hands over to anna: t3",
        "decides to stop: three",
    ]
    assert told["anna"][:2] == ['uses lookup: {"q": "nowhere"}', "failed gets lookup: no such place"]
    assert told["anna"][-2:] == ["returns to crew: one", "returns to crew: three"]
    assert {line.removeprefix("failed ").partition(":")[0] for line in told["anna"][:-2]} == {
        "uses lookup",
        "gets lookup",
    }
    assert told["bert"] == ["returns to crew: two"]


def test_a_manager_leads_a_hierarchy(tmp_path: Path) -> None:
    scout = agent("scout", final("Lyon"))
    ask = uses(
        "Ask question to coworker", '{"question": "second city?", "context": "c", "coworker": "scout"}'
    )
    manager = agent("manager", ask, final("Lyon it is"), allow_delegation=True)
    with record.crewai(tmp_path):
        Crew(
            agents=[scout],
            tasks=[task("the second city", None)],
            process=Process.hierarchical,
            manager_agent=manager,
        ).kickoff()
    (trace,) = recorded(tmp_path)
    assert first_words(story(trace)) == {
        "crew": ["spawns manager: the second city", "decides to stop: Lyon it is"],
        "manager": ["spawns scout: second city?", "returns to crew: Lyon it is"],
        "scout": ["returns to manager: Lyon"],
    }


def test_tasks_side_by_side(tmp_path: Path) -> None:
    left, right, end = agent("left", final("l")), agent("right", final("r")), agent("end", final("l and r"))
    one, two = task("one", left, async_execution=True), task("two", right, async_execution=True)
    with record.crewai(tmp_path):
        Crew(agents=[left, right, end], tasks=[one, two, task("three", end, context=[one, two])]).kickoff()
    (trace,) = recorded(tmp_path)
    told = first_words(story(trace))
    assert sorted(told["crew"][:2]) == ["spawns left: one", "spawns right: two"]
    assert told["crew"][2:] == ["spawns end: three", "decides to stop: l and r"]
    assert {"left return -> crew spawn", "right return -> crew spawn"} <= edges(trace)


def test_a_flow_is_an_orchestrator_of_crews(tmp_path: Path) -> None:
    class Work(Flow):  # type: ignore[type-arg]
        @start()
        def first(self) -> str:
            return str(Crew(agents=[anna], tasks=[task("t1", anna)], name="inner").kickoff().raw)

        @listen(first)
        def second(self, found: str) -> str:
            return f"{found}!"

    anna = agent("anna", final("one"))
    with record.crewai(tmp_path) as recorder:
        Work().kickoff()
    assert not recorder.failures
    (trace,) = recorded(tmp_path)
    told = first_words(story(trace))
    assert told["Work"][0].startswith("spawns inner")
    assert told["Work"][-1] == "decides to stop: one!"
    assert told["inner"] == ["spawns anna: t1", "returns to Work: one"]


def test_a_model_that_fails(tmp_path: Path) -> None:
    anna = agent("anna", *[RuntimeError("down")] * 5, max_retry_limit=1)
    with record.crewai(tmp_path) as recorder, pytest.raises(RuntimeError, match="down"):
        Crew(agents=[anna], tasks=[task("t1", anna)]).kickoff()
    assert not recorder.failures
    (trace,) = recorded(tmp_path)
    told = first_words(story(trace))
    assert told["anna"] == ["failed returns to crew: down"] * 2
    assert told["crew"] == ["spawns anna: t1", "hands over to anna: t1", "failed decides to stop: down"]
    assert [call.finish_reason for call in trace.calls] == ["error", "error"]


def test_crews_in_threads_do_not_mix(tmp_path: Path) -> None:
    def work(name: str) -> None:
        who = agent(name, uses("lookup", '{"q": "x"}'), final(name), tools=[lookup])
        Crew(agents=[who], tasks=[task(name, who)], name=f"crew of {name}").kickoff()

    with record.crewai(tmp_path) as recorder:
        threads = [threading.Thread(target=work, args=(name,)) for name in ("anna", "bert", "cleo")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not recorder.failures
    assert sorted(map(str, (first_words(story(trace)) for trace in recorded(tmp_path)))) == [
        str({
            f"crew of {name}": [f"spawns {name}: {name}", f"decides to stop: {name}"],
            name: ['uses lookup: {"q": "x"}', "gets lookup: Paris", f"returns to crew of {name}: {name}"],
        })
        for name in ("anna", "bert", "cleo")
    ]  # fmt: skip


def test_the_page_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_page("crewai", tmp_path, monkeypatch, capsys)

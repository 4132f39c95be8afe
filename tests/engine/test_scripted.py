"""Scripts behind the engine protocol."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.engine.scripted import ScriptedEngine
from baton.engine.tokens import END, MARKS
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Ints, Sampling


def request(options: tuple[str, ...] | None = None, **sampling: Any) -> Request:
    return Request(
        call="c",
        agent="a",
        role="worker",
        entries=[Entry("user", "hello")],
        prompt_ids=[1, 2, 3],
        sampling=Sampling(**sampling),
        options=options,
    )


def ask(function: Any, given: Request | None = None) -> Answer | EngineError:
    [result] = asyncio.run(ScriptedEngine("s", function).answer([given or request()]))
    return result


def test_text_is_token_in_token_out() -> None:
    engine = ScriptedEngine("s", lambda r: r.entries[-1].text + " é")
    assert isinstance(engine, Engine)
    assert engine.answer_now is not None
    answer = engine.answer_now(request())
    assert isinstance(answer, Answer)
    assert (answer.text, answer.policy, answer.finish_reason) == ("hello é", "s", "stop")
    assert answer.completion_ids == Ints([*"hello é".encode(), END])
    assert answer.token_ends == Ints([1, 2, 3, 4, 5, 6, 6, 7, 7])
    assert answer.logprobs is not None
    assert answer.logprobs.tolist() == [0.0] * 9
    assert (answer.prompt_tokens, answer.completion_tokens) == (
        None,
        None,
    )  # bytes are no tokens: nobody counts


@given(st.text(max_size=40))
def test_ids_spell_the_text_and_ends_reach_it(text: str) -> None:
    answer = ask(lambda _: text)
    assert isinstance(answer, Answer)
    assert answer.completion_ids is not None
    assert answer.token_ends is not None
    ids, ends = answer.completion_ids.tolist(), answer.token_ends.tolist()
    assert bytes(ids[:-1]).decode() == text
    assert ids[-1] == END
    for i, end in enumerate(ends[:-1]):
        assert text[:end] == bytes(ids[: i + 1]).decode("utf-8", "ignore")


@given(st.lists(st.text(max_size=10), max_size=4), st.text(max_size=10), st.booleans())
def test_a_continued_context_is_the_whole_context(texts: list[str], said: str, cut: bool) -> None:
    engine = ScriptedEngine("s", lambda _: said)
    entries = [Entry("user", text) for text in texts]
    answer = ask(lambda _: said)
    assert isinstance(answer, Answer)
    assert answer.completion_ids is not None
    if cut:
        answer = Answer(text=said, policy="s", completion_ids=answer.completion_ids[:-1])
    assert answer.completion_ids is not None
    grown = engine.encode(entries, None) + answer.completion_ids + engine.encode(entries, answer)
    whole = engine.encode([*entries, Entry("assistant", said), *entries], None)
    if not cut or said:
        assert grown == whole
    assert grown[-1] == MARKS["assistant"]


def test_choices() -> None:
    answer = ask(lambda _: 1, request(("stay", "go")))
    assert isinstance(answer, Answer)
    assert (answer.text, answer.choice, answer.option_propensities) == ("go", 1, (0.0, 1.0))
    named = ask(lambda _: "go", request(("stay", "go")))
    assert isinstance(named, Answer)
    assert named.choice == 1
    free = ask(lambda _: "run", request(("stay", "go")))
    assert isinstance(free, Answer)
    assert free.choice is None


def test_propensities_become_log_probs() -> None:
    given_ = Answer(text="go", policy="mine", choice=1, option_propensities=(0.75, 0.25), duration_s=2.0)
    answer = ask(lambda _: given_, request(("stay", "go")))
    assert isinstance(answer, Answer)
    assert (answer.policy, answer.duration_s, answer.option_propensities) == ("mine", 2.0, (0.75, 0.25))
    assert answer.logprobs is not None
    assert answer.logprobs.tolist() == [math.log(0.25), 0.0, 0.0]
    impossible = Answer(text="go", policy="mine", choice=1, option_propensities=(1.0, 0.0))
    assert "propensity" in str(ask(lambda _: impossible, request(("stay", "go"))))


def test_token_limit() -> None:
    """A script's tokens are estimated at four bytes each; a character cut in two is left out."""
    answer = ask(lambda _: "abcdefgé", request(max_tokens=2))
    assert isinstance(answer, Answer)
    assert (answer.text, answer.finish_reason, len(answer.completion_ids or ())) == ("abcdefg", "length", 8)
    assert isinstance(ask(lambda _: "a", request(max_tokens=2)), Answer)


def test_async_scripts_run_together() -> None:
    started = asyncio.Event()
    count = 0

    async def script(r: Request) -> str:
        nonlocal count
        count += 1
        if count == 2:
            started.set()
        await started.wait()  # would hang if one waited for the other
        return r.call

    engine = ScriptedEngine("s", script)
    assert engine.answer_now is None
    results = asyncio.run(engine.answer([request(), request()]))
    assert [r.text for r in results if isinstance(r, Answer)] == ["c", "c"]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: None, "NoneType"),
        (lambda _: 5, "chose option 5"),
        (lambda _: asyncio.sleep(0), "async def"),
    ],
)
def test_failures_are_engine_errors(function: Any, words: str) -> None:
    result = ask(function)
    assert isinstance(result, EngineError)
    assert words in str(result)


def test_an_engine_error_passes_as_it_is() -> None:
    raised = EngineError("quota")

    async def script(_: Request) -> str:
        raise raised

    assert ask(script) is raised

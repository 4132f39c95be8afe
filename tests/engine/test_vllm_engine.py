"""The engine on a mock of vLLM's protocol: its shapes, another model (`make test-vllm` asks a real one)."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mock_servers import Asked, MockVllm, Told, mock_server
from tiny_model import tiny_tokenizer

from baton.engine import make_engine
from baton.engine.openai import ServerLimits
from baton.engine.vllm.bodies import read_completion, read_scores, read_tokens
from baton.engine.vllm.client import VllmClient
from baton.engine.vllm.engine import VllmEngine
from baton.errors import UsageError
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.records import Sampling, VersionSpan

END = "<|im_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer().save_pretrained(made)
    return made


def _ask(engine: Any, key: str = "k", **sampling: Any) -> Answer | EngineError:
    entries = [Entry("user", "say é")]
    request = Request(
        call="c",
        agent="a",
        role="r",
        entries=entries,
        prompt_ids=engine.encode(entries, None),
        sampling=Sampling(**{"max_tokens": 30, "key": key, **sampling}),
    )
    return _run(engine, lambda: engine.answer([request]))[0]  # type: ignore[no-any-return]


def _run(engine: Any, asking: Callable[[], Any]) -> Any:
    async def asked() -> Any:
        try:
            return await asking()
        finally:
            await engine.close()

    return asyncio.run(asked())


def test_ids_go_out_and_come_back(folder: Path) -> None:
    with mock_server(MockVllm(tiny_tokenizer(), "so é." + END, " then" + END)) as server:
        engine = make_engine(f"vllm:base@{server.url}/v1?tokenizer={folder}")
        first = _ask(engine, "one")
        assert isinstance(first, Answer)
        assert (first.text, first.policy, first.policy_version, first.versions) == (
            "so é.",
            "base",
            "0",
            None,
        )
        assert first.completion_ids is not None
        assert list(first.token_ends or ()) == [1, 2, 3, 3, 4, 5, 5]  # é is two tokens
        assert len(first.logprobs or ()) == len(first.completion_ids) == first.completion_tokens
        second = _ask(engine, "two")  # another event loop
        assert isinstance(second, Answer)
        drawn = [each.body for each in server.asked if each.path == "/inference/v1/generate"][-2:]
        assert [each["token_ids"] for each in drawn] == [
            list(engine.encode([Entry("user", "say é")], None) or ())
        ] * 2
        assert drawn[0]["sampling_params"]["seed"] != drawn[1]["sampling_params"]["seed"]
        assert drawn[0]["sampling_params"]["stop_token_ids"] == [257]
        after = engine.encode([Entry("user", "more")], first)
        whole = tiny_tokenizer().decode(list(after or ()), skip_special_tokens=False)
        assert whole.startswith("\n<|im_start|>user\nmore")  # the end of the turn was drawn already


def test_weights_that_change_under_a_call(folder: Path) -> None:
    for spans, began, expected in (
        ((("default", 99),), "5", None),
        ((("17", 99),), "17", None),
        ((("default", 2), ("18", 4), ("19", 99)), "5", [("5", 2), ("18", 4), ("19", 7)]),
        ((("18", 3), ("18", 5), ("19", 99)), "18", [("18", 5), ("19", 7)]),
        ((("18", 0), ("19", 99)), "19", None),
    ):
        with mock_server(MockVllm(tiny_tokenizer(), "so it." + END, spans=spans)) as server:
            engine = make_engine(f"vllm:base@{server.url}?tokenizer={folder}")
            assert isinstance(engine, VllmEngine)
            engine.version = "5"
            answer = _ask(engine)
            assert isinstance(answer, Answer)
            told = None if answer.versions is None else [(each.version, each.end) for each in answer.versions]
            assert (answer.policy_version, told) == (began, expected)
            pinned = _ask(engine.with_model("base", "adapter-3"))
            assert isinstance(pinned, Answer)
            assert (pinned.policy_version, pinned.versions) == ("adapter-3", None)


def test_a_try_after_a_silence_is_the_same_draw(folder: Path) -> None:
    mock = MockVllm(tiny_tokenizer(), "ok" + END)
    failing = [503, 500, 0]

    def answer(asked: Asked) -> Told:
        if asked.path == "/inference/v1/generate" and asked.body["sampling_params"]["max_tokens"] > 1:
            status = failing.pop(0)
            if status:
                return Told(status, {"error": {"message": "busy", "code": status}})
        return mock(asked)

    with mock_server(answer) as server:
        limits = ServerLimits(retries=2, first_wait_seconds=0.001)
        engine = VllmEngine(VllmClient(server.url, limits=limits), "base", tiny_tokenizer())
        assert isinstance(_ask(engine), Answer)
        drawn = [each.body for each in server.asked if each.path == "/inference/v1/generate"][-3:]
        assert drawn[0] == drawn[1] == drawn[2]


def test_silence_is_one_line(folder: Path) -> None:
    mock = MockVllm(tiny_tokenizer(), "ok" + END)

    def answer(asked: Asked) -> Told:
        if asked.path == "/inference/v1/generate" and asked.body["sampling_params"]["max_tokens"] > 1:
            time.sleep(1.5)
        return mock(asked)

    with mock_server(answer) as server:
        limits = ServerLimits(timeout_seconds=0.5, retries=0)
        engine = VllmEngine(VllmClient(server.url, limits=limits), "base", tiny_tokenizer())
        told = _ask(engine)
        assert isinstance(told, EngineError)
        assert "did not answer within 0.5 s" in str(told)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (MockVllm(tiny_tokenizer(), "x", vllm="0.10.2"), r"is vLLM 0.10.2, .* expected 0.11 or newer"),
        (
            lambda _: Told(401, {"error": {"message": "Unauthorized"}}),
            "wants a key. Type: export VLLM_API_KEY=KEY",
        ),
        (lambda _: Told(404, {"detail": "Not Found"}), "is no vLLM server"),
        (lambda _: Told(200, {"data": 3}), "the answer is not vLLM's"),
        (
            lambda _: Told(200, {"object": "list", "data": [{"id": "bases"}]}),
            "has no model 'base'. Did you mean 'bases'",
        ),
        (MockVllm(tiny_tokenizer(chat=False), "x", context=8), "has no room"),
    ],
)
def test_what_a_server_turns_out_to_be(folder: Path, answer: Callable[[Asked], Told], why: str) -> None:
    with mock_server(answer) as server:
        told = _ask(make_engine(f"vllm:base@{server.url}?tokenizer={folder}"))
        assert isinstance(told, EngineError)
        assert "\n" not in str(told)
        assert re.search(why, str(told)), told


def test_raw_log_probabilities_are_found_out(folder: Path) -> None:
    for processed in (True, False):
        with mock_server(MockVllm(tiny_tokenizer(), "ok" + END, processed=processed)) as server:
            engine = make_engine(f"vllm:base@{server.url}?tokenizer={folder}")
            assert isinstance(engine, VllmEngine)
            for sampling, kept in (({}, True), ({"temperature": 0.5}, processed), ({"top_k": 3}, processed)):
                answer = _ask(engine, **sampling)
                assert isinstance(answer, Answer)
                assert (answer.logprobs is not None) is kept
            if processed:
                _run(engine, engine.check_trainable)
            else:
                with pytest.raises(UsageError, match=r"Start it with: .*--logprobs-mode processed_logprobs"):
                    _run(engine, engine.check_trainable)


def test_specifications(folder: Path) -> None:
    for spec, why in (
        ("vllm:", "lacks a part"),
        ("vllm:base", "lacks a part"),
        ("vllm:base@nowhere", "is not a server's address"),
        (f"vllm:base@http://x?tokenizer={folder}/none", "there is no folder"),
        ("vllm:base@http://x?python=p", "python is for a server that Baton starts"),
        ("vllm:base@http://x?tokens=3", "there is no option 'tokens'. Expected one of: args"),
        ("vllm:local", "Type: vllm:local\\?model=DIR"),
        (f"vllm:local?model={folder}", "it has no config.json"),
        (f"vllm:local?model={folder}&tokenizer={folder}", "tokenizer is for a server that is there already"),
        (f"vllm:local?model={folder}&port=0", "expected a whole number from 1 to 65535"),
        (f"vllm:local?model={folder}&dtype=int7", "dtype 'int7' is not known"),
        (f"vllm:base@http://x?tokenizer={folder}&template=odd", "template 'odd' is not known"),
    ):
        with pytest.raises(UsageError, match=why):
            make_engine(spec)


def _body(**choice: Any) -> dict[str, Any]:
    one = {"token_ids": [1, 2], "finish_reason": "stop", **choice}
    return {"choices": [one], "usage": {"prompt_tokens": 3}}


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"weight_versions": [{"version": "1", "start": 1, "end": 2}]}, "do not follow each other"),
        ({"weight_versions": [{"version": "1", "start": 0, "end": 1}]}, "end at token 1 of 2"),
        ({"logprobs": {"content": [{"token_id": 1, "logprob": -1.0}]}}, "1 log-probabilities of 2 tokens"),
        (
            {"logprobs": {"content": [{"token_id": 1, "logprob": 0.5}, {"token_id": 2, "logprob": 0}]}},
            "of 0.5",
        ),
        ({"logprobs": {"content": [{"token_id": 1}, {"token_id": 2, "logprob": 0}]}}, "of None"),
        ({"token_ids": ["1"]}, "not vLLM's"),
        ({"token_ids": [2**40]}, "no whole numbers"),
    ],
)
def test_what_cannot_be_an_answer(choice: dict[str, Any], why: str) -> None:
    with pytest.raises(EngineError, match=why):
        read_tokens(_body(**choice), alternatives=0)


def test_bodies_are_read() -> None:
    spans = [{"version": "1", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 2}]
    read = read_tokens(_body(weight_versions=spans), alternatives=0)
    assert read.versions == (VersionSpan(version="1", end=1), VersionSpan(version="2", end=2))
    assert read.logprobs is None
    with pytest.raises(EngineError, match="names a token 'odd'"):
        read_completion(
            _body(logprobs={"token_logprobs": [-1, -1], "top_logprobs": [{"odd": -1.0}]}), alternatives=1
        )
    told = {**_body(), "prompt_logprobs": [None, {"7": {"logprob": -1.5}, "9": {"logprob": -0.5}}]}
    assert list(read_scores(told, [5, 7])) == [-1.5]
    for wrong, why in (([5], "2 log-probabilities of a prompt of 1"), ([5, 8], "of None")):
        with pytest.raises(EngineError, match=why):
            read_scores(told, wrong)

"""vLLM's protocol against a mock of it: the shapes are its own, the model is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_templates import QWEN
from mock_servers import MockServer, MockVllm, Told, mock_server
from served_talks import SEARCH, Talk, asked, result, said, system, user
from tiny_model import tiny_tokenizer

from baton.errors import UsageError
from baton.serve.backend import Unanswerable
from baton.serve.backends import make_backend
from baton.serve.exchange import Alternative
from baton.trace.records import Sampling

END = "<|im_end|>"
CALL = '<tool_call>\n{"name": "search", "arguments": {"q": "Rome"}}\n</tool_call>' + END


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = QWEN
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_ids_in_and_out_and_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "token-abc123")
    tokenizer = tiny_tokenizer()
    with mock_server(MockVllm(tokenizer, CALL, "It is big." + END)) as server:
        talk = Talk(make_backend(f"vllm:base@{server.url}/v1?tokenizer={folder}"))
        first = talk.ask(asked(system("s"), user("Rome?"), tools=(SEARCH,), logprobs=2))
        choice = first.choices[0]
        assert choice.message.uses[0].arguments == '{"q": "Rome"}'
        assert choice.said == CALL.removesuffix(END)
        assert choice.completion_ids is not None
        assert choice.token_ends is not None
        assert choice.logprobs is not None
        assert (
            len(choice.completion_ids)
            == len(choice.token_ends)
            == len(choice.logprobs)
            == len(choice.alternatives)
        )
        assert choice.token_ends[-1] == len(choice.said)
        assert choice.alternatives[0] == (
            Alternative(token="<", logprob=-0.25),
            Alternative(token=tokenizer.decode([97]), logprob=-1.0),
        )
        history = (system("s"), user("Rome?"), choice.message, result(choice.message.uses[0].id, "3 M"))
        second = talk.ask(asked(*history, tools=(SEARCH,)))
        assert first.prompt_ids is not None
        assert second.prompt_ids is not None
        assert second.keep == len(first.prompt_ids) + len(choice.completion_ids)
        assert second.prompt_ids[: second.keep] == first.prompt_ids + choice.completion_ids
        assert second.choices[0].message == said("It is big.")
        sent = _drawn(server)
        assert sent[1]["token_ids"] == list(second.prompt_ids)
        # One more than asked for: that path counts the drawn one among them.
        assert [each["sampling_params"]["logprobs"] for each in sent] == [3, 0]
        assert sent[0]["sampling_params"]["seed"] != sent[1]["sampling_params"]["seed"]
        assert all(each.headers["authorization"] == "Bearer token-abc123" for each in server.asked)
        assert [each.path for each in server.asked].count("/v1/models") == 1


def _drawn(server: MockServer) -> list[dict[str, Any]]:
    """What was asked for answers, without the looks at a server before the first."""
    asks = [each.body for each in server.asked if each.path == "/inference/v1/generate"]
    return [each for each in asks if each["sampling_params"]["max_tokens"] > 1]


def test_an_older_server_is_asked_on_its_older_path(folder: Path) -> None:
    """Without `/inference/v1/generate` the same answer comes from `/v1/completions`."""
    replies = []
    for tokens in (True, False):
        with mock_server(MockVllm(tiny_tokenizer(), CALL, tokens=tokens)) as server:
            talk = Talk(make_backend(f"vllm:base@{server.url}/v1?tokenizer={folder}"))
            replies.append(talk.ask(asked(user("Rome?"), tools=(SEARCH,), logprobs=3)))
            paths = [each.path for each in server.asked]
            assert ("/v1/completions" in paths) is not tokens
            assert paths.count("/inference/v1/generate") == (
                paths.count("/inference/v1/generate") if tokens else 1
            )
    assert replies[0].choices == replies[1].choices


def test_logprobs_are_kept_only_of_what_was_drawn_from(folder: Path) -> None:
    """The server is looked at: nobody has to say how it tells log-probabilities."""
    for processed, sampling, kept in (
        (False, Sampling(), True),
        (False, Sampling(temperature=0.7), False),
        (True, Sampling(temperature=0.7, top_p=0.9), True),
    ):
        with mock_server(MockVllm(tiny_tokenizer(), "ok" + END, processed=processed)) as server:
            talk = Talk(make_backend(f"vllm:base@{server.url}/v1?tokenizer={folder}"))
            reply = talk.ask(asked(user("q"), sampling=sampling))
            assert (reply.choices[0].logprobs is not None) is kept


def test_stops_schemas_and_the_contexts_end(folder: Path) -> None:
    with mock_server(MockVllm(tiny_tokenizer(), '{"n": 1} STOP' + END, context=100)) as server:
        talk = Talk(make_backend(f"vllm:base@{server.url}/v1?tokenizer={folder}&max_tokens=50"))
        schema = {"type": "object", "required": ["n"]}
        reply = talk.ask(asked(user("q"), sampling=Sampling(stop=("STOP",)), json_schema=schema))
        assert (reply.choices[0].stop, reply.choices[0].message.text) == ("STOP", '{"n": 1} ')
        params = server.asked[-1].body["sampling_params"]
        assert params["structured_outputs"] == {"json": schema}
        assert (params["max_tokens"], params["stop"]) == (50, ["STOP"])
        talk.ask(asked(user("q" * 40)))
        body = server.asked[-1].body
        assert body["sampling_params"]["max_tokens"] == 100 - len(body["token_ids"]) < 50
        with pytest.raises(Unanswerable, match="context is 100"):
            talk.ask(asked(user("q" * 200)))


def test_by_its_chat_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a tokenizer: what it read and drew is known by its ids, and a broken beginning is told."""
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with mock_server(MockVllm(tiny_tokenizer(), " ok" + END)) as server:
        talk = Talk(make_backend(f"vllm:base@{server.url}/v1"))
        first = talk.ask(asked(user("q")))
        assert first.prompt_ids is not None
        assert first.choices[0].completion_ids is not None
        assert server.asked[0].body["return_token_ids"] is True
        assert server.asked[0].body["seed"] >= 0
        second = talk.ask(asked(user("q"), said(" ok"), user("more")))
        assert second.keep == len(first.prompt_ids) + len(first.choices[0].completion_ids)
        third = talk.ask(asked(user("q"), said("ok"), user("else")))
        assert third.keep < second.keep
        assert third.rules["prefix"].startswith("broken: the server")
        assert third.rules["echo"] == "white space"


def test_what_is_no_vllm(folder: Path) -> None:
    spec = f"?tokenizer={folder}"
    for told, why in (
        (
            Told(body={"object": "list", "data": [{"id": "bases"}]}),
            "has no model 'base'. Did you mean 'bases'",
        ),
        (Told(body={"data": 3}), "not vLLM's"),
        (Told(400, {"object": "error", "message": "bad"}), "answered 400"),
    ):
        with mock_server(lambda asked, told=told: told) as server, pytest.raises(Unanswerable, match=why):
            Talk(make_backend(f"vllm:base@{server.url}/v1{spec}")).ask(asked(user("q")))
    for wrong, why in (
        ("vllm:base", "lacks a part"),
        ("vllm:base@http://x/v1?tokenizer=/nowhere", "there is no folder"),
        ("vllm:base@http://x/v1?tools=hermes", "tokenizer=DIR"),
        ("vllm:base@http://x/v1?logprobs=raw", "there is no option 'logprobs'"),
        (f"vllm:base@http://x/v1{spec}&thinking=drop", "thinking 'drop' is not known"),
        (f"vllm:base@http://x/v1{spec}&max_tokens=0", "expected a whole number"),
    ):
        with pytest.raises(UsageError, match=why):
            make_backend(wrong)

"""Asks passed on to other servers: our own as the other one, in all dialects; and servers that misbehave."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mock_servers import Asked, Told, mock_server
from served_talks import SEARCH, Talk, asked, result, said, system, user

from baton.engine.openai import ServerLimits
from baton.errors import UsageError
from baton.serve.backend import Unanswerable, caller_headers
from baton.serve.backends import make_backend
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.backends.upstream import UpstreamBackend
from baton.serve.exchange import Ask, Dialect, Utterance
from baton.serve.server import Serving

QUICK = ServerLimits(timeout_seconds=5.0, retries=2, first_wait_seconds=0.001)
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")


def story(ask: Ask) -> Any:
    last = ask.messages[-1]
    if last.speaker == "tool":
        return f"It is {last.text}."
    return ["One moment.", ("search", {"q": last.text}), ("search", {"q": "é"})]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Another server of ours."""
    out = tmp_path_factory.mktemp("other")
    with Serving(out, ScriptedBackend(story, name="m"), traces=False) as serving:
        yield serving


@pytest.mark.parametrize("spoken", [None, *DIALECTS])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("stream", [False, True])
def test_through_another_of_our_own(
    other: Serving, dialect: Dialect, spoken: Dialect | None, stream: bool
) -> None:
    """Asked in a dialect and passed on in that or another, the answer is the one the other server gave."""
    name = f"{dialect}-{spoken}-{stream}"
    backend = UpstreamBackend(f"{other.address}/s/{name}", dialect=spoken, limits=QUICK)
    talk = Talk(backend)
    first = Ask(
        dialect=dialect, model="m", messages=(system("s"), user("Rome")), tools=(SEARCH,), stream=stream
    )
    reply = talk.ask(first)
    message = reply.choices[0].message
    assert message.text == "One moment."
    assert [json.loads(use.arguments)["q"] for use in message.uses] == ["Rome", "é"]
    assert (reply.raw is not None) is (spoken in (None, dialect))
    assert reply.prompt_tokens is not None
    results = [result(use.id, "big") for use in message.uses]
    second = talk.ask(
        Ask(
            dialect=dialect,
            model="m",
            messages=(*first.messages, message, *results),
            tools=(SEARCH,),
            stream=stream,
        )
    )
    assert second.choices[0].message.text == "It is big."
    assert [each.grows_from for each in talk.exchanges] == [None, "0"]
    assert [each.grows_from is not None for each in other.session(name).exchanges] == [False, True]


SECRET = "sk-very-secret-0123456789"
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "model": "far",
    "odd": {"kept": True},
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


def once(server_url: str, **more: Any) -> Any:
    backend = UpstreamBackend(server_url, limits=QUICK, **more)
    return Talk(backend).ask(asked(user("q")))


def test_what_goes_out_and_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    packed = Told(body=gzip.compress(json.dumps(CHAT).encode()), headers={"content-encoding": "gzip"})
    with mock_server(lambda asked: packed) as server:
        reply = once(f"{server.url}/api/v1", model="far", extra={"top_a": 1})
        assert reply.raw == CHAT
        assert (reply.prompt_tokens, reply.completion_tokens) == (3, 1)
        (came,) = server.asked
        assert came.path == "/api/v1/chat/completions"
        assert came.headers["authorization"] == f"Bearer {SECRET}"
        assert came.body["model"] == "far"
        assert came.body["top_a"] == 1
        assert SECRET not in repr(reply)
        once(server.url)
        assert server.asked[1].path == "/v1/chat/completions"


def test_whose_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINE", SECRET)
    with mock_server(lambda asked: Told(body=CHAT)) as server:

        def sent(headers: dict[str, str], **more: Any) -> dict[str, str]:
            token = caller_headers.set(headers)
            try:
                once(server.url, **more)
            finally:
                caller_headers.reset(token)
            return {k: v for k, v in server.asked[-1].headers.items() if k in ("authorization", "x-api-key")}

        assert sent({"authorization": "Bearer sk-own"}) == {"authorization": "Bearer sk-own"}
        assert sent({"x-api-key": "sk-own"}, key="program") == {"x-api-key": "sk-own"}
        assert sent({"authorization": "Bearer sk-own"}, key="MINE") == {"authorization": f"Bearer {SECRET}"}
        assert sent({"authorization": "Bearer baton-main"}) == {}, "that names a session"
        assert sent({}) == {}
        monkeypatch.setenv("OPENAI_API_KEY", "sk-usual-one")
        assert sent({"authorization": "Bearer sk-own"}) == {"authorization": "Bearer sk-usual-one"}


def test_a_programs_key_is_passed_on_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with (
        mock_server(lambda asked: Told(body=CHAT)) as server,
        Serving(tmp_path, UpstreamBackend(server.url, limits=QUICK), traces=True) as serving,
    ):
        told = httpx.post(
            f"{serving.address}/s/one/v1/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "q"}]},
            headers={"authorization": f"Bearer {SECRET}"},
        )
        assert told.json() == CHAT
        assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
        serving.end_session("one")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("sessions" in str(path) for path in written)
    assert not any(SECRET.encode() in path.read_bytes() for path in written)


def test_faults_that_pass_are_tried_again() -> None:
    answers = iter(
        [
            Told(429, {"error": {"message": "slow down"}}, {"retry-after": "0"}),
            Told(200, b"<html>"),
            Told(200, CHAT),
        ]
    )
    with mock_server(lambda asked: next(answers)) as server:
        assert once(server.url).choices[0].message == said("hi")
        assert len(server.asked) == 3


REFUSALS = [
    (Told(429, {"error": {"message": "slow down"}}, {"retry-after": "9999"}), 429, True, "slow down", 1),
    (Told(529, {"type": "error", "error": {"type": "x", "message": "busy"}}), 529, True, "busy", 3),
    (
        Told(401, {"error": {"message": f"bad key {SECRET}\n\x1b[2J!"}}),
        401,
        False,
        r"bad key \*\*\* \[2J!",
        1,
    ),
    (Told(404, b"no such page"), 404, False, "no such page", 1),
    (Told(302, b"", {"location": "http://elsewhere"}), 502, False, "answered 302", 1),
    (Told(200, [1]), 502, False, "no object", 1),
    (Told(200, {"choices": []}), 502, False, "no choice", 1),
    (Told(200, {"choices": 3}), 502, False, "cannot be read", 1),
    (Told(200, b"x" * 300_000), 502, False, "more than 200,000 bytes", 1),
    (Told(200, b"\x00", {"content-encoding": "gzip"}), 502, True, "cannot be read", 3),
    (Told(200, b"data: {}\n\n", {"content-type": "text/event-stream"}), 502, True, "before it said", 3),
    (Told(200, {**CHAT, "prompt_token_ids": ["x"]}), 502, False, "token ids", 1),
]


@pytest.mark.parametrize(("told", "status", "passing", "why", "tries"), REFUSALS)
def test_refusals_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, told: Told, status: int, passing: bool, why: str, tries: int
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    limits = ServerLimits(retries=2, first_wait_seconds=0.001, max_reply_bytes=200_000)
    with mock_server(lambda asked: told) as server:
        with pytest.raises(Unanswerable, match=why) as caught:
            Talk(UpstreamBackend(server.url, limits=limits)).ask(asked(user("q")))
        assert (caught.value.status, caught.value.passing, len(server.asked)) == (status, passing, tries)
        assert SECRET not in str(caught.value)


def test_nobody_there_and_nobody_answering() -> None:
    with pytest.raises(Unanswerable, match="Is the server running") as caught:
        once("http://127.0.0.1:9")
    assert caught.value.passing

    def slow(asked: Asked) -> Told:
        import time

        time.sleep(0.3)
        return Told(body=CHAT)

    with mock_server(slow) as server:
        limits = ServerLimits(timeout_seconds=0.05, retries=0)
        with pytest.raises(Unanswerable, match="did not answer within"):
            Talk(UpstreamBackend(server.url, limits=limits)).ask(asked(user("q")))


def test_specifications() -> None:
    assert make_backend("upstream:https://api.example.com/v1?model=x&dialect=messages").name == "x"
    assert make_backend("upstream:https://api.example.com/v1").name == "api.example.com"
    for spec, why in (
        ("upstream:", "needs a server's address"),
        ("upstream:ftp://x", "not a server's address"),
        ("upstream:http://me:pw@x", "environment variable"),
        ("upstream:http://x?dialect=chatt", "Did you mean 'chat'"),
        ("upstream:http://x?modl=y", "Did you mean 'model'"),
    ):
        with pytest.raises(UsageError, match=why):
            make_backend(spec)


def test_pictures_go_through() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with mock_server(lambda asked: Told(body=CHAT)) as server:
        Talk(UpstreamBackend(server.url, limits=QUICK)).ask(
            asked(Utterance(speaker="user", text="what?", others=(picture,)))
        )
        assert picture in server.asked[0].body["messages"][0]["content"]

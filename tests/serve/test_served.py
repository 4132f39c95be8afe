"""The endpoint over HTTP: sessions apart, nothing lost, and clear words for whoever asks wrongly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton.errors import UsageError
from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.exchange import Ask, Reply, ReplyChoice, Utterance
from baton.serve.journal import journal_path, read_session
from baton.serve.limits import ClientLimits, SessionLimits
from baton.serve.server import Serving
from baton.trace.formats.files import read


class Saying:
    """Says who asked what, so that a word in the wrong session shows."""

    name = "saying"

    def __init__(self, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        self.draws = 0

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        import asyncio

        await asyncio.sleep(self.wait_s)
        self.draws += 1
        text = f"{ask.messages[-1].text} [{key.split('/')[1]}]"
        message = Utterance(speaker="assistant", text=text)
        return Reply(
            choices=(ReplyChoice(message=message),), policy="saying", prompt_tokens=3, completion_tokens=2
        )

    async def close(self) -> None:
        pass


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path, Saying()) as running:
        yield running


def said(serving: Serving, text: str, session: str = "one", **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return httpx.post(
        f"{serving.address}/s/{session}/v1/chat/completions", json=body, headers=headers, timeout=20
    )


def test_an_answer_in_each_dialect(serving: Serving) -> None:
    at = f"{serving.address}/s/one/v1"
    chat = said(serving, "hej").json()
    assert chat["choices"][0]["message"]["content"] == "hej [one]"
    responses = httpx.post(f"{at}/responses", json={"model": "m", "input": "ho"}).json()
    assert responses["output"][0]["content"][0]["text"] == "ho [one]"
    messages = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(f"{at}/messages", json=messages).json()["content"][0]["text"] == "hi [one]"
    assert [one.ask.dialect for one in serving.session("one").exchanges] == ["chat", "responses", "messages"]
    counted = httpx.post(f"{at}/messages/count_tokens", json=messages).json()
    assert counted["input_tokens"] > 0
    assert httpx.get(f"{at}/models").json()["data"][0]["id"] == "saying"


@pytest.mark.parametrize("dialect", ["chat/completions", "responses", "messages"])
def test_a_stream_has_the_same_words(serving: Serving, dialect: str) -> None:
    body: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 5}
    body |= {"input": "hoj"} if dialect == "responses" else {"messages": [{"role": "user", "content": "hoj"}]}
    if dialect == "responses":
        del body["max_tokens"]
    with httpx.stream("POST", f"{serving.address}/s/one/v1/{dialect}", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    assert "hoj" in text
    assert "[one]" in text


@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_that_waits_says_so(tmp_path: Path, fails: bool) -> None:
    class Slow(Saying):
        async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
            found = await super().reply(ask, key=key, growth=growth)
            if fails:
                raise Unanswerable("the well is dry")
            return found

    with Serving(tmp_path, Slow(0.3), client_limits=ClientLimits(quiet_seconds=0.05)) as serving:
        body = {
            "model": "m",
            "stream": True,
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "hoj"}],
        }
        with httpx.stream("POST", f"{serving.address}/s/one/v1/messages", json=body) as answer:
            text = "".join(answer.iter_text())
    assert text.startswith(": waiting")
    assert ("event: error" in text and "the well is dry" in text) if fails else "[one]" in text


def test_a_session_by_key(serving: Serving) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    url = f"{serving.address}/v1/chat/completions"
    httpx.post(url, json=body, headers={"authorization": "Bearer baton-mine"})
    httpx.post(url, json=body, headers={"authorization": "Bearer sk-something-else"})
    assert sorted(serving.sessions) == ["main", "mine"]
    assert "sk-something" not in (serving.out / "sessions" / "main.jsonl").read_text()


def test_sixty_four_sessions_at_once_hear_their_own_words(tmp_path: Path) -> None:
    # A connection each, kept: where one is spare, a client's pool may close it while another thread takes it up.
    kept = httpx.Limits(max_connections=64, max_keepalive_connections=64, keepalive_expiry=None)
    with Serving(tmp_path, Saying(0.002)) as serving, httpx.Client(timeout=60, limits=kept) as client:

        def going(number: int) -> None:
            for turn in range(4):
                url = f"{serving.address}/s/s{number}/v1/chat/completions"
                text = f"{number}-{turn}"
                body = {"model": "m", "messages": [{"role": "user", "content": text}]}
                answer = client.post(url, json=body).json()["choices"][0]["message"]["content"]
                assert answer == f"{text} [s{number}]"

        with ThreadPoolExecutor(64) as pool:
            list(pool.map(going, range(64)))
        for number in range(64):
            session = read_session(journal_path(tmp_path, f"s{number}"))
            asked = [one.ask.messages[-1].text for one in session.exchanges]
            assert asked == [f"{number}-{turn}" for turn in range(4)]


def test_a_retry_over_http(serving: Serving) -> None:
    first = said(serving, "roll").json()
    again = said(serving, "roll", headers={"x-stainless-retry-count": "1"}).json()
    new = said(serving, "roll").json()
    assert first == again
    assert first["id"] != new["id"]
    assert serving.backend.draws == 2  # type: ignore[attr-defined]


def test_a_response_goes_on_with_an_earlier_one(serving: Serving) -> None:
    at = f"{serving.address}/s/one/v1/responses"
    first = httpx.post(at, json={"model": "m", "input": "one"}).json()
    body = {"model": "m", "input": "two", "previous_response_id": first["id"]}
    assert httpx.post(at, json=body).status_code == 200
    first_exchange, second = serving.session("one").exchanges
    assert [one.text for one in second.ask.messages] == ["one", "one [one]", "two"]
    assert second.grows_from == first_exchange.id
    assert httpx.post(at, json={**body, "previous_response_id": "resp_none"}).status_code == 400


def test_rewards_and_the_end_are_posted(serving: Serving) -> None:
    at = f"{serving.address}/s/one"
    id = said(serving, "a").headers["x-baton-exchange"]
    assert httpx.post(f"{at}/reward", json={"value": 0.5, "name": "style", "target": id}).status_code == 200
    state = httpx.post(f"{at}/end", json={"status": "failed"}).json()
    assert (state["calls"], state["rewards"], state["ended"]) == (1, [0.5], "failed")
    refused = said(serving, "b")
    assert refused.status_code == 410
    assert refused.headers["x-should-retry"] == "false"
    assert "has ended" in refused.text
    for bad in ({"value": "much"}, {"value": float("nan")}, [], {"valu": 1}):
        answer = httpx.post(f"{at}/reward", content=json.dumps(bad))
        assert answer.status_code == 400
    assert httpx.post(f"{at}/reward", json={"value": 1, "target": "no"}).status_code == 404


def test_a_limit_is_told_in_the_dialect_and_is_not_retried(tmp_path: Path) -> None:
    with Serving(tmp_path, Saying(), limits=SessionLimits(calls=1)) as serving:
        assert said(serving, "a").status_code == 200
        refused = said(serving, "b")
        assert refused.status_code == 410
        assert "1 calls" in refused.json()["error"]["message"]
        assert said(serving, "a", session="two").status_code == 200  # another session is not held to account


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/s/one/v1/chat/completions", {"host": "evil.example"}, 403),
        ("/s/one/v1/chat/completions", {"origin": "https://evil.example"}, 403),
        ("/s/one/v1/chat/completions", {"sec-fetch-site": "cross-site"}, 403),
        ("/s/../v1/chat/completions", {}, 400),
        ("/s/%2e%2e/v1/chat/completions", {}, 400),
        ("/s/a%2fb/v1/chat/completions", {}, 404),
        ("/s/one/v1/nothing", {}, 404),
        ("/s/" + "x" * 200 + "/v1/chat/completions", {}, 400),
    ],
)
def test_who_may_not_ask(serving: Serving, path: str, headers: dict[str, str], status: int) -> None:
    sent = "".join(f"{name}: {value}\r\n" for name, value in {"host": "127.0.0.1", **headers}.items())
    body = b'{"model":"m","messages":[{"role":"user","content":"a"}]}'
    head = f"POST {path} HTTP/1.1\r\n{sent}content-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as raw:
        raw.sendall(head.encode() + body)
        got = raw.recv(65_536).decode()
    assert got.split()[1] == str(status), got
    assert "Traceback" not in got
    assert sorted(path.name for path in serving.out.rglob("*.jsonl")) == []


def test_bodies_have_a_limit(tmp_path: Path) -> None:
    limits = ClientLimits(body_bytes=10_000, seconds=0.5)
    with Serving(tmp_path, Saying(), client_limits=limits) as serving:
        assert said(serving, "x" * 20_000).status_code == 413
        import gzip

        packed = gzip.compress(
            b'{"model":"m","messages":[{"role":"user","content":"' + b"y" * 5_000_000 + b'"}]}'
        )
        answer = httpx.post(
            f"{serving.address}/v1/chat/completions", content=packed, headers={"content-encoding": "gzip"}
        )
        assert answer.status_code == 413
        good = gzip.compress(b'{"model":"m","messages":[{"role":"user","content":"packed"}]}')
        answer = httpx.post(
            f"{serving.address}/v1/chat/completions", content=good, headers={"content-encoding": "gzip"}
        )
        assert "packed" in answer.text
        with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as raw:
            raw.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")
            got = b"".join(iter(lambda: raw.recv(65_536), b""))
            assert b"did not come within 0.5 seconds" in got
        with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as raw:
            assert raw.recv(100) == b""  # it said nothing, and is let go
        assert said(serving, "still here").status_code == 200


def test_traces_follow(serving: Serving) -> None:
    said(serving, "what is it?")
    serving.end_session("one")
    trace = read(serving.out / "one.jsonl")
    assert len(trace.calls) == 1


def test_one_server_a_folder(serving: Serving) -> None:
    with pytest.raises(UsageError, match="another server"):
        Serving(serving.out, Saying())


def test_a_port_that_is_taken(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UsageError, match="--port 0"):
        Serving(tmp_path_factory.mktemp("other"), Saying(), port=serving.port)
    with pytest.raises(UsageError, match="--port 0"):
        Serving(serving.out.parent / "new", Saying(), port=serving.port)
    assert not (serving.out.parent / "new").exists()
    with pytest.raises(UsageError, match="this machine only"):
        Serving(tmp_path_factory.mktemp("another"), Saying(), host="0.0.0.0")


_SERVER = """
    import sys, time, asyncio
    from pathlib import Path
    sys.path.insert(0, {here!r})
    from test_served import Saying
    from baton.serve.server import Serving
    serving = Serving(Path({out!r}), Saying(0.005))
    print(serving.port, flush=True)
    time.sleep(60)
"""


def test_a_killed_server_loses_no_answer_that_was_heard(tmp_path: Path) -> None:
    code = textwrap.dedent(_SERVER.format(here=str(Path(__file__).parent), out=str(tmp_path)))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    heard: list[tuple[str, str]] = []

    def going(number: int) -> None:
        for turn in range(500):
            body = {"model": "m", "messages": [{"role": "user", "content": f"{number}-{turn}"}]}
            url = f"http://127.0.0.1:{port}/s/s{number}/v1/chat/completions"
            try:
                answer = httpx.post(url, json=body, timeout=5)
                heard.append((f"s{number}", answer.json()["choices"][0]["message"]["content"]))
                if len(heard) >= 25:
                    os.kill(process.pid, signal.SIGKILL)
            except (httpx.HTTPError, ValueError):
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(going, range(4)))
    process.wait()
    process.stdout.close()
    assert len(heard) >= 25
    for name in {name for name, _ in heard}:
        kept = read_session(journal_path(tmp_path, name))
        answers = {one.reply.choices[0].message.text for one in kept.exchanges if one.reply is not None}
        assert {text for session, text in heard if session == name} <= answers
    with Serving(tmp_path, Saying()) as again:  # and another goes on where it was
        assert said(again, "more", session=heard[-1][0]).status_code == 200

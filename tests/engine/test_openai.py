"""The HTTP engine against a real server on this machine that misbehaves on cue."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from baton.engine.openai import OpenAIEngine, ServerLimits
from baton.engine.posting import Poster, read_json
from baton.engine.throttle import Bucket, backoff_seconds, retry_after_seconds
from baton.errors import UsageError
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Sampling

KEY = "sk-very-secret"


def completion(content: str | None = "four", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    return {
        "model": "served",
        "system_fingerprint": "fp1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", **more.pop("choice", {})}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        **more,
    }


class Server(ThreadingHTTPServer):
    """Plays the cues in order; the last one again and again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cues: list[Any] = [completion()]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.arrivals: list[float] = []
        self.running = self.most_running = 0
        self.released = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is part of the play."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.headers.append(dict(self.headers))
            self.server.arrivals.append(time.monotonic())
            self.server.running += 1
            self.server.most_running = max(self.server.most_running, self.server.running)
            cue = self.server.cues.pop(0) if len(self.server.cues) > 1 else self.server.cues[0]
        try:
            self.play(cue)
        finally:
            with self.server.lock:
                self.server.running -= 1

    def play(self, cue: Any) -> None:
        if cue == "hang":
            self.server.released.wait(10)
            return
        if cue == "trickle":
            self.send_response(200)
            self.end_headers()
            while not self.server.released.wait(0.02):
                self.wfile.write(b" ")
                self.wfile.flush()
            return
        if cue == "slow":
            time.sleep(0.05)
            cue = completion()
        status, headers, raw = 200, {}, cue
        if isinstance(cue, tuple):
            status, headers, raw = cue
        if not isinstance(raw, bytes):
            raw = json.dumps(raw).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.released.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def request(**more: Any) -> Request:
    entries = [
        Entry("system", "Be brief."),
        Entry("user", "2+2?"),
        Entry("assistant", "5"),
        Entry("tool", "no"),
    ]
    sampling = more.pop("sampling", Sampling(key="k", max_tokens=8))
    return Request(call="c", agent="a", role="r", entries=entries, prompt_ids=None, sampling=sampling, **more)


def ask(
    server: Server | str, *requests: Request, limits: dict[str, Any] | None = None, **settings: Any
) -> list[Any]:
    url = server if isinstance(server, str) else server.url
    quick = {"timeout_seconds": 5.0, "first_wait_seconds": 0.001, "retries": 3} | (limits or {})

    async def play() -> list[Any]:
        engine = OpenAIEngine("m", url, limits=ServerLimits(**quick), **settings)
        try:
            return await engine.answer(requests or (request(),))
        finally:
            await engine.close()

    return asyncio.run(play())


def failure(*args: Any, **kwargs: Any) -> str:
    [result] = ask(*args, **kwargs)
    assert isinstance(result, EngineError), result
    assert KEY not in str(result)
    return str(result)


def test_a_plain_answer(server: Server) -> None:
    assert isinstance(OpenAIEngine("m", server.url), Engine)
    [answer] = ask(server)
    assert answer == Answer(
        text="four",
        policy="m",
        policy_version="fp1",
        prompt_tokens=9,
        completion_tokens=2,
        finish_reason="stop",
    )
    [body] = server.bodies
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    assert body["messages"][3]["content"] == "<tool_response>\nno\n</tool_response>"
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 8, 1.0)
    assert 0 <= body["seed"] < 2**31
    assert "tools" not in body
    assert "top_k" not in body
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_the_same_key_is_the_same_seed(server: Server) -> None:
    ask(server, request(), request(), request(sampling=Sampling(key="other")))
    seeds = sorted(body["seed"] for body in server.bodies)
    assert len(set(seeds)) == 2


def test_no_key_no_header(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    ask(server)
    assert "Authorization" not in server.headers[0]


def test_settings_reach_the_server(server: Server) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=7, stop=("\n",))
    ask(server, request(tools=(tool,), sampling=sampling), token_ids=True, extra={"min_p": 0.1})
    [body] = server.bodies
    assert body["tools"] == [tool]
    assert (body["temperature"], body["top_p"], body["top_k"], body["stop"]) == (0.5, 0.9, 7, ["\n"])
    assert (body["return_token_ids"], body["min_p"]) == (True, 0.1)
    assert "seed" not in body
    assert "max_tokens" not in body


def test_tool_calls_become_text(server: Server) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": "é"}'}},
        {"id": "2", "type": "function", "function": {"name": "stop", "arguments": "{broken"}},
    ]
    server.cues = [
        completion("Let me see.", message={"tool_calls": calls}, choice={"finish_reason": "tool_calls"})
    ]
    [answer] = ask(server)
    assert answer.text.split("\n") == [
        "Let me see.",
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": "é"}}</tool_call>',
        '<tool_call>{"name": "stop", "arguments": "{broken"}</tool_call>',
    ]
    assert answer.finish_reason == "tool_calls"
    server.cues = [completion(None, message={"tool_calls": calls[:1]})]
    [silent] = ask(server)
    assert silent.text.startswith("<tool_call>")


def test_logprobs_and_ids_where_offered(server: Server) -> None:
    tokens = [
        {"token": "a", "logprob": -0.5, "bytes": [97]},
        {"token": "\\xc3", "logprob": -0.25, "bytes": [0xC3]},
        {"token": "\\xa9", "logprob": -0.125, "bytes": [0xA9]},
        {"token": "<end>", "logprob": -1.0, "bytes": None},
    ]
    choice = {"logprobs": {"content": tokens}, "token_ids": [5, 6, 7, 2]}
    server.cues = [completion("aé", choice=choice)]
    [answer] = ask(server)
    assert answer.logprobs.tolist() == [-0.5, -0.25, -0.125, -1.0]
    assert answer.token_ends.tolist() == [1, 1, 2, 2]
    assert answer.completion_ids.tolist() == [5, 6, 7, 2]
    # Of the model's own distribution, not of the one drawn from: not measured.
    cooler = request(sampling=Sampling(temperature=0.5))
    assert ask(server, cooler)[0].logprobs is None
    assert ask(server, cooler, logprobs_of_sampling=True)[0].logprobs is not None


def test_options_are_recognised(server: Server) -> None:
    server.cues = [completion(" go\n")]
    assert ask(server, request(options=("stay", "go")))[0].choice == 1


def test_429_waits_as_asked(server: Server) -> None:
    server.cues = [(429, {"Retry-After": "0.3"}, b"slow down"), completion()]
    [answer] = ask(server)
    assert answer.text == "four"
    assert server.arrivals[1] - server.arrivals[0] >= 0.3


def test_a_wait_too_long_is_not_waited_for(server: Server) -> None:
    server.cues = [(429, {"Retry-After": "3600"}, b"quota")]
    assert "3600 s" in failure(server)
    assert len(server.bodies) == 1


def test_500_then_ok(server: Server) -> None:
    server.cues = [(500, {}, b"oops"), (503, {}, b"loading"), completion()]
    assert ask(server)[0].text == "four"
    assert len(server.bodies) == 3


def test_500_for_ever(server: Server) -> None:
    server.cues = [(500, {}, b"out of memory")]
    said = failure(server)
    assert "500" in said
    assert "out of memory" in said
    assert "4 tries" in said
    assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("status", "words"), [(400, "max_tokens is too large"), (401, "OPENAI_API_KEY"), (404, "named 'm'")]
)
def test_4xx_is_told_at_once(server: Server, status: int, words: str) -> None:
    server.cues = [(status, {}, f"max_tokens is too large; key was {KEY}".encode())]
    said = failure(server)
    assert str(status) in said
    assert words in said
    assert "***" in said
    assert len(server.bodies) == 1


@pytest.mark.parametrize("cue", ["hang", "trickle"])
def test_a_server_that_hangs(server: Server, cue: str) -> None:
    server.cues = [cue]
    assert "within 0.2 s" in failure(server, limits={"timeout_seconds": 0.2, "retries": 1})
    assert len(server.bodies) == 2


def test_nobody_there() -> None:
    said = failure("http://127.0.0.1:9/v1", limits={"retries": 1})
    assert "Is the server running?" in said


def test_it_says_whether_it_can_be_reached(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(OpenAIEngine("m", server.url).reach())  # 501 to a GET, and yet somebody is there
    assert not server.bodies
    with pytest.raises(EngineError, match=r"cannot connect to http://127\.0\.0\.1:9/v1"):
        asyncio.run(OpenAIEngine("m", "http://127.0.0.1:9/v1").reach())
    monkeypatch.setattr("baton.engine.openai._REACH_SECONDS", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(EngineError, match=r"within 0\.05 s"),
    ):
        asyncio.run(OpenAIEngine("m", f"http://127.0.0.1:{silent.getsockname()[1]}/v1").reach())


def test_garbage_is_tried_again(server: Server) -> None:
    server.cues = [b"<html>gateway</html>", completion()]
    assert ask(server)[0].text == "four"
    server.cues = [b"<html>gateway</html>"]
    assert "not JSON" in failure(server)


def test_a_truncated_body_is_tried_again(server: Server) -> None:
    cut = (200, {"Content-Length": "5000"}, b'{"choices": [')
    server.cues = [cut, completion()]
    assert ask(server)[0].text == "four"
    server.cues = [cut]
    assert "broke off" in failure(server)


@pytest.mark.parametrize(
    "reply",
    [
        {},
        [],
        {"choices": []},
        {"choices": [{"message": None}]},
        {"error": {"message": "no"}},
        completion([{"type": "text"}]),  # type: ignore[arg-type]
        completion(message={"tool_calls": [{"function": {}}]}),
        completion(choice={"logprobs": {"content": [{"token": "a"}]}}),
        completion(choice={"token_ids": ["a"]}),
        completion(choice={"token_ids": [2**40]}),
        completion(choice={"logprobs": {"content": [{"token": "four", "logprob": float("nan")}]}}),
        completion(choice={"logprobs": {"content": [{"token": "four", "logprob": float("-inf")}]}}),
        completion(choice={"logprobs": {"content": [{"token": "four", "logprob": 2.0}]}}),
        completion(
            choice={"logprobs": {"content": [{"token": "a", "bytes": 3_000_000_000, "logprob": -1.0}]}}
        ),
        completion(choice={"logprobs": {"content": [{"token": "a", "bytes": [0] * 9999, "logprob": -1.0}]}}),
        completion(usage={"prompt_tokens": 2**70, "completion_tokens": 1}),
        completion(usage={"prompt_tokens": 1, "completion_tokens": -5}),
    ],
)
def test_json_that_is_no_completion(server: Server, reply: Any) -> None:
    server.cues = [reply]
    assert "not a chat completion" in failure(server)


@pytest.mark.parametrize(
    "reply",
    [
        completion("half \ud800 of it"),
        completion(message={"tool_calls": [{"function": {"name": "f\udfff", "arguments": "{}"}}]}),
        completion(system_fingerprint="\ud800"),
        completion(choice={"finish_reason": "\udc00"}),
    ],
)
def test_half_a_character_is_told(server: Server, reply: Any) -> None:
    server.cues = [reply]
    assert "surrogate" in failure(server)


@pytest.mark.parametrize("padding", range(370, 402, 3))
def test_a_key_that_is_quoted_is_never_kept(
    server: Server, monkeypatch: pytest.MonkeyPatch, padding: int
) -> None:
    """Wherever it stands beside the place where the words are cut, in an error or in a reply that is none."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for cue in ((401, {}, {"error": "x" * padding + KEY}), {"choices": "x" * (padding - 100) + KEY}):
        server.cues = [cue]
        said = failure(server)
        assert not any(KEY[:length] in said for length in range(6, len(KEY)))


def test_an_answer_longer_than_was_asked_for_is_refused(server: Server) -> None:
    server.cues = [completion("spawn worker: x\n" * 60_000)]
    assert "960,000 characters where at most 8 tokens were asked for" in failure(server)


def test_a_huge_reply_is_cut_off(server: Server) -> None:
    server.cues = [completion("x" * 300_000)]
    assert "more than 100000 bytes" in failure(server, limits={"max_reply_bytes": 100_000})


def test_one_failure_does_not_spoil_the_batch(server: Server) -> None:
    server.cues = [(400, {}, b"no"), completion()]
    kinds = sorted(type(result).__name__ for result in ask(server, request(), request(), request()))
    assert kinds == ["Answer", "Answer", "EngineError"]


def test_concurrency_is_bounded(server: Server) -> None:
    server.cues = ["slow"]
    assert len(ask(server, *[request()] * 9, limits={"max_concurrent": 3})) == 9
    assert server.most_running <= 3


def test_cancelling_lets_go(server: Server) -> None:
    server.cues = ["hang"]

    async def play() -> None:
        engine = OpenAIEngine("m", server.url)
        task = asyncio.create_task(engine.answer([request()]))
        while not server.bodies:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.close()

    asyncio.run(play())


def test_one_engine_serves_one_loop_after_another(server: Server) -> None:
    engine = OpenAIEngine("m", server.url)

    async def play() -> Any:
        try:
            return await engine.answer([request()])
        finally:
            await engine.close()

    assert asyncio.run(play())[0].text == asyncio.run(play())[0].text == "four"


@pytest.mark.parametrize("kind", ["openai", "poster"])
def test_connections_that_nobody_closes_end_with_their_loop(
    kind: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "protocol_version", "HTTP/1.1")  # the server keeps them

    def used() -> None:
        engine, poster = OpenAIEngine("m", server.url), Poster()

        async def play() -> None:
            if kind == "openai":
                assert not isinstance((await engine.answer([request()]))[0], EngineError)
            else:
                await poster.post(f"{server.url}/x", {}, secret=None, read=read_json)

        async def twice() -> None:
            await asyncio.gather(play(), play())

        asyncio.run(twice())
        asyncio.run(twice())  # which forgets the loop of the first

    gc.collect()
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    used()
    gc.collect()
    assert [str(each.exc_value) for each in heard] == []


def test_rate_limits_make_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("baton.engine.throttle.asyncio.sleep", sleep)

    async def play() -> None:
        bucket = Bucket(60)
        for _ in range(62):
            await bucket.take(1)
        assert slept == pytest.approx([1.0, 1.0])
        await bucket.take(30)
        assert slept[2] == pytest.approx(30.0)
        bucket.settle(30, 10)
        await bucket.take(20)
        assert len(slept) == 3
        await bucket.take(6000)
        assert slept[3] == pytest.approx(60.0)

    asyncio.run(play())


def test_waits() -> None:
    assert all(2.0 <= backoff_seconds(3, 0.5, 60) <= 4.0 for _ in range(20))
    assert backoff_seconds(50, 0.5, 60) <= 60
    assert retry_after_seconds("2.5") == 2.5
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after_seconds("soon") is None


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http:///v1"])
def test_what_is_not_an_address(url: str) -> None:
    with pytest.raises(UsageError, match="address"):
        OpenAIEngine("m", url)


def test_a_key_in_the_address_is_refused() -> None:
    with pytest.raises(UsageError, match="environment variable") as caught:
        OpenAIEngine("m", f"http://{KEY}@host/v1")
    assert KEY not in str(caught.value)

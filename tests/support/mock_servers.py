"""Servers on this machine that answer over HTTP as a test tells them, and a mock of vLLM.

`MockVllm` is no vLLM: it answers with the shapes that vLLM's protocol has (`entrypoints/openai/completion/protocol.py`,
read in 2026), from a model that says what a test wants.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: Any


class Told(NamedTuple):
    """What to answer."""

    status: int = 200
    body: Any = None
    """Bytes as they are, anything else as JSON."""
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


class MockServer:
    """What came, in order; and where it listens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []


@contextmanager
def mock_server(answer: Callable[[Asked], Told]) -> Iterator[MockServer]:
    """A server that answers each request by a function."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            self._answer(json.loads(self.rfile.read(size)))

        def _answer(self, body: Any) -> None:
            asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            made.asked.append(asked)
            told = answer(asked)
            raw = told.body if isinstance(told.body, bytes) else json.dumps(told.body).encode()
            self.send_response(told.status)
            for name, value in {"content-type": "application/json", **told.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = MockServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class MockVllm:
    """Answers `/v1/models`, `/v1/completions` and `/v1/chat/completions` in vLLM's shapes."""

    def __init__(self, tokenizer: Any, *words: str, context: int = 4096) -> None:
        self._tokenizer = tokenizer
        self._words = list(words)
        self._context = context
        self._said = 0

    def __call__(self, asked: Asked) -> Told:
        if asked.path == "/v1/models":
            model = {"id": "base", "object": "model", "created": 1, "owned_by": "vllm", "root": "/m"}
            return Told(body={"object": "list", "data": [{**model, "max_model_len": self._context}]})
        text = self._words[self._said % len(self._words)]
        self._said += 1
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        if asked.path == "/v1/completions":
            return Told(body=self._completion(asked.body, text, ids))
        return Told(body=self._chat(asked.body, text, ids))

    def _completion(self, body: dict[str, Any], text: str, ids: list[int]) -> dict[str, Any]:
        assert body["return_token_ids"] is True
        spoken, stop = text.removesuffix("<|im_end|>"), None
        for each in body.get("stop") or ():
            if each in spoken:
                spoken, stop = spoken.partition(each)[0], each
        tokens = [self._tokenizer.decode([each]) for each in ids]
        wanted = body["logprobs"]
        tops = [{token: -0.25, **{f"other{k}": -1.0 - k for k in range(wanted)}} for token in tokens]
        choice = {
            "index": 0,
            "text": spoken,
            "logprobs": {
                "text_offset": [0] * len(ids),
                "token_logprobs": [-0.25] * len(ids),
                "tokens": tokens,
                "top_logprobs": tops if wanted else [{token: -0.25} for token in tokens],
            },
            "finish_reason": "length" if len(ids) > body["max_tokens"] else "stop",
            "stop_reason": stop,
            "token_ids": ids,
            "prompt_logprobs": None,
            "prompt_token_ids": body["prompt"],
        }
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "base",
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": _usage(len(body["prompt"]), len(ids)),
            "kv_transfer_params": None,
        }

    def _chat(self, body: dict[str, Any], text: str, ids: list[int]) -> dict[str, Any]:
        prompt = self._tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, tokenize=False
        )
        prompted = self._tokenizer.encode(prompt, add_special_tokens=False)
        message = {"role": "assistant", "content": text.removesuffix("<|im_end|>"), "tool_calls": []}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "token_ids": ids}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "base",
            "choices": [{**choice, "index": index} for index in range(body.get("n", 1))],
            "usage": _usage(len(prompted), len(ids)),
            "prompt_token_ids": prompted,
        }


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
    }

"""Servers on this machine that answer over HTTP as a test tells them, and a mock of vLLM.

`MockVllm` is no vLLM: it answers with the shapes that vLLM 0.32 was seen to answer with, from a model that says what a
test wants. The real one is asked by `make test-vllm`.
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
    """Answers the paths of vLLM 0.32 that are used, in the shapes that a real one was seen to have."""

    def __init__(
        self,
        tokenizer: Any,
        *words: str,
        context: int = 4096,
        tokens: bool = True,
        processed: bool = True,
        vllm: str = "0.32.0",
        root: str = "/m",
        spans: tuple[tuple[str, int], ...] = (),
    ) -> None:
        """`tokens`: it has `/inference/v1/generate`. `processed`: log-probabilities after truncation. `spans`: which
        weights draw up to which token; the last ones go on."""
        self._tokenizer = tokenizer
        self._words = list(words)
        self._context = context
        self._tokens = tokens
        self._processed = processed
        self._vllm = vllm
        self._root = root
        self._spans = spans
        self._said = 0

    def __call__(self, asked: Asked) -> Told:
        if asked.path == "/v1/models":
            model = {"id": "base", "object": "model", "created": 1, "owned_by": "vllm", "root": self._root}
            one = {**model, "parent": None, "max_model_len": self._context}
            return Told(body={"object": "list", "data": [one]})
        if asked.path == "/version":
            return Told(body={"version": self._vllm})
        if asked.path == "/tokenize":
            found = self._tokenizer.encode(asked.body["prompt"], add_special_tokens=False)
            return Told(body={"count": len(found), "max_model_len": self._context, "tokens": found})
        if asked.path == "/detokenize":
            return Told(body={"prompt": self._tokenizer.decode(asked.body["tokens"])})
        if asked.path == "/inference/v1/generate":
            return self._generate(asked.body) if self._tokens else Told(404, {"detail": "Not Found"})
        if asked.path == "/v1/completions":
            told = self._completion(asked.body)
            return told if isinstance(told, Told) else Told(body=told)
        text = self._next()
        return Told(body=self._chat(asked.body, text, self._tokenizer.encode(text, add_special_tokens=False)))

    def _next(self) -> str:
        self._said += 1
        return self._words[(self._said - 1) % len(self._words)]

    def _drawn(self, model: str, prompt: list[int], params: dict[str, Any]) -> dict[str, Any] | Told:
        """What is the same on both paths, or why not."""
        if model != "base":
            why = f"The model `{model}` does not exist. Valid aliases: base."
            return Told(
                404, {"error": {"message": why, "type": "NotFoundError", "param": "model", "code": 404}}
            )
        for each in prompt:
            if each >= len(self._tokenizer):
                why = f"Token id {each} is out of vocabulary"
                return Told(400, {"error": {"message": why, "type": "BadRequestError", "code": 400}})
        if params["max_tokens"] == 1 and params["seed"] == 0:  # one of the looks at a server
            certain = self._processed and params.get("top_k") == 1
            return {"ids": [0], "logprobs": [0.0 if certain else -0.5], "stop": None, "finish": "length"}
        text = self._next()
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        stop = next((each for each in params.get("stop") or () if each in text), None)
        finish = "length" if len(ids) > params["max_tokens"] else "stop"
        return {"ids": ids, "logprobs": [-0.25] * len(ids), "stop": stop, "finish": finish}

    def _generate(self, body: dict[str, Any]) -> Told:
        params = body["sampling_params"]
        drawn = self._drawn(body["model"], body["token_ids"], params)
        if isinstance(drawn, Told):
            return drawn
        ids = drawn["ids"]
        wanted = max(params["logprobs"], 1)
        content = []
        for each, logprob in zip(ids, drawn["logprobs"], strict=True):
            others = [(97 + k, -1.0 - k) for k in range(wanted)]
            tops = [(each, logprob), *others][:wanted]  # the drawn one first, and as many in all as asked for
            shown = [{"token_id": token, "logprob": chance, "rank": 1} for token, chance in tops]
            content.append({"token_id": each, "logprob": logprob, "rank": 1, "top_logprobs": shown})
        choice = {
            "index": 0,
            "finish_reason": drawn["finish"],
            "stop_reason": drawn["stop"],
            "token_ids": ids,
            "routed_experts": None,
            "sampling_mask": None,
            "weight_versions": self._versions(len(ids)),
            "logprobs": {"content": content},
        }
        return Told(
            body={
                "request_id": "generate-tokens-1",
                "model": body["model"],
                "created": 1,
                "usage": _usage(len(body["token_ids"]), len(ids)),
                "prompt_logprobs": None,
                "output_mode": "tokens",
                "choices": [choice],
            }
        )

    def _versions(self, size: int) -> list[dict[str, Any]]:
        made, at = [], 0
        for version, end in self._spans or (("default", size),):
            made.append({"version": version, "start": at, "end": min(end, size)})
            at = min(end, size)
        made[-1]["end"] = size
        return made

    def _completion(self, body: dict[str, Any]) -> dict[str, Any] | Told:
        assert body["return_token_ids"] is True
        assert body["return_tokens_as_token_ids"] is True
        drawn = self._drawn(body["model"], body["prompt"], body)
        if isinstance(drawn, Told):
            return drawn
        ids = drawn["ids"]
        tokens = [f"token_id:{each}" for each in ids]
        others = {f"token_id:{97 + k}": -1.0 - k for k in range(body["logprobs"])}
        choice = {
            "index": 0,
            "text": self._tokenizer.decode(ids, skip_special_tokens=True),
            "logprobs": {
                "text_offset": [0] * len(ids),
                "token_logprobs": drawn["logprobs"],
                "tokens": tokens,
                "top_logprobs": [
                    {token: chance, **others} for token, chance in zip(tokens, drawn["logprobs"], strict=True)
                ],
            },
            "finish_reason": drawn["finish"],
            "stop_reason": drawn["stop"],
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
            "system_fingerprint": "vllm-0.32.0-d11175f3",
            "usage": _usage(len(body["prompt"]), len(ids)),
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

"""Any OpenAI-compatible server, over HTTP: vLLM, SGLang, llama.cpp, hosted APIs.

Text in, text out: the server has the tokenizer, so `encode` gives None, and ids and log-probabilities
come back only where the server offers them. Every failure (refused connection, silence, garbage, 4xx,
5xx) ends as an EngineError that says what to do; what may pass by itself is retried first, within limits.
The API key is read from an environment variable for each call; it is never stored, logged or recorded.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from baton.engine.loop_client import closed_with_loop
from baton.engine.openai_reply import billed, most_bytes, read_reply, unpacked, usage_of, usage_shown
from baton.engine.throttle import Bucket, backoff_seconds, retry_after_seconds
from baton.errors import MissingExtraError, UsageError
from baton.team.protocol import Answer, EngineError, Entry, Request

if TYPE_CHECKING:
    import httpx


_REACH_SECONDS = 10.0
_EXCERPT_BYTES = 10_000
_SHORTEST_KEY = 8
"""What is shorter ("none", "EMPTY") is no secret, and turns up in any text."""
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ServerLimits(Struct, frozen=True, kw_only=True):
    """How to treat the server."""

    timeout_seconds: float = 120.0
    """For one try, from connecting to the last byte."""
    retries: int = 5
    """Tries after the first."""
    first_wait_seconds: float = 0.5
    """Doubled from try to try."""
    longest_wait_seconds: float = 60.0
    """A server that asks for more by Retry-After is given up on."""
    max_concurrent: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_reply_bytes: int = 16_000_000


class _Passing(Exception):
    """A failure that another try may cure."""

    def __init__(self, message: str, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class _Session:
    """What belongs to one event loop."""

    def __init__(self, client: httpx.AsyncClient, limits: ServerLimits) -> None:
        self.client = client
        self.ending = closed_with_loop(client)
        self.turn = asyncio.Semaphore(limits.max_concurrent)
        self.requests = Bucket(limits.requests_per_minute)
        self.tokens = Bucket(limits.tokens_per_minute)


class OpenAIEngine:
    """A model behind an OpenAI-compatible server."""

    separate = True

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        key_variable: str = "OPENAI_API_KEY",
        version: str | None = None,
        logprobs: bool = True,
        logprobs_of_sampling: bool = False,
        token_ids: bool = False,
        seeded: bool = True,
        limits: ServerLimits | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """`logprobs_of_sampling`: the server reports log-probs after temperature and truncation (vLLM with
        --logprobs-mode processed_logprobs). `token_ids`: it can return ids (vLLM's return_token_ids).
        `seeded`: it takes a seed. `extra`: further fields of the request's body.
        """
        try:
            import httpx
        except ImportError:
            raise MissingExtraError("the OpenAI-compatible engine", "http") from None
        url = httpx.URL(base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise UsageError(
                f"{base_url!r} is not a server's address. Expected something like http://HOST:8000/v1."
            )
        if url.userinfo:
            raise UsageError(f"put the key in the environment variable {key_variable}, not in the address.")
        self.name = model
        self._url = str(url).rstrip("/") + "/chat/completions"
        self._key_variable = key_variable
        self._version = version
        self._logprobs = logprobs
        self._logprobs_of_sampling = logprobs_of_sampling
        self._token_ids = token_ids
        self._seeded = seeded
        self._limits = limits or ServerLimits()
        self._extra = extra or {}
        self.uncounted: str | None = None
        """What the server said in place of a count of tokens, the first time; None: it counts."""
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> None:  # noqa: ARG002  # the protocol's
        return None

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return list(await asyncio.gather(*map(self._answer, requests)))

    async def reach(self) -> None:
        """Raise where nobody listens. Any reply will do: servers differ in what they offer besides completions."""
        import httpx

        try:
            async with (
                asyncio.timeout(_REACH_SECONDS),
                httpx.AsyncClient(timeout=None) as client,
                client.stream("GET", self._url),
            ):
                return
        except TimeoutError:
            raise EngineError(f"{self._url} did not answer within {_REACH_SECONDS:g} s") from None
        except (httpx.ConnectError, httpx.InvalidURL) as error:
            raise EngineError(f"cannot connect to {self._url}: {error}") from None
        except httpx.HTTPError:
            return

    async def close(self) -> None:
        """Close this event loop's connections."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.ending.aclose()

    async def _session(self) -> _Session:
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions = {known: s for known, s in self._sessions.items() if not known.is_closed()}
            # No time-outs in the client: one covers the whole try, however slowly the bytes come.
            many = httpx.Limits(max_connections=None, max_keepalive_connections=self._limits.max_concurrent)
            made = self._sessions[loop] = _Session(httpx.AsyncClient(timeout=None, limits=many), self._limits)
            await anext(made.ending)
        return self._sessions[loop]

    async def _answer(self, request: Request) -> Answer | EngineError:
        session, limits = await self._session(), self._limits
        body = self._body(request)
        most = most_bytes(request.sampling.max_tokens, limits.max_reply_bytes)
        size = sum(len(entry.text) for entry in request.entries) // 4 + (request.sampling.max_tokens or 256)
        problem = ""
        for attempt in range(limits.retries + 1):
            try:
                async with session.turn:
                    await session.requests.take(1)
                    await session.tokens.take(size)
                    reply = await self._post(session, body, most)
            except EngineError as error:
                return error
            except _Passing as passing:
                problem = str(passing)
                wait = passing.wait_seconds
                if wait is not None and wait > limits.longest_wait_seconds:
                    return EngineError(
                        f"{problem}; it asks to wait {wait:.0f} s. Run again later or lower the rate."
                    )
                if attempt < limits.retries:
                    own = backoff_seconds(attempt, limits.first_wait_seconds, limits.longest_wait_seconds)
                    await asyncio.sleep(own if wait is None else max(wait, own))
                continue
            answer = read_reply(
                reply,
                request,
                model=self.name,
                version=self._version,
                logprobs_of_sampling=self._logprobs_of_sampling,
            )
            if isinstance(answer, EngineError):
                return _paid(EngineError(_one_line(self._without_key(str(answer)))[:400]), reply)
            if (
                self._without_key(told := f"{answer.text}{answer.policy_version}{answer.finish_reason}")
                != told
            ):
                echoed = EngineError(
                    f"{self._url} answered with the key of {self._key_variable} in its words, which are not kept. "
                    "Is it a server that echoes requests?"
                )
                return _paid(echoed, reply)
            if self.uncounted is None and not usage_of(reply, answer.text).counts(answer.text):
                self.uncounted = (
                    f"{self._url} told its usage as {_one_line(self._without_key(usage_shown(reply)))}, where whole "
                    "numbers of prompt_tokens and completion_tokens were expected, so tokens are estimated (~)."
                )
            session.tokens.settle(size, (answer.prompt_tokens or 0) + (answer.completion_tokens or 0))
            return answer
        return EngineError(f"{problem} ({limits.retries + 1} tries).")

    async def _post(self, session: _Session, body: bytes, most: int) -> Any:
        """One try. Raises _Passing for what another try may cure, EngineError for what it will not."""
        import httpx

        key = os.environ.get(self._key_variable)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        seconds = self._limits.timeout_seconds
        try:
            async with (
                asyncio.timeout(seconds),
                session.client.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                raw = await self._read(response, most)
        except TimeoutError:
            raise _Passing(
                f"{self._url} did not answer within {seconds:g} s. Is the server overloaded?"
            ) from None
        except httpx.ConnectError as error:
            raise _Passing(f"cannot connect to {self._url}: {error}. Is the server running?") from None
        except httpx.InvalidURL as error:
            raise EngineError(f"{self._url} is not an address: {error}") from None
        except httpx.HTTPError as error:
            raise _Passing(f"{self._url} broke off: {type(error).__name__}: {error}") from None
        # The key goes before the cut: half of one at its end would not be found.
        said = self._without_key(raw[:_EXCERPT_BYTES].decode("utf-8", "replace"))
        excerpt = _one_line(said)[:400]
        if response.status_code in _PASSING:
            after = retry_after_seconds(response.headers.get("retry-after"))
            raise _Passing(f"{self._url} answered {response.status_code}: {excerpt}", after)
        if response.status_code != 200:
            raise EngineError(
                f"{self._url} answered {response.status_code}: {excerpt}. {self._advice(response)}"
            )
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise _Passing(f"{self._url} answered with something that is not JSON: {excerpt!r}") from None

    def _without_key(self, text: str) -> str:
        """What a server said, for an error that is printed and kept: it may quote the key it was given."""
        key = os.environ.get(self._key_variable, "")
        return text.replace(key, "***") if len(key) >= _SHORTEST_KEY else text

    async def _read(self, response: httpx.Response, most: int) -> bytes:
        raw = bytearray()
        async for chunk in response.aiter_raw():
            raw += chunk
            if len(raw) > most:
                raise self._too_long(most)
        try:
            found = unpacked(bytes(raw), response.headers.get("content-encoding", "").strip().lower(), most)
        except ValueError as error:
            raise _Passing(f"{self._url} answered with something that cannot be read: {error}") from None
        if len(found) > most:
            raise self._too_long(most)
        return found

    def _too_long(self, most: int) -> EngineError:
        return EngineError(
            f"{self._url} answered with more than {most} bytes, far more than was asked for. "
            "Lower max_tokens, or raise ServerLimits.max_reply_bytes."
        )

    def _advice(self, response: httpx.Response) -> str:
        if response.status_code in (401, 403):
            held = "holds" if os.environ.get(self._key_variable) else "is not set; it should hold"
            return f"The environment variable {self._key_variable} {held} the key."
        if response.status_code == 404:
            return f"Check the address and that the server has a model named {self.name!r}."
        return "The server does not accept this request; see its words above."

    def _body(self, request: Request) -> bytes:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [_message(entry) for entry in request.entries],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
        if sampling.max_tokens is not None:
            body["max_tokens"] = sampling.max_tokens
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._seeded and sampling.key is not None:
            body["seed"] = (
                int.from_bytes(blake2b(sampling.key.encode(), digest_size=4).digest(), "little") >> 1
            )
        if self._logprobs:
            body["logprobs"] = True
        if self._token_ids:
            body["return_token_ids"] = True
        if request.tools:
            body["tools"] = list(request.tools)
        return json.dumps(body | self._extra, ensure_ascii=False).encode("utf-8", "replace")


def _paid(error: EngineError, reply: Any) -> EngineError:
    """An error with what the server bills for a reply that cannot be used."""
    error.prompt_tokens, error.completion_tokens = billed(reply)
    return error


def _one_line(text: str) -> str:
    """What a server said, as a part of a sentence: its line breaks and control characters would forge lines of ours."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _message(entry: Entry) -> dict[str, str]:
    if entry.speaker == "tool":
        # A "tool" message must name the call it answers; contexts are text, so it goes as the user's.
        return {"role": "user", "content": f"<tool_response>\n{entry.text}\n</tool_response>"}
    return {"role": entry.speaker, "content": entry.text}

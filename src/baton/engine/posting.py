"""Asking a server over HTTP: retries, time limits, size limits, and errors in words that hold no key.

Invariant: a key is taken for one request, sent in its headers, and nowhere else: what a server says is freed of it
before anybody sees it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from baton.engine.loop_client import closed_with_loop
from baton.engine.openai import ServerLimits
from baton.engine.openai_reply import unpacked
from baton.engine.throttle import backoff_seconds, retry_after_seconds
from baton.errors import MissingExtraError, UsageError
from baton.team.protocol import EngineError
from baton.trace.records import encode_hook

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHORTEST_KEY = 8
_EXCERPT = 10_000


class NoAnswer(EngineError):
    """A server gave no answer that can be used, and this is why, in a sentence."""

    def __init__(
        self, why: str, *, status: int, passing: bool = False, wait_seconds: float | None = None
    ) -> None:
        """`status` is HTTP's; `passing`: another try may be answered, after `wait_seconds` where the server asks so."""
        super().__init__(why)
        self.status = status
        self.passing = passing
        self.wait_seconds = wait_seconds


class Secret(NamedTuple):
    """A key, and the header that it goes in."""

    header: str
    value: str
    """As the header has it."""

    def out_of(self, text: str) -> str:
        """`text` without the key."""
        key = self.value.removeprefix("Bearer ")
        return text.replace(key, "***") if len(key) >= _SHORTEST_KEY else text


def secret_in(variable: str, header: str = "authorization") -> Secret | None:
    """The key that an environment variable holds now, for one request; None: it holds none."""
    value = os.environ.get(variable, "")
    if not value:
        return None
    return Secret(header, f"Bearer {value}" if header == "authorization" else value)


def check_address(url: str, form: str) -> str:
    """A server's address without a slash at its end."""
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("asking a server", "http") from None
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise UsageError(f"{url!r} is not a server's address: {error}. Type: {form}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(f"{url!r} is not a server's address. Type: {form}")
    if parsed.userinfo:
        raise UsageError("put the key in an environment variable, not in the address.")
    return url.rstrip("/")


def seed_of(key: str) -> int:
    """A number for servers that draw by one, made of a sampling key."""
    return int.from_bytes(blake2b(key.encode(), digest_size=4).digest(), "little") >> 1


class _Sent(NamedTuple):
    """One request."""

    method: str
    url: str
    content: bytes | None
    fields: Mapping[str, str]
    secret: Secret | None
    seconds: float | None = None
    once: bool = False

    @property
    def headers(self) -> dict[str, str]:
        key = {} if self.secret is None else {self.secret.header: self.secret.value}
        return {**self.fields, **key}


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to believe; reading them takes longer than a call."""
    import httpx

    return httpx.create_ssl_context()


class _Kept(NamedTuple):
    """The connections of one event loop."""

    client: httpx.AsyncClient
    turn: asyncio.Semaphore
    ending: AsyncGenerator[None]


class Poster:
    """Posts JSON to servers, on any number of event loops."""

    def __init__(self, limits: ServerLimits | None = None) -> None:
        self.limits = limits or ServerLimits(timeout_seconds=600.0, retries=2)
        self._clients: dict[asyncio.AbstractEventLoop, _Kept] = {}

    async def post(
        self,
        url: str,
        body: Mapping[str, Any],
        *,
        secret: Secret | None,
        read: Callable[[bytes, str], T],
        headers: Mapping[str, str] | None = None,
        retries: int | None = None,
        seconds: float | None = None,
    ) -> T:
        """What `read` makes of the answer's body and type. Raises `NoAnswer` and nothing else.

        `retries` and `seconds` for one try are the limits' unless given. What must not be asked twice (`retries=0`)
        goes over a connection of its own: a kept one may be closed at that very moment, and then nobody knows
        whether it was heard.
        """
        fields = {"content-type": "application/json", "accept-encoding": "gzip, deflate", **(headers or {})}
        content = msgspec.json.encode(body, enc_hook=encode_hook)
        sent = _Sent("POST", url, content, fields, secret, seconds, retries == 0)
        return await self._tried(lambda: self._try(sent, read), retries)

    async def get(self, url: str, *, secret: Secret | None) -> Any:
        """The JSON at an address."""
        return await self._tried(lambda: self._try(_Sent("GET", url, None, {}, secret), read_json))

    async def close(self) -> None:
        held = self._clients.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held.ending.aclose()

    async def _client(self) -> _Kept:
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients = {known: each for known, each in self._clients.items() if not known.is_closed()}
            many = httpx.Limits(max_connections=None, max_keepalive_connections=self.limits.max_concurrent)
            client = httpx.AsyncClient(timeout=None, limits=many, verify=_certificates())
            turn = asyncio.Semaphore(self.limits.max_concurrent)
            made = self._clients[loop] = _Kept(client, turn, closed_with_loop(client))
            await anext(made.ending)
        return self._clients[loop]

    async def _tried(self, once: Callable[[], Awaitable[T]], retries: int | None = None) -> T:
        """What passes by itself is tried again, with waits that double; a server may ask for longer ones."""
        limits = self.limits
        retries = limits.retries if retries is None else retries
        for attempt in range(retries + 1):
            try:
                return await once()
            except NoAnswer as error:
                wait = error.wait_seconds
                if not error.passing or attempt == retries:
                    raise
                if wait is not None and wait > limits.longest_wait_seconds:
                    raise
                own = backoff_seconds(attempt, limits.first_wait_seconds, limits.longest_wait_seconds)
                await asyncio.sleep(own if wait is None else max(wait, own))
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def _connection(self, once: bool) -> AsyncIterator[httpx.AsyncClient]:
        """The kept connections, when it is this request's turn. What is asked once neither waits nor is kept: it may be
        what lets the others go on."""
        import httpx

        if once:
            async with httpx.AsyncClient(timeout=None, verify=_certificates()) as client:
                yield client
        else:
            kept = await self._client()
            async with kept.turn:
                yield kept.client

    async def _try(self, sent: _Sent, read: Callable[[bytes, str], T]) -> T:
        import httpx

        seconds = self.limits.timeout_seconds if sent.seconds is None else sent.seconds
        url = sent.url
        try:
            async with (
                self._connection(sent.once) as client,
                asyncio.timeout(seconds),
                client.stream(sent.method, url, content=sent.content, headers=sent.headers) as response,
            ):
                raw = await self._read(url, response)
        except TimeoutError:
            raise NoAnswer(f"{url} did not answer within {seconds:g} s.", status=504, passing=True) from None
        except httpx.ConnectError as error:
            why = f"cannot connect to {url}: {error}. Is the server running?"
            raise NoAnswer(why, status=502, passing=True) from None
        except httpx.HTTPError as error:
            why = f"{url} broke off: {type(error).__name__}: {error}"
            raise NoAnswer(why, status=502, passing=True) from None
        if response.status_code != 200:
            raise _refused(url, response, raw, sent.secret)
        try:
            return read(raw, response.headers.get("content-type", ""))
        except NoAnswer as error:
            told = str(error) if sent.secret is None else sent.secret.out_of(str(error))
            raise NoAnswer(told, status=error.status, passing=error.passing) from None

    async def _read(self, url: str, response: httpx.Response) -> bytes:
        raw = bytearray()
        most = self.limits.max_reply_bytes
        async for chunk in response.aiter_raw():
            raw += chunk
            if len(raw) > most:
                break
        encoding = response.headers.get("content-encoding", "").strip().lower()
        try:
            found = bytes(raw) if len(raw) > most else unpacked(bytes(raw), encoding, most)
        except ValueError as error:
            why = f"{url} answered with something that cannot be read: {error}"
            raise NoAnswer(why, status=502, passing=True) from None
        if len(found) > most:
            raise NoAnswer(f"{url} answered with more than {most:,} bytes.", status=502)
        return found


def _refused(url: str, response: httpx.Response, raw: bytes, secret: Secret | None) -> NoAnswer:
    """A server's refusal in its own words, with its own status, so that the client takes it as it is meant."""
    said = raw[:_EXCERPT].decode("utf-8", "replace")
    told = _message_in(said)
    told = told if secret is None else secret.out_of(told)
    plain = " ".join("".join(c if c.isprintable() else " " for c in told).split())[:400]
    status = response.status_code
    return NoAnswer(
        f"{url} answered {status}: {plain}",
        status=status if 400 <= status < 600 else 502,
        passing=status in _PASSING,
        wait_seconds=retry_after_seconds(response.headers.get("retry-after")),
    )


def _message_in(said: str) -> str:
    """The sentence in an error's body, in either API's form; otherwise all of it."""
    try:
        error = msgspec.json.decode(said)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError):
        return said
    return message if isinstance(message, str) else said


def read_json(raw: bytes, kind: str) -> Any:  # noqa: ARG001  # what `post` calls
    """A body that is one JSON object."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        excerpt = raw[:200].decode("utf-8", "replace")
        raise NoAnswer(f"the server's answer is not JSON: {excerpt!r}", status=502, passing=True) from None
    if not isinstance(body, dict):
        raise NoAnswer("the server's answer is JSON, but no object.", status=502)
    return body

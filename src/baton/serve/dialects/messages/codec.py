"""Messages: requests, answers, streams and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from baton.serve.dialects.codec import DialectRefusal, Resolve, nothing_kept
from baton.serve.dialects.errors import anthropic_error
from baton.serve.dialects.messages.answer import read_body, write_body
from baton.serve.dialects.messages.request import THREAD, read_request, request_headers, write_request
from baton.serve.dialects.messages.stream import read_stream, write_stream
from baton.serve.dialects.sse import understood
from baton.serve.exchange import Ask, Dialect, Exchange, Reply


class MessagesCodec:
    """Fulfils `DialectCodec`, and reads questions for the number of tokens."""

    dialect: Dialect = "messages"

    def read(
        self, body: bytes, headers: Mapping[str, str] | None = None, resolve: Resolve = nothing_kept
    ) -> Ask:
        return read_request(body, headers or {}, resolve)

    def read_count(
        self, body: bytes, headers: Mapping[str, str] | None = None, resolve: Resolve = nothing_kept
    ) -> Ask:
        """What a request to count_tokens would ask; it sets no bound."""
        return read_request(body, headers or {}, resolve, count=True)

    def body(self, exchange: Exchange) -> dict[str, Any]:
        return write_body(exchange)

    def stream(self, exchange: Exchange) -> Iterator[bytes]:
        return write_stream(write_body(exchange))

    def refusal(
        self, why: str, *, status: int = 400, passing: bool = False, field: str | None = None
    ) -> DialectRefusal:
        code = "thread_not_found" if field == THREAD else None  # its SDK then sends the whole conversation
        return anthropic_error(why, status=status, passing=passing, code=code)

    def request_body(self, ask: Ask) -> dict[str, Any]:
        return write_request(ask)

    def request_headers(self, ask: Ask) -> dict[str, str]:
        return request_headers(ask)

    def reply(self, body: dict[str, Any], *, policy: str) -> Reply:
        return read_body(body, policy)

    def gather(self, lines: Iterable[bytes]) -> dict[str, Any]:
        return understood(read_stream, lines)

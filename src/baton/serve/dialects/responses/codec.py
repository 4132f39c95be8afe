"""Responses: requests, answers, streams and errors."""

# ruff: noqa: ARG002 -- each dialect needs a part of what all are given
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from baton.serve.dialects.codec import DialectRefusal, Resolve, nothing_kept
from baton.serve.dialects.errors import openai_error
from baton.serve.dialects.responses.answer import read_body, write_body
from baton.serve.dialects.responses.request import read_request, write_request
from baton.serve.dialects.responses.stream import read_stream, write_stream
from baton.serve.dialects.sse import understood
from baton.serve.exchange import Ask, Dialect, Exchange, Reply


class ResponsesCodec:
    """Fulfils `DialectCodec`."""

    dialect: Dialect = "responses"

    def read(
        self, body: bytes, headers: Mapping[str, str] | None = None, resolve: Resolve = nothing_kept
    ) -> Ask:
        return read_request(body, resolve)

    def body(self, exchange: Exchange) -> dict[str, Any]:
        return write_body(exchange)

    def stream(self, exchange: Exchange) -> Iterator[bytes]:
        return write_stream(write_body(exchange))

    def refusal(
        self, why: str, *, status: int = 400, passing: bool = False, field: str | None = None
    ) -> DialectRefusal:
        return openai_error(why, status=status, passing=passing, field=field)

    def request_body(self, ask: Ask) -> dict[str, Any]:
        return write_request(ask)

    def request_headers(self, ask: Ask) -> dict[str, str]:
        return {}

    def reply(self, body: dict[str, Any], *, policy: str) -> Reply:
        return read_body(body, policy)

    def gather(self, lines: Iterable[bytes]) -> dict[str, Any]:
        return understood(read_stream, lines)

"""What a dialect does: the contract that Chat Completions, Responses and Messages fulfil.

A codec knows bodies and streams and nothing of sessions or models. Everything it writes follows from the exchange it
is given: ids come from the exchange's own, times from when it began. So an exchange is always told in the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from baton.serve.backend import Unanswerable
from baton.serve.exchange import Ask, Dialect, Exchange, Reply

Body = dict[str, Any]
Resolve = Callable[[str], Exchange | None]
"""From the id of an earlier response to its exchange; None: nobody knows it."""


class BadAsk(Unanswerable):
    """A request that is none: `why` is one sentence that names the field."""

    def __init__(self, why: str, *, field: str | None = None, status: int = 400) -> None:
        super().__init__(why, status=status)
        self.field = field


def check_choice(ask: Ask) -> None:
    """A choice of tools that nothing offered can fulfil would be answered as if it had not been made."""
    kind, _, name = ask.tool_choice.partition(":")
    if kind not in ("tool", "required") or any(tool.raw is not None for tool in ask.tools):
        return  # what a server's own tools are called is for that server to say
    if not ask.tools:
        raise BadAsk("`tool_choice` asks for a tool, and `tools` offers none.", field="tool_choice")
    offered = {each for tool in ask.tools for each in (tool.name, tool.name.rpartition("/")[2])}
    if kind == "tool" and name not in offered:
        known = ", ".join(sorted(tool.name for tool in ask.tools))
        raise BadAsk(
            f"`tool_choice` is {name[:80]!r}; expected one of `tools`: {known[:200]}.", field="tool_choice"
        )


class DialectRefusal(Struct, frozen=True, kw_only=True):
    """An error as a dialect tells it."""

    status: int
    headers: dict[str, str]
    body: Body


def nothing_kept(_: str) -> Exchange | None:
    """The resolver of a server that keeps no responses."""
    return None


class DialectCodec(Protocol):
    """Bodies in and out, of one dialect."""

    dialect: Dialect

    def read(
        self, body: bytes, headers: Mapping[str, str] | None = None, resolve: Resolve = nothing_kept
    ) -> Ask:
        """What a request asks (`headers` by lower-case name); raises `BadAsk` and nothing else, whatever came."""
        ...

    def body(self, exchange: Exchange) -> Body:
        """The answer as one JSON object; the exchange has to have its reply."""
        ...

    def stream(self, exchange: Exchange) -> Iterator[bytes]:
        """The same answer as server-sent events, one event a piece."""
        ...

    def refusal(
        self, why: str, *, status: int = 400, passing: bool = False, field: str | None = None
    ) -> DialectRefusal:
        """An error in the dialect's shape; `passing`: the client may ask again."""
        ...

    def request_body(self, ask: Ask) -> Body:
        """The ask as a request of this dialect, for a server that speaks it; of another dialect's, what can be said."""
        ...

    def request_headers(self, ask: Ask) -> dict[str, str]:
        """The headers of the request that the answer depends on (Anthropic's version and betas)."""
        ...

    def reply(self, body: Body, *, policy: str) -> Reply:
        """What a server of this dialect answered, with `raw` as it came; raises `Unanswerable` if it is no answer."""
        ...

    def gather(self, lines: Iterable[bytes]) -> Body:
        """The body that a server's stream amounts to; `lines` may be cut anywhere."""
        ...

"""The contract of a backend: who answers what programs ask."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from baton.errors import BatonError
from baton.serve.exchange import Ask, Exchange, Reply, Utterance

caller_headers: ContextVar[Mapping[str, str]] = ContextVar("caller_headers", default=MappingProxyType({}))
"""All headers of the request that is being answered, by lower-case name: for a backend that passes the program's own
key on. They live as long as the answering; nobody writes them down."""


class Unanswerable(BatonError):
    """A backend gives no answer, and says why in a sentence a program's author understands."""

    def __init__(self, why: str, *, status: int = 400, passing: bool = False) -> None:
        """`status` is HTTP's; `passing`: the same may be answered later, so a client may ask again."""
        super().__init__(why)
        self.status = status
        self.passing = passing


class GrownAsk(Struct, frozen=True, kw_only=True):
    """An ask that begins with an earlier exchange of its session: its prompt, then its answer, then something new."""

    before: Exchange
    choice: int
    """Which of its answers."""
    new: tuple[Utterance, ...]
    """What stands after that answer."""


class Backend(Protocol):
    """Answers asks; any number at once, on one event loop."""

    name: str

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        """The same `ask` under the same `key`, grown from the same exchange, gets the same answer.

        A backend with a tokenizer keeps the ids of what `growth` names and encodes only what is new. It raises
        `Unanswerable` and nothing else.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and workers."""
        ...

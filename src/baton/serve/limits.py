"""What a session may spend, whatever its program knows of it, and what a client may ask of the server."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from baton.errors import UsageError
from baton.serve.exchange import Ask, Exchange, Posted


class SessionLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one session; None: no limit. At a limit the session ends: further asks are refused."""

    tokens: int | None = None
    """Prompts and completions together, as counted. An answer is cut at what is left; a prompt that is under way when
    others spend the rest is still charged, so the sum may pass the limit by the prompts that were under way."""
    calls: int | None = None
    agents: int | None = None
    """Who asks, by a harness's own ids; without such, conversations that begin anew."""
    seconds: float | None = None
    """Since the first call."""

    def check(self) -> SessionLimits:
        for name, value in msgspec.structs.asdict(self).items():
            if value is not None and not value > 0:
                raise UsageError(f"the limit {name} is {value}; expected more than 0, or none.")
        return self


class ClientLimits(Struct, frozen=True, kw_only=True):
    """What clients may ask of the server."""

    body_bytes: int = 64 * 2**20
    """Of one request, unpacked."""
    connections: int = 256
    """At once; further ones are asked to come back."""
    sessions: int = 10_000
    """Open at once."""
    seconds: float = 30.0
    """A client that sends nothing, or reads nothing, for so long is let go."""
    quiet_seconds: float = 10.0
    """A stream whose answer takes longer says now and then that somebody is there."""


class Spending:
    """What a session has spent."""

    def __init__(self, limits: SessionLimits) -> None:
        self.limits = limits.check()
        self.tokens = 0
        self.reserved = 0
        self.calls = 0
        self.began: float | None = None
        self._conversations: set[str] = set()

    def charge_again(self, exchange: Exchange, conversation: str) -> None:
        """An exchange of before, when a session goes on; one without an answer is counted when it is asked again."""
        self.calls += exchange.reply is not None
        self._conversations.add(conversation)
        self._charge(exchange)

    def reached(self, conversation: str) -> str | None:
        """Which limit forbids one more call, in words; None: it may be asked."""
        limits, now = self.limits, time.monotonic()
        if self.began is None:
            self.began = now
        if limits.calls is not None and self.calls >= limits.calls:
            return f"the session has made its {limits.calls} calls"
        if limits.seconds is not None and now - self.began > limits.seconds:
            return f"the session's {limits.seconds:g} seconds are over"
        if limits.tokens is not None and self.tokens + self.reserved >= limits.tokens:
            return f"the session has spent its {limits.tokens:,} tokens"
        known = conversation in self._conversations
        if limits.agents is not None and not known and len(self._conversations) >= limits.agents:
            return f"the session has its {limits.agents} agents"
        return None

    def is_late(self) -> str | None:
        """Why a program that asks nothing more has to end: its seconds are over."""
        seconds = self.limits.seconds
        if seconds is None or self.began is None or time.monotonic() - self.began <= seconds:
            return None
        return f"the session's {seconds:g} seconds are over"

    def begin(self, ask: Ask, conversation: str) -> tuple[Ask, int]:
        """Count a call; the ask with its answer cut at what is left, and how many tokens were set aside for it."""
        self.calls += 1
        self._conversations.add(conversation)
        if self.limits.tokens is None:
            return ask, 0
        left = self.limits.tokens - self.tokens - self.reserved
        most = ask.sampling.max_tokens
        aside = left if most is None else min(left, most * ask.n)
        each = max(1, aside // ask.n)
        self.reserved += aside
        if most is not None and most <= each:
            return ask, aside
        return msgspec.structs.replace(
            ask, sampling=msgspec.structs.replace(ask.sampling, max_tokens=each)
        ), aside

    def finish(self, exchange: Exchange, aside: int) -> None:
        """What was set aside is free again, what was used is charged."""
        self.reserved -= aside
        self._charge(exchange)

    def _charge(self, exchange: Exchange) -> None:
        if exchange.reply is not None:
            self.tokens += (exchange.reply.prompt_tokens or 0) + (exchange.reply.completion_tokens or 0)


def limit_reached(posted: Sequence[Posted]) -> str | None:
    """Which limit ended a session by refusing a call, in the words that the program heard; None: none did."""
    first = next((one for one in posted if one.ended), None)
    if first is None or first.exit_code is not None or first.why is None:
        return None
    return first.why if first.why.startswith(("the session has ", "the session's ")) else None

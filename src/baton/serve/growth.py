"""Which earlier exchange an ask grows from: the longest one of its session whose prompt and answer it begins with."""

from __future__ import annotations

from hashlib import blake2b

from baton.serve.backend import GrownAsk
from baton.serve.exchange import Ask, Exchange, Utterance
from baton.serve.session_keys import canonical_bytes


class GrowthIndex:
    """The exchanges of a session by what they said; looking one up costs what the ask is long."""

    def __init__(self) -> None:
        self._ends: dict[bytes, tuple[Exchange, int]] = {}
        """Digest of tools, prompt and answer -> the latest exchange of that, and which of its answers."""

    def add(self, exchange: Exchange) -> None:
        """An exchange that was answered."""
        if exchange.reply is None:
            return
        prompt = _begin(exchange.ask)
        for message in exchange.ask.messages:
            prompt = _grown(prompt, message)
        for place, choice in enumerate(exchange.reply.choices):
            self._ends[_grown(prompt, choice.message)] = exchange, place

    def find(self, ask: Ask) -> GrownAsk | None:
        """The longest match; None: it begins anew."""
        state, found = _begin(ask), None
        for place, message in enumerate(ask.messages):
            state = _grown(state, message)
            if message.speaker == "assistant" and state in self._ends:
                before, choice = self._ends[state]
                found = GrownAsk(before=before, choice=choice, new=ask.messages[place + 1 :])
        return found


def _begin(ask: Ask) -> bytes:
    return blake2b(canonical_bytes([ask.model, ask.tools]), digest_size=16).digest()


def _grown(state: bytes, message: Utterance) -> bytes:
    return blake2b(state + canonical_bytes(message), digest_size=16).digest()

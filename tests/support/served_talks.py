"""A session in miniature: asks a backend turn by turn, keeps the exchanges, and lets the next ask grow from them."""

from __future__ import annotations

import asyncio
from typing import Any

from baton.serve.backend import Backend
from baton.serve.exchange import Ask, Exchange, Reply, ToolAsk, ToolOffer, Utterance
from baton.serve.growth import GrowthIndex

SEARCH = ToolOffer(
    name="search",
    description="Look something up.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)


def user(text: str) -> Utterance:
    return Utterance(speaker="user", text=text)


def system(text: str) -> Utterance:
    return Utterance(speaker="system", text=text)


def said(text: str = "", *uses: ToolAsk, thinking: str = "") -> Utterance:
    return Utterance(speaker="assistant", text=text, uses=uses, thinking=thinking)


def result(answers: str, text: str) -> Utterance:
    return Utterance(speaker="tool", text=text, answers=answers)


def asked(*messages: Utterance, **more: Any) -> Ask:
    return Ask(dialect="chat", model="m", messages=messages, **more)


class Talk:
    """Exchanges with one backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.exchanges: list[Exchange] = []
        self._growth = GrowthIndex()

    def ask(self, ask: Ask) -> Reply:
        async def once() -> Reply:
            try:
                return await self.ask_now(ask)
            finally:
                await self.backend.close()  # its connections are this loop's

        return asyncio.run(once())

    async def ask_now(self, ask: Ask) -> Reply:
        number = len(self.exchanges)
        growth = self._growth.find(ask)
        reply = await self.backend.reply(ask, key=f"0/talk/{number}", growth=growth)
        exchange = Exchange(
            session="talk",
            id=str(number),
            number=number,
            ask=ask,
            reply=reply,
            grows_from=None if growth is None else growth.before.id,
            choice=0 if growth is None else growth.choice,
        )
        self.exchanges.append(exchange)
        self._growth.add(exchange)
        return reply

"""The ids that answers give out: they come from the exchange's id, so the same exchange always has the same."""

from __future__ import annotations

from msgspec.structs import replace

from baton.serve.exchange import Dialect, Exchange, Reply

_CALL = {"chat": "call", "responses": "call", "messages": "toolu"}


def with_ids(reply: Reply, *, dialect: Dialect, exchange_id: str) -> Reply:
    """The reply with an id for every tool that is asked for without one.

    It is done before the reply is written down: programs send these ids back, and the journal has to know them.
    """
    if all(use.id for choice in reply.choices for use in choice.message.uses):
        return reply
    choices = []
    for number, choice in enumerate(reply.choices):
        head = f"{_CALL[dialect]}_{exchange_id}" + (f"_{number}" if number else "")
        uses = tuple(
            use if use.id else replace(use, id=f"{head}_{place}")
            for place, use in enumerate(choice.message.uses)
        )
        choices.append(replace(choice, message=replace(choice.message, uses=uses)))
    return replace(reply, choices=tuple(choices))


def response_id(exchange: Exchange) -> str:
    """By which id the program knows the whole answer."""
    reply = exchange.reply
    if reply is not None and reply.raw is not None and isinstance(reply.raw.get("id"), str):
        return str(reply.raw["id"])
    return {"chat": "chatcmpl-", "responses": "resp_", "messages": "msg_"}[exchange.ask.dialect] + exchange.id

"""The ids that answers give out: they come from the exchange's id, so the same exchange always has the same."""

from __future__ import annotations

from msgspec.structs import replace

from baton.serve.dialects.arguments import as_object
from baton.serve.dialects.translation import plain_name
from baton.serve.exchange import Ask, Exchange, Reply, ToolAsk

_CALL = {"chat": "call", "responses": "call", "messages": "toolu"}


def with_ids(reply: Reply, *, ask: Ask, exchange_id: str) -> Reply:
    """The reply with an id for every tool that is asked for without one, and the names and words the program knows.

    It is done before the reply is written down: programs send these ids and words back, and the journal has to know
    them. A backend without namespaces asks for `space__tool`; one without tools that take plain text, for
    `{"input": "the text"}`.
    """
    if reply.raw is not None or not any(choice.message.uses for choice in reply.choices):
        return reply
    choices = []
    for number, choice in enumerate(reply.choices):
        head = f"{_CALL[ask.dialect]}_{exchange_id}" + (f"_{number}" if number else "")
        uses = tuple(
            use if use.id else replace(use, id=f"{head}_{place}")
            for place, use in enumerate(_as_offered(use, ask) for use in choice.message.uses)
        )
        choices.append(replace(choice, message=replace(choice.message, uses=uses)))
    return replace(reply, choices=tuple(choices))


def _as_offered(use: ToolAsk, ask: Ask) -> ToolAsk:
    offers = {offer.name: offer for offer in ask.tools}
    if use.name not in offers:
        plain = {plain_name(name): name for name in offers}
        use = replace(use, name=plain.get(use.name, use.name))
    offer = offers.get(use.name)
    if offer is None or (offer.raw or {}).get("type") != "custom":
        return use
    said = as_object(use.arguments)
    only = list(said) == ["input"] and isinstance(said["input"], str)
    return replace(use, arguments=said["input"]) if only else use


def response_id(exchange: Exchange) -> str:
    """By which id the program knows the whole answer."""
    reply = exchange.reply
    if reply is not None and reply.raw is not None and isinstance(reply.raw.get("id"), str):
        return str(reply.raw["id"])
    return {"chat": "chatcmpl-", "responses": "resp_", "messages": "msg_"}[exchange.ask.dialect] + exchange.id

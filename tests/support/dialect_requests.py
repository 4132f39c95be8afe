"""Exchanges and bodies for the tests of dialects."""

from __future__ import annotations

import json
from typing import Any

from baton.serve.dialects import codec_of
from baton.serve.exchange import Dialect, Exchange, Reply, ReplyChoice, ToolAsk, Utterance

PATHS: dict[Dialect, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


def request(dialect: Dialect, text: str = "How far is it to Århus?", **more: Any) -> dict[str, Any]:
    """The least that can be asked."""
    said = [{"role": "user", "content": text}]
    if dialect == "responses":
        return {"model": "odd-model", "input": said, **more}
    bound = {"max_tokens": 77} if dialect == "messages" else {}
    return {"model": "odd-model", "messages": said, **bound, **more}


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


def answered(
    dialect: Dialect, *choices: ReplyChoice, asked: dict[str, Any] | None = None, **more: Any
) -> Exchange:
    """An exchange with these answers."""
    ask = codec_of(dialect).read(encoded(asked or request(dialect)))
    counts = {"prompt_tokens": 31, "completion_tokens": 17, "cached_tokens": 8, "thinking_tokens": 5} | more
    reply = Reply(choices=choices, policy="scripted", policy_version="3", **counts)
    return Exchange(session="s", id="e7f3", number=4, ask=ask, reply=reply, begun=1_700_000_000.9)


def says(text: str = "", *uses: tuple[str, str], **more: Any) -> Utterance:
    """What a model says, and which tools it asks for (name, arguments)."""
    asked = tuple(ToolAsk(id=f"call_{n}", name=name, arguments=said) for n, (name, said) in enumerate(uses))
    return Utterance(speaker="assistant", text=text, uses=asked, **more)

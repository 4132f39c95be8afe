"""A journal keeps how a program worded its calls, word for word, and does not grow with the square of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dialect_requests import encoded

from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.dialects import codec_of
from baton.serve.exchange import Dialect
from baton.serve.journal import journal_path, read_session
from baton.serve.sessions import ProgramSession


def talk(dialect: Dialect, turns: int) -> dict[str, Any]:
    """As Claude Code and Codex do it: marks that move with the end of the conversation, items with ids."""
    tools = [
        {"name": f"tool{n}", "input_schema": {}, "defer_loading": True, "description": "x" * 300}
        for n in range(9)
    ]
    said: list[dict[str, Any]] = []
    for turn in range(turns):
        text = f"question {turn} " + "and so on " * 20
        answer = f"answer to {turn}"
        if dialect == "messages":
            said.append({"role": "user", "content": [{"type": "text", "text": text}]})
            said.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        else:
            parts = [{"type": "input_text", "text": text}]
            told = [{"type": "output_text", "text": answer}]
            said.append({"type": "message", "id": f"u{turn}", "role": "user", "content": parts})
            said.append({"type": "message", "id": f"a{turn}", "role": "assistant", "content": told})
    said.pop()
    if dialect == "messages":
        said[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
        return {"model": "m", "max_tokens": 9, "tools": tools, "messages": said, "metadata": {"user_id": "u"}}
    return {
        "model": "m",
        "input": said,
        "tools": [{"type": "function", "strict": True, **tool} for tool in tools],
    }


def answer(ask: Any) -> str:
    return f"answer to {ask.messages[-1].text.split()[1]}"


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_words_are_kept_and_a_journal_grows_with_what_is_said(dialect: Dialect, tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "long", ScriptedBackend(answer))
    codec = codec_of(dialect)
    sizes = []

    async def run() -> None:
        for turns in range(1, 41):
            exchange = await session.ask(codec.read(encoded(talk(dialect, turns))), {})
            session.heard(exchange)
            sizes.append(journal_path(tmp_path, "long").stat().st_size)

    asyncio.run(run())
    early, late = sizes[19] - sizes[9], sizes[39] - sizes[29]
    assert late < 1.25 * early, "ten calls late in a session take what ten early ones take"
    kept = read_session(journal_path(tmp_path, "long"))
    for turns, exchange in enumerate(kept.exchanges, 1):
        assert codec.request_body(exchange.ask) == talk(dialect, turns)
    assert all(exchange.grows_from for exchange in kept.exchanges[1:])

"""The three dialects in which programs ask: Chat Completions, Responses and Messages.

Use: `codec_of(dialect)` reads requests and writes answers; see `codec.py` for what it can do. Before an answer is
written down, `with_ids` names the tools it asks for.
"""

from __future__ import annotations

from baton.serve.dialects.chat.codec import ChatCodec
from baton.serve.dialects.codec import DialectCodec
from baton.serve.dialects.messages.codec import MessagesCodec
from baton.serve.dialects.responses.codec import ResponsesCodec
from baton.serve.exchange import Dialect

CODECS: dict[Dialect, DialectCodec] = {
    "chat": ChatCodec(),
    "responses": ResponsesCodec(),
    "messages": MessagesCodec(),
}


def codec_of(dialect: Dialect) -> DialectCodec:
    """Who reads and writes a dialect."""
    return CODECS[dialect]

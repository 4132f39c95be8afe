# ruff: noqa: E501
"""The golden answers of each dialect. `python tests/support/golden_dialects.py` writes them again: look at what changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dialect_requests import answered, request, says

from baton.serve.dialects import codec_of
from baton.serve.exchange import Dialect, Exchange, ReplyChoice

HERE = Path(__file__).parents[1] / "golden" / "dialects"
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "messages")
_SCHEMA = {"type": "object", "properties": {"of": {"type": "array"}}}
_ASKED: dict[Dialect, dict[str, Any]] = {
    "chat": {
        "tools": [{"type": "function", "function": {"name": "odd_sum", "parameters": _SCHEMA}}],
        "stream_options": {"include_usage": True},
    },
    "responses": {
        "tools": [
            {"type": "function", "name": "odd_sum", "parameters": _SCHEMA, "strict": True},
            {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
        ],
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "metadata": {"run": "7"},
    },
    "messages": {
        "tools": [{"name": "odd_sum", "input_schema": _SCHEMA}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    },
}


def golden_exchange(dialect: Dialect) -> Exchange:
    """A thought, a text longer than an event, and two tools at once."""
    uses = [("odd_sum", '{"of": [1, 3, 5]}'), ("odd_sum", "no JSON")]
    if dialect == "responses":
        uses.append(("apply_patch", "*** Begin Patch\n+ ø\n*** End Patch"))
    text = "Une réponse — longue assez pour deux événements du flux, et un peu plus."
    message = says(text, *uses, thinking="One, three, five.", sign="c2lnbg==")
    asked = request(dialect, "What is the sum of the odd ones?", stream=True, **_ASKED[dialect])
    return answered(dialect, ReplyChoice(message=message, finish="tool_calls"), asked=asked)


def golden_files() -> dict[str, str]:
    files = {}
    for dialect in DIALECTS:
        exchange = golden_exchange(dialect)
        codec = codec_of(dialect)
        files[f"{dialect}.json"] = json.dumps(codec.body(exchange), indent=1, ensure_ascii=False) + "\n"
        files[f"{dialect}.sse"] = b"".join(codec.stream(exchange)).decode()
    return files


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name, content in golden_files().items():
        (HERE / name).write_text(content)

"""The small answers beside the dialects: which models there are, and how many tokens a question has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def models_body(names: Sequence[str]) -> dict[str, Any]:
    """A list of models that OpenAI's and Anthropic's clients both read."""
    models = [
        {
            "id": name, "object": "model", "created": 0, "owned_by": "baton",
            "type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z",
        }
        for name in names
    ]  # fmt: skip
    ends = {
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
        "has_more": False,
    }
    return {"object": "list", "data": models, **ends}


def tokens_body(count: int) -> dict[str, Any]:
    """The answer of count_tokens."""
    return {"input_tokens": count}

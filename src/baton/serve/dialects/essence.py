"""Which fields of a request say what is asked, and which only who asks, where it is kept and what it is filed under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BESIDE = frozenset(
    {
        "metadata", "client_metadata", "user", "safety_identifier", "user_profile_id", "workspace_id",
        "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "cache_control",
        "service_tier", "inference_geo", "speed", "store", "stream_options", "previous_response_id",
        "thread", "diagnostics",
    }
)  # fmt: skip
"""No answer depends on these. Programs put random ids and times into them, or ids that they were given."""


def what_counts(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The fields on which an answer may depend."""
    return {name: value for name, value in extra.items() if name not in BESIDE}

"""Names: of sessions, by what a program sends along; of exchanges, by what was asked.

Invariant: a name derives from content alone. A program that runs again asks under the same names, whatever the clock
and the order in which its parallel calls arrive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from baton.errors import UsageError
from baton.serve.dialects.essence import what_counts
from baton.serve.exchange import Ask
from baton.trace.records import encode_hook

MAIN = "main"
"""The session of programs that name none."""
KEY_PREFIX = "baton-"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_TELLING = (
    "traceparent",
    "tracestate",
    "user-agent",
    "thread-id",
    "session-id",
    "session_id",
    "conversation_id",
)
_FAMILIES = ("x-claude-code-", "x-codex-", "x-baton-", "x-stainless-retry", "x-openai-subagent", "x-app")
_SECRET = ("key", "token", "secret", "authorization", "cookie")
_LONGEST_HEADER = 512
_encoder = msgspec.json.Encoder(enc_hook=encode_hook, order="deterministic")


def check_name(name: str) -> str:
    """The name of a session, which is also a file's: refused if it could be anything but a plain one."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:140]!r} is no name of a session: expected 1 to 128 letters, digits, dots, hyphens or underscores, "
            "not beginning with a dot."
        )
    return name


def session_of(path_name: str | None, headers: Mapping[str, str]) -> str:
    """Which session a request belongs to: by its path, else by an API key `baton-NAME`, else the main one."""
    if path_name is not None:
        return check_name(path_name)
    given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    key = given.strip()
    return check_name(key.removeprefix(KEY_PREFIX)) if key.startswith(KEY_PREFIX) else MAIN


def telling_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that say who asks; never one that may hold a secret."""
    return {
        name: value[:_LONGEST_HEADER]
        for name, value in headers.items()
        if (name in _TELLING or name.startswith(_FAMILIES)) and not any(word in name for word in _SECRET)
    }


def canonical_bytes(value: Any) -> bytes:
    """The same bytes for the same content, whatever the order of its keys."""
    return _encoder.encode(value)


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=10).hexdigest()


def ask_digest(ask: Ask, messages: list[str], tools: str) -> str:
    """What is asked, as twenty digits; messages and tools by their own. Streamed or not, it is the same ask."""
    extra = what_counts(ask.extra)
    rest = msgspec.structs.replace(ask, messages=(), tools=(), stream=False, extra=extra, wording={})
    return digest_of(canonical_bytes([rest, messages, tools]))


def exchange_id(digest: str, earlier: int) -> str:
    """`earlier`: how often the same was asked before in the session."""
    return f"{digest}-{earlier}" if earlier else digest

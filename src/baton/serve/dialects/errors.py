"""Errors as OpenAI and Anthropic tell them, with the header that keeps their SDKs from asking again."""

from __future__ import annotations

from typing import Any

from baton.serve.dialects.codec import DialectRefusal

_RETRYABLE = {408, 409, 429}
_KINDS = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


def _status(status: int, passing: bool) -> int:
    """A status that clients without the header do not take for one to try again, if it is none."""
    return 400 if not passing and (status in _RETRYABLE or status >= 500) else status


def _headers(passing: bool) -> dict[str, str]:
    return {"x-should-retry": "true" if passing else "false"}


def _kind(status: int) -> str:
    return _KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")


def openai_error(why: str, *, status: int, passing: bool, field: str | None) -> DialectRefusal:
    """`{"error": {...}}`."""
    status = _status(status, passing)
    body: dict[str, Any] = {"message": why, "type": _kind(status), "param": field, "code": None}
    return DialectRefusal(status=status, headers=_headers(passing), body={"error": body})


def anthropic_error(why: str, *, status: int, passing: bool, code: str | None = None) -> DialectRefusal:
    """`{"type": "error", "error": {...}}`."""
    status = _status(status, passing)
    error: dict[str, Any] = {"type": _kind(status), "message": why}
    if code is not None:
        error["details"] = {"error_code": code}
    body = {"type": "error", "error": error, "request_id": None}
    return DialectRefusal(status=status, headers=_headers(passing), body=body)

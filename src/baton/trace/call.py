"""Calls: one LLM call each, token in and token out, exactly as sampled.

An agent's prompt mostly repeats its previous call. So a call may name the call it grows from:
its prompt is the first `keep` tokens of that call's prompt + completion, then `prompt_ids`.
A conversation of n turns then costs O(n) tokens in the trace, not O(n^2), and a step costs the
same at turn 10 and at turn 10,000. `Trace.prompt_ids(call)` gives the whole prompt.
"""

from __future__ import annotations

from msgspec import Struct

from baton.trace.numbers import Floats, Ints

__all__ = ["Call", "Sampling"]


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the tokens were drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    key: str | None = None
    """Names the random stream; the same key and input give the same tokens."""


class Call(
    Struct,
    tag_field="kind",
    tag="call",
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One LLM call."""

    id: str
    agent: str
    role: str | None = None
    policy: str | None = None
    """Name of the model or policy that answered."""
    policy_version: str | None = None
    """Which weights; a trainer compares it with its own."""
    harness: str | None = None
    """Hash of the harness the prompt went through."""
    parent: str | None = None
    """The call this prompt grows from."""
    keep: int = 0
    """How many tokens of the parent's prompt + completion this prompt begins with."""
    prompt_ids: Ints | None = None
    """The rest of the prompt."""
    completion_ids: Ints | None = None
    logprobs: Floats | None = None
    """Log-probability of each completion token under the sampling distribution that drew it."""
    token_ends: Ints | None = None
    """For each completion token, the offset in the completion's text where it ends."""
    prompt_ref: str | None = None
    """Payload of the rest of the prompt as text: a JSON list of {speaker, text}."""
    completion_ref: str | None = None
    prompt_tokens: int | None = None
    """Counts as billed, for calls whose ids are not known."""
    completion_tokens: int | None = None
    sampling: Sampling | None = None
    finish_reason: str | None = None
    """stop, length, tool_calls, content_filter, error, cancelled, or a server's own word."""
    t: float | None = None
    duration_s: float | None = None

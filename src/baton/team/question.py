"""A call on its way: what is asked, and whether a recorded call was asked the same."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.team.budget import PromptCharge
from baton.team.clock import Op
from baton.team.protocol import Engine, Request
from baton.trace.records import Call, Ints, Sampling


class Question(Struct, frozen=True, kw_only=True):
    """A call on its way: what is asked, and what of it is new."""

    engine: Engine
    request: Request
    ids: Ints | None
    prompt_ref: str
    parent: str | None
    keep: int
    harness: str
    prompt: PromptCharge


def same_question(call: Call, question: Question) -> bool:
    """Whether a recorded call was asked this very thing."""
    request = question.request
    return (
        call.prompt_ref == question.prompt_ref
        and call.parent == question.parent
        and call.keep == question.keep
        and call.prompt_ids == question.ids
        and call.sampling is not None
        and _same_draw(call.sampling, request.sampling)
        and call.harness == question.harness
    )


def _same_draw(recorded: Sampling, asked: Sampling) -> bool:
    """Under whichever replicate it was recorded; that stands behind the key that is asked for."""
    key = (recorded.key or "").removeprefix(asked.key or "")
    return structs.replace(recorded, key=asked.key) == asked and (not key or key.startswith("/"))


def has_weights(call: Call, engine: Engine) -> bool:
    """Whether an engine is still the one that answered, where it says which it is."""
    if call.versions is not None:
        return False  # no weights drew all of it
    version = getattr(engine, "version", None)
    return version is None or call.policy_version is None or call.policy_version == str(version)


def with_key(question: Question, key: str) -> Question:
    """The same question, drawn by another key."""
    request = question.request
    return structs.replace(
        question, request=structs.replace(request, sampling=structs.replace(request.sampling, key=key))
    )


def memory_key(op: Op) -> Any:
    """What an answer is remembered by when the same fork is tried again."""
    if op.kind == "tool":
        tool, args = op.work
        return op.id, tool.name, msgspec.json.encode(args)
    request = op.work.request
    return op.id, request.sampling.key, tuple(request.entries)

"""What each token of an answer was, and how probable, as OpenAI's dialects tell it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from msgspec.structs import replace

from baton.serve.dialects.fields import Fields
from baton.serve.exchange import Alternative, ReplyChoice
from baton.trace.records import Floats, Ints


def token_logprobs(choice: ReplyChoice, wanted: int | None) -> list[dict[str, Any]] | None:
    """One record for each token, with `wanted` alternatives; None: not asked for, or nobody knows."""
    if wanted is None or choice.said is None or choice.logprobs is None or choice.token_ends is None:
        return None
    records, begin = [], 0
    for place, (end, logprob) in enumerate(zip(choice.token_ends, choice.logprobs, strict=True)):
        others = choice.alternatives[place] if place < len(choice.alternatives) else ()
        top = [_told(other) for other in others[:wanted]]
        own = _told(Alternative(token=choice.said[begin:end], logprob=float(logprob)))
        records.append({**own, "top_logprobs": top})
        begin = int(end)
    return records


def _told(alternative: Alternative) -> dict[str, Any]:
    token = alternative.token
    return {"token": token, "logprob": alternative.logprob, "bytes": list(token.encode())}


def with_tokens(choice: ReplyChoice, tokens: Sequence[Fields]) -> ReplyChoice:
    """The choice with what a server told of its tokens; as it is, where nothing was told."""
    if not tokens:
        return choice
    said = [token.text("token") for token in tokens]
    return replace(
        choice,
        said="".join(said),
        logprobs=Floats([_logprob(token) for token in tokens]),
        token_ends=Ints(list(accumulate(map(len, said)))),
        alternatives=tuple(
            tuple(
                Alternative(token=top.text("token"), logprob=_logprob(top))
                for top in token.each("top_logprobs")
            )
            for token in tokens
        ),
    )


def _logprob(fields: Fields) -> float:
    value = fields.number("logprob", float("-inf"), 1.0)
    return 0.0 if value is None else value

"""What each token of an answer was, and how probable, as OpenAI's dialects tell it."""

from __future__ import annotations

from typing import Any

from baton.serve.exchange import Alternative, ReplyChoice


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

"""Reading a chat completion: what the server said becomes an Answer, or an error that shows what was wrong.

Tool calls become text, one `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` line each, after the
content, so that one parser serves every engine. Log-probabilities are kept only where they are of the
distribution the tokens were drawn from: servers mostly report the model's own, before temperature and
truncation, so with any other sampling they are not measured.
"""

from __future__ import annotations

import codecs
import json
import math
import zlib
from itertools import accumulate
from typing import Any

from msgspec import Struct

from baton.team.budget import estimate_tokens
from baton.team.protocol import Answer, EngineError, Request
from baton.trace.records import Floats, Ints

_UNREADABLE = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RecursionError)
MAX_TOKENS = 10**9
"""More than any call has: a server that says so is not believed."""
_ROUNDING = 1e-3
_MAX_TOKEN_BYTES = 4096
_MAX_NAME_CHARS = 200
_AT_LEAST_BYTES = 1_000_000
_BYTES_OF_A_TOKEN = 4_000


def most_bytes(max_tokens: int | None, limit: int) -> int:
    """How long a reply may be: what is written about so many tokens, and what a server adds to any reply."""
    return limit if max_tokens is None else min(limit, _AT_LEAST_BYTES + _BYTES_OF_A_TOKEN * max_tokens)


def unpacked(raw: bytes, encoding: str, most: int) -> bytes:
    """A body without its compression, at most a byte longer than `most`: a small one may hide gigabytes.

    Raises ValueError where it was not packed as its encoding says.
    """
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"it is encoded as {encoding[:100]!r}, which was not asked for")
    for bits in (47, -15):  # gzip or zlib by its first bytes; deflate as some servers understand it
        unpacker = zlib.decompressobj(bits)
        try:
            found = unpacker.decompress(raw, most + 1)
        except zlib.error:
            continue
        if unpacker.eof or len(found) > most:
            return found
    raise ValueError(f"it is not {encoding}, as it says, or it was cut off")


def read_reply(
    reply: Any, request: Request, *, model: str, version: str | None, logprobs_of_sampling: bool
) -> Answer | EngineError:
    """An Answer from the decoded body of a chat completion."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        content = _content(message.get("content"))
        calls = [_call_text(call) for call in message.get("tool_calls") or ()]
        usage = usage_of(reply, "\n".join([content, *calls] if content else calls))
        logprobs, ends = _logprobs((choice.get("logprobs") or {}).get("content"), content)
        ids = choice.get("token_ids")
        completion_ids = None if ids is None else Ints(ids)
        said = version or _name(reply.get("system_fingerprint") or reply.get("model") or model)
        reason = _name(choice.get("finish_reason") or "stop")
    except _UNREADABLE as error:
        return EngineError(f"the server's reply is not a chat completion ({error!r}): {_shown(reply)}")
    text = "\n".join([content, *calls] if content else calls)
    if not _is_unicode(f"{text}{said}{reason}"):
        return EngineError("the server's reply holds half of a surrogate pair, which is no character.")
    sampling = request.sampling
    if sampling.max_tokens is not None and len(text) > _most_chars(sampling.max_tokens):
        return EngineError(
            f"the server answered with {len(text):,} characters where at most {sampling.max_tokens:,} tokens "
            "were asked for."
        )
    plain = sampling.temperature == 1.0 and sampling.top_p == 1.0 and sampling.top_k is None
    if not (plain or logprobs_of_sampling):
        logprobs = None
    if calls or (completion_ids is not None and ends is not None and len(ends) != len(completion_ids)):
        ends = None  # the tokens spell the call in the model's own form, not in this text
    if completion_ids is not None and logprobs is not None and len(logprobs) != len(completion_ids):
        logprobs = None
    options = request.options or ()
    return Answer(
        text=text,
        policy=model,
        policy_version=said,
        completion_ids=completion_ids,
        logprobs=logprobs,
        token_ends=ends,
        choice=options.index(text.strip()) if text.strip() in options else None,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        estimated=usage.estimated,
        finish_reason=reason,
    )


def _shown(reply: Any) -> str:
    """The beginning of a reply; whoever asked cuts it, after the key is out of it."""
    try:
        return json.dumps(reply)[:10_000]
    except RecursionError:
        return "it is nested too deep to be shown"


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name that is a {type(value).__name__}")
    return value[:_MAX_NAME_CHARS]


class ReplyUsage(Struct, frozen=True, kw_only=True):
    """What a reply says that it cost; None: it does not say."""

    prompt: int | None = None
    completion: int | None = None
    estimated: bool = False
    """True: only their sum was told, and how it is divided is an estimate."""

    def counts(self, text: str) -> bool:
        """Whether the server counted both, of a reply with this text: no prompt and no text has zero tokens."""
        return bool(self.prompt) and (bool(self.completion) or not text) and not self.estimated


def usage_of(reply: Any, text: str) -> ReplyUsage:
    """What a reply with this text cost. Whole numbers count however they are written; a total fills in for a part."""
    usage = reply.get("usage") or {}
    prompt, completion, total = (
        _count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    )
    if not total or (prompt is not None and completion is not None and (prompt or completion)):
        return ReplyUsage(prompt=prompt, completion=completion)
    if prompt and prompt <= total:
        return ReplyUsage(prompt=prompt, completion=total - prompt)
    if completion and completion <= total:
        return ReplyUsage(prompt=total - completion, completion=completion)
    said = max(0, min(total - 1, estimate_tokens(text)))  # no prompt has zero tokens
    return ReplyUsage(prompt=total - said, completion=said, estimated=True)


def usage_shown(reply: Any) -> str:
    """The beginning of what a reply says that it cost, as one line."""
    usage = reply.get("usage") if isinstance(reply, dict) else None
    return "nothing" if usage is None else json.dumps(usage, separators=(",", ":"))[:_MAX_NAME_CHARS]


def billed(reply: Any) -> tuple[int | None, int | None]:
    """What a reply says that it cost, prompt and completion, where the rest of it cannot be used."""
    try:
        usage = usage_of(reply, "")
    except _UNREADABLE:
        return None, None
    return usage.prompt, usage.completion


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") == "text")


def _call_text(call: Any) -> str:
    name, arguments = call["function"]["name"], call["function"].get("arguments") or "{}"
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        parsed = arguments  # as it came: the surface tells the model what is wrong with it
    return f"<tool_call>{json.dumps({'name': name, 'arguments': parsed}, ensure_ascii=False)}</tool_call>"


def _most_chars(max_tokens: int) -> int:
    """Longer than any answer of so many tokens: every command in it would be carried out, or told to be wrong."""
    return 10_000 + 64 * max_tokens


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _count(value: Any) -> int | None:
    """A number of tokens, also where it is written as text or with a point; None where there is none. One that no call
    can have is an error, not a bill."""
    is_text = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
    if is_text or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if type(value) is not int:
        return None
    if not 0 <= value <= MAX_TOKENS:
        raise ValueError(f"a usage of {value} tokens")
    return value


def _logprob(value: Any) -> float:
    """A log-probability. Servers' arithmetic may end a little above 0."""
    number = float(value)
    if not -math.inf < number <= _ROUNDING:
        raise ValueError(f"a log-probability of {number}")
    return min(number, 0.0)


def _raw(token: Any) -> bytes:
    given = token.get("bytes")
    if given is None:
        return str(token["token"]).encode()
    if (
        not isinstance(given, list) or len(given) > _MAX_TOKEN_BYTES
    ):  # bytes(3_000_000_000) would be made, too
        raise ValueError("a token's bytes that are no short list of bytes")
    return bytes(given)


def _logprobs(tokens: Any, content: str) -> tuple[Floats | None, Ints | None]:
    """Log-probabilities, and where each token ends in the content (None where the tokens do not spell it)."""
    if not tokens:
        return None, None
    logprobs = Floats([_logprob(token["logprob"]) for token in tokens])
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(_raw(token)) for token in tokens]
    ends = list(accumulate(map(len, pieces)))
    if not "".join(pieces).startswith(content):
        return logprobs, None
    # Beyond the content there is at most an end-of-turn token.
    return logprobs, Ints([min(end, len(content)) for end in ends])

"""What a vLLM server says, as far as it is used: the bodies of its answers, and what is read out of them.

Written after vLLM 0.32 and tried against it. Its own forms stop here: what leaves this module is Baton's.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from baton.engine.posting import NoAnswer
from baton.trace.records import Floats, Ints, VersionSpan

T = TypeVar("T")
_ROUNDING = 1e-3
_OLDEST = "0.11"


class ServedModel(Struct, frozen=True):
    """A model, or an adapter on one, that the server answers with."""

    id: str
    root: str | None = None
    """Where it was loaded from, on the server's machine."""
    parent: str | None = None
    """The model that an adapter is on; None: it is no adapter."""
    max_model_len: int | None = None


class Generated(Struct, frozen=True, kw_only=True):
    """One completion, token by token."""

    token_ids: Ints
    logprobs: Floats | None
    """Of the tokens, as the server's `--logprobs-mode` tells them."""
    versions: tuple[VersionSpan, ...] = ()
    """Which of the server's weights drew which tokens, as the server calls them; nothing: it does not say."""
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()
    """For each token the likeliest ids with their log-probabilities, the likeliest first; only where asked for."""
    finish_reason: str
    stop_reason: int | str | None = None
    """Which end token or stop text it was, where it was not the model's own end."""
    prompt_tokens: int


class _Alternative(Struct):
    token_id: int
    logprob: float | None = None


class _Drawn(Struct):
    token_id: int
    logprob: float | None = None
    top_logprobs: list[_Alternative] = []


class _Contents(Struct):
    content: list[_Drawn] | None = None


class _Span(Struct):
    version: str
    start: int
    end: int


class _TokensChoice(Struct):
    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    weight_versions: list[_Span] | None = None
    logprobs: _Contents | None = None


class _Usage(Struct):
    prompt_tokens: int


class _Tokens(Struct):
    """The body of `/inference/v1/generate`."""

    choices: list[_TokensChoice]
    usage: _Usage
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class _Told(Struct):
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] = []


class _TextChoice(Struct):
    token_ids: list[int]
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: _Told | None = None
    prompt_logprobs: list[dict[str, Any] | None] | None = None


class _Completion(Struct):
    """The body of `/v1/completions`."""

    choices: list[_TextChoice]
    usage: _Usage


class _Models(Struct):
    data: list[ServedModel]


def read_models(body: Any) -> tuple[ServedModel, ...]:
    """The models in the body of `/v1/models`."""
    return tuple(_read(body, _Models).data)


def read_tokens(body: Any, *, alternatives: int) -> Generated:
    """The completion in the body of `/inference/v1/generate`."""
    told = _read(body, _Tokens)
    choice = _only(told.choices)
    drawn = ([] if choice.logprobs is None else choice.logprobs.content) or []
    return Generated(
        token_ids=_ids(choice.token_ids),
        logprobs=_logprobs([each.logprob for each in drawn], len(choice.token_ids)),
        versions=_versions(choice.weight_versions or [], len(choice.token_ids)),
        alternatives=tuple(
            _sorted([(each.token_id, each.logprob) for each in token.top_logprobs], alternatives)
            for token in drawn
            if alternatives
        ),
        finish_reason=choice.finish_reason or "stop",
        stop_reason=choice.stop_reason,
        prompt_tokens=told.usage.prompt_tokens,
    )


def read_completion(body: Any, *, alternatives: int) -> Generated:
    """The completion in the body of `/v1/completions`, asked with ids in place of the words of tokens."""
    told = _read(body, _Completion)
    choice = _only(told.choices)
    given = choice.logprobs or _Told()
    return Generated(
        token_ids=_ids(choice.token_ids),
        logprobs=_logprobs(given.token_logprobs, len(choice.token_ids)),
        alternatives=tuple(
            _sorted([(_named(name), logprob) for name, logprob in (top or {}).items()], alternatives)
            for top in given.top_logprobs
            if alternatives
        ),
        finish_reason=choice.finish_reason or "stop",
        stop_reason=choice.stop_reason,
        prompt_tokens=told.usage.prompt_tokens,
    )


def read_scores(body: Any, token_ids: list[int]) -> Floats:
    """The model's own log-probability of each token but the first, after those before it."""
    told: Any = _read(body, _Tokens) if "prompt_logprobs" in body else _only(_read(body, _Completion).choices)
    given = told.prompt_logprobs or []
    if len(given) != len(token_ids):
        raise NoAnswer(
            f"vLLM gave {len(given)} log-probabilities of a prompt of {len(token_ids)} tokens.", status=502
        )
    found: list[float | None] = []
    for token, each in zip(token_ids[1:], given[1:], strict=True):
        entry = (each or {}).get(str(token))
        found.append(entry.get("logprob") if isinstance(entry, dict) else None)
    return _logprobs(found, len(token_ids) - 1) or Floats([])


def _versions(spans: list[_Span], size: int) -> tuple[VersionSpan, ...]:
    """Spans that follow each other without a gap from the first token to the last; joined where they are one's."""
    at = 0
    made: list[VersionSpan] = []
    for span in spans:
        if span.start != at or span.end < at:
            raise NoAnswer(
                f"vLLM's weight versions do not follow each other: {span.start} after {at}.", status=502
            )
        at = span.end
        if made and made[-1].version == span.version:
            made.pop()
        if at > (made[-1].end if made else 0):
            made.append(VersionSpan(version=span.version, end=at))
    if spans and at != size:
        raise NoAnswer(f"vLLM's weight versions end at token {at} of {size}.", status=502)
    return tuple(made)


def _logprobs(given: list[float | None], size: int) -> Floats | None:
    """One for every token, or none. Arithmetic may end a little above 0; -9999 stands for a chance of nothing."""
    if not given and size:
        return None
    if len(given) != size:
        raise NoAnswer(f"vLLM gave {len(given)} log-probabilities of {size} tokens.", status=502)
    numbers: list[float] = []
    for each in given:
        if each is None or not -math.inf < each <= _ROUNDING:
            raise NoAnswer(f"vLLM gave a log-probability of {each}.", status=502)
        numbers.append(min(each, 0.0))
    return Floats(numbers)


def _sorted(given: list[tuple[int, float | None]], most: int) -> tuple[tuple[int, float], ...]:
    known = [(token, min(logprob, 0.0)) for token, logprob in given if logprob is not None]
    return tuple(sorted(known, key=lambda each: (-each[1], each[0]))[:most])


def _named(name: str) -> int:
    number = name.removeprefix("token_id:")
    if not number.isdecimal():
        raise NoAnswer(f"vLLM names a token {name[:50]!r}, where token_id:NUMBER was asked for.", status=502)
    return int(number)


def _ids(given: list[int]) -> Ints:
    try:
        return Ints(given)
    except (OverflowError, ValueError):
        raise NoAnswer("vLLM's token ids are no whole numbers from 0 on.", status=502) from None


def _only(choices: list[T]) -> T:
    if len(choices) != 1:
        raise NoAnswer(f"vLLM gave {len(choices)} completions; expected one.", status=502)
    return choices[0]


def _read(body: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(body, kind)
    except msgspec.MsgspecError as error:
        raise NoAnswer(
            f"the answer is not vLLM's: {error}. Is it a vLLM server, from {_OLDEST} on?", status=502
        ) from None

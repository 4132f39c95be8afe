"""Check an engine: the same question has the same answer, and the numbers of an answer fit together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.testing.check_tools import CheckFailed, require
from baton.trace.records import Sampling

_OPTIONS = ("stop 1", "stop 2", "stop 3")
_TASKS = ("what is 6 x 7?", "what is 6 x 8?", "name a colour", "é 漢 🙂", "")


def check_engine(
    engine: Engine,
    *,
    options: tuple[str, ...] | None = _OPTIONS,
    max_tokens: int = 24,
    tolerance: float = 1e-3,
) -> None:
    """Ask it the same things alone, together and in another order. `tolerance` is for log-probs, which may round."""
    require(
        isinstance(engine, Engine), f"{type(engine).__name__} is no Engine: it needs name, encode and answer."
    )
    require(isinstance(engine.name, str) and engine.name, f"expected a name, got {engine.name!r}.")
    asyncio.run(_check(engine, options, max_tokens, tolerance))


async def _check(engine: Engine, options: tuple[str, ...] | None, max_tokens: int, tolerance: float) -> None:
    first = [_request(engine, task, k, options, max_tokens) for k, task in enumerate(_TASKS)]
    together = await _answers(engine, first)
    for request, answer in zip(first, together, strict=True):
        _check_answer(engine, request, answer)
    same = "expected the same answer: a key and an input name it"
    for request, answer in zip(first, together, strict=True):
        (alone,) = await _answers(engine, [request])
        _require_same(
            answer, alone, tolerance, f"{request.call}, asked alone after it was asked with others: {same}"
        )
    backwards = await _answers(engine, first[::-1])
    for request, answer, other in zip(first, together, backwards[::-1], strict=True):
        _require_same(answer, other, tolerance, f"{request.call}, asked in another order: {same}")
    later = [_continued(engine, request, answer) for request, answer in zip(first, together, strict=True)]
    for request, answer in zip(later, await _answers(engine, later), strict=True):
        _check_answer(engine, request, answer)
    require(await engine.answer([]) == [], f"{engine.name}: expected no answers to no requests.")
    if asyncio.iscoroutinefunction(closing := getattr(engine, "close", None)):
        await closing()  # what it holds open belongs to this event loop


def _request(
    engine: Engine, task: str, number: int, options: tuple[str, ...] | None, max_tokens: int
) -> Request:
    entries = [Entry("system", "You are worker1."), Entry("user", task)]
    ids = engine.encode(entries, None)
    again = engine.encode(list(entries), None)
    require(_listed(ids) == _listed(again), f"{engine.name}: the same entries were encoded in two ways.")
    require(ids is None or len(ids), f"{engine.name}: entries were encoded as nothing.")
    return Request(
        call=f"worker1:{number}",
        agent="worker1",
        role="worker",
        entries=entries,
        prompt_ids=ids,
        sampling=Sampling(max_tokens=max_tokens, key=f"check/{number}"),
        options=options,
    )


def _continued(engine: Engine, request: Request, answer: Answer) -> Request:
    """The next turn of the same context: what was said is kept as sampled, only what is new is encoded."""
    new = [Entry("tool", "search: nothing"), Entry("user", "go on")]
    entries = [*request.entries, Entry("assistant", answer.text), *new]
    ids = engine.encode(new, answer)
    known = request.prompt_ids is not None
    require(
        (ids is not None) == known,
        f"{engine.name}: expected encode to give ids at the start of a context and after an answer, or never.",
    )
    require(
        not known or answer.completion_ids is not None,
        f"{engine.name}: it encodes prompts, so its answers need completion_ids.",
    )
    whole = None if ids is None else [*(request.prompt_ids or ()), *(answer.completion_ids or ()), *ids]
    sampling = structs.replace(request.sampling, key=f"{request.sampling.key}/later")
    return structs.replace(
        request, call=f"{request.call}b", entries=entries, prompt_ids=whole, sampling=sampling
    )


async def _answers(engine: Engine, requests: Sequence[Request]) -> list[Answer]:
    try:
        answers = await engine.answer(requests)
    except Exception as error:
        raise CheckFailed(
            f"{engine.name}: answer raised {type(error).__name__}: {error}; expected an EngineError in the list."
        ) from error
    require(
        len(answers) == len(requests), f"{engine.name}: {len(requests)} requests, {len(answers)} answers."
    )
    good: list[Answer] = []
    for request, answer in zip(requests, answers, strict=True):
        if not isinstance(answer, Answer):
            what = f"{answer}" if isinstance(answer, EngineError) else f"a {type(answer).__name__}"
            raise CheckFailed(f"{engine.name}: {request.call}: expected an Answer, got {what}")
        good.append(answer)
    return good


def _check_answer(engine: Engine, request: Request, answer: Answer) -> None:
    where = f"{engine.name}: {request.call}"
    require(answer.policy, f"{where}: the answer does not say which policy gave it.")
    ids, logprobs, ends = answer.completion_ids, answer.logprobs, answer.token_ends
    limit = request.sampling.max_tokens
    if ids is not None:
        require(limit is None or len(ids) <= limit, f"{where}: {len(ids)} tokens where {limit} were allowed.")
        require(
            answer.completion_tokens in (None, len(ids)),
            f"{where}: completion_tokens is {answer.completion_tokens}, and there are {len(ids)} ids.",
        )
    for name, values in (("logprobs", logprobs), ("token_ends", ends)):
        if values is not None:
            require(
                ids is not None and len(values) == len(ids),
                f"{where}: expected {name} for each completion id.",
            )
    require(
        logprobs is None or all(math.isfinite(v) and v <= 1e-6 for v in logprobs),
        f"{where}: expected finite log-probabilities, at most 0; got {_listed(logprobs)}.",
    )
    places = _listed(ends) or []
    require(
        places == sorted(places) and all(0 <= end <= len(answer.text) for end in places),
        f"{where}: expected token_ends that rise inside the text ({len(answer.text)} long); got {places}.",
    )
    _check_choice(where, request, answer)


def _check_choice(where: str, request: Request, answer: Answer) -> None:
    chances = answer.option_propensities
    if answer.choice is None:
        require(chances is None, f"{where}: propensities of options, and no choice among them.")
        return
    options = request.options or ()
    require(0 <= answer.choice < len(options), f"{where}: choice {answer.choice} of {len(options)} options.")
    require(
        answer.text == options[answer.choice],
        f"{where}: it chose {options[answer.choice]!r} and said {answer.text!r}.",
    )
    if chances is not None:
        require(
            len(chances) == len(options), f"{where}: {len(chances)} propensities, {len(options)} options."
        )
        require(
            math.isclose(math.fsum(chances), 1.0, abs_tol=1e-6) and chances[answer.choice] > 0.0,
            f"{where}: expected propensities that sum to 1 and a choice that was possible; got {chances}.",
        )


def _require_same(answer: Answer, other: Answer, tolerance: float, message: str) -> None:
    def facts(a: Answer) -> tuple[Any, ...]:
        return (a.text, _listed(a.completion_ids), a.choice, a.policy, a.policy_version)

    require(facts(answer) == facts(other), f"{message}; got {answer.text!r} and {other.text!r}.")
    pairs = zip(answer.logprobs or (), other.logprobs or (), strict=True)
    far = max((abs(a - b) for a, b in pairs), default=0.0)
    require(far <= tolerance, f"{message}; its log-probs are {far:g} apart.")


def _listed(values: Any) -> list[Any] | None:
    return None if values is None else list(values)

"""An engine that is a Python function: deterministic play for tests, warm starts and fixed team members.

The function gets the Request and returns the text, the index of an option, or a whole Answer; it may be
async. What it returns is completed to token in, token out (see `tokens`); its ids are bytes, so nobody counts its
tokens and they are estimated, unless it returns an Answer that counts them. A script is deterministic, so its
log-probs are zero, unless it returns an Answer with `choice` and `option_propensities`: then the first
token carries the log-probability of the choice. A script that fails gives an EngineError, never a crash.
"""

from __future__ import annotations

import inspect
import math
from asyncio import gather
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TypeAlias, cast

from msgspec.structs import replace

from baton import registry
from baton.engine.tokens import completion, encode_entries
from baton.errors import UsageError, nearest
from baton.team.budget import BYTES_PER_TOKEN, Charging
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.trace.records import Floats, Ints

Reply: TypeAlias = str | int | Answer
Script: TypeAlias = Callable[[Request], Reply | Awaitable[Reply]]


class ScriptedEngine:
    """A Python function behind the engine protocol."""

    separate = True
    charging: Charging = "estimated"
    answer_now: Callable[[Request], Answer | EngineError] | None
    """Answers without an event loop; None where the script is async."""

    def __init__(self, name: str, function: Script, *, version: str = "0") -> None:
        self.name = name
        self.version = version
        self._function = function
        self.answer_now = None if inspect.iscoroutinefunction(function) else self._answer_now

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return encode_entries(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        if self.answer_now is not None:
            return [self.answer_now(request) for request in requests]
        return list(await gather(*(self._answer_later(request) for request in requests)))

    def _answer_now(self, request: Request) -> Answer | EngineError:
        try:
            reply = self._function(request)
        except Exception as error:
            return self._failed(error)
        if inspect.iscoroutine(reply):
            cast(Coroutine[None, None, Reply], reply).close()
            return EngineError(f"script {self.name!r} returned a coroutine. Declare it with `async def`.")
        return self._finish(request, cast(Reply, reply))

    async def _answer_later(self, request: Request) -> Answer | EngineError:
        try:
            reply = await cast(Awaitable[Reply], self._function(request))
        except Exception as error:
            return self._failed(error)
        return self._finish(request, reply)

    def _failed(self, error: Exception) -> EngineError:
        if isinstance(error, EngineError):
            return error
        made = EngineError(f"script {self.name!r} failed: {type(error).__name__}: {error}")
        made.__cause__ = error
        return made

    def _finish(self, request: Request, reply: Reply) -> Answer | EngineError:
        if type(reply) is str:
            choice = request.options.index(reply) if request.options and reply in request.options else None
            return self._spoken(request, reply, choice, None)
        if type(reply) is int:
            options = request.options or ()
            if not 0 <= reply < len(options):
                return EngineError(
                    f"script {self.name!r} chose option {reply}, but {len(options)} were given."
                )
            return self._spoken(request, options[reply], reply, None)
        if isinstance(reply, Answer):
            return self._completed(request, reply)
        return EngineError(
            f"script {self.name!r} returned {type(reply).__name__}. "
            "Return the text (str), the index of an option (int) or an Answer."
        )

    def _spoken(
        self, request: Request, text: str, choice: int | None, propensities: tuple[float, ...] | None
    ) -> Answer:
        ids, ends, logprobs = completion(text)
        finish = "stop"
        limit = request.sampling.max_tokens
        limit = None if limit is None else BYTES_PER_TOKEN * limit
        if limit is not None and len(ids) > limit:
            ids, ends, logprobs, finish = ids[:limit], ends[:limit], logprobs[:limit], "length"
            text = text[: ends[-1]] if limit else ""
        if choice is not None and propensities is None and request.options is not None:
            propensities = tuple(1.0 if i == choice else 0.0 for i in range(len(request.options)))
        return Answer(
            text=text,
            policy=self.name,
            policy_version=self.version,
            completion_ids=ids,
            logprobs=logprobs,
            token_ends=ends,
            choice=choice,
            option_propensities=propensities,
            finish_reason=finish,
        )

    def _completed(self, request: Request, given: Answer) -> Answer | EngineError:
        """Fill in the tokens a script's own Answer leaves out."""
        if given.completion_ids is not None:
            return given
        made = self._spoken(request, given.text, given.choice, given.option_propensities)
        logprobs = made.logprobs
        if given.choice is not None and given.option_propensities is not None and made.completion_ids:
            if not 0 <= given.choice < len(given.option_propensities):
                return EngineError(
                    f"script {self.name!r} chose option {given.choice} without a propensity for it."
                )
            chosen = given.option_propensities[given.choice]
            if not 0.0 < chosen <= 1.0:
                return EngineError(
                    f"script {self.name!r} chose an option of propensity {chosen}; expected (0, 1]."
                )
            logprobs = Floats([math.log(chosen), *[0.0] * (len(made.completion_ids) - 1)])
        return replace(
            made,
            policy=given.policy,
            policy_version=given.policy_version,
            logprobs=logprobs,
            prompt_tokens=given.prompt_tokens,
            completion_tokens=given.completion_tokens,
            estimated=given.estimated,
            finish_reason=made.finish_reason if made.finish_reason == "length" else given.finish_reason,
            duration_s=given.duration_s,
        )


# Built-in scripts, by name. Each is one function from a Request to a reply.


def echo(request: Request) -> str:
    """Say the last entry again."""
    return request.entries[-1].text if request.entries else ""


def first(request: Request) -> str | int:
    """Take the first option; where there is none, echo."""
    return 0 if request.options else echo(request)


SCRIPTS: dict[str, Script] = {"echo": echo, "first": first}


def find_script(name: str) -> Script:
    """A built-in script by name, or `module:function`."""
    if name in SCRIPTS:
        return SCRIPTS[name]
    if not registry.is_reference(name):
        raise UsageError(
            f"there is no built-in script {name!r}. {nearest(name, SCRIPTS)} Or give module:function."
        )
    function = registry.imported("script", name)
    if not callable(function):
        raise UsageError(f"script {name!r} is a {type(function).__name__}; expected a function of a request.")
    return function  # type: ignore[no-any-return]  # what it returns is checked call by call

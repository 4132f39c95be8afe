"""The policy protocol: what the runtime asks, and what an engine answers.

Token in, token out: an engine with a tokenizer turns new context entries into ids once, and the
runtime only ever appends them, so the ids an engine is asked with are exactly the ids it saw and
produced before. The same request (input and sampling key) must give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from baton.errors import BatonError
from baton.trace.records import Floats, Ints, Sampling, VersionSpan


class EngineError(BatonError):
    """An engine could not answer. Recorded in the trace; the team decides what follows."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """What the server billed all the same, where it says so."""


MODEL_FAILED = "the model failed"
"""How the error of an engine begins whose model broke: that says nothing about the call."""
NOT_ASKED = "not asked: all calls before failed"
"""The error of a call to an engine that has failed for long enough."""


class Entry(Struct, frozen=True):
    """One entry of an agent's context."""

    speaker: Literal["system", "user", "assistant", "tool"]
    """user: tasks, messages and returns of other agents, errors; tool: results of tools."""
    text: str


class TokenWatch(Protocol):
    """Stands beside the drawing of one answer: says which tokens may come next, and hears what else could have.

    For engines that say `watches = True`; others do not look at it.
    """

    top: int
    """How many of the likeliest tokens it wants to hear of, at each place."""

    def mask(self, ids: Sequence[int]) -> bytes | None:
        """Which tokens may follow these, the answer so far: a bit for each, lowest first. None: any."""
        ...

    def hear(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """The likeliest tokens at the next place, best first, under the distribution that is drawn from."""
        ...


class Request(Struct, frozen=True, kw_only=True):
    """One LLM call, asked."""

    call: str
    """Id of the call; with the run's seed it makes the sampling key."""
    agent: str
    role: str
    entries: Sequence[Entry]
    """The whole context so far, oldest first. Shared and growing: read it, do not keep it."""
    prompt_ids: Sequence[int] | None
    """The same context as ids, for engines with a tokenizer. Shared and growing likewise."""
    sampling: Sampling
    options: tuple[str, ...] | None = None
    """The finite set of admissible answers, where the task names one."""
    state: str | None = None
    """Key of the agent's information state, for tabular policies; None: the last entry's text."""
    tools: tuple[dict[str, Any], ...] = ()
    """JSON schemas of the verbs and tools open to this agent (OpenAI's tool form)."""
    watch: TokenWatch | None = None
    """Who stands beside the drawing of the answer."""


class Answer(Struct, frozen=True, kw_only=True):
    """One LLM call, answered."""

    text: str
    policy: str
    policy_version: str = "0"
    versions: tuple[VersionSpan, ...] | None = None
    """Which weights drew which tokens, where they changed while it was answered; None: all by `policy_version`."""
    completion_ids: Ints | None = None
    logprobs: Floats | None = None
    token_ends: Ints | None = None
    """For each completion token, the offset in `text` where it ends: how spans of text become spans of tokens."""
    choice: int | None = None
    """Index into the request's options."""
    option_propensities: tuple[float, ...] | None = None
    prompt_tokens: int | None = None
    """Of the whole prompt, as whoever answered counts it; None: nobody counted (see `baton.team.budget.bill_of`)."""
    completion_tokens: int | None = None
    estimated: bool = False
    """True: the two counts are estimates."""
    finish_reason: str = "stop"
    duration_s: float | None = None
    """Modelled latency, under a virtual clock; None: the runtime's latency model, or the real time taken."""


@runtime_checkable
class Engine(Protocol):
    """Anything that answers calls.

    How its calls are charged it says by an attribute `charging` (`baton.team.budget.Charging`); without one, as billed.
    """

    name: str

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        """Ids that `entries` add to a context, up to where the next completion begins.

        `after` is the answer they follow (None at the start of a context), so that an end-of-turn
        token already sampled is not written twice. None: this engine has no tokenizer.
        """
        ...

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        """Answer a batch, in order. Engines that batch continuously may be called concurrently.

        An engine that may be out of reach can have `async def reach()` besides, which raises an EngineError then.
        One that answers each request on its own (`separate = True`) is asked one by one where answers are kept as
        they come, so that a slow one does not hold up what the others said.
        """
        ...

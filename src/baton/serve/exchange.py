"""What a program asks and what it is answered, in one form for all dialects and all backends.

A dialect turns a request's body into an `Ask` and a `Reply` into a body or a stream; a backend turns an `Ask` into a
`Reply`. So a dialect knows nothing of models, a backend nothing of HTTP, and a session's journal has one kind of
record whatever the program spoke.

Invariant: an `Ask` holds everything of the request that an answer may depend on, and nothing that changes when the same
program asks the same thing again (no times, no addresses).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from baton.trace.records import Floats, Ints, Sampling, VersionSpan

Dialect = Literal["chat", "responses", "messages"]
"""Chat Completions, Responses (both OpenAI's) and Messages (Anthropic's)."""

Finish = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class _Part(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What all parts have in common: fields by name, and what is not said is not written.

    None is ever in a circle, so the collector need not look at them: a long session holds hundreds of thousands.
    """


class ToolAsk(_Part, frozen=True, kw_only=True):
    """A model asks for a tool."""

    id: str
    name: str
    arguments: str
    """JSON as text, exactly as it was said: a model may say what is no JSON."""


class Utterance(_Part, frozen=True, kw_only=True):
    """One message of a conversation."""

    speaker: Literal["system", "user", "assistant", "tool"]
    """A developer's message is the system's."""
    text: str = ""
    thinking: str = ""
    """What was thought before the text."""
    sign: str | None = None
    """What a server wants back with a thought, opaque to us."""
    uses: tuple[ToolAsk, ...] = ()
    answers: str | None = None
    """Of a tool's: id of the use that it answers."""
    name: str | None = None
    """Who speaks, where the program says so; of a tool's, the tool."""
    failed: bool = False
    """Of a tool's: it says that it failed."""
    others: tuple[dict[str, Any], ...] = ()
    """Parts that are no text (pictures, files), as they came."""


class ToolOffer(_Part, frozen=True, kw_only=True):
    """A tool that a model may ask for."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """JSON schema."""
    raw: dict[str, Any] | None = None
    """The whole offer, where it is of a kind that only its own server knows."""


class Ask(_Part, frozen=True, kw_only=True):
    """One request for an answer."""

    dialect: Dialect
    model: str
    messages: tuple[Utterance, ...]
    tools: tuple[ToolOffer, ...] = ()
    tool_choice: str = "auto"
    """auto, none, required, or the name of a tool after `tool:`."""
    parallel: bool = True
    """Whether several tools may be asked for at once."""
    json: bool = False
    """The answer has to be JSON."""
    json_schema: dict[str, Any] | None = None
    """The answer has to be JSON of this schema."""
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    """None: not wanted. Otherwise how many alternatives of each token are wanted beside its own."""
    stream: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of the dialect that only an upstream of the same dialect understands, as they came."""
    wording: dict[str, Any] = field(default_factory=dict)
    """How the request put what the other fields say (cache marks, ids of items, parts of a text): it says nothing
    new, may change when the same is asked again, and is kept so that an upstream can be sent the same."""


class Alternative(_Part, frozen=True, kw_only=True):
    """What could have been said in place of a token."""

    token: str
    logprob: float


class ReplyChoice(_Part, frozen=True, kw_only=True):
    """One answer; an ask for n has n of them."""

    message: Utterance
    finish: Finish = "stop"
    stop: str | None = None
    """Which stop string ended it."""
    said: str | None = None
    """The completion as it was sampled, before tools and thoughts were read out of it; None: nobody knows."""
    completion_ids: Ints | None = None
    logprobs: Floats | None = None
    """Of each completion token, under the distribution that drew it."""
    token_ends: Ints | None = None
    """For each completion token, the offset in `said` where it ends."""
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    versions: tuple[VersionSpan, ...] | None = None
    """Which weights drew which tokens, where they changed while it was answered."""


class Reply(_Part, frozen=True, kw_only=True):
    """What a backend answered."""

    choices: tuple[ReplyChoice, ...]
    policy: str
    policy_version: str = "0"
    prompt_ids: Ints | None = None
    """The whole prompt."""
    keep: int = 0
    """How many of these are the prompt and completion of the exchange that this one grows from, as they were."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """Of all choices together."""
    cached_tokens: int | None = None
    thinking_tokens: int | None = None
    """How many of the completion's were thought and not said."""
    estimated: bool = False
    rules: dict[str, str] = field(default_factory=dict)
    """By which rules the prompt was made and the answer read, such as {"thinking": "dropped", "tools": "hermes"}."""
    raw: dict[str, Any] | None = None
    """An upstream's reply as it came, in the ask's own dialect: it is passed on unchanged."""


class Exchange(_Part, frozen=True, kw_only=True):
    """One call of a program: what a session's journal tells of it."""

    session: str
    id: str
    """From the content of the ask and how often it was asked before in this session; never from clock or arrival."""
    number: int
    """Place among the session's exchanges by arrival."""
    ask: Ask
    reply: Reply | None = None
    """None: not answered (yet), or `refused`."""
    refused: str | None = None
    """Why no answer was given."""
    headers: dict[str, str] = field(default_factory=dict)
    """Those that say who asks (harness ids, traceparent), by lower-case name; never a key."""
    grows_from: str | None = None
    """Id of the earlier exchange whose prompt and answer this ask begins with."""
    choice: int = 0
    """Which of its answers."""
    begun: float = 0.0
    """Seconds since 1970."""
    duration_s: float | None = None
    retries: int = 0
    """How often the program asked the same again because it had not heard the answer: no second draw."""


class Posted(_Part, frozen=True, kw_only=True):
    """What a program or its harness says of a session: a reward, or that it ended."""

    session: str
    reward: float | None = None
    name: str | None = None
    """The reward's channel."""
    target: str | None = None
    """An exchange's id; None: the whole session."""
    ended: bool = False
    status: Literal["ok", "failed", "cut"] | None = None
    """How it ended: by itself, by a fault of its own, or at a limit."""
    why: str | None = None
    """Which limit ended it, in words."""
    answer: str | None = None
    """What the program gave in the end (its standard output, for one)."""
    exit_code: int | None = None
    """Of the program, where Baton ran it."""
    at: float = 0.0

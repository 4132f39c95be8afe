"""The records of a trace: payloads, calls, events, edges, rewards, credits, charges, and the arrays of numbers in them.

Payloads are text and tool content, stored once under their own hash, compressed. A payload may be absent for privacy
while its address stays in the trace. Untrusted content is bytes here and data everywhere: Baton never evaluates it.

Token ids and log-probabilities are immutable arrays. A tuple of Python ints costs 36 bytes a token; these cost 4 (ids)
and 8 (log-probs), compare by value, hash, slice to their own kind, and give numpy a view without a copy. In JSON they
are plain lists; in Parquet, list columns.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from msgspec import Struct, field

from baton.errors import CorruptError
from baton.trace.vocabulary import CreditUnit, Decision, EdgeType, EventType, RewardFamily, Status

N = TypeVar("N", int, float)


class _Numbers(Sequence[N], Generic[N]):
    """A read-only typed array. Subclasses name the element's typecode."""

    __slots__ = ("_data",)
    typecode: str

    def __init__(self, values: Iterable[N] | array[N] = ()) -> None:
        self._data: array[N] = array(self.typecode, values)

    @classmethod
    def from_buffer(cls, buffer: bytes | memoryview | np.ndarray[Any, Any]) -> Self:
        """From machine-order bytes, or from a numpy array of any numeric kind."""
        made = cls()
        raw = buffer.astype(cls.typecode).tobytes() if isinstance(buffer, np.ndarray) else buffer
        made._data.frombytes(raw)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A read-only view; no copy."""
        view = np.frombuffer(self._data, dtype=self.typecode)
        view.flags.writeable = False
        return view

    def tolist(self) -> list[N]:
        return self._data.tolist()

    def tobytes(self) -> bytes:
        return self._data.tobytes()

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[N]:
        return iter(self._data)

    @overload
    def __getitem__(self, index: int) -> N: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> N | Self:
        if isinstance(index, slice):
            return type(self)(self._data[index])
        return self._data[index]

    def __add__(self, other: Self) -> Self:
        return type(self)(self._data + other._data)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data.tobytes())

    def __repr__(self) -> str:
        shown = ", ".join(str(v) for v in self._data[:6])
        return f"{type(self).__name__}([{shown}{', …' if len(self) > 6 else ''}], len={len(self)})"


class Ints(_Numbers[int]):
    """Token ids, 4 bytes each."""

    typecode = "i"


class Floats(_Numbers[float]):
    """Log-probabilities, 8 bytes each, kept exactly as the sampler gave them."""

    typecode = "d"


def encode_hook(value: Any) -> Any:
    """For msgspec encoders: arrays become lists."""
    if isinstance(value, _Numbers):
        return value.tolist()
    raise TypeError(f"cannot encode {type(value).__name__} in a trace")


def decode_hook(kind: type, value: Any) -> Any:
    """For msgspec decoders: lists become arrays. Raises on anything but finite numbers of the right kind."""
    if kind is Ints:
        if type(value) is not list or any(type(v) is not int for v in value):
            raise TypeError("Expected an array of integers")
        try:
            return Ints(value)
        except OverflowError:
            raise TypeError("Expected an array of 32-bit integers") from None
    if kind is Floats:
        if type(value) is not list or any(type(v) not in (int, float) for v in value):
            raise TypeError("Expected an array of numbers")
        return Floats(value)
    raise TypeError(f"cannot decode {kind.__name__} from a trace")


# Where a spread ends and rounding begins.
#
# Numbers that are all alike seldom have a deviation of exactly zero: their mean is off in its last digit. Whatever
# divides by a deviation asks here first, or it would divide by that digit.

ROUNDING = 1e-12
"""A deviation of no more than this share of the numbers' own size is rounding."""


_PREFIX = "b2:"
_COMPRESS_FROM_BYTES = 128  # below this zlib's header eats the gain


_EMPTY = blake2b(digest_size=20)
"""Of nothing yet: to copy it takes half as long as to make one."""


def content_address(content: bytes) -> str:
    """`b2:` and 40 hex digits: BLAKE2b of the uncompressed bytes."""
    digest = _EMPTY.copy()
    digest.update(content)
    return _PREFIX + digest.hexdigest()


def is_content_address(ref: str) -> bool:
    """Whether `ref` is an address of ours, and so can be checked against its payload."""
    return ref.startswith(_PREFIX) and len(ref) == len(_PREFIX) + 40


MAX_CONTENT_BYTES = 256 * 2**20
"""A packed content may be a thousand times its size: no reader unpacks more than this."""


class Tagged(Struct, tag_field="kind", frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What all records have in common: a `kind` that tells them apart in a file, and no field but their own."""


class Payload(Tagged, tag="payload", frozen=True, kw_only=True, gc=False):
    """Content under its address."""

    ref: str
    size: int
    """Uncompressed bytes."""
    media_type: str = "text/plain"
    codec: str = "raw"
    """raw or zlib."""
    data: bytes | None = None
    """None: withheld."""

    @classmethod
    def of(cls, content: str | bytes, media_type: str = "text/plain") -> Payload:
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        ref = content_address(raw)
        if len(raw) >= _COMPRESS_FROM_BYTES:
            packed = zlib.compress(raw, 6)
            if len(packed) < len(raw):
                return cls(ref=ref, size=len(raw), media_type=media_type, codec="zlib", data=packed)
        return cls(ref=ref, size=len(raw), media_type=media_type, data=raw)

    def content(self) -> bytes | None:
        """The bytes, or None when withheld. Raises `CorruptError` when they do not fit their address."""
        if self.data is None:
            return None
        raw = self.data
        if self.codec == "zlib":
            raw = _inflate(raw, self.size, self.ref)
        elif self.codec != "raw":
            raise CorruptError(f"payload {self.ref} has codec {self.codec!r}; expected 'raw' or 'zlib'.")
        if len(raw) != self.size or (is_content_address(self.ref) and content_address(raw) != self.ref):
            raise CorruptError(f"payload {self.ref} does not match its address: the content was altered.")
        return raw

    def text(self) -> str | None:
        raw = self.content()
        return None if raw is None else raw.decode("utf-8", "replace")

    def withheld(self) -> Payload:
        """The same address without the content."""
        return Payload(ref=self.ref, size=self.size, media_type=self.media_type)


def _inflate(packed: bytes, size: int, ref: str) -> bytes:
    """Never produces more than the declared size, so a small payload cannot fill memory."""
    if not 0 <= size <= MAX_CONTENT_BYTES:  # below 0, zlib would take it for no limit at all
        raise CorruptError(
            f"payload {ref} declares {size:,} bytes; expected 0 to {MAX_CONTENT_BYTES:,}, the most that is unpacked."
        )
    machine = zlib.decompressobj()
    try:
        raw = machine.decompress(packed, size + 1)
    except zlib.error as error:
        raise CorruptError(f"payload {ref} cannot be decompressed: {error}.") from None
    if len(raw) > size or not machine.eof:
        raise CorruptError(f"payload {ref} does not have its declared size of {size} bytes.")
    return raw


# Calls: one LLM call each, token in and token out, exactly as sampled.
#
# An agent's prompt mostly repeats its previous call. So a call may name the call it grows from:
# its prompt is the first `keep` tokens of that call's prompt + completion, then `prompt_ids`.
# A conversation of n turns then costs O(n) tokens in the trace, not O(n^2), and a step costs the
# same at turn 10 and at turn 10,000. `Trace.prompt_ids(call)` gives the whole prompt.


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the tokens were drawn."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    key: str | None = None
    """Names the random stream; the same key and input give the same tokens."""


class VersionSpan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Which weights drew a stretch of a completion: from where the stretch before it ends."""

    version: str
    end: int
    """The first token that they did not draw any more."""


class Call(Tagged, tag="call", frozen=True, kw_only=True):
    """One LLM call."""

    id: str
    agent: str
    role: str | None = None
    policy: str | None = None
    """Name of the model or policy that answered."""
    policy_version: str | None = None
    """Which weights; a trainer compares it with its own. Of a call that weights changed under, those it began with."""
    versions: tuple[VersionSpan, ...] | None = None
    """Which weights drew which tokens, where they changed while it was answered; None: one version drew them all."""
    harness: str | None = None
    """Hash of the harness the prompt went through."""
    parent: str | None = None
    """The call this prompt grows from; after a handoff, another agent's."""
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
    """Counts as billed, of the whole prompt. The ids of scripted play are bytes: there the counts are estimates."""
    completion_tokens: int | None = None
    estimated: bool = False
    """True: nobody counted, and at least one of the two counts is an estimate."""
    sampling: Sampling | None = None
    finish_reason: str | None = None
    """stop, length, tool_calls, content_filter, error, cancelled, or a server's own word."""
    t: float | None = None
    duration_s: float | None = None


# Events and edges: the vertices and arcs of an orchestration trace.
#
# The survey's fields keep the survey's names; the rest is what its schema cannot say (who chose,
# among what, how likely, with which tokens). Every field but `id`, `t`, `type`, `agent` and `seq`
# may be absent, and absent means "not measured", never zero.


class Event(Tagged, tag="event", frozen=True, kw_only=True):
    """One thing that happened."""

    id: str
    """Unique in its trace."""
    t: float
    """Start, in seconds since the trace began. For display and durations; `seq` is the order."""
    type: EventType
    agent: str
    """Who acts. For a tool_result, the tool or the agent that receives it."""
    seq: int
    """Place in one causal order of the trace: every edge goes from a lower seq to a higher one."""

    role: str | None = None
    """The agent's role; on a spawn, the child's."""
    from_: str | None = field(default=None, name="from")
    to: str | None = None
    """The receiver; on a spawn or despawn, the child."""
    tool: str | None = None
    content_ref: str | None = None
    """Address of the payload (`Payload.ref`), or an opaque pointer from another system."""
    trusted: bool | None = None

    decision: Decision = "none"
    """Which learned decision this event carries out."""
    options: tuple[str, ...] | None = None
    """What could have been chosen here, after masks."""
    choice: int | None = None
    """Index into `options` of what was chosen."""
    propensity: float | None = None
    """Probability with which the chosen option was sampled, after masks and temperature."""
    option_propensities: tuple[float, ...] | None = None
    """The whole distribution over `options`, where the policy gives it."""
    call: str | None = None
    """Id of the `Call` whose completion said this."""
    span: tuple[int, int] | None = None
    """Half-open range of that completion's tokens."""
    duration_s: float | None = None
    tokens: int | None = None
    """Tokens charged to this event. A call is charged to one event; the sum is the trace's cost."""
    status: Status = "ok"
    inferred: bool = False
    """True when an importer concluded that this happened; False when it was recorded."""
    why: str | None = None
    """Of what was inferred, from what it was concluded."""
    seed_key: str | None = None
    """Key of the random draw behind this event, for common random numbers in forks."""
    pure: bool | None = None
    """For tool calls: same arguments, same result, no effect on the world."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Properties of other systems, kept as they came."""


class Edge(Tagged, tag="edge", frozen=True, gc=False):
    """`dst` depends on `src`."""

    src: str
    dst: str
    type: EdgeType
    inferred: bool = False
    why: str | None = None
    """Of what was inferred, from what it was concluded."""


# Reward, credit and charge: records that later stages attach to units of a trace.
#
# A record names its unit and its target. What a target is, by unit:
#   team          the trace id
#   orchestrator  id of the event that carries the decision
#   role          the role's name
#   agent         the agent's id
#   turn          id of the call
#   message       id of the event; `event>agent` for one receiver of it
#   tool_call     id of the event
#   token         `call:index` into the call's completion


class Reward(Tagged, tag="reward", frozen=True, kw_only=True):
    """What something was worth."""

    family: RewardFamily
    unit: CreditUnit
    target: str
    value: float
    name: str | None = None
    """The channel's name where a family has several; the family's own name otherwise."""
    by: str | None = None
    """What computed it, so that it can be computed again."""

    @property
    def channel(self) -> str:
        return self.family if self.name is None else self.name


class Credit(Tagged, tag="credit", frozen=True, kw_only=True):
    """Who earned it."""

    unit: CreditUnit
    target: str
    value: float
    estimator: str
    stderr: float | None = None
    cost_tokens: int | None = None
    """Tokens re-run to get this estimate."""
    cost_calls: int | None = None
    assumes: tuple[str, ...] = ()
    """What the estimate takes for granted."""


class Charge(Tagged, tag="charge", frozen=True, kw_only=True):
    """What a constraint counts against a run: a cost that is no reward, and that no return has in it."""

    channel: str
    """Which cost: violations, tainted-calls, spending, or another's name."""
    unit: CreditUnit
    target: str
    value: float
    by: str | None = None
    """What counted it, so that it can be counted again."""

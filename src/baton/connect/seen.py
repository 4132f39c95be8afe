"""What another system's files tell, in Baton's words and before any of it is joined.

A reader turns the entries of a file into sightings, each as it stands; `assemble` joins the sightings of a session into
one trace. So a reader knows a format and nothing of graphs, and one joiner serves all formats.

Invariant: sightings carry their own identity and place. `key` says what a thing is (seen twice under one key, it is one
thing, and what the later sighting knows and the earlier did not is added), `order` where it stands in the life of its
agent. So a file that is shuffled, doubled or interleaved with another gives the same trace, and one that is cut gives
the part that is there.

`why` is the difference between recorded and inferred: None where the source says it, otherwise the reason for which the
reader concluded it. Nothing is concluded without one.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from baton.trace.records import Sampling, VersionSpan
from baton.trace.vocabulary import CreditUnit, Decision, EdgeType, EventType, RewardFamily, Status, Topology


class Sighting(Struct, tag_field="seen", frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What all sightings have in common. `seen` tells them apart in a journal, where each is one line of JSON."""

    session: str
    """Which run this belongs to, by the source's own id: one session is one trace."""
    key: str
    """Names the thing within its session and its kind of sighting, by the source's own ids."""
    at: str = ""
    """Where it stood, for a person: `file:line`, a span's id."""
    why: str | None = None
    """None: recorded. Otherwise why the reader concluded it, as half a sentence: "no entry names a parent"."""


class SeenSession(Sighting, tag="session", frozen=True, kw_only=True, gc=False):
    """The run itself; `key` is its session. Nothing needs to be known but that it is there."""

    system: str | None = None
    """Which program with which version, such as "claude-code 2.1.325"."""
    task: str | None = None
    """What was asked."""
    topology: Topology | None = None
    started: float | None = None
    """Seconds since 1970 of the trace's zero; None: the earliest time of any sighting."""
    logged: bool = False
    """True: times are those of a log, of when an entry was written; what it tells had ended then. How long an answer or
    a tool took is concluded from them."""
    finished: bool | None = None
    """Whether the source says that it ended; None: it does not say."""
    metrics: dict[str, float] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)


class SeenAgent(Sighting, tag="agent", frozen=True, kw_only=True, gc=False):
    """Somebody who acts. `key` is what events call it, one through handoffs, continuation and resume."""

    name: str | None = None
    """What a person calls it; the trace's id is this where it is unique, else this and a number."""
    words: str | None = None
    """What was said that it is for: it is called by that where it has no name, and where words may be kept."""
    role: str | None = None
    parent: str | None = None
    """Key of the agent that brought it to life; None: nobody is named."""


class Link(Struct, frozen=True, gc=False):
    """An event depends on another, named by key."""

    key: str
    type: EdgeType
    why: str | None = None


class SeenCall(Sighting, tag="call", frozen=True, kw_only=True, gc=False):
    """One answer of a model. What is not known is None: a count that is not sure is no count."""

    agent: str
    order: tuple[float, ...] = ()
    t: float | None = None
    """Seconds since 1970 when it began."""
    duration_s: float | None = None
    policy: str | None = None
    """The model's name."""
    policy_version: str | None = None
    """Which weights; where they changed meanwhile, those it began with."""
    versions: tuple[VersionSpan, ...] | None = None
    """Which weights drew which tokens, where they changed."""
    parent: str | None = None
    """Key of the call whose prompt this one grows from; it may be another agent's (handoff)."""
    prompt: tuple[tuple[str, str], ...] | None = None
    """What is new in the prompt, as (speaker, text)."""
    completion: str | None = None
    prompt_tokens: int | None = None
    """As billed, of the whole prompt, with what was read from a cache."""
    completion_tokens: int | None = None
    estimated: bool = False
    """Nobody counted: at least one of the two counts is an estimate."""
    keep: int | None = None
    """How many tokens of the parent's prompt and completion the prompt begins with."""
    prompt_ids: tuple[int, ...] | None = None
    """The whole prompt; with `keep`, the rest of it."""
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    token_ends: tuple[int, ...] | None = None
    """For each completion token, the offset in `completion` where it ends."""
    temperature: float | None = None
    sampling: Sampling | None = None
    """All of how it was drawn, where more than the temperature is known."""
    finish_reason: str | None = None
    status: Status | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class SeenEvent(Sighting, tag="event", frozen=True, kw_only=True, gc=False):
    """One thing that happened."""

    agent: str
    """Key of who acts; of a tool_result, who receives it."""
    type: EventType
    order: tuple[float, ...] = ()
    """Place in the agent's life; compared with the agent's other sightings only. Ties are broken by key."""
    t: float | None = None
    """Seconds since 1970 when it began, for display: `order` and links say what came first."""
    duration_s: float | None = None
    to: str | None = None
    """Key of the agent that receives; of a spawn or despawn, the child."""
    tool: str | None = None
    content: str | None = None
    """Text, or JSON as text; `media_type` says which."""
    media_type: str = "text/plain"
    trusted: bool | None = None
    decision: Decision | None = None
    """None: what this type of event always is (a spawn decides to spawn)."""
    call: str | None = None
    """Key of the call that said it."""
    span: tuple[int, int] | None = None
    """Half-open range of that call's completion tokens."""
    tokens: int | None = None
    """Only for what no call carries."""
    status: Status | None = None
    after: tuple[Link, ...] = ()
    """What it depends on beside its agent's previous event, which is understood."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Properties of the source, kept as they came."""


class SeenReward(Sighting, tag="reward", frozen=True, kw_only=True, gc=False):
    """A score that the source gave."""

    value: float
    family: RewardFamily = "shared"
    unit: CreditUnit = "team"
    target: str | None = None
    """Key of the agent, call or event; None: the whole run."""
    name: str | None = None
    by: str | None = None


Seen = SeenSession | SeenAgent | SeenCall | SeenEvent | SeenReward

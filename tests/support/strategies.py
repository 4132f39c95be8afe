"""Hypothesis strategies for traces.

`valid_traces` plays a small team, so that what it gives holds at every level of validation.
`arbitrary_traces` holds at the level of shape (with events in `seq` order, and costs once it is
finished) and no further: ids repeat, edges dangle and cycle, `extra` collides with field names.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import structs

from baton.trace.records import (
    Call,
    Credit,
    Edge,
    Event,
    Floats,
    Ints,
    Payload,
    Reward,
    Sampling,
    VersionSpan,
)
from baton.trace.trace import Header, Trace
from baton.trace.vocabulary import (
    CREDIT_UNITS,
    DECISIONS,
    EDGE_TYPES,
    EVENT_TYPES,
    REWARD_FAMILIES,
    STATUSES,
    TOPOLOGIES,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(["a", "b", "orchestrator", "worker-1", "é", "a b"]) | texts.filter(bool)
_ids = st.sampled_from(["e0", "e1", "e2", "e3", "c0", "c1"]) | names
_counts = st.integers(0, 2**53)
_seconds = st.floats(0, 1e9)
_values = st.floats(-1e12, 1e12)
_probabilities = st.floats(0, 1)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
_json_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)
_extra_keys = (
    st.sampled_from(["model", "kind", "baton", "baton_", "extra", "from_", *Event.__struct_encode_fields__])
    | texts
)
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, _json_values, max_size=3)
_extras = st.just({}) | st.dictionaries(_extra_keys, _json_values, max_size=3)
_metrics = st.dictionaries(texts, _values, max_size=3)
_costs = st.fixed_dictionaries(
    {}, optional={"tokens": _seconds, "wall_clock_s": _seconds, "tool_calls": _seconds, "usd": _values}
)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _tuples(strategy: st.SearchStrategy[Any], size: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=size).map(tuple)


_payloads = st.builds(
    lambda content, media_type, withhold: (
        Payload.of(content, media_type).withheld() if withhold else Payload.of(content, media_type)
    ),
    texts | st.binary(max_size=300) | st.integers(100, 400).map(lambda n: "so " * n),
    st.sampled_from(["text/plain", "application/json"]),
    st.booleans(),
)
_events = st.builds(
    Event,
    id=_ids,
    t=_seconds,
    type=st.sampled_from(EVENT_TYPES),
    agent=names,
    seq=st.integers(0, 8) | _counts,
    role=_maybe(texts),
    from_=_maybe(texts),
    to=_maybe(texts),
    tool=_maybe(texts),
    content_ref=_maybe(texts),
    trusted=_maybe(st.booleans()),
    decision=st.sampled_from(DECISIONS),
    options=_maybe(_tuples(texts)),
    choice=_maybe(_counts),
    propensity=_maybe(_probabilities),
    option_propensities=_maybe(_tuples(_probabilities)),
    call=_maybe(_ids),
    span=_maybe(st.tuples(_counts, _counts)),
    duration_s=_maybe(_seconds),
    tokens=_maybe(_counts),
    status=st.sampled_from(STATUSES),
    inferred=st.booleans(),
    why=_maybe(texts),
    seed_key=_maybe(texts),
    pure=_maybe(st.booleans()),
    extra=_extras,
)
_plain_events = st.builds(
    Event,
    id=_ids,
    t=_seconds,
    type=st.sampled_from(EVENT_TYPES),
    agent=names,
    seq=st.integers(0, 8),
    extra=_extras,
)
_edges = st.builds(Edge, _ids, _ids, st.sampled_from(EDGE_TYPES), st.booleans(), _maybe(texts))
_samplings = st.builds(
    Sampling,
    temperature=_seconds,
    top_p=_probabilities,
    top_k=_maybe(_counts),
    max_tokens=_maybe(_counts),
    stop=_tuples(texts),
    key=_maybe(texts),
)
_token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(Ints)
_logprobs = st.lists(st.floats(-1e6, 0), max_size=4).map(Floats)
_versions = st.lists(st.builds(VersionSpan, version=names, end=_counts), max_size=3).map(tuple)
_calls = st.builds(
    Call,
    id=_ids,
    agent=names,
    role=_maybe(texts),
    policy=_maybe(texts),
    policy_version=_maybe(texts),
    versions=_maybe(_versions),
    harness=_maybe(texts),
    parent=_maybe(_ids),
    keep=_counts,
    prompt_ids=_maybe(_token_ids),
    completion_ids=_maybe(_token_ids),
    logprobs=_maybe(_logprobs),
    token_ends=_maybe(_token_ids),
    prompt_ref=_maybe(texts),
    completion_ref=_maybe(texts),
    estimated=st.booleans(),
    prompt_tokens=_maybe(_counts),
    completion_tokens=_maybe(_counts),
    sampling=_maybe(_samplings),
    finish_reason=_maybe(texts),
    t=_maybe(_seconds),
    duration_s=_maybe(_seconds),
)
_rewards = st.builds(
    Reward,
    family=st.sampled_from(REWARD_FAMILIES),
    unit=st.sampled_from(CREDIT_UNITS),
    target=names,
    value=_values,
    name=_maybe(texts),
    by=_maybe(texts),
)
_credits = st.builds(
    Credit,
    unit=st.sampled_from(CREDIT_UNITS),
    target=names,
    value=_values,
    estimator=names,
    stderr=_maybe(_seconds),
    cost_tokens=_maybe(_counts),
    cost_calls=_maybe(_counts),
    assumes=_tuples(texts),
)
_headers = st.builds(
    Header,
    trace_id=names,
    task_id=names,
    system=_maybe(texts),
    topology=st.sampled_from(TOPOLOGIES),
    meta=json_objects,
)


@st.composite
def arbitrary_traces(draw: st.DrawFn, min_events: int = 0, max_events: int = 5) -> Trace:
    """Any trace the record types allow."""
    finished = draw(st.booleans())
    events = draw(st.lists(_events | _plain_events, min_size=min_events, max_size=max_events))
    return Trace(
        header=draw(_headers),
        events=tuple(sorted(events, key=lambda event: event.seq)),
        edges=draw(_tuples(_edges)),
        calls=draw(_tuples(_calls, 2)),
        payloads={payload.ref: payload for payload in draw(st.lists(_payloads, max_size=3))},
        rewards=draw(_tuples(_rewards)),
        credits=draw(_tuples(_credits)),
        costs=draw(_costs) if finished else {},
        metrics=draw(_metrics) if finished else {},
        finished=finished,
    )


class _Team:
    """A team at play: every step is legal, every event is linked to what it depends on."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.calls: list[Call] = []
        self.payloads: dict[str, Payload] = {}
        self.t = 0.0
        self.parent: dict[str, str] = {}  # agents alive, but for the root
        self.num_spawned = 0
        self.last: dict[str, str] = {}  # agent -> its latest event
        self.inbox: dict[str, list[tuple[str, str]]] = {}  # agent -> what its next event depends on

    def alive(self) -> list[str]:
        return ["root", *self.parent]

    def leaves(self) -> list[str]:
        return [agent for agent in self.parent if agent not in self.parent.values()]

    def say(self, agent: str) -> dict[str, Any]:
        """The fields of an event that a call's completion said."""
        size = self.draw(st.integers(1, 5))
        before = [call for call in self.calls if call.agent == agent]
        payload = Payload.of(self.draw(texts))
        self.payloads[payload.ref] = payload
        call = Call(
            id=f"c{len(self.calls)}",
            agent=agent,
            policy="p",
            policy_version="0",
            parent=before[-1].id if before else None,
            keep=1 if before else 0,
            prompt_ids=Ints(range(self.draw(st.integers(1, 4)))),
            completion_ids=Ints(range(size)),
            logprobs=Floats([-0.5] * size),
            finish_reason="stop",
            t=self.t,
            duration_s=0.25,
        )
        self.calls.append(call)
        return {
            "call": call.id,
            "span": (0, size),
            "tokens": size,
            "duration_s": 0.25,
            "content_ref": payload.ref,
        }

    def log(self, type_: str, agent: str, *after: tuple[str, str], **fields: Any) -> Event:
        self.t += self.draw(st.sampled_from([0.0, 0.25, 1.0]))
        event = Event(
            id=f"e{len(self.events)}",
            t=self.t,
            type=type_,  # type: ignore[arg-type]  # always one of the ten
            agent=agent,
            seq=len(self.events),
            **fields,
        )
        self.events.append(event)
        self.t += event.duration_s or 0.0
        pairs = [*after, *self.inbox.pop(agent, [])]
        if agent in self.last and self.last[agent] not in [src for src, _ in pairs]:
            pairs.append((self.last[agent], "temporal"))
        self.edges += [Edge(src, event.id, kind) for src, kind in pairs]  # type: ignore[arg-type]
        self.last[agent] = event.id
        return event

    def spawn(self) -> None:
        agent = self.draw(st.sampled_from(self.alive()))
        child = f"w{self.num_spawned}"
        self.num_spawned += 1
        event = self.log(
            "spawn",
            agent,
            to=child,
            role="worker",
            decision="spawn",
            options=("no spawn", "spawn"),
            choice=1,
            propensity=0.5,
            option_propensities=(0.5, 0.5),
            **self.say(agent),
        )
        self.parent[child] = agent
        task = self.log("message", agent, from_=agent, to=child, decision="delegate")
        self.inbox[child] = [(event.id, "spawn"), (task.id, "message")]

    def message(self) -> None:
        agent, to = self.draw(st.sampled_from(self.alive())), self.draw(st.sampled_from(self.alive()))
        if agent != to:
            event = self.log("message", agent, from_=agent, to=to, decision="communicate", **self.say(agent))
            self.inbox.setdefault(to, []).append((event.id, "message"))

    def tool(self) -> None:
        agent = self.draw(st.sampled_from(self.alive()))
        call = self.log("tool_call", agent, tool="search", pure=True, **self.say(agent))
        status = self.draw(st.sampled_from(["ok", "failed"]))
        self.log(
            "tool_result", agent, (call.id, "tool_dependency"), tool="search", trusted=False, status=status
        )

    def give_back(self) -> None:
        agent = self.draw(st.sampled_from(self.leaves()))
        parent = self.parent[agent]
        event = self.log("return", agent, from_=agent, to=parent, **self.say(agent))
        self.log("despawn", parent, (event.id, "return"), to=agent)
        del self.parent[agent]

    def stop(self) -> None:
        while self.parent:
            self.give_back()
        returns = [
            (event.id, "aggregate") for event in self.events if event.type == "return" and event.to == "root"
        ]
        self.log("aggregate", "root", *returns, decision="aggregate")
        self.log("orchestrator_decision", "root", decision="stop", propensity=1.0, **self.say("root"))


@st.composite
def valid_traces(draw: st.DrawFn, max_steps: int = 8) -> Trace:
    """A finished trace of a team that keeps every rule."""
    team = _Team(draw)
    team.log("orchestrator_decision", "root", role="lead", decision="continue", **team.say("root"))
    for step in draw(
        st.lists(st.sampled_from(["spawn", "message", "tool", "give_back"]), max_size=max_steps)
    ):
        if step != "give_back" or team.parent:
            getattr(team, step)()
    team.stop()
    header = structs.replace(
        draw(_headers), trace_id="t-" + draw(st.sampled_from("abc")), topology="centralized"
    )
    kinds = [event.type for event in team.events]
    return Trace(
        header=header,
        events=tuple(team.events),
        edges=tuple(team.edges),
        calls=tuple(team.calls),
        payloads=team.payloads,
        rewards=(Reward(family="shared", unit="team", target=header.trace_id, value=draw(_values)),),
        credits=(Credit(unit="agent", target="root", value=draw(_values), estimator="uniform"),),
        costs={
            "tokens": float(sum(event.tokens or 0 for event in team.events)),
            "wall_clock_s": team.t,
            "tool_calls": float(kinds.count("tool_call")),
            "messages": float(kinds.count("message")),
        },
        metrics=draw(_metrics),
    )

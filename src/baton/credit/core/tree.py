"""Rollouts that begin alike, as a tree: where they part, the branches are alternatives in one context.

A rollout is a path of steps (events or turns); rollouts with the same first k steps share k nodes. Forks
of a trace share all before the fork. Times, ids and probabilities are not compared, only what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from itertools import pairwise
from statistics import fmean
from typing import Self

from baton.credit.core.acts import turns
from baton.credit.estimator import CreditError, Group, Prefix, RewardOf, Value, returns
from baton.errors import TraceError
from baton.trace.outcome import team_return
from baton.trace.trace import Trace


class Tree:
    """Node 0 is the root; `paths[i][k]` is the node of rollout i after k steps."""

    def __init__(self, paths: list[list[int]], num_nodes: int) -> None:
        self.paths = paths
        self.members: list[list[int]] = [[] for _ in range(num_nodes)]
        """For each node, the rollouts through it."""
        self.children: list[list[int]] = [[] for _ in range(num_nodes)]
        self.ends: list[list[int]] = [[] for _ in range(num_nodes)]
        """For each node, the rollouts that end there."""
        for rollout, path in enumerate(paths):
            for before, node in pairwise(path):
                if not self.members[node]:
                    self.children[before].append(node)
                self.members[node].append(rollout)
            self.members[0].append(rollout)
            self.ends[path[-1]].append(rollout)

    @classmethod
    def of(cls, rollouts: Sequence[Sequence[Hashable]]) -> Self:
        """The tree of some rollouts, from the steps of each."""
        known: dict[tuple[int, Hashable], int] = {}
        paths = []
        for steps in rollouts:
            path = [0]
            for step in steps:
                path.append(known.setdefault((path[-1], step), len(known) + 1))
            paths.append(path)
        return cls(paths, len(known) + 1)

    def mean(self, node: int, values: Sequence[float]) -> float:
        """The mean over the rollouts through a node."""
        return fmean(values[rollout] for rollout in self.members[node])

    def backed_up(self, values: Sequence[float]) -> list[float]:
        """V(node) = mean of its children; a rollout that ends there is one child more."""
        found = [0.0] * len(self.members)
        for node in reversed(range(len(found))):  # children have higher numbers
            below = [found[child] for child in self.children[node]]
            found[node] = fmean([*below, *(values[rollout] for rollout in self.ends[node])])
        return found


def said(trace: Trace, call_id: str) -> Hashable:
    """What a call answered: its tokens, else the address of its text."""
    call = trace.call_by_id.get(call_id)
    if call is None:
        return None
    return call.completion_ref if call.completion_ids is None else call.completion_ids


def event_steps(trace: Trace) -> list[Hashable]:
    """What each event was: who did what to whom. The first event of a call also stands for all it said."""
    heard: set[str] = set()
    found: list[Hashable] = []
    for event in trace.events:
        words: Hashable = None
        if event.call is not None and event.call not in heard:
            heard.add(event.call)
            words = said(trace, event.call)
        found.append(
            (
                event.agent,
                event.type,
                event.role,
                event.to,
                event.tool,
                event.content_ref,
                event.decision,
                event.choice,
                event.status,
                words,
            )
        )
    return found


def turn_steps(trace: Trace) -> list[Hashable]:
    """What each turn said, in order."""
    found: list[Hashable] = []
    for turn in turns(trace):
        words = said(trace, turn.call)
        if words is None:
            raise CreditError(
                f"trace {trace.trace_id}: what call {turn.call} answered was not recorded, so rollouts cannot be "
                "compared. Record completions (ids or text) with the calls."
            )
        found.append((turn.agent, words))
    return found


def context_key(trace: Trace, call_id: str) -> bytes:
    """A hash of all that a call was shown: the same in two rollouts when its whole prompt is."""
    call = trace.call_by_id.get(call_id)
    whole = None if call is None else trace.prompt_ids(call)
    if whole is not None:
        return blake2b(whole.tobytes(), digest_size=16).digest()
    if call is None or call.prompt_ref is None:
        raise CreditError(
            f"trace {trace.trace_id}: the prompt of call {call_id} was not recorded, so nobody can say which "
            "rollouts stood in the same state. Record prompt ids or texts, or use state='index'."
        )
    parts: list[tuple[str | None, int, Hashable]] = []
    seen: set[str] = set()
    while call is not None:
        if call.id in seen:
            raise TraceError(f"call {call_id}: its chain of parents is a cycle at {call.id}.")
        seen.add(call.id)
        words = None if not parts or call.completion_ids is None else call.completion_ids.tobytes()
        parts.append((call.prompt_ref, call.keep, (words or call.completion_ref) if parts else None))
        call = None if call.parent is None else trace.call_by_id.get(call.parent)
    return blake2b(repr(parts).encode(), digest_size=16).digest()


def tree_value(
    group: Group,
    reward: RewardOf = team_return,
    steps: Callable[[Trace], Sequence[Hashable]] = event_steps,
) -> Value:
    """A critic made of the group alone: the mean return of the rollouts that begin like this prefix."""
    totals = returns(group, reward)
    tree = Tree.of([steps(trace) for trace in group])
    place = {id(trace): number for number, trace in enumerate(group)}

    def value(prefix: Prefix) -> float:
        rollout = place.get(id(prefix.trace))
        if rollout is None:
            raise CreditError(f"trace {prefix.trace.trace_id} is not of the group this value was made from.")
        return tree.mean(tree.paths[rollout][prefix.num_events], totals)

    return value

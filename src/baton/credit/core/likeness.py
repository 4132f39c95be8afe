"""How alike rollouts are as far as a prefix goes, where what they say need not be the same.

Exact prefixes are shared by few rollouts once answers vary. So rollouts are laid side by side, place by place: a place
is an agent and the number of its event, and a prefix of one rollout is a number of events of each agent, which every
other rollout can be cut at too. At each place two rollouts are alike in up to four ways, from coarse to fine:

    kind      the type of event, its decision, status, tool and role; not to have come there is a kind too
    said      what it says to whom, or which option it took, whatever else its completion holds
    words     the words and numbers of it, rare ones counting as much as common ones
    state     the recorded state of the task and the option taken there, where the task records one

and, over all places together, in having begun exactly alike (`baton.credit.core.tree`). What one rollout alone does
tells nothing of another and counts for nothing. Likeness looks at what was done and never at a return.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from baton.credit.core.tree import Tree, event_steps
from baton.credit.estimator import Group
from baton.trace.records import Event
from baton.trace.trace import Trace

Array = NDArray[np.float64]
Place = tuple[str, int]
"""An agent, and which of its events, from 0."""
_WORD = re.compile(r"-?\d+(?:\.\d+)?|\w+")
_MAX_WORDS = 256
"""Words of one event that are looked at: the first ones."""


class _Act(NamedTuple):
    """What is compared of an event."""

    kind: Hashable
    said: Hashable
    words: frozenset[str]
    state: Hashable


_ABSENT = _Act("absent", None, frozenset(), None)


class Likeness:
    """The rollouts of a group side by side."""

    def __init__(self, group: Group) -> None:
        self.tree = Tree.of([event_steps(trace) for trace in group])
        self.paths = [places(trace) for trace in group]
        """For each rollout, the place of each of its events."""
        self._acts = [dict(zip(p, _acts(t), strict=True)) for p, t in zip(self.paths, group, strict=True)]
        self._at: dict[Place, Array] = {}
        self._begun: dict[int, Array] = {}
        self.start = _shared([trace.header.task_id for trace in group])
        """Rollouts of one instance, where there are several instances."""

    def at(self, place: Place) -> Array:
        """How alike rollouts are at one place: rollouts x rollouts."""
        if place not in self._at:
            acts = [mine.get(place, _ABSENT) for mine in self._acts]
            found = _shared([act.kind for act in acts]) + _overlap([act.words for act in acts])
            for keys in ([act.said for act in acts], [act.state for act in acts]):
                found = found + _shared(keys)
            self._at[place] = found
        return self._at[place]

    def begun_alike(self, num_events: int) -> Array:
        """Which rollouts have exactly the same first events, and that many."""
        if num_events not in self._begun:
            paths = self.tree.paths
            nodes = [path[num_events] if num_events < len(path) else None for path in paths]
            self._begun[num_events] = _shared(nodes)
        return self._begun[num_events]


def places(trace: Trace) -> list[Place]:
    """Of each event of a rollout."""
    taken: dict[str, int] = {}
    found = []
    for event in trace.events:
        number = taken.get(event.agent, 0)
        taken[event.agent] = number + 1
        found.append((event.agent, number))
    return found


def _acts(trace: Trace) -> list[_Act]:
    heard: set[str] = set()
    found = []
    for event in trace.events:
        first = event.call is not None and event.call not in heard
        heard.update([event.call] if event.call is not None else [])
        kind = (event.type, event.decision, event.status, event.tool, event.role)
        option = event.options[event.choice] if event.options and event.choice is not None else None
        content = event.content_ref if option is None else option
        said = None if content is None else (kind, event.to, content)
        state = _state(event)
        found.append(
            _Act(
                kind,
                said,
                _words(trace, event, option, first),
                None if state is None else (kind, option, state),
            )
        )
    return found


def _state(event: Event) -> str | None:
    step = event.extra.get("step")
    return repr(step.get("state")) if isinstance(step, dict) and "state" in step else None


def _words(trace: Trace, event: Event, option: str | None, first: bool) -> frozenset[str]:
    """Words of what it says; of its whole completion where it says nothing itself, as ids where only they are there."""
    text = trace.text(event.content_ref) or option
    if text is None and first:
        call = trace.call_by_id.get(event.call or "")
        text = None if call is None else trace.text(call.completion_ref)
        if text is None and call is not None and call.completion_ids is not None:
            return frozenset(f"#{token}" for token in call.completion_ids[:_MAX_WORDS])
    return frozenset(_WORD.findall((text or "").casefold())[:_MAX_WORDS])


def _shared(keys: Sequence[Hashable]) -> Array:
    """1 where two rollouts have the same key, if not all have it; what one alone has, or None, is like nothing."""
    codes: dict[Hashable, int] = {}
    numbers = np.array([-1 if key is None else codes.setdefault(key, len(codes)) for key in keys])
    counts = np.bincount(numbers[numbers >= 0], minlength=1)
    lonely = (numbers < 0) | (counts[numbers] < 2)
    if counts.max(initial=0) == len(keys) or lonely.all():
        return np.zeros((len(keys), len(keys)))
    found: Array = (numbers[:, None] == numbers) & ~lonely & ~lonely[:, None]
    return found.astype(float)


def _overlap(words: Sequence[frozenset[str]]) -> Array:
    """Cosine of the words that some rollouts have and some have not."""
    counts: dict[str, int] = {}
    for mine in words:
        for word in mine:
            counts[word] = counts.get(word, 0) + 1
    telling = sorted(word for word, count in counts.items() if 1 < count < len(words))
    if not telling:
        return np.zeros((len(words), len(words)))
    has = np.array([[word in mine for word in telling] for mine in words], dtype=float)
    length = np.sqrt(has.sum(axis=1, keepdims=True))
    has /= np.where(length > 0, length, 1.0)
    found: Array = has @ has.T
    return found

"""What a window of steps tells: how old what is trained was, who waited for whom, and what was thrown away.

A plain run has no window and never comes here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from baton.learn.policy import Policy
from baton.trace.records import Call

if TYPE_CHECKING:
    from baton.learn.rollouts import RolloutGroup, Rollouts


def window_figures(
    rollouts: Rollouts, told: dict[str, Any], trained: Sequence[RolloutGroup]
) -> dict[str, Any]:
    """Figures of a step. `told` is what players elsewhere say of it; their busy seconds become a share."""
    found: dict[str, Any] = {"staleness": staleness(trained, rollouts.policies)}
    spent, now = rollouts.spent, time.monotonic()
    wall = max(1e-9, now - spent.since)
    playing, workers = told.get("busy_seconds", spent.playing), told.get("num_workers", 1)
    found["idle"] = {
        "trainer": min(1.0, spent.waiting / wall),
        "players": max(0.0, 1.0 - playing / (wall * max(1, workers))),
    }
    spent.since, spent.waiting, spent.playing = now, 0.0, 0.0
    return found


def staleness(trained: Sequence[RolloutGroup], policies: Mapping[str, Policy]) -> dict[str, Any]:
    """How many updates behind the weights of now the ones were that drew the tokens to be trained.

    Mean over tokens, the most, and tokens by the version that drew them.
    """
    learning = {policy.engine.name: policy for policy in policies.values() if policy.learns}
    tokens: Counter[str] = Counter()
    ages: Counter[int] = Counter()
    for group in trained:
        for trace in group.traces:
            for call in trace.calls:
                if (policy := learning.get(call.policy or "")) is None:
                    continue
                for version, size in tokens_by_version(call):
                    tokens[version] += size
                    ages[policy.version - int(version)] += size
    num = sum(ages.values())
    return {
        "mean": sum(age * size for age, size in ages.items()) / num if num else 0.0,
        "max": max(ages, default=0),
        "tokens": [[version, tokens[version]] for version in sorted(tokens, key=int)],
    }


def tokens_by_version(call: Call) -> list[tuple[str, int]]:
    """Versions of weights that drew a call's tokens, with how many each drew; none where it is not known."""
    size, version = len(call.completion_ids or ()), call.policy_version or ""
    spans = (
        [(version, size)] if call.versions is None else [(span.version, span.end) for span in call.versions]
    )
    starts = [0, *(end for _, end in spans)]
    found = [(each, end - start) for (each, end), start in zip(spans, starts, strict=False)]
    return [(each, many) for each, many in found if many and each.isdigit()]

"""Rollouts as a tree: after an agent's turn, what follows is drawn again, so that branches share all before it.

What C3 and MALT compare, and AT-GRPO's samples from one state, are such branches. A branch is a fork of its
trace: the turns before are the recorded ones, token by token, and the update trains them once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from baton.credit.acts import turns
from baton.credit.forking import Forks
from baton.trace.trace import Trace

__all__ = ["branched"]

_DEPTHS = 1000
"""Replicates of one depth: branches of a rollout after one turn must not draw as those after another.

Branches of its branches do not either, since a fork's draws name the replicates of all it was made of.
"""


async def branched(group: Sequence[Trace], fan_out: Sequence[int], forks: Forks) -> list[Trace]:
    """All rollouts of one instance's tree: of each, `fan_out[k]` branches after its turn number k + 1."""
    grown = list(group)
    for depth, width in enumerate(fan_out, start=1):
        every = await asyncio.gather(*(_branches(trace, depth, width, forks) for trace in grown))
        grown = [trace for each in every for trace in each]
    return grown


async def _branches(trace: Trace, depth: int, width: int, forks: Forks) -> list[Trace]:
    said = turns(trace)
    if len(said) <= depth:  # nothing follows that could be drawn again
        return [trace]
    at = trace.events[said[depth - 1].start].id
    made = await asyncio.gather(
        *(
            forks.fork(
                trace, redraw=at, replicate=depth * _DEPTHS + k, trace_id=f"{trace.trace_id}.{depth}-{k}"
            )
            for k in range(1, width)
        )
    )
    return [trace, *(each.trace for each in made)]

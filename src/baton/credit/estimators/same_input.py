"""Credit on agents by comparison with others that were given the very same input: MarsRL.

The rollouts of one task are a tree: from one answer several verdicts were drawn, from one verdict several corrections.
Whoever comes later has other inputs in other rollouts, and is compared with those alone that had its own.
"""

from __future__ import annotations

from collections.abc import Hashable

from baton.credit.core.acts import Counts, agent_returns
from baton.credit.core.baseline import EPS, OF_BASELINE, normalised
from baton.credit.core.tree import context_key, said
from baton.credit.estimator import Credits, Group, RewardOf, estimator, make_credit
from baton.settings import NotNegative
from baton.trace.outcome import team_return
from baton.trace.trace import Trace


@estimator("input-group", "agent", needs=["group"], source="MarsRL, arXiv 2511.11373", evidence="P")
def input_group(
    group: Group, *, reward: RewardOf = team_return, counts: Counts = "both", eps: NotNegative = EPS
) -> Credits:
    """A_j = (r_j - mean) / (std + eps), over the outputs that agents of a role gave to one input.

    An input is the whole prompt of an agent's first call, an output all that the agent said. One output that several
    rollouts hold, because what follows was drawn again, is one draw: it counts once, at the mean of what it earned in
    them, and all of them are told the same. An output without another to the same input gets 0.
    Standard error: of the baseline, over the outputs compared.
    Source: MarsRL, arXiv 2511.11373 [P]; the mean over what follows an output [I].
    """
    pools: dict[Hashable, dict[Hashable, list[tuple[int, str, float]]]] = {}
    for place, trace in enumerate(group):
        for agent, value in agent_returns(trace, reward, counts).items():
            calls = [call for call in trace.calls if call.agent == agent]
            if calls:
                key = (calls[0].role, context_key(trace, calls[0].id))
                output = _output(trace, agent)
                pools.setdefault(key, {}).setdefault(output, []).append((place, agent, value))
    credits: Credits = [[] for _ in group]
    for outputs in pools.values():
        means = [sum(value for _, _, value in same) / len(same) for same in outputs.values()]
        alone = ("alone with its input, nothing to compare with",) if len(means) == 1 else ()
        for same, (value, error) in zip(outputs.values(), normalised(means, eps), strict=True):
            for place, agent, _ in same:
                notes = ("same prompt, same input", OF_BASELINE, *alone)
                credits[place].append(
                    make_credit("input-group", "agent", agent, value, stderr=error, assumes=notes)
                )
    return credits


def _output(trace: Trace, agent: str) -> Hashable:
    """All that an agent said, and by which draws: two draws of the same words are two outputs."""
    mine = [call for call in trace.calls if call.agent == agent]
    return tuple((said(trace, call.id), call.sampling and call.sampling.key) for call in mine)

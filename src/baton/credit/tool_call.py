"""Credit on tool calls: each against the other calls of the same tool. (`siblings` and `coma` apply too.)"""

from __future__ import annotations

from baton.credit.acts import acts
from baton.credit.baseline import EPS, OF_BASELINE, normalised
from baton.credit.contract import CreditError, Credits, Group, estimator, make_credit
from baton.credit.earned import own_rewards

__all__ = ["tool_group"]


@estimator("tool-group", "tool_call", needs=["tool_rewards"], source="GRPO per tool, ours", evidence="I")
def tool_group(group: Group, *, eps: float = EPS) -> Credits:
    """A = (r - mean) / (std + eps) over the calls of one tool in all rollouts, r the reward on the call.

    Calls without a reward of their own are left out; a tool called once gets 0.
    Source: GRPO's normaliser with the tool as group [I].
    """
    pools: dict[str, list[tuple[int, str, float]]] = {}
    for place, trace in enumerate(group):
        own = own_rewards(trace, ("tool_call",))
        for _, event in acts(trace, "tool_call"):
            if event.id in own:
                pools.setdefault(event.tool or "", []).append((place, event.id, own[event.id]))
    if not pools:
        raise CreditError(
            "none of these traces has rewards on tool calls. Score them first (`baton reward` with the tool family)."
        )
    credits: Credits = [[] for _ in group]
    for pool in pools.values():
        found = normalised([value for _, _, value in pool], eps)
        for (place, event_id, _), (value, stderr) in zip(pool, found, strict=True):
            credits[place].append(
                make_credit(
                    "tool-group",
                    "tool_call",
                    event_id,
                    value,
                    stderr=stderr,
                    assumes=("calls of one tool are comparable", OF_BASELINE),
                )
            )
    return credits

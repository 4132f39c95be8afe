"""Credit on the team: one number for a whole rollout, against the other rollouts of its task."""

from __future__ import annotations

from collections.abc import Sequence

from baton.credit.baseline import EPS, OF_BASELINE, Advantage, centred, left_out, normal_ranks, normalised
from baton.credit.contract import Credits, Group, RewardOf, estimator, make_credit, returns, team_return

__all__ = ["group_relative", "leave_one_out", "mean_only", "rank"]

_SAME_TASK = ("rollouts are independent draws of one task under one policy", OF_BASELINE)


@estimator("group", "team", needs=["group"], source="GRPO, arXiv 2402.03300", evidence="P")
def group_relative(group: Group, *, reward: RewardOf = team_return, eps: float = EPS) -> Credits:
    """A_i = (R_i - mean R) / (std R + eps), over the rollouts of one task.

    Source: GRPO, arXiv 2402.03300 [P]; std with n - 1 and eps = 1e-4 as in TRL [C].
    """
    found = normalised(returns(group, reward, at_least=2, what="group"), eps)
    return _written("group", group, found, (*_SAME_TASK, "the group's std is its scale"))


@estimator("mean", "team", needs=["group"], source="Dr. GRPO, arXiv 2503.20783", evidence="P")
def mean_only(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = R_i - mean R: no division by the std, which would weigh easy and hard tasks up.

    Source: Dr. GRPO, arXiv 2503.20783 [P].
    """
    return _written("mean", group, centred(returns(group, reward, at_least=2, what="mean")), _SAME_TASK)


@estimator("leave-one-out", "team", needs=["group"], source="RLOO, arXiv 2402.14740", evidence="P")
def leave_one_out(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = R_i - mean of the others' R = G/(G-1) (R_i - mean R): an unbiased baseline.

    Source: RLOO, arXiv 2402.14740 [P].
    """
    found = left_out(returns(group, reward, at_least=2, what="leave-one-out"))
    return _written("leave-one-out", group, found, _SAME_TASK)


@estimator("rank", "team", needs=["group"], source="MPDF / SoftRankPO, arXiv 2509.03817", evidence="A/I")
def rank(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = Phi^-1((rank_i - 1/2)/G): only the order of returns counts, so no outlier sets the scale.

    Source: MPDF / SoftRankPO, arXiv 2509.03817 [A]; equal returns share their mean rank [I].
    """
    found = normal_ranks(returns(group, reward, at_least=2, what="rank"))
    return _written("rank", group, found, (*_SAME_TASK, "only the order of returns matters"))


def _written(name: str, group: Group, found: Sequence[Advantage], assumes: tuple[str, ...]) -> Credits:
    return [
        [make_credit(name, "team", trace.trace_id, value, stderr=stderr, assumes=assumes)]
        for trace, (value, stderr) in zip(group, found, strict=True)
    ]

"""Credit on turns by backing values up the tree of rollouts: MALT."""

from __future__ import annotations

import math

from baton.credit.acts import turns
from baton.credit.baseline import std
from baton.credit.contract import Credits, Group, RewardOf, estimator, make_credit, returns, team_return
from baton.credit.tree import Tree, turn_steps

__all__ = ["tree_backup"]


@estimator(
    "tree-backup", "turn", needs=["group", "shared_prefixes"], source="MALT, arXiv 2412.01928", evidence="A"
)
def tree_backup(
    group: Group, *, reward: RewardOf = team_return, threshold: float = 0.5, label: bool = False
) -> Credits:
    """V(node) = mean of its children, V(leaf) = R; a turn gets V - threshold, or its sign as a label.

    The mean is over children, not over rollouts below, so a branch that was sampled more often weighs no more.
    Labels (+1, -1) sort turns into chosen and rejected, as for supervised and preference training of each role.
    Source: MALT, arXiv 2412.01928 [A].
    """
    totals = returns(group, reward, at_least=2, what="tree-backup")
    tree = Tree.of([turn_steps(trace) for trace in group])
    values = tree.backed_up(totals)
    credits: Credits = []
    for rollout, trace in enumerate(group):
        mine = []
        for step, turn in enumerate(turns(trace), 1):
            node = tree.paths[rollout][step]
            value = values[node] - threshold
            below = [values[c] for c in tree.children[node]] + [totals[r] for r in tree.ends[node]]
            error = std(below) / math.sqrt(len(below)) if len(below) > 1 and not label else None
            mine.append(
                make_credit(
                    "tree-backup",
                    "turn",
                    turn.call,
                    (1.0 if value > 0 else -1.0) if label else value,
                    stderr=error,
                    assumes=("same turns before, same state", "children are drawn by the policy"),
                )
            )
        credits.append(mine)
    return credits

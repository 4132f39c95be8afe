"""A credit estimator of your own: a function from a group of rollouts to records. Here, R - the median.

`@estimator` lists it under its name, so `find`, `project` and `partition` know it. A record says what
it assumes and how far it may be off; what the traces cannot support is a CreditError that says what to do.

Type: python examples/my_estimator.py
"""

import math
from statistics import median

from baton.credit import ESTIMATORS, project, team_return
from baton.credit.estimator import Credits, Group, RewardOf, estimator, make_credit, returns
from baton.testing import check_estimator
from baton.testing.sample_rollouts import sample_group


@estimator("median", "team", needs=["group"], source="Laplace 1818 (the median's error)", evidence="I")
def above_median(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = R_i - median R: one lucky rollout does not pull the baseline up.

    Standard error: of the median, 1.25 s / sqrt(n), as for returns that are roughly normal.
    Source: ours [I].
    """
    totals = returns(group, reward, at_least=2, what="median")
    middle = median(totals)
    spread = math.sqrt(sum((total - middle) ** 2 for total in totals) / (len(totals) - 1))
    return [
        [
            make_credit(
                "median",
                "team",
                trace.trace_id,
                total - middle,
                stderr=1.25 * spread / math.sqrt(len(totals)),
                assumes=("returns are roughly normal",),
            )
        ]
        for trace, total in zip(group, totals, strict=True)
    ]


if __name__ == "__main__":
    check_estimator("median")
    group = sample_group(6)
    for trace, credits in zip(group, ESTIMATORS["median"](group), strict=True):
        tokens = project(trace, credits)
        print(f"{trace.trace_id}: {credits[0].value:+.2f} on {sum(map(len, tokens.values()))} tokens")

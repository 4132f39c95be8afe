"""A credit estimator of your own: a function from a group of rollouts to records. Here, R - the median.

`@estimator` says what it needs, so that a recipe which cannot give that is refused. A record says what it assumes and
how far it may be off; what the traces cannot support is a CreditError that says what to do.

    baton credit runs/* --estimator my_estimator:above_median
    baton train grpo --set 'credit=[{"estimator": "my_estimator:above_median"}]'
"""

import math
from statistics import median

import baton
from baton.credit import team_return
from baton.credit.estimator import Credits, Group, RewardOf, estimator, make_credit, returns
from baton.testing import check_estimator


@estimator("median", "team", needs=["group"], source="Laplace 1818 (the median's error)", evidence="I")
def above_median(group: Group, *, reward: RewardOf = team_return) -> Credits:
    """A_i = R_i - median R: one lucky rollout does not pull the baseline up.

    Standard error: of the median, 1.25 s / sqrt(n), as for returns that are roughly normal.
    Source: ours [I].
    """
    totals = returns(group, reward, at_least=2, what="median")
    middle = median(totals)
    spread = math.sqrt(sum((total - middle) ** 2 for total in totals) / (len(totals) - 1))
    stderr, assumes = 1.25 * spread / math.sqrt(len(totals)), ("returns are roughly normal",)
    return [
        [make_credit("median", "team", trace.trace_id, total - middle, stderr=stderr, assumes=assumes)]
        for trace, total in zip(group, totals, strict=True)
    ]


if __name__ == "__main__":
    check_estimator("median")
    task = baton.Task.of("How many legs has a spider?", verify="8")
    rollouts = [
        baton.run(
            task, policy=lambda _, said=said: f"stop {said}", seed=seed, instance=0
        )  # rollouts of one task
        for seed, said in enumerate((8, 8, 6))
    ]
    for trace in baton.credit(rollouts, "median"):
        print(f"{trace.credits[0].value:+.2f} ± {trace.credits[0].stderr:.2f}")

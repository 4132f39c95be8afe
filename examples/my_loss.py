"""A loss of your own: REINFORCE with a bonus for what is still unlikely.

A loss gives one number per token; weights, entropy, KL and the mean are Baton's. What is published beside a formula,
its bounds and what it scales by, are fields of `LossKind`.

    baton train grpo --set loss.kind=my_loss:BOLD
"""

from torch import Tensor

from baton.learn.loss import LossKind, Tokens
from baton.testing import check_loss


def bold(tokens: Tokens, _low: float, _high: float) -> Tensor:
    """-A (1 - p) log p: a token that is sure already counts little (1 - p is a constant to the gradient)."""
    return -tokens.advantage * (1 - tokens.new.detach().exp()) * tokens.new


BOLD = LossKind(
    name="bold",
    per_token=bold,
    uses_ratio=False,
    bounds="none",
    formula="-A (1 - sg[p]) log p",
    source="an example",
    evidence="I",
)

if __name__ == "__main__":
    check_loss(BOLD, detached=True)
    print('baton.train(loss="my_loss:BOLD") trains by', BOLD.formula)

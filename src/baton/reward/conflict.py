"""PCGrad: gradients of several objectives without what one of them would undo of another.

Each gradient, in turn, loses its component against every other that it points away from; the sum of what is left moves
the policy. Weights settle how much each objective counts; this settles what happens where they pull apart. In training
it is `train.conflict` (`baton.learn.conflict`).
Source: gradient surgery, Yu et al. 2020, arXiv 2001.06782 [P].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from baton.errors import UsageError


def without_conflict(gradients: Sequence[Any], random: np.random.Generator) -> Any:
    """The sum of the gradients after each was projected against those it conflicts with, in a random order.

    Gradients are arrays of numpy or tensors of torch, all of one kind and shape.
    """
    if not gradients:
        raise UsageError("there is no gradient to project; give one for each objective.")
    if len({np.shape(gradient) for gradient in gradients}) > 1:
        shapes = ", ".join(str(tuple(np.shape(gradient))) for gradient in gradients)
        raise UsageError(f"the gradients have the shapes {shapes}; expected one shape.")
    total = gradients[0] * 0.0
    for mine, gradient in enumerate(gradients):
        left = gradient * 1.0
        for other in random.permutation(len(gradients)):
            against = gradients[other]
            size = float((against * against).sum())
            pull = float((left * against).sum())
            if other != mine and pull < 0 and size > 0:
                left = left - pull / size * against
        total = total + left
    return total

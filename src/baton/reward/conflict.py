"""PCGrad: gradients of several rewards without what one of them would undo of another.

Each gradient, in turn, loses its component against every other that it points away from; the sum of what is left moves
the policy. Weights settle how much each term counts; this settles what happens where they pull apart.
Source: gradient surgery, Yu et al. 2020, arXiv 2001.06782 [P].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from baton.errors import UsageError

Array = NDArray[np.float64]


def without_conflict(gradients: Sequence[Array], random: np.random.Generator) -> Array:
    """The sum of the gradients after each was projected against those it conflicts with, in a random order."""
    if not gradients:
        raise UsageError("there is no gradient to project; give one for each term of the reward.")
    if len({np.shape(gradient) for gradient in gradients}) > 1:
        shapes = ", ".join(str(np.shape(gradient)) for gradient in gradients)
        raise UsageError(f"the gradients have the shapes {shapes}; expected one shape.")
    total = np.zeros(np.shape(gradients[0]))
    for mine, gradient in enumerate(gradients):
        left = np.array(gradient, dtype=np.float64)
        for other in random.permutation(len(gradients)):
            against = np.asarray(gradients[other], dtype=np.float64)
            size = float((against * against).sum())
            pull = float((left * against).sum())
            if other != mine and pull < 0 and size > 0:
                left -= pull / size * against
        total += left
    return total

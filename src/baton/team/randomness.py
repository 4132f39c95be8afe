"""Random numbers by name: the same key gives the same draw, in any process, in any order.

Forks draw with the keys of the trace they came from (common random numbers), so what an
intervention does not touch does not change.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def uniform(key: str) -> float:
    """One uniform draw in [0, 1)."""
    return (int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") >> 11) * 2.0**-53


def generator(key: str) -> np.random.Generator:
    """A stream for draws by the thousand."""
    return np.random.Generator(
        np.random.Philox(key=int.from_bytes(blake2b(key.encode(), digest_size=16).digest(), "little"))
    )

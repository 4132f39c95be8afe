"""Learning: rows of traced calls, packed as a prefix forest, through a loss, into gradients.

This module loads no torch. What needs it (`attention`, `logprobs`, `check`, `losses`, `update`) is imported
where it is used.
"""

from __future__ import annotations

from baton.learn.duplicates import once
from baton.learn.gate import Shape, choose, cost, speed_up
from baton.learn.layout import Layout, Packing, plant
from baton.learn.rows import Row, by_policy, rows_of
from baton.learn.scales import scaled
from baton.learn.split import split

__all__ = [
    "Layout",
    "Packing",
    "Row",
    "Shape",
    "by_policy",
    "choose",
    "cost",
    "once",
    "plant",
    "rows_of",
    "scaled",
    "speed_up",
    "split",
]

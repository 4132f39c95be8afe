"""Where a spread ends and rounding begins.

Numbers that are all alike seldom have a deviation of exactly zero: their mean is off in its last digit. Whatever
divides by a deviation asks here first, or it would divide by that digit.
"""

from __future__ import annotations

__all__ = ["ROUNDING"]

ROUNDING = 1e-12
"""A deviation of no more than this share of the numbers' own size is rounding."""

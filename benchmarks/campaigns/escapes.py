"""Attempts to get out of the sandbox, at every level of protection that this machine gives.

The attacks are those of tests/support/sandbox_escapes.py. `faults` counts those that were really tried; what a level is
said to leave open (docs/sandbox.md) is a note and not an escape.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

from baton.team.tools.sandbox import protection
from baton.team.tools.sandbox_levels import LAYERS
from campaigns.campaign import Row, Tally


def escapes(count: int, seed: int, folder: Path) -> Iterator[Row]:
    """A row for each level; at most `count` attacks, drawn from the seed."""
    sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
    from sandbox_escapes import run_escapes, table

    names = [attack.name for attack in table()]
    if count < len(names):
        names = sorted(random.Random(seed).sample(names, count))
    for level in dict.fromkeys((protection().level, protection(LAYERS[1:]).level)):
        tally = Tally(f"sandbox escapes, {level}")
        for name, outcome in run_escapes(level, names):
            tally.tries += 1
            tally.faults += outcome != "not tried"
            if outcome.startswith("ESCAPED"):
                tally.wrong(f"{name}: {outcome}")
            elif outcome.startswith("BROKEN"):
                tally.unclear(f"{name}: {outcome}")
        yield tally.row()

"""Everything that can go wrong, on purpose: kills, flipped bits, full disks, lying servers, escapes, overspending.

python benchmarks/reliability.py [--quick] [--only NAME ...]

Prints one table, and below it a line for each thing that was lost, wrong, silent or unclear. Schedules are drawn from
the seed, so a line can be repeated; moments of a kill hang on the machine as well.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from campaigns.campaign import Row
from campaigns.escapes import escapes
from campaigns.flips import flips
from campaigns.full_disks import full_disks
from campaigns.ledger import ledger
from campaigns.recorder_kills import recorder_kills
from campaigns.run_kills import run_kills
from campaigns.scale_kills import scale_kills
from campaigns.servers import misbehaving_servers
from campaigns.train_kills import train_kills
from table import machine

Campaign = Callable[[int, int, Path], Row | Iterable[Row]]
CAMPAIGNS: dict[str, tuple[Campaign, int, int]] = {
    "recorder": (recorder_kills, 200, 10),
    "runs": (run_kills, 70, 3),
    "training": (train_kills, 30, 1),
    "scale": (scale_kills, 12, 1),
    "flips": (flips, 300, 20),
    "disk": (full_disks, 60, 2),
    "servers": (misbehaving_servers, 1_000, 8),
    "escapes": (escapes, 100, 6),
    "ledger": (ledger, 60_000, 2_000),
}
"""Name -> the campaign, how often, and how often in a hurry."""
_COLUMNS = ("campaign", "tries", "faults", "lost", "wrong", "silent", "unclear", "seconds")
_MOST_NOTES = 8


def rows(names: Iterable[str], *, quick: bool, seed: int, count: int | None = None) -> Iterator[Row]:
    """The rows of these campaigns, each in a folder that is gone afterwards."""
    for name in names:
        campaign, many, few = CAMPAIGNS[name]
        with tempfile.TemporaryDirectory(prefix="baton-reliability-") as folder:
            found = campaign(count or (few if quick else many), seed, Path(folder))
            yield from (found,) if isinstance(found, Row) else found


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few of each")
    parser.add_argument(
        "--only", action="append", choices=list(CAMPAIGNS), metavar="NAME", help="this campaign"
    )
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument(
        "--count", type=int, metavar="N", help="how often, instead of each campaign's own number"
    )
    given = parser.parse_args(args)
    print("| " + " | ".join(_COLUMNS) + " |")
    print("|---|" + "---:|" * (len(_COLUMNS) - 1), flush=True)
    unclean: list[Row] = []
    for row in rows(given.only or CAMPAIGNS, quick=given.quick, seed=given.seed, count=given.count):
        cells = (row.tries, row.faults, row.lost, row.wrong, row.silent, row.unclear)
        print(
            "| " + " | ".join([row.what, *(f"{n:,}" for n in cells), f"{row.seconds:.0f}"]) + " |", flush=True
        )
        if not row.is_clean:
            unclean.append(row)
    print(f"\n{machine()}; seed {given.seed}{', --quick' if given.quick else ''}")
    for row in unclean:
        for note in row.notes[:_MOST_NOTES]:
            print(f"  {note}"[:600])
        if len(row.notes) > _MOST_NOTES:
            print(f"  ... and {len(row.notes) - _MOST_NOTES} more of {row.what}")
    return 1 if unclean else 0


if __name__ == "__main__":
    sys.exit(main())

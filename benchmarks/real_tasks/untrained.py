"""What a pretrained model does before any training: as a team on both surfaces, and alone."""

from __future__ import annotations

import argparse
import sys
import time

from baton.learn.models import model_engine
from baton.measure.figure import Figure
from baton.tasks.catalog import make_task
from real_tasks.measure import Setting, measured, played

__all__ = ["untrained"]

WAYS = (("small", "lines"), ("small", "tools"), ("single", "lines"), ("single", "tools"))
HEAD = ("family", "team", "surface", "parse rate", "success", "tokens", "said", "spawned", "n")


def untrained(args: argparse.Namespace) -> list[tuple[str, ...]]:
    """One row for each family and way of asking."""
    engine = model_engine(args.model)
    rows = []
    for name in args.families:
        for team, surface in WAYS:
            began = time.monotonic()
            task = make_task(f"reasoning:{name}", team=team)
            setting = Setting(surface=surface, temperature=args.temperature, max_tokens=args.max_tokens)
            found = measured(played(task, engine, range(args.instances), "test", setting))
            rows.append(
                (
                    name, team, surface, _share(found.parsed), _share(found.success), _mean(found.tokens),
                    _mean(found.said), _mean(found.spawned, 2), str(args.instances),
                )
            )  # fmt: skip
            print(f"{' '.join(rows[-1])}  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def _share(figure: Figure) -> str:
    if figure.value is None or figure.low is None or figure.high is None:
        return "not measured"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _mean(figure: Figure, places: int = 0) -> str:
    return "not measured" if figure.value is None else f"{figure.value:.{places}f}"

"""The whole benchmark of credit, as one report."""

from __future__ import annotations

import time

from msgspec import Struct

from baton.cli.credit_bench.coalitions import coalition_figures
from baton.cli.credit_bench.figures import Figure, Target
from baton.cli.credit_bench.ladder import Rung, diffusion
from baton.cli.credit_bench.messages import message_figures
from baton.cli.credit_bench.relay import relay_figures
from baton.cli.credit_bench.replay_cost import replay_targets
from baton.cli.credit_bench.spawning import spawn_figures
from baton.cli.credit_bench.stopping import stop_figures
from baton.cli.credit_bench.sweep import sweep

__all__ = ["Report", "measure"]


class Report(Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    figures: list[Figure]
    targets: list[Target]
    ladder: list[Rung]
    not_applicable: dict[str, str]
    """Estimator -> what the spawn bandit's traces do not hold for it."""
    seconds: float

    @property
    def met(self) -> bool:
        return all(target.met for target in self.targets)


def measure(*, quick: bool = False, seed: int = 0) -> Report:
    """Run it all. `quick` takes a tenth of the samples."""
    began = time.monotonic()
    samples = 1000 if quick else 10_000
    figures: list[Figure] = []
    targets: list[Target] = []
    for found, promised in (
        spawn_figures(samples, seed),
        message_figures(samples, seed),
        coalition_figures(20 if quick else 150),
        stop_figures(seed),
    ):
        figures += found
        targets += promised
    rungs, promised = diffusion(400 if quick else 4000, seed)
    targets += promised
    targets += replay_targets(seed)
    figures += relay_figures(60 if quick else 400)
    swept, reasons = sweep(8 if quick else 60)
    figures += swept
    off = [f for f in figures if f.unbiased and f.bias_z is not None and abs(f.bias_z) > 3]
    checked = sum(f.unbiased and f.bias_z is not None for f in figures)
    targets.append(
        Target(
            what=f"estimators that claim no bias and show one beyond 3 standard errors, of {checked}"
            + (f": {', '.join(f'{f.estimator} on {f.game}' for f in off)}" if off else ""),
            value=float(len(off)),
            target="0",
            met=not off,
        )
    )
    return Report(
        figures=figures,
        targets=targets,
        ladder=rungs,
        not_applicable=reasons,
        seconds=time.monotonic() - began,
    )

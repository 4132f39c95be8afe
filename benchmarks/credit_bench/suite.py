"""The whole benchmark of credit, as one report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from baton.credit import ESTIMATORS
from credit_bench.coalitions import coalition_figures
from credit_bench.coverage import Coverage, log_coverage
from credit_bench.coverage_teams import team_coverage
from credit_bench.few_draws import Few, few_draws
from credit_bench.figures import Figure, Target
from credit_bench.helpers import helper_figures
from credit_bench.ladder import Rung, diffusion
from credit_bench.messages import message_figures
from credit_bench.relay import relay_figures
from credit_bench.replay_cost import cost_targets, replay_targets
from credit_bench.spawning import spawn_figures
from credit_bench.stopping import stop_figures
from credit_bench.stopping_teams import stop_team_figures
from credit_bench.sweep import sweep
from credit_bench.tools import tool_figures
from credit_bench.varied_text import Kept, varied_text
from credit_bench.voters import voter_figures

__all__ = ["Report", "measure"]


class Report(Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    figures: list[Figure]
    targets: list[Target]
    ladder: list[Rung]
    coverage: list[Coverage]
    """How often intervals hold the truth, of every listed estimator."""
    few: list[Few]
    """The same from few draws."""
    kept: list[Kept]
    """What is left of credit where texts vary."""
    not_applicable: dict[str, str]
    """Estimator -> why it stands in no row."""
    seconds: float

    @property
    def met(self) -> bool:
        return all(target.met for target in self.targets)


class Intervals(NamedTuple):
    """How often intervals hold the truth, and what is left of credit where texts vary."""

    coverage: list[Coverage]
    few: list[Few]
    kept: list[Kept]

    @property
    def met(self) -> bool:
        return coverage_target(self.coverage).met and few_target(self.few).met


def intervals(*, quick: bool = False, seed: int = 0) -> Intervals:
    """Every estimator's."""
    return Intervals(
        coverage=log_coverage(25 if quick else 250, seed) + team_coverage(4 if quick else 80),
        few=few_draws(4 if quick else 80),
        kept=varied_text(4 if quick else 40),
    )


def few_target(few: list[Few]) -> Target:
    """How many hold the truth often enough from few draws."""
    short = [f"{row.estimator}, {row.world}" for row in few if row.met is False]
    return Target(
        what=f"rows of few draws whose intervals hold the truth at least 93 times in 100, of {len(few)}"
        + (f" (below it: {'; '.join(short)})" if short else ""),
        value=float(len(few) - len(short)),
        target=f">= {len(few)}",
        met=not short,
    )


def coverage_target(coverage: list[Coverage]) -> Target:
    """How many of the listed estimators hold what they claim."""
    short = [row.estimator for row in coverage if row.met is False]
    lacking = sorted(set(ESTIMATORS) - {row.listed for row in coverage})
    named = [f"outside it: {', '.join(short)}"] if short else []
    named += [f"in no row: {', '.join(lacking)}"] if lacking else []
    return Target(
        what=f"rows whose intervals hold the truth 93 to 97 times in 100, of {len(coverage)}"
        + (f" ({'; '.join(named)})" if named else ""),
        value=float(sum(row.met is not False for row in coverage)),
        target=f">= {len(coverage)}",
        met=not short and not lacking,
    )


def measure(*, quick: bool = False, seed: int = 0, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Run it all. `quick` takes a tenth of the samples; `tell` hears of each part before it begins."""
    began = time.monotonic()
    samples = 1000 if quick else 10_000
    parts: tuple[tuple[str, Callable[[], tuple[list[Figure], list[Target]]]], ...] = (
        ("spawn decisions", lambda: spawn_figures(samples, seed)),
        ("messages", lambda: message_figures(samples, seed)),
        ("coalitions", lambda: coalition_figures(samples)),
        ("stop decisions", lambda: stop_figures(seed)),
        ("causal replay on 100 agents", lambda: ([], replay_targets(seed))),
        ("what forks cost, up to 300 agents", lambda: ([], cost_targets(seed))),
        ("relay, teams", lambda: (relay_figures(64 if quick else samples // 2), [])),
        ("voters, teams", lambda: (voter_figures(samples), [])),
        ("spawn bandit with a helper, teams", lambda: (helper_figures(samples), [])),
        ("looking, teams", lambda: (tool_figures(samples // 5), [])),
        ("stopping chain, teams", lambda: (stop_team_figures(2 if quick else 10), [])),
    )
    figures: list[Figure] = []
    targets: list[Target] = []
    for number, (what, run) in enumerate(parts, 1):
        tell(f"{number} of {len(parts) + 3}: {what}")
        found, promised = run()
        figures += found
        targets += promised
    tell(f"{len(parts) + 1} of {len(parts) + 3}: length ladder")
    rungs, promised = diffusion(400 if quick else 4000, seed)
    targets += promised
    tell(f"{len(parts) + 2} of {len(parts) + 3}: every estimator on the spawn bandit, teams")
    swept, reasons = sweep(8 if quick else 60)
    figures += swept
    tell(f"{len(parts) + 3} of {len(parts) + 3}: coverage and varied text")
    coverage, few, kept = intervals(quick=quick, seed=seed)
    targets += [coverage_target(coverage), few_target(few)]
    judged = {figure.listed for figure in figures} | {row.listed for row in coverage}
    reasons = {name: why for name, why in reasons.items() if name not in judged}
    targets.append(
        Target(
            what=f"listed estimators that stand in no row, of {len(ESTIMATORS)}",
            value=float(len(set(ESTIMATORS) - judged)),
            target="0",
            met=set(ESTIMATORS) <= judged,
        )
    )
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
        coverage=coverage,
        few=few,
        kept=kept,
        not_applicable=reasons,
        seconds=time.monotonic() - began,
    )

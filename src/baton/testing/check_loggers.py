"""Check a logger: it takes the figures of a run that begins, and of one that goes on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from baton import registry
from baton.learn.run.loggers import LoggedRun, RunLogger
from baton.testing.check_tools import CheckFailed, require

_STEPS: tuple[tuple[int, Mapping[str, float]], ...] = (
    (0, {"eval/untrained/return/mean": 0.25}),
    (1, {"return/mean": 0.5, "reward/shared": 0.5, "seconds": 1.0}),
    (2, {"return/mean": -1.5, "seconds": 2.5, "a figure that comes later": 1e-12}),
    (2, {"eval/team/return/mean": 0.75}),
    (3, {}),
)
"""Figures that come and go, as they do in a run."""


def check_logger(given: str | Callable[..., RunLogger], **settings: Any) -> None:
    """A logger by name (`module:attr` too), or what makes one; `settings` are its own."""
    build = registry.resolve("logger", given) if isinstance(given, str) else given
    name = given if isinstance(given, str) else getattr(given, "__name__", repr(given))
    with tempfile.TemporaryDirectory(prefix="baton-logger-") as folder:
        for resumed_at in (None, 1):
            run = LoggedRun(
                folder=Path(folder),
                name="checked",
                run_id="0f1e",
                recipe={"train": {"steps": 3}},
                resumed_at=resumed_at,
            )
            try:
                made = build(run, **settings)
                for method in ("log", "close"):
                    require(
                        callable(getattr(made, method, None)),
                        f"{name} makes a {type(made).__name__} without {method}; expected log(step, scalars), close().",
                    )
                for step, scalars in _STEPS:
                    if resumed_at is None or step > resumed_at:
                        made.log(step, dict(scalars))
                made.close()
            except CheckFailed:
                raise
            except Exception as error:
                when = "a run that begins" if resumed_at is None else "a run that goes on after step 1"
                raise CheckFailed(f"{name} failed in {when}: {type(error).__name__}: {error}") from error

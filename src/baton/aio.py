"""The verbs of Baton for programs that already run an event loop: `trace = await baton.aio.run("shard-sum")`.

Running, replaying, forking and crediting take part in the caller's loop. Scoring, measuring and training compute, so
they run in a thread of their own meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from baton import api
from baton.compose import python_runs
from baton.compose.python_runs import credit, fork, replay, run
from baton.compose.python_training import TrainedRun
from baton.trace.trace import Trace

__all__ = ["credit", "evaluate", "fork", "measure", "replay", "resume", "run", "score", "train"]

P = ParamSpec("P")
T = TypeVar("T")


def _in_thread(work: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A plain function as a coroutine function, which leaves the loop free."""

    @wraps(work)
    async def done(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(work, *args, **kwargs)

    return done


score = _in_thread(api.score)
measure = _in_thread(api.measure)
train = _in_thread(api.train)
evaluate = _in_thread(api.evaluate)


async def resume(path: str | Path | TrainedRun, *args: Any, **kwargs: Any) -> list[Trace] | TrainedRun:
    """Go on with the runs in a folder that were cut off, or with a training run: see `baton.resume`."""
    if isinstance(path, TrainedRun) or (Path(path) / "run.json").is_file():
        return await asyncio.to_thread(api.resume, path, *args, **kwargs)
    return await python_runs.resume(path, *args, **kwargs)

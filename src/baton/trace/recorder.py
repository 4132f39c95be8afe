"""A recorder for a person's own agent code: a few calls, and a complete trace is on disk.

    with Recorder("run.jsonl", task_id="capital", topology="centralized") as team:
        lead = team.agent("lead", role="orchestrator")
        scout = lead.spawn("scout", role="searcher", task="find the capital")
        with scout.tool("search", {"q": "capital of France"}) as call:
            call.result(search("capital of France"))
        scout.returns("Paris")
        lead.aggregate([scout], "Paris", method="first")
        lead.stop("Paris")
        team.reward("shared", 1.0)

Invariant: when a logging call returns, what it recorded is written, in causal order: payloads and
calls before the event that names them, an event before its edges, every edge from a lower `seq` to
a higher one. What is sent to an agent counts as delivered at once: whatever that agent does next
depends on it. Usable from threads and from asyncio tasks.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any, Self
from uuid import uuid4

from baton.errors import TraceError, nearest
from baton.trace.formats.sqlite.store import Store
from baton.trace.log import Log, check_word, must_be_readable
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.records import Credit, Reward
from baton.trace.sink import open_sink
from baton.trace.trace import End, Header, Trace
from baton.trace.vocabulary import (
    CREDIT_UNITS,
    REWARD_FAMILIES,
    TOPOLOGIES,
    CreditUnit,
    RewardFamily,
    Topology,
)


class Recorder:
    """Records one trace. Leaving the `with` block finishes it; an exception leaves it unfinished."""

    def __init__(
        self,
        path: str | os.PathLike[str] | Store | None,
        *,
        task_id: str,
        topology: Topology = "unknown",
        trace_id: str | None = None,
        system: str | None = None,
        meta: dict[str, Any] | None = None,
        payloads: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`path` ends in .jsonl or .db, and the trace is added to that file; None keeps it in memory.

        For many traces at once, give all recorders one open `Store`, which stays yours to close.
        `payloads=False` withholds all content: addresses and sizes stay. `clock` gives seconds.
        """
        check_word("topology", topology, TOPOLOGIES)
        header = Header(
            trace_id=uuid4().hex if trace_id is None else trace_id,
            task_id=task_id,
            system=system,
            topology=topology,
            meta=meta or {},
        )
        must_be_readable(header)
        self.trace_id = header.trace_id
        self._sink = open_sink(path, header)
        self._log = Log(self._sink, clock, keep_content=payloads)
        self._metrics: dict[str, float] = {}

    def agent(self, name: str, *, role: str | None = None) -> RecordedAgent:
        """An agent that is there from the start; others come from `RecordedAgent.spawn`."""
        with self._log.lock:
            return RecordedAgent(self._log, name, role)

    def reward(
        self,
        family: RewardFamily,
        value: float,
        *,
        unit: CreditUnit = "team",
        target: str | RecordedAgent | None = None,
        name: str | None = None,
        by: str | None = None,
    ) -> None:
        """What something was worth. The target of a team's reward is the trace itself."""
        check_word("reward family", family, REWARD_FAMILIES)
        aim = self._target(unit, target)
        reward = Reward(family=family, unit=unit, target=aim, value=_finite(value), name=name, by=by)
        with self._log.lock:
            self._log.write(reward)

    def credit(
        self,
        unit: CreditUnit,
        target: str | RecordedAgent | None,
        value: float,
        *,
        estimator: str,
        stderr: float | None = None,
        cost_tokens: int | None = None,
        cost_calls: int | None = None,
        assumes: tuple[str, ...] = (),
    ) -> None:
        """Who earned it."""
        aim = self._target(unit, target)
        credit = Credit(
            unit=unit, target=aim, value=_finite(value), estimator=estimator, stderr=stderr,
            cost_tokens=cost_tokens, cost_calls=cost_calls, assumes=assumes,
        )  # fmt: skip
        with self._log.lock:
            self._log.write(credit)

    def metric(self, name: str, value: float) -> None:
        """A figure about the whole trace, such as task_success; written when the trace ends."""
        must_be_readable(End(metrics={name: _finite(value)}))
        self._metrics[name] = float(value)

    def trace(self) -> Trace:
        """The trace so far."""
        with self._log.lock:
            return self._sink.trace()

    def close(self) -> None:
        """Finish the trace. Nothing can be recorded after it."""
        with self._log.lock:
            if self._log.closed:
                return
            for agent in self._log.agents.values():
                agent.say_nothing()
            self._log.close(finished=True, metrics=self._metrics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.close()
        else:
            with self._log.lock:
                self._log.close(finished=False, metrics={})

    def _target(self, unit: CreditUnit, target: str | RecordedAgent | None) -> str:
        check_word("unit", unit, CREDIT_UNITS)
        if target is None:
            if unit != "team":
                raise TraceError(f"a record on one {unit} needs a target, such as an agent or an event's id.")
            return self.trace_id
        if isinstance(target, RecordedAgent):
            target = target.id
        if unit == "agent" and target not in self._log.agents:
            raise TraceError(f"{target!r} is no agent of this trace. {nearest(target, self._log.agents)}")
        return target


def _finite(value: float) -> float:
    try:
        if math.isfinite(value):
            return float(value)
    except (TypeError, OverflowError):
        pass
    raise TraceError(f"{value!r} is not a finite number.")

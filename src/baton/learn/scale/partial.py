"""Rollouts that a step does not wait for: cut off, or carried over an update as far as they came.

A step's groups are played in lockstep, as always. Whenever all runs wait, it is looked how far each has come; once it
is known when the step closes, runs that are beyond that moment are held: no call of theirs is asked any more. What is
held is a trace that ends in the middle, with the answers that came and whose place in it has not (`baton.team.ahead`).
From these a run goes on as one that was cut off by a crash does: what was said is fed back, and the next call is asked
of the weights of the step that goes on with it. So the calls of one rollout have the versions that drew them, and a
rollout that goes on from a checkpoint is the one that went on in memory.

Invariant: who is taken depends on how long rollouts are, by the modelled clock or in tokens, and not on how long
anything took. With `scale.clock = "wall"` it does depend on that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from baton.learn.recipe import Recipe
from baton.learn.scale.stragglers import Closed, Lengths, closing_time, num_needed, straggler_figures
from baton.learn.stage import Episode
from baton.team.ahead import Begun, Came, Passed
from baton.team.protocol import Engine
from baton.team.recording import Recording
from baton.team.running import Run
from baton.trace.formats.jsonl import encode_trace, read_bytes
from baton.trace.formats.sqlite.store_rows import decoder
from baton.trace.trace import End, Trace

if TYPE_CHECKING:
    from baton.learn.rollouts import RolloutGroup, Rollouts

_KEPT = decoder(Begun | Came | Passed)
Chances = dict[str, list[Any]]
"""Event -> the chances of its options and of what was chosen, by the weights that chose."""


class KeptAnswers:
    """A run's journal that keeps answers whose place in the trace has not come, and nothing else."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self.bodies = list(bodies)

    def extend(self, records: Any) -> None:
        """Records are in the run's own trace."""

    def commit(self) -> None:
        """There is no disk behind it."""

    def end(self, end: End) -> None:
        """Nor after the end."""

    def keep(self, body: bytes) -> None:
        # Calls that were begun are not kept: one that was held was never asked, so nothing is lost or to be charged.
        if isinstance(_KEPT.decode(body), Came):
            self.bodies.append(body)

    def kept(self) -> list[bytes]:
        return list(self.bodies)


class CarriedRollout(Struct, kw_only=True):
    """A rollout of a group, as far as it came."""

    episode: Episode
    trace: Trace | None = None
    kept: list[bytes] = field(default_factory=list)
    chances: Chances = field(default_factory=dict)
    at: float = 0.0
    """How far it came, by the clock of the pool."""
    done: bool = False


class PendingGroup(Struct, kw_only=True):
    """A group that was begun and is not taken yet."""

    step: int
    version: int
    start: float
    """When it was begun, by the clock of the pool."""
    members: list[CarriedRollout]

    @property
    def end(self) -> float | None:
        """When all of it was done; None: it is not."""
        return max(m.at for m in self.members) if all(m.done for m in self.members) else None


class StragglerPool:
    """The groups of a run that are under way, over its steps."""

    def __init__(self, recipe: Recipe) -> None:
        self._scale = recipe.scale
        self._patience = recipe.staleness - recipe.lag
        """Steps after which a group that was carried is waited for."""
        self.now = 0.0
        """The pool's clock: when the last step closed."""
        self.pending: list[PendingGroup] = []
        self.lengths = Lengths()
        self.told: dict[int, dict[str, Any]] = {}
        """Step -> its figures, until they are asked for."""

    def play(self, rollouts: Rollouts, number: int, version: int) -> list[RolloutGroup]:
        """The groups that a step takes."""
        part = rollouts.part_at(number)
        self.pending += [
            PendingGroup(
                step=number,
                version=version,
                start=self.now,
                members=[CarriedRollout(episode=each) for each in rollouts.episodes(number, [group])],
            )
            for group in range(part.groups)
        ]
        for policy in rollouts.policies.values():
            policy.forget()
        play = _Play(self, rollouts, number)
        closed = asyncio.run(play.go())
        taken = [group for group in self.pending if group.end is not None and group.end <= closed]
        left = [group for group in self.pending if group not in taken]
        rollouts.stage.check(
            rollouts.engines(), [m.trace for g in taken for m in g.members if m.trace is not None]
        )
        self._tell_chances(rollouts, taken, left)
        return self._close(number, taken, left, closed, part.groups)

    def due(self, group: PendingGroup, number: int) -> bool:
        """Whether a step has to wait for a group, because it would be too old for the next."""
        return self._scale.stragglers == "carry" and number - group.step >= self._patience

    def _close(
        self, number: int, taken: list[PendingGroup], left: list[PendingGroup], closed: float, begun: int
    ) -> list[RolloutGroup]:
        from baton.learn.rollouts import RolloutGroup

        cut = self._scale.stragglers == "cut"
        ends = [(group.end or 0.0) - group.start for group in taken]
        if cut:
            pending = len(taken) + len(left)
            seen = Closed(ends=tuple(ends), left=tuple(closed - group.start for group in left))
            weights = self.lengths.weigh(seen, pending, num_needed(pending, self._scale.wait_for))
        else:
            weights = [len(taken) / begun] * len(taken)
        figures = straggler_figures(len(taken), len(left), weights, self.lengths if cut else None)
        self.told[number] = {"stragglers": dict(figures)}
        if cut:
            self.told[number]["discarded_tokens"] = sum(
                event.tokens or 0 for g in left for m in g.members if m.trace for event in m.trace.events
            )
        self.pending, self.now = ([], 0.0) if cut else (left, closed)
        return [
            RolloutGroup(
                step=number,
                version=group.version,
                traces=tuple(with_chances(m.trace, m.chances) for m in group.members if m.trace is not None),
                weight=weight,
            )
            for group, weight in zip(taken, weights, strict=True)
        ]

    def _tell_chances(self, rollouts: Rollouts, taken: list[PendingGroup], left: list[PendingGroup]) -> None:
        """The chances of options by the weights that chose: so before these change, of what goes on too."""
        groups = taken if self._scale.stragglers == "cut" else [*taken, *left]
        members = [m for group in groups for m in group.members if m.trace is not None]
        before = [with_chances(m.trace, m.chances) for m in members if m.trace is not None]
        for member, trace in zip(members, rollouts.told([before])[0], strict=True):
            member.chances = {
                event.id: [event.option_propensities, event.propensity]
                for event in trace.events
                if event.options is not None and event.option_propensities is not None
            }

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "now": self.now,
            "lengths": self.lengths.state_dict(),
            "told": {str(step): figures for step, figures in self.told.items()},
            "pending": [
                {
                    "step": group.step,
                    "version": group.version,
                    "start": group.start,
                    "members": [_plain(member) for member in group.members],
                }
                for group in self.pending
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self.now = state["now"]
        self.lengths.load_state_dict(state["lengths"])
        self.told = {int(step): figures for step, figures in state["told"].items()}
        self.pending = [
            PendingGroup(
                step=group["step"],
                version=group["version"],
                start=group["start"],
                members=[_member(each) for each in group["members"]],
            )
            for group in state["pending"]
        ]


class _Play:
    """One step's play of a pool."""

    def __init__(self, pool: StragglerPool, rollouts: Rollouts, number: int) -> None:
        self._pool = pool
        self._rollouts = rollouts
        self._number = number
        self._clock = rollouts.recipe.scale.clock
        self._need = num_needed(len(pool.pending), rollouts.recipe.scale.wait_for)
        self._zero = time.monotonic()
        self._runs: dict[int, tuple[PendingGroup, CarriedRollout, Run, asyncio.Task[Trace]]] = {}

    async def go(self) -> float:
        """Play until the step closes; when that was."""
        engines = self._rollouts.engines(look=self._look)
        loop = asyncio.get_running_loop()
        for group in self._pool.pending:
            for member in group.members:
                if not member.done:
                    run = _run_of(self._rollouts, engines, member)
                    self._runs[id(member)] = (
                        group,
                        member,
                        run,
                        loop.create_task(self._one(group, member, run)),
                    )
        tasks = [task for *_, task in self._runs.values()]
        try:
            for found in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(found, BaseException) and not isinstance(found, asyncio.CancelledError):
                    raise found
        finally:
            for task in tasks:
                task.cancel()
        closed = self._closing()
        assert closed is not None  # a run ends, or is held because the step had closed
        return closed

    async def _one(self, group: PendingGroup, member: CarriedRollout, run: Run) -> Trace:
        try:
            trace = await run.go()
            member.trace, member.at, member.done = trace, self._at(group, run), True
            return trace
        except asyncio.CancelledError:
            member.trace, member.at = run.writer.trace(finished=False), self._at(group, run)
            answered = {call.id for call in run.writer.calls}
            journal = run.writer.journal
            bodies = journal.kept() if journal is not None else []
            member.kept = [body for body in bodies if _KEPT.decode(body).id not in answered]
            raise

    def _at(self, group: PendingGroup, run: Run) -> float:
        """How far a run has come, by the pool's clock."""
        if self._clock == "wall":
            return self._pool.now + time.monotonic() - self._zero
        if self._clock == "tokens":
            return group.start + sum(len(call.completion_ids or ()) for call in run.writer.calls)
        return group.start + run.driver.now

    def _closing(self) -> float | None:
        pool = self._pool
        due = [group.end for group in pool.pending if pool.due(group, self._number)]
        ends = [group.end for group in pool.pending if group.end is not None]
        return closing_time(ends, self._need, due)

    def _look(self) -> None:
        """All runs wait: hold those that the step does not wait for."""
        closed = self._closing()
        if closed is None:
            return
        late = {
            id(group)
            for group, member, run, _ in self._runs.values()
            if not member.done and self._at(group, run) >= closed
        }
        for group, member, _, task in self._runs.values():
            if not member.done and id(group) in late:
                task.cancel()


def _run_of(rollouts: Rollouts, engines: Mapping[str, Engine], member: CarriedRollout) -> Run:
    """A run from its beginning, or from where it was held."""
    recording = None if member.trace is None else Recording(member.trace)
    return rollouts.stage.run_of(
        engines,
        member.episode,
        journal=KeptAnswers(member.kept),
        recording=recording,
        strict=recording is not None,
    )


def with_chances(trace: Trace | None, chances: Chances) -> Trace:
    """A trace with chances that were asked before, of what is as it was then."""
    assert trace is not None
    if not chances:
        return trace
    events = tuple(
        structs.replace(event, option_propensities=tuple(told[0]), propensity=told[1])
        if (told := chances.get(event.id)) is not None
        else event
        for event in trace.events
    )
    return structs.replace(trace, events=events)


def _plain(member: CarriedRollout) -> dict[str, Any]:
    trace = member.trace
    return {
        "episode": structs.asdict(member.episode),
        "trace": None if trace is None else b"".join(encode_trace(trace)).decode(),
        "kept": [body.hex() for body in member.kept],
        "chances": member.chances,
        "at": member.at,
        "done": member.done,
    }


def _member(plain: Mapping[str, Any]) -> CarriedRollout:
    text = plain["trace"]
    return CarriedRollout(
        episode=Episode(**plain["episode"]),
        trace=None if text is None else next(iter(read_bytes(text.encode()))),
        kept=[bytes.fromhex(body) for body in plain["kept"]],
        chances=plain["chances"],
        at=plain["at"],
        done=plain["done"],
    )

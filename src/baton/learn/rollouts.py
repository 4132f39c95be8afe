"""Rollouts of a step: groups of traces, by the weights as they are or, with a lag, by those of steps before.

On-policy (the default) a step's rollouts are played when it begins. With `scale.lag` those of the next steps are played
while this one is trained: in a thread, by samplers that have their own copy of the weights, or by `Players` past this
process. All runs of a play are answered in lockstep: calls are gathered until every run waits, then answered together
(`lockstep`). With `rollout.fan_out` what follows a turn is drawn again, so that branches share all before it
(`branched`). Earlier groups may be trained on again (`ReplayBuffer`).

Invariant: which weights play a step depends on its number alone and not on how long anything took: those after
max(0, n - 1 - lag) steps, pinned when the play is begun. Samplers get new weights only between two plays, never during
one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from msgspec import Struct

from baton.credit.core.acts import turns
from baton.forest.rows import Row
from baton.learn.options import with_propensities
from baton.learn.policy import Pinned, Policy, samplers
from baton.learn.recipe import Recipe, RolloutPart
from baton.learn.scoring import outcome_of
from baton.learn.stage import Episode, Stage
from baton.team.budget import charging_of
from baton.team.forks import Forks
from baton.team.protocol import NOT_ASKED, Answer, Engine, EngineError, Entry, Request
from baton.team.team import Assignment
from baton.trace.records import Ints
from baton.trace.trace import Trace

SEEDS = 1_000_003
"""Apart: instances of a run from those of its evaluation, draws of one rollout from those of the next."""
_DEPTHS = 1000
"""Replicates of one depth: branches of a rollout after one turn must not draw as those after another.

Branches of its branches do not either, since a fork's draws name the replicates of all it was made of.
"""
_QUIET_ROUNDS = 8
"""Rounds of the loop without a new call after which all runs wait; a run needs two or three between calls."""

_PATIENCE_SECONDS = 5.0
_PATIENCE_ROUNDS = 3
"""An engine that failed all calls of so many rounds, and for so long, is not asked again in this play: its tries would
add up to minutes, call after call."""

Outcome = asyncio.Future["Answer | EngineError"]


class RolloutGroup(Struct, frozen=True, kw_only=True):
    """Rollouts of one instance, with the weights that made them: what credits are compared within."""

    step: int
    version: int
    """Which weights sampled them: those after so many steps. Of what was carried over an update, the first ones."""
    traces: tuple[Trace, ...]
    weight: float = 1.0
    """How much they count in the loss, where a step does not take all groups alike."""


class Players(Protocol):
    """Who plays a run's steps: this process, or workers past it (`baton.learn.scale`)."""

    def play(self, number: int, version: int) -> list[RolloutGroup]:
        """The groups of a step, not scored yet, by the weights after `version` steps. Waits for them."""
        ...

    def begin(self, number: int, version: int) -> Future[list[RolloutGroup]]:
        """The same from now on, while the caller goes on."""
        ...

    def publish(self, version: int) -> None:
        """The policies' weights of this moment are those after `version` steps: what is begun later may name them."""
        ...

    def figures(self, number: int) -> dict[str, Any]:
        """What is told of a step in the metrics: who played it, and for how long."""
        ...

    def close(self) -> None:
        """Let go of who plays; what is being played and was not asked for is lost."""
        ...


class SecondsSpent:
    """Seconds since a moment: that the trainer waited for rollouts, and that this process played."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.waiting = 0.0
        self.playing = 0.0


class Rollouts:
    """A run's rollouts, step by step: those played ahead, or played now.

    Step n is played by the weights after max(0, n - 1 - lag) steps, however long anything takes.
    """

    def __init__(
        self,
        recipe: Recipe,
        stage: Stage,
        policies: Mapping[str, Policy],
        part_at: Callable[[int], RolloutPart] | None = None,
        players: Players | None = None,
    ) -> None:
        """`players` are those past this process; None: it plays itself, in lockstep."""
        self.recipe = recipe
        self.part_at = part_at or (lambda _: recipe.rollout)
        """How much is played for a step: phases of a run may differ in that."""
        self.stage = stage
        self.policies = policies
        self.lag = recipe.lag
        self._in_flight = recipe.scale.updates == "in-flight"
        """Whether servers get new weights while they answer."""
        self._elsewhere = players
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: dict[int, Future[list[RolloutGroup]]] = {}
        """Step -> what is played of it before its turn."""
        self.spent = SecondsSpent(time.monotonic())
        self._stragglers: Any = None
        """What is under way of earlier steps, where a step does not wait for all."""
        if recipe.scale.stragglers != "wait":
            from baton.learn.scale.partial import StragglerPool

            self._stragglers = StragglerPool(recipe)

    def take(self, number: int) -> list[RolloutGroup]:
        """The groups of a step, not scored yet: those played ahead, or played now."""
        began = time.monotonic()
        try:
            if (ahead := self._ahead.pop(number, None)) is not None:
                if self._in_flight:
                    self.publish()
                return ahead.result()
            self.publish(number - 1)
            return (self._elsewhere or self).play(number, number - 1)
        finally:
            self.spent.waiting += time.monotonic() - began

    def go_ahead(self, number: int) -> None:
        """While a step is trained, those within the lag after it are played, by the weights of this moment."""
        for step in range(number + 1, min(number + self.lag, self.recipe.train.steps) + 1):
            if step not in self._ahead:
                if self._elsewhere is not None:
                    self.publish(number - 1)
                self._ahead[step] = (self._elsewhere or self).begin(step, number - 1)

    def begin(self, number: int, version: int) -> Future[list[RolloutGroup]]:
        """Play a step in a thread of this process from now on, after those begun before, by the weights of now."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "baton-rollouts")
        if self._in_flight or all(each.done() for each in self._ahead.values()):
            self.publish()  # nobody plays, so samplers may have them at once
            return self._pool.submit(self.play, number, version)
        pinned = {name: policy.pinned() for name, policy in self.policies.items() if policy.apart}
        return self._pool.submit(self._play_by, pinned, number, version)

    def _play_by(self, pinned: Mapping[str, Pinned], number: int, version: int) -> list[RolloutGroup]:
        """A step by weights that were pinned."""
        for name, weights in pinned.items():
            self.policies[name].publish(weights)
        return self.play(number, version)

    def ahead(self) -> list[RolloutGroup]:
        """What was played ahead and not taken yet, by steps. Waits for it."""
        return [group for _, future in sorted(self._ahead.items()) for group in future.result()]

    def recall(self, groups: list[RolloutGroup]) -> None:
        """What `ahead` gave, from a checkpoint."""
        for step in sorted({group.step for group in groups}):
            self._ahead[step] = Future()
            self._ahead[step].set_result([group for group in groups if group.step == step])

    def publish(self, version: int | None = None) -> None:
        """Samplers with a copy of their own get the weights as they are; `version` names them to players elsewhere."""
        if self._elsewhere is None:
            if not self._in_flight:
                self.ahead()  # this process plays with the samplers that get them
        elif version is not None:
            self._elsewhere.publish(version)
        for policy in self.policies.values():
            policy.publish()

    def close(self) -> None:
        """Wait for what is being played, and end what it was played with."""
        if self._elsewhere is not None:
            self._elsewhere.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._ahead = {}
        self.stage.close()

    def state_dict(self) -> dict[str, Any] | None:
        """What is under way and goes on with the next step; None: nothing ever is. Waits for what is played ahead."""
        self.ahead()
        return None if self._stragglers is None else dict(self._stragglers.state_dict())

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """What `state_dict` gave."""
        if self._stragglers is not None and state is not None:
            self._stragglers.load_state_dict(state)

    def engines(self, *, patient: bool = False, look: Callable[[], None] | None = None) -> dict[str, Engine]:
        """Who answers, by role, in lockstep."""
        answering = {name: policy.engine for name, policy in self.policies.items()}
        wrapped = lockstep(answering, patient=patient, look=look)
        return {role: wrapped[name] for name, policy in self.policies.items() for role in policy.roles}

    def forks(self) -> Forks:
        """Runs traces again under the weights of now."""
        self.publish()
        # Nobody looks whether forks were answered, so that none may be left unasked.
        return self._forks(self.engines(patient=True))

    def _forks(self, engines: Mapping[str, Engine]) -> Forks:
        return Forks(self.stage.team(engines, self.stage.assignment(0), 0), self._assigned)

    def _assigned(self, trace: Trace) -> Assignment:
        told = trace.header.meta["train"]
        return self.stage.assignment(told["instance"], told["split"])

    def figures(self, number: int, trained: Sequence[RolloutGroup]) -> dict[str, Any]:
        """What is told of a step in the metrics beside what its traces say; `trained` are the groups it trains on."""
        told = {} if self._elsewhere is None else self._elsewhere.figures(number)
        if self._stragglers is not None:
            told |= self._stragglers.told.pop(number, {})
        gaps = {name: gap for name, policy in self.policies.items() if (gap := policy.push_gap) is not None}
        pushed = {"push_gap": gaps} if gaps else {}
        if not told and not self.lag and not self.recipe.rollout.replay:
            return told | pushed
        from baton.learn.scale.window import window_figures  # a plain run has no window

        return told | pushed | window_figures(self, told, trained)

    def play(self, number: int, version: int) -> list[RolloutGroup]:
        """A step's groups, played by this process."""
        began = time.monotonic()
        try:
            return self._play(number, version)
        finally:
            self.spent.playing += time.monotonic() - began

    def _play(self, number: int, version: int) -> list[RolloutGroup]:
        if self._stragglers is not None:
            taken: list[RolloutGroup] = self._stragglers.play(self, number, version)
            return taken
        played = [
            self.play_lot(number, lot) for lot in lots_of(self.part_at(number), self.recipe.scale.batch)
        ]
        self.stage.check(self.engines(), [trace for lot in played for group in lot for trace in group])
        return [
            RolloutGroup(step=number, version=version, traces=tuple(group))
            for lot in played
            for group in self.told(lot)
        ]

    def play_lot(self, number: int, groups: Sequence[int]) -> list[Sequence[Trace]]:
        """Groups of a step that are played together; nobody looks yet whether they were answered.

        What was computed of prompts before is forgotten: what comes of it depends on the step, on which groups these
        are and on the weights, to the last digit.
        """
        for policy in self.policies.values():
            policy.forget()
        return asyncio.run(self._played(number, groups))

    def told(self, lot: Sequence[Sequence[Trace]]) -> list[Sequence[Trace]]:
        """These groups with the chances of options, by the weights that sampled: so before these change."""
        every = [trace for group in lot for trace in group]
        models = samplers(self.policies)
        found = iter(with_propensities(every, models, max_tokens=self.recipe.pack.max_tokens))
        return [[next(found) for _ in group] for group in lot]

    async def _played(self, number: int, groups: Sequence[int]) -> list[Sequence[Trace]]:
        """Groups side by side: the branches of one are played while the first rollouts of another still are."""
        rollout = self.part_at(number)
        episodes, size = self.episodes(number, groups), rollout.group_size
        engines = self.engines()
        forks = self._forks(engines) if rollout.fan_out else None

        async def one(mine: Sequence[Episode]) -> Sequence[Trace]:
            traces = await self.stage.play_all(engines, mine)
            return traces if forks is None else await branched(traces, rollout, forks)

        return list(
            await asyncio.gather(*(one(episodes[at : at + size]) for at in range(0, len(episodes), size)))
        )

    def episodes(self, number: int, groups: Sequence[int]) -> list[Episode]:
        """The rollouts of these groups of a step."""
        rollout, seed = self.part_at(number), self.recipe.train.seed
        return [
            Episode(
                name=f"step-{number:04d}/{group:02d}-{member:02d}",
                instance=seed * SEEDS + number * rollout.groups + group,
                seed=(number * rollout.groups + group) * SEEDS + member + seed * SEEDS**2,
                step=number,
            )
            for group in groups
            for member in range(rollout.group_size)
        ]


def lots_of(rollout: RolloutPart, batch: int) -> list[range]:
    """A step's groups, by number, as they are played together: so many at a time, or with 0 all of them."""
    size = batch or rollout.groups
    return [range(at, min(at + size, rollout.groups)) for at in range(0, rollout.groups, size)]


async def branched(group: Sequence[Trace], rollout: RolloutPart, forks: Forks) -> list[Trace]:
    """All rollouts of one instance's tree: of each, `fan_out[k]` branches after its turn number k + 1.

    What C3 and MALT compare, and AT-GRPO's samples from one state, are such branches. A branch is a fork of its trace:
    the turns before are the recorded ones, token by token, and the update trains them once. With `grow = "best"` only
    the best of the newest branches has branches of its own, the first of equals. With `branch_after = "agent"` all that
    one agent says before another speaks is taken for one turn. With `expand` only so many are branched at each depth,
    those first that came out worst, so that whoever comes next sees mistakes (MarsRL).
    """
    grown, newest = list(group), list(group)
    by_agent = rollout.branch_after == "agent"
    for depth, width in enumerate(rollout.fan_out, start=1):
        if rollout.grow == "best":
            newest = await _branches(max(newest, key=outcome_of), depth, width, forks, by_agent=by_agent)
            grown += newest[1:]
            continue
        chosen = set(range(len(grown)) if rollout.expand is None else _worst(grown, rollout.expand))
        every = await asyncio.gather(
            *(
                _branches(trace, depth, width if place in chosen else 1, forks, by_agent=by_agent)
                for place, trace in enumerate(grown)
            )
        )
        grown = [trace for each in every for trace in each]
    return grown


def _worst(traces: Sequence[Trace], count: int) -> list[int]:
    """Places of the traces that earned least by the task, the first ones among equals."""
    return sorted(range(len(traces)), key=lambda place: (outcome_of(traces[place]), place))[:count]


async def _branches(
    trace: Trace, depth: int, width: int, forks: Forks, *, by_agent: bool = False
) -> list[Trace]:
    said = turns(trace)
    ends = [
        place
        for place, turn in enumerate(said)
        if not by_agent or place + 1 == len(said) or said[place + 1].agent != turn.agent
    ]
    if len(ends) <= depth or width == 1:  # nothing follows that could be drawn again
        return [trace]
    at = trace.events[said[ends[depth - 1]].start].id
    made = await asyncio.gather(
        *(
            forks.fork(
                trace, redraw=at, replicate=depth * _DEPTHS + k, trace_id=f"{trace.trace_id}.{depth}-{k}"
            )
            for k in range(1, width)
        )
    )
    return [trace, *(each.trace for each in made)]


class ReplayBuffer:
    """The groups of the last steps, each kept whole.

    What was sampled by weights older than the staleness bound goes; what is older than the weights being trained is
    corrected for by the loss (importance weights).
    """

    def __init__(self, staleness: int) -> None:
        self.staleness = staleness
        self.groups: list[RolloutGroup] = []

    def add(self, groups: Sequence[RolloutGroup], version: int) -> list[RolloutGroup]:
        """Keep these; forget what is too old for weights of this version. Returns what was forgotten."""
        self.groups += groups
        gone = [group for group in self.groups if version - group.version > self.staleness]
        self.groups = [group for group in self.groups if version - group.version <= self.staleness]
        return gone

    def again(self, num_groups: int, before: int) -> list[RolloutGroup]:
        """The newest groups of steps before this one."""
        earlier = [group for group in self.groups if group.step < before]
        return earlier[-num_groups:] if num_groups else []


def batches_of(rows: Sequence[Row], count: int) -> list[list[Row]]:
    """Rows in `count` batches of nearly equal trained tokens; rows of one group stay together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    sizes = {name: sum(len(row.places) for row in each) for name, each in groups.items()}
    batches: list[list[Row]] = [[] for _ in range(max(1, min(count, len(groups))))]
    filled = [0] * len(batches)
    for name in sorted(groups, key=lambda name: (-sizes[name], name)):
        at = filled.index(min(filled))
        batches[at] += groups[name]
        filled[at] += sizes[name]
    return batches


def lockstep(
    engines: Mapping[str, Engine], *, patient: bool = False, look: Callable[[], None] | None = None
) -> dict[str, Lockstep]:
    """These engines, asked together. `patient`: however often they fail. `look` is called whenever all runs wait and
    before they are answered.

    The runs of a step live on one event loop under a virtual clock and wait for nothing but answers, so once the loop
    has gone round without a new call and no engine is being asked, all of them wait. Then every engine is asked at
    once, and nobody is told before all have answered. What is in a batch then depends on the runs alone and not on how
    fast threads were, also with several engines: the same seed gives the same batches, hence the same bits.
    """
    rounds = _Rounds(look)
    return {name: Lockstep(engine, rounds, policy=name, patient=patient) for name, engine in engines.items()}


class _Rounds:
    """What waits, for all engines of a play."""

    def __init__(self, look: Callable[[], None] | None = None) -> None:
        self._before = look
        self._waiting: dict[Lockstep, list[tuple[Request, Outcome]]] = {}
        self._quiet = 0
        self._gathering = False
        self._task: asyncio.Task[None] | None = None

    def add(self, engine: Lockstep, requests: Sequence[Request]) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        mine: list[Outcome] = [loop.create_future() for _ in requests]
        self._waiting.setdefault(engine, []).extend(zip(requests, mine, strict=True))
        self._quiet = 0
        self._gather(loop)
        return mine

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._gathering and self._task is None:
            self._gathering = True
            loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._quiet += 1
        if self._quiet < _QUIET_ROUNDS:
            loop.call_soon(self._look, loop)
            return
        self._gathering = False
        if self._before is not None:
            self._before()
        waiting, self._waiting = self._waiting, {}
        self._task = loop.create_task(self._ask(loop, waiting))

    async def _ask(
        self, loop: asyncio.AbstractEventLoop, waiting: Mapping[Lockstep, list[tuple[Request, Outcome]]]
    ) -> None:
        asked = {
            engine: still
            for engine, each in waiting.items()
            if (still := [(request, future) for request, future in each if not future.done()])
        }
        found = await asyncio.gather(
            *(engine.ask([request for request, _ in each]) for engine, each in asked.items()),
            return_exceptions=True,  # whatever an engine raised belongs to those who asked it
        )
        for each, answers in zip(asked.values(), found, strict=True):
            for number, (_, future) in enumerate(each):
                if future.done():
                    continue
                if isinstance(answers, BaseException):
                    future.set_exception(answers)
                else:
                    future.set_result(answers[number])
        self._task = None
        self._quiet = 0
        self._gather(loop)


class Lockstep:
    """An engine that asks another one, with everything that was asked meanwhile."""

    def __init__(
        self,
        engine: Engine,
        rounds: _Rounds | None = None,
        *,
        policy: str | None = None,
        patient: bool = False,
    ) -> None:
        self.name = engine.name
        self.charging = charging_of(engine)
        self.engine = engine
        self.policy = policy
        """The policy that it answers for, by the recipe's name."""
        self._rounds = rounds or _Rounds()
        self._patient = patient
        self._failed_rounds = 0
        self._failing_seconds = 0.0

    @property
    def version(self) -> str:
        return str(getattr(self.engine, "version", "0"))

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self.engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [await each for each in self._rounds.add(self, requests)]

    async def ask(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        """Ask the engine itself, unless there is no hope."""
        long = self._failed_rounds >= _PATIENCE_ROUNDS and self._failing_seconds > _PATIENCE_SECONDS
        if long and not self._patient:
            return [EngineError(NOT_ASKED) for _ in requests]
        began = time.monotonic()
        answers = await self.engine.answer(requests)
        if any(isinstance(each, Answer) for each in answers):
            self._patient = True
        else:
            self._failed_rounds += 1
            self._failing_seconds += time.monotonic() - began
        return answers

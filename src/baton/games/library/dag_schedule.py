"""O1 x O2: a DAG of tasks on P slots, to the shortest makespan.

When a slot is free: start another worker or wait for one to return (O1), and on which ready task
(O2). Waiting by choice is allowed, because with precedence it can pay. A state is (phase, done,
running), done a bit mask, running (seconds left, task) sorted.

Bounds: max(T1/P, Tinf) <= OPT <= any list schedule <= T1/P + (1-1/P) Tinf (Graham 1966); for
independent tasks longest-first is within 4/3 - 1/(3P) (Graham 1969); for unit in-trees
highest-level-first is optimal (Hu 1961).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from baton.games.game import OVER, Branch, Choice, Game, State
from baton.games.schedule import levels, list_schedule

_MORE, _WHICH = 0, 1


class DagSchedule(Game, frozen=True, kw_only=True):
    """Tasks that need others, on a few slots."""

    name: ClassVar[str] = "dag-schedule"
    decisions: ClassVar[tuple[Choice, ...]] = ("spawn", "delegate")
    roles: ClassVar[tuple[str, ...]] = ("worker",)

    durations: tuple[int, ...] = (3, 2, 2, 4, 4, 1, 9)
    """Seconds of each task."""
    edges: tuple[tuple[int, int], ...] = ((0, 4), (1, 3), (2, 3), (5, 6))
    """(before, after), numbered from 0."""
    num_slots: int = 2

    def __post_init__(self) -> None:
        n = len(self.durations)
        self.require(1 <= n <= 20, "durations", "the exact solver takes 1 to 20 tasks")
        self.require(all(d >= 1 for d in self.durations), "durations", "each task takes at least 1 second")
        self.require(self.num_slots >= 1, "num_slots", "there must be at least 1 slot")
        inside = all(0 <= a < n and 0 <= b < n for a, b in self.edges)
        self.require(inside, "edges", f"tasks are numbered 0 to {n - 1}")
        acyclic = inside and levels(self.durations, self.edges) is not None
        self.require(acyclic, "edges", "the tasks must not wait for each other in a circle; remove an edge")

    @cached_property
    def _needs(self) -> tuple[int, ...]:
        masks = [0] * len(self.durations)
        for before, after in self.edges:
            masks[after] |= 1 << before
        return tuple(masks)

    def start(self) -> Sequence[Branch]:
        return (self._settle(0, (), 0),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        phase, done, running = state
        if phase == _MORE:
            return ("spawn worker: next", "wait")
        return tuple(f"delegate worker: task {i + 1}" for i in self._ready(done, running))

    def decision(self, state: State) -> Choice:
        return "spawn" if state[0] == _MORE else "delegate"

    def step(self, state: State, option: str) -> Sequence[Branch]:
        _, done, running = state
        if option == "wait":
            return (self._advance(done, running),)
        if option.startswith("spawn"):
            return (Branch(1.0, (_WHICH, done, running)),)
        task = int(option.rsplit(" ", 1)[1]) - 1
        return (self._settle(done, tuple(sorted((*running, (self.durations[task], task)))), 0),)

    def quit(self, state: State) -> str:
        return "wait" if state[0] == _MORE else self.options(state)[0]

    def spawned(self, state: State) -> int:
        """Workers running: a fixed-k policy keeps k busy."""
        return len(state[2])

    def text(self, state: State) -> str:
        if not state:
            return "over"
        phase, done, running = state
        lines = [f"slots: {self.num_slots}"]
        for i, (seconds, needs) in enumerate(zip(self.durations, self._needs, strict=True)):
            if done >> i & 1:
                continue
            left = next((f"{s} s left" for s, task in running if task == i), f"{seconds} s")
            waits = [str(j + 1) for j in range(len(self._needs)) if needs & ~done & 1 << j]
            lines.append(f"task {i + 1}: {left}" + (f", after {' '.join(waits)}" if waits else ""))
        return "\n".join([*lines, "start another?" if phase == _MORE else "which task?"])

    def _ready(self, done: int, running: Sequence[tuple[int, int]]) -> list[int]:
        taken = done | sum(1 << task for _, task in running)
        return [i for i, needs in enumerate(self._needs) if not taken >> i & 1 and needs & ~done == 0]

    def _settle(self, done: int, running: tuple[tuple[int, int], ...], elapsed: int) -> Branch:
        """Go on to the next state with a choice; time passes where there is none."""
        if done == (1 << len(self.durations)) - 1:
            return Branch(1.0, OVER, -float(elapsed))
        if len(running) < self.num_slots and self._ready(done, running):
            return Branch(1.0, (_MORE if running else _WHICH, done, running), -float(elapsed))
        return self._advance(done, running, elapsed)

    def _advance(self, done: int, running: Sequence[tuple[int, int]], elapsed: int = 0) -> Branch:
        """Until the next worker returns."""
        passed = running[0][0]
        left = tuple((s - passed, task) for s, task in running if s > passed)
        back = sum(1 << task for s, task in running if s == passed)
        return self._settle(done | back, left, elapsed + passed)

    def facts(self) -> dict[str, float]:
        level = levels(self.durations, self.edges)
        assert level is not None  # checked at construction
        work, span = sum(self.durations), max(level)
        slots = self.num_slots
        by_level = sorted(range(len(level)), key=lambda i: -level[i])
        return {
            "work": work,
            "span": span,
            "lower_bound": max(work / slots, span),
            "list_schedule": list_schedule(self.durations, self.edges, slots, by_level),
            "upper_bound": work / slots + (1 - 1 / slots) * span,
        }

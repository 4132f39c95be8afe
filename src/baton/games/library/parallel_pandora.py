"""The flagship: parallel Pandora with noisy inspectors, all five decisions in one game.

Boxes are good (worth `prize`) or bad (worth nothing); the orchestrator may take one, or the sure
`outside` value. In each round it sends inspectors: how many at once (O1), who to which box (O2), a
brief or a full report (O3), how two reports on one box are fused (O4); between rounds it goes on or
stops with a box (O5). There are juniors enough but one senior. Before anyone was spawned, not to go
on is the decision not to spawn (O1).

Posteriors lie on an exact lattice (see `inspectors`). Boxes at equal belief are interchangeable, so
a state keeps beliefs sorted, best first, and `box 2` is the second best now. A state is
(phase, round, beliefs, pending), pending holding (box, inspector, report) of this round.

Source: Weitzman, "Optimal search for the best alternative", Econometrica 1979, for one perfect
inspector at a time; the noisy parallel form is Baton's and has no index solution, hence the DP.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from itertools import product
from typing import ClassVar

from baton.errors import UsageError
from baton.games.game import CHOICES, Branch, Choice, Game, State, possible
from baton.games.library.inspectors import Lottery, agreement, chance_good, report

MAX_BOXES = 6
MAX_INSPECTIONS = 6
_STOP, _WHO, _REPORT, _MORE, _FUSE, _END = range(6)
_OVER: State = (_END, 0, (), ())
_UNASKED = -1
_REPORTS = ("brief", "full")


class ParallelPandora(Game, frozen=True, kw_only=True):
    """Inspect boxes in parallel, then take one."""

    name: ClassVar[str] = "parallel-pandora"
    decisions: ClassVar[tuple[Choice, ...]] = CHOICES
    roles: ClassVar[tuple[str, ...]] = ("inspector",)

    num_boxes: int = 3
    num_rounds: int = 2
    num_slots: int = 2
    """Inspectors at once."""
    unit: float = 0.7
    """Step of the lattice of log-odds."""
    prior: int = 0
    """Log-odds of a fresh box, in units."""
    settled: int = 4
    """A box this sure, either way, is not inspected again."""
    prize: float = 1.0
    outside: float = 0.7
    junior_cost: float = 0.005
    senior_cost: float = 0.02
    full_cost: float = 0.008
    """What a full report costs above a brief one."""
    read_cost: float = 0.001
    """What reading one of two reports on a box costs."""
    round_cost: float = 0.02

    def __post_init__(self) -> None:
        for field in ("num_boxes", "num_rounds", "num_slots", "settled"):
            self.require(getattr(self, field) >= 1, field, "it must be at least 1")
        self.require(
            self.num_slots <= 2 * self.num_boxes, "num_slots", "at most two inspectors fit at each box"
        )
        self.require(0 < self.unit <= 5, "unit", "it must be above 0 and at most 5")
        for field in ("junior_cost", "senior_cost", "full_cost", "read_cost", "round_cost", "prize"):
            self.require(getattr(self, field) >= 0, field, "it must not be negative")

    def check_exact(self) -> None:
        """Refuse what the exact solver does not take."""
        inspections = self.num_rounds * self.num_slots
        for what, given, limit in (
            ("num_boxes", self.num_boxes, MAX_BOXES),
            ("num_rounds x num_slots", inspections, MAX_INSPECTIONS),
        ):
            if given > limit:
                raise UsageError(
                    f"{self.name}: {what} = {given} is past exact solution, which takes at most {limit}. "
                    "Lower it with --set, or play with a policy that needs no solution."
                )

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (_STOP, 0, (self.prior,) * self.num_boxes, ())),)

    def options(self, state: State) -> tuple[str, ...]:
        phase, round_, boxes, pending = state
        if phase == _STOP:
            going_on = round_ < self.num_rounds and any(abs(k) < self.settled for k in boxes)
            takes = tuple(f"stop box {i + 1}" for i, k in enumerate(boxes) if k not in boxes[:i])
            return (*(("spawn inspector: look",) if going_on else ()), *takes, "stop none")
        if phase == _WHO:
            free = _INSPECTORS[:1] if any(entry[1] for entry in pending) else _INSPECTORS
            return tuple(f"delegate {who}: box {i + 1}" for i in self._open(boxes, pending) for who in free)
        if phase == _REPORT:
            who = _INSPECTORS[pending[-1][1]]
            return tuple(f"send {who}: {kind}" for kind in _REPORTS)
        if phase == _MORE:
            return ("spawn inspector: look", "wait")
        if phase == _FUSE:
            return ("aggregate all", "aggregate majority", "aggregate best")
        return ()

    def decision(self, state: State) -> Choice:
        if state[0] == _STOP:
            return "spawn" if state[1] == 0 else "stop"
        return _DECISIONS[state[0]]

    def step(self, state: State, option: str) -> Sequence[Branch]:
        phase, round_, boxes, pending = state
        if phase == _STOP:
            if option.startswith("stop"):
                return self._take(boxes, option)
            return (Branch(1.0, (_WHO, round_, boxes, ()), -self.round_cost),)
        if phase == _WHO:
            who, box = _parse(option)
            cost = self.senior_cost if who else self.junior_cost
            return (Branch(1.0, (_REPORT, round_, boxes, (*pending, (box, who, _UNASKED))), -cost),)
        if phase == _REPORT:
            full = option.endswith("full")
            box, who, _ = pending[-1]
            asked = tuple(sorted((*pending[:-1], (box, who, int(full)))))
            after = (_MORE, round_, boxes, asked)
            cost = self.full_cost if full else 0.0
            if len(asked) < self.num_slots and self._open(boxes, asked):
                return (Branch(1.0, after, -cost),)
            return self._launch(after, cost)
        if phase == _MORE:
            if option == "wait":
                return self._launch(state, 0.0)
            return (Branch(1.0, (_WHO, round_, boxes, pending)),)
        return self._return(state, option.removeprefix("aggregate "))

    def quit(self, state: State) -> str:
        phase, _, boxes, _ = state
        if phase == _STOP:
            return "stop box 1" if self.prize * self._good(boxes[0]) > self.outside else "stop none"
        if phase == _WHO:
            return next((o for o in self.options(state) if "senior" in o), self.options(state)[0])
        return "wait" if phase == _MORE else self.options(state)[0]

    def spawned(self, state: State) -> int:
        """Inspectors of this round: a fixed-k policy sends k at once."""
        return len(state[3])

    def text(self, state: State) -> str:
        phase, round_, boxes, pending = state
        if phase == _END:
            return "over"
        lines = [
            f"round {round_ + 1} of {self.num_rounds}" if round_ < self.num_rounds else "last round is over"
        ]
        lines += [f"box {i + 1}: {k:+d}" for i, k in enumerate(boxes)]
        lines += [
            f"{_INSPECTORS[who]} at box {box + 1}" + (f", {_REPORTS[kind]}" if kind != _UNASKED else "")
            for box, who, kind in pending
        ]
        return "\n".join([*lines, _QUESTIONS[phase]])

    def _take(self, boxes: tuple[int, ...], option: str) -> Sequence[Branch]:
        if option == "stop none":
            return (Branch(1.0, _OVER, self.outside),)
        good = self._good(boxes[int(option.rsplit(" ", 1)[1]) - 1])
        return possible(Branch(good, _OVER, self.prize), Branch(1 - good, _OVER))

    def _open(self, boxes: tuple[int, ...], pending: State) -> list[int]:
        """Boxes an inspector can go to; of interchangeable ones the first."""
        seen: set[tuple[object, ...]] = set()
        found = []
        for i, k in enumerate(boxes):
            there = tuple(entry[1:] for entry in pending if entry[0] == i)
            if abs(k) < self.settled and len(there) < 2 and (k, there) not in seen:
                seen.add((k, there))
                found.append(i)
        return found

    def _launch(self, state: State, cost: float) -> Sequence[Branch]:
        """All inspectors are out. Two reports on one box must be fused first; else they come in."""
        _, round_, boxes, pending = state
        places = [entry[0] for entry in pending]
        if len(set(places)) < len(places):
            return (Branch(1.0, (_FUSE, round_, boxes, pending), -cost),)
        branches = self._return(state, "all")
        return [Branch(p, after, r - cost) for p, after, r in branches] if cost else branches

    def _return(self, state: State, method: str) -> Sequence[Branch]:
        """Reports come in and beliefs move; next round."""
        _, round_, boxes, pending = state
        reports: dict[int, tuple[tuple[int, int], ...]] = {}
        for box, who, kind in pending:
            reports[box] = (*reports.get(box, ()), (who, kind))
        pairs = sum(len(those) == 2 for those in reports.values())
        cost = self.read_cost * pairs * (2 if method == "all" else 1)
        chances: dict[State, float] = {}
        for outcome in product(*(self._moves(boxes[box], those, method) for box, those in reports.items())):
            p, after = 1.0, list(boxes)
            for box, (chance, shift) in zip(reports, outcome, strict=True):
                p *= chance
                after[box] += shift
            after.sort(reverse=True)
            key = tuple(after)
            chances[key] = chances.get(key, 0.0) + p
        return [Branch(p, (_STOP, round_ + 1, after, ()), -cost) for after, p in chances.items()]

    def _moves(self, k: int, reports: tuple[tuple[int, int], ...], method: str) -> Lottery:
        """(probability, shift) for a box at belief k under its one or two reports."""
        key = (k, reports, method)
        if key not in self._known_moves:
            self._known_moves[key] = self._compute_moves(k, reports, method)
        return self._known_moves[key]

    def _compute_moves(self, k: int, reports: tuple[tuple[int, int], ...], method: str) -> Lottery:
        if len(reports) == 2 and method == "majority":
            return agreement(k, (_SKILLS[reports[0][0]], _SKILLS[reports[1][0]]), self.unit)
        if len(reports) == 2 and method == "best":
            reports = (max(reports),)
        shifts = {0: 1.0}
        for who, kind in reports:
            after: dict[int, float] = {}
            for shift, p in shifts.items():
                for chance, move in report(k + shift, _SKILLS[who], bool(kind), self.unit):
                    after[shift + move] = after.get(shift + move, 0.0) + p * chance
            shifts = after
        return tuple((p, shift) for shift, p in sorted(shifts.items()))

    @cached_property
    def _known_moves(self) -> dict[tuple[int, tuple[tuple[int, int], ...], str], Lottery]:
        return {}

    def _good(self, log_odds: int) -> float:
        return chance_good(log_odds, self.unit)


_INSPECTORS = ("junior", "senior")
_SKILLS = (1, 2)
_DECISIONS: dict[int, Choice] = {_WHO: "delegate", _REPORT: "communicate", _MORE: "spawn", _FUSE: "aggregate"}
_QUESTIONS = {
    _STOP: "stop or go on?",
    _WHO: "who, to which box?",
    _REPORT: "which report?",
    _MORE: "one more?",
    _FUSE: "how to fuse?",
}


@cache
def _parse(option: str) -> tuple[int, int]:
    """(inspector, box) of `delegate senior: box 3`."""
    who, _, box = option.removeprefix("delegate ").partition(": box ")
    return _INSPECTORS.index(who), int(box) - 1

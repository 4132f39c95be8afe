"""Dispatch: a job comes in, and one of n workers is to do it. Whom to hand it to, not how many.

Every worker has a card: a trade and a grade. A job is named by what is wrong, and which trade it needs stands nowhere:
that is to be learned from what comes of it. A worker of the right trade is worth its grade, any other nothing. The
dispatcher says whom it wants in words, `delegate plumber-expert: leak`, and a directory finds who fits best
(`baton.team.directory`). It reads the job alone, or all cards with it (`shows`).

Invariant: with `shows = "job"` what is read and said does not depend on how many workers there are. What every choice
is worth is known exactly, so is the best (`best`). Teams are drawn anew for each instance; trades and jobs are the same
in both splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np

from baton.errors import UsageError
from baton.tasks.task import Instance, Play, Task
from baton.team.action import Action, Delegate, Forbidden
from baton.team.agent import Agent, Role
from baton.team.directory import Directory
from baton.team.protocol import Request
from baton.team.recording import Said
from baton.team.team import Assignment, Topology
from baton.trace.records import Sampling

GRADES: Final = {"novice": 0.3, "able": 0.6, "expert": 0.9}
TRADES: Final = ("plumber", "tailor", "baker", "welder", "painter", "gardener", "porter", "clerk")
JOBS: Final = (
    ("leak", "drain"), ("tear", "button"), ("feast", "cake"), ("crack", "gate"),
    ("stain", "wall"), ("hedge", "weeds"), ("crate", "move"), ("tax", "letter"),
)  # fmt: skip
"""Those that need the first trade, the second, and so on."""
NOBODY: Final = "nobody"
"""The answer where no card has a word of what was wanted."""
_MOST = 1_000_000
Card = tuple[str, str]


def needed(job: str) -> str:
    """The trade that a job needs."""
    return next(trade for trade, jobs in zip(TRADES, JOBS, strict=True) if job in jobs)


def worth(job: str, card: Sequence[str]) -> float:
    """What comes of handing a job to a worker with this card."""
    return GRADES[card[1]] if card[0] == needed(job) else 0.0


class Dispatch(Task):
    """Whom to hand a job to?"""

    name: ClassVar[str] = "dispatch"

    def __init__(
        self, *, num_workers: int = 100, num_trades: int = 8, shows: Literal["job", "all"] = "job"
    ) -> None:
        if not 1 <= num_workers <= _MOST:
            raise UsageError(f"dispatch: num_workers = {num_workers:,}; expected 1 to {_MOST:,}.")
        if not 1 <= num_trades <= len(TRADES):
            raise UsageError(f"dispatch: num_trades = {num_trades}; expected 1 to {len(TRADES)}.")
        self.num_workers = num_workers
        self.num_trades = num_trades
        self.shows = shows

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        jobs = [job for several in JOBS[: self.num_trades] for job in several]
        job = jobs[int(random.integers(len(jobs)))]
        trades = random.integers(self.num_trades, size=self.num_workers).tolist()
        grades = random.integers(len(GRADES), size=self.num_workers).tolist()
        names = tuple(GRADES)
        cards = [[TRADES[trade], names[grade]] for trade, grade in zip(trades, grades, strict=True)]
        listed = "".join(f"{trade} {grade}\n" for trade, grade in cards) if self.shows == "all" else ""
        return f"{listed}job: {job}", {"job": job, "best": best(job, cards)}, cards

    def verify(self, instance: Instance, answer: str) -> float:
        number = answer.strip().removeprefix("worker-")
        if not (number.isascii() and number.isdigit()) or not 1 <= int(number[:8]) <= len(instance.data):
            return 0.0
        return worth(instance.gold["job"], instance.data[int(number) - 1])

    def assignment(self, instance: Instance) -> Assignment:
        found = super().assignment(instance)
        found.spec["job"], found.spec["cards"] = instance.gold["job"], instance.data
        return found

    def topology(self) -> Topology:
        """A dispatcher, and whoever it hands the job to; the others cost nothing."""
        return Topology(
            name="centralized",
            root="dispatcher",
            roles=(
                Role(
                    name="dispatcher",
                    instructions="Hand the job to whom it fits: delegate TRADE-GRADE: JOB",
                    verbs=("delegate",),
                    spawns=("worker",),
                    sampling=Sampling(max_tokens=24),
                ),
                Role(name="worker", verbs=("return",)),
            ),
            programs={"dispatcher": _dispatch, "worker": _work},
            asks=("dispatcher",),
            built_from={"name": "centralized", "task": self.name},
        )

    def reference_play(self) -> Play:
        """A dispatcher that knows which trade a job needs and asks for an expert."""
        return play


def best(job: str, cards: Sequence[Sequence[str]]) -> float:
    """What the best choice is worth."""
    return max(worth(job, card) for card in cards)


def name_of(place: int) -> str:
    """What the worker at a place of the list is called."""
    return f"worker-{place + 1}"


def found_for(wanted: str, directory: Directory) -> str:
    """Whom a description, or a worker's own name, stands for."""
    if wanted in directory.cards:
        return wanted
    return next(iter(directory.find(wanted)), NOBODY)


def directory_of(cards: Sequence[Sequence[str]]) -> Directory:
    """The workers by what their cards say."""
    return Directory({name_of(place): " ".join(card) for place, card in enumerate(cards)})


def play(request: Request) -> str:
    """What the dispatcher says that knows."""
    said = [entry.text.rpartition("job: ")[2].strip() for entry in request.entries if "job: " in entry.text]
    job = said[-1]
    return f"delegate {needed(job)}-expert: {job}"


async def _dispatch(me: Agent) -> None:
    job, directory = me.run.assignment.spec["job"], directory_of(me.run.assignment.spec["cards"])
    chosen: list[str] = []

    async def hand_over(me: Agent, action: Action, said: Said, extra: dict[str, Any]) -> None:
        if not isinstance(action, Delegate):
            raise Forbidden("you may only delegate")
        if action.task != job:
            raise Forbidden(f"hand the job over as it is: {job}")
        chosen.append(found_for(action.agent, directory))
        more = {"wanted": action.agent, "found": chosen[-1]}
        me.run.writer.emit(
            me,
            "orchestrator_decision",
            decision="delegate",
            text=f"{action.agent}: {chosen[-1]}",
            said=said,
            extra=extra | more,
        )

    while not (chosen or me.done()):
        await me.turn(hand_over)
    if me.done():
        return
    if chosen[0] != NOBODY:
        worker = await me.spawn("worker", f"{chosen[0]}: {job}")
        if worker is not None:
            await me.wait([worker])
    await me.stop(chosen[0])


async def _work(me: Agent) -> None:
    await me.returns("done")

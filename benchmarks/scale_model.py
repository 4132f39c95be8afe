"""A discrete-event simulation of a training run past one process: workers, a trainer and a store of weights.

Step n is played by the weights after max(0, n - 1 - lag) steps, in lots that any free worker takes, the oldest step
first; before a lot a worker reads its weights from the store, which serves one reader at a time. The trainer reads
every lot, trains when a step's lots are there, and writes the weights; it does one thing at a time. With `cores`,
whoever works shares so many cores in equal parts: that is one machine; without, each has its own: that is a cluster.

All chance is in the order in which measured lots come again, by a seed; so equal arguments give equal numbers.
"""

from __future__ import annotations

import heapq
import random
from collections import deque

from msgspec import Struct

PARTS = ("workers", "reading traces", "training", "publishing", "store")


class Service(Struct, frozen=True, kw_only=True):
    """Seconds that each part takes."""

    lots: tuple[float, ...]
    """A worker's play of a lot, as measured: each comes as often."""
    encode: float = 0.0
    """Writing a lot's traces, by the worker."""
    decode: float = 0.0
    """Reading them, by the trainer."""
    train: float = 0.0
    """Scoring, crediting and updating on a step of as many lots as were measured; it grows with their number."""
    publish: float = 0.0
    """Writing the weights."""
    load: float = 0.0
    """Reading the weights and checking them, by a worker."""
    store: float = 0.0
    """Of that, what the store serves one reader at a time."""


class Simulated(Struct, frozen=True, kw_only=True):
    """What a run came to."""

    step_seconds: float
    """From one step's end to the next, on average, less the first steps."""
    lots_per_second: float
    busy: dict[str, float]
    """Part -> share of the time in which it worked; of the workers the mean."""
    limit: str
    """The part that was busiest: more of the others would not help."""


class _Work(Struct, kw_only=True):
    left: float
    part: str
    then: object


def simulate(
    service: Service,
    *,
    workers: int,
    lag: int,
    lots: int,
    steps: int,
    seed: int = 0,
    cores: int | None = None,
) -> Simulated:
    """Run it; `steps` are looked at."""
    return _Run(service, workers, lag, lots, steps, seed, cores).go()


class _Run:
    def __init__(
        self, service: Service, workers: int, lag: int, lots: int, steps: int, seed: int, cores: int | None
    ) -> None:
        self.service, self.workers, self.lag, self.lots = service, workers, lag, lots
        self.steps = lag + 1 + steps
        """The first are left out: their lots are dealt all at once."""
        self.cores = cores
        self.train_seconds = service.train * lots / len(service.lots)
        self.random = random.Random(seed)
        self.deck: list[float] = []
        """Measured lots that were not drawn yet since all of them were: so the mean is theirs."""
        self.now = 0.0
        self.running: list[_Work] = []
        """Where cores are shared, all that is under way; otherwise `self.heap`."""
        self.heap: list[tuple[float, int, _Work]] = []
        self.count = 0
        self.busy = dict.fromkeys(PARTS, 0.0)
        self.begun = 0
        """Steps whose lots were dealt."""
        self.trained = 0
        self.published = 0
        self.ends: list[float] = []
        self.waiting: deque[int] = deque()
        """Lots that nobody plays yet, by their steps."""
        self.arrived = [0] * (self.steps + lag + 2)
        self.idle = list(range(workers))
        self.trainer: deque[tuple[str, float, int]] = deque()
        self.training = False
        self.readers: deque[tuple[int, int]] = deque()
        self.serving = False

    # -- time ---------------------------------------------------------------------------------

    def start(self, part: str, seconds: float, then: object) -> None:
        self.count += 1
        work = _Work(left=seconds, part=part, then=then)
        if part != "waiting":
            self.busy[part] += seconds
        if self.cores is None:
            heapq.heappush(self.heap, (self.now + seconds, self.count, work))
        else:
            self.running.append(work)

    def next(self) -> object:
        """Let time pass until something is done."""
        if self.cores is None:
            self.now, _, work = heapq.heappop(self.heap)
            return work.then
        slower = max(1.0, len(self.running) / self.cores)
        first = min(self.running, key=lambda work: work.left)
        passed = first.left
        self.now += passed * slower
        for work in self.running:
            work.left -= passed
        self.running.remove(first)
        return first.then

    def under_way(self) -> list[tuple[_Work, float]]:
        """What is not done yet, and the seconds of it that are to come."""
        if self.cores is None:
            return [(work, end - self.now) for end, _, work in self.heap]
        return [(work, work.left) for work in self.running]

    # -- who does what ----------------------------------------------------------------------------

    def go(self) -> Simulated:
        self.deal()
        while len(self.ends) < self.steps:
            kind, *rest = self.next()  # type: ignore[misc]
            getattr(self, f"did_{kind}")(*rest)
            self.give()
            self.work()
        span = self.ends[-1] - self.ends[self.lag]
        step = span / (self.steps - 1 - self.lag)
        whole = self.ends[-1]
        for work, left in self.under_way():
            if work.part in self.busy:
                self.busy[work.part] -= left
        shares = {part: spent / whole for part, spent in self.busy.items()}
        shares["workers"] /= self.workers
        trainer = shares["reading traces"] + shares["training"] + shares["publishing"]
        of_all = {"workers": shares["workers"], "store": shares["store"], "trainer": trainer}
        limit = max(of_all, key=lambda part: of_all[part])
        if limit == "trainer":  # which of its parts
            limit = max(("reading traces", "training", "publishing"), key=lambda part: shares[part])
        return Simulated(step_seconds=step, lots_per_second=self.lots / step, busy=shares, limit=limit)

    def deal(self) -> None:
        """Steps may begin whose weights are there: those after max(0, n - 1 - lag) steps.

        Also past the last that is looked at: a run that did not go on would have its last steps without the work for
        later ones, and say more than its parts can do.
        """
        while max(0, self.begun - self.lag) <= self.published:
            self.begun += 1
            self.waiting.extend([self.begun] * self.lots)
        self.give()

    def give(self) -> None:
        while self.idle and self.waiting:
            worker, step = self.idle.pop(), self.waiting.popleft()
            if self.service.load or self.service.store:
                self.readers.append((worker, step))
                self.serve()
            else:
                self.play(worker, step)

    def serve(self) -> None:
        if self.readers and not self.serving:
            self.serving = True
            self.start("store", self.service.store, ("serve", *self.readers.popleft()))

    def did_serve(self, worker: int, step: int) -> None:
        self.serving = False
        self.start("workers", max(0.0, self.service.load - self.service.store), ("load", worker, step))
        self.serve()

    def did_load(self, worker: int, step: int) -> None:
        self.play(worker, step)

    def play(self, worker: int, step: int) -> None:
        if not self.deck:
            self.deck = self.random.sample(self.service.lots, len(self.service.lots))
        seconds = self.deck.pop() + self.service.encode
        self.start("workers", seconds, ("play", worker, step))

    def did_play(self, worker: int, step: int) -> None:
        self.idle.append(worker)
        self.trainer.append(("reading traces", self.service.decode, step))

    def work(self) -> None:
        """The trainer takes the next thing: what has come in, before it trains."""
        if self.training:
            return
        if self.trainer:
            part, seconds, step = self.trainer.popleft()
        elif self.trained < self.begun and self.arrived[self.trained + 1] == self.lots:
            part, seconds, step = "training", self.train_seconds, self.trained + 1
        else:
            return
        self.training = True
        self.start(part, seconds, ("work", part, step))

    def did_work(self, part: str, step: int) -> None:
        self.training = False
        if part == "reading traces":
            self.arrived[step] += 1
        elif part == "training":
            self.trained = step
            self.trainer.appendleft(("publishing", self.service.publish, step))
        else:
            self.published = step
            self.ends.append(self.now)
            self.deal()

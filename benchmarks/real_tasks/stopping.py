"""Learned stopping against fixed rounds: scripted leaders with the trained workers, and when a team stops.

    fixed-k     looks at k parts and stops with what was found, whatever that is
    found       stops as soon as something was found: the best there is for these workers

Invariant: all arms meet the same questions and the same draws, so a worker that is handed the same part in the same
round says the same in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from baton.engine.torch import TorchEngine
from baton.learn.recipe import Recipe
from baton.learn.stage import Stage
from baton.measure.figure import Figure, mean
from baton.tasks.reasoning import NONE
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.records import Ints
from baton.trace.trace import Trace
from real_tasks.measure import answer_of
from real_tasks.runs import PARTS

__all__ = ["Counted", "searches", "stopping_rule", "with_leader"]


def searches(recipe: Recipe) -> bool:
    """Whether this is a team that looks at one part after the other."""
    return recipe.warm is not None and recipe.warm.play == "search"


class Counted:
    """A script whose words count as many tokens as a model's that says the same."""

    def __init__(self, script: Engine, model: TorchEngine) -> None:
        self.name = script.name
        self.charging = model.charging
        self._script = script
        self._model = model

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints:
        return self._model.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        # A script's own tokens are characters, of which the model's limit leaves too few.
        uncut = [structs.replace(r, sampling=structs.replace(r.sampling, max_tokens=None)) for r in requests]
        said = await self._script.answer(uncut)
        return [self._counted(request, answer) for request, answer in zip(requests, said, strict=True)]

    def _counted(self, request: Request, answer: Answer | EngineError) -> Answer | EngineError:
        if isinstance(answer, EngineError):
            return answer
        tokenizer = self._model.tokenizer
        ids = [*tokenizer.encode(answer.text, add_special_tokens=False), tokenizer.eos_token_id]
        return Answer(
            text=answer.text,
            policy=self.name,
            completion_ids=Ints(ids),
            prompt_tokens=None if request.prompt_ids is None else len(request.prompt_ids),
            completion_tokens=len(ids),
        )


def with_leader(stage: Stage, engines: Mapping[str, Engine], arm: str) -> dict[str, Engine]:
    """The same team, led by the script of this name."""
    root = stage.topology.root
    model = engines[root]
    assert isinstance(model, TorchEngine)
    return {**engines, root: Counted(stage.script(arm), model)}


class Choice(NamedTuple):
    """To go on or to stop, while there were parts left and after at least one was looked at."""

    found: bool
    stopped: bool


def choices(trace: Trace) -> Iterator[Choice]:
    """Of the leader, in order; what could not be carried out is none."""
    leader = trace.calls[0].agent
    looked, found = 0, False
    answered: set[str] = set()
    for event in trace.events:
        if event.type == "return" and event.to == leader and event.status == "ok":
            found = found or (trace.text(event.content_ref) or "").strip() != NONE
        acts = event.agent == leader and event.status == "ok" and event.call is not None
        if not acts or not (event.type == "spawn" or event.decision == "stop"):
            continue
        if 0 < looked < PARTS and event.call not in answered:
            yield Choice(found, event.decision == "stop")
        answered.add(str(event.call))
        looked += event.type == "spawn"


def stopping_rule(traces: Sequence[Trace], tries: int) -> dict[str, Figure]:
    """How often it stops at once when it has heard a result, goes on when it has not, and answers out of the blue.

    Means over instances where it came up, since tries of one instance are not independent.
    """
    found: dict[str, dict[int, list[float]]] = {"stops_when_found": {}, "goes_on_when_not": {}, "unheard": {}}
    for place, trace in enumerate(traces):
        made = list(choices(trace))
        first = next((choice for choice in made if choice.found), None)
        at_once = [] if first is None else [float(first.stopped)]
        goes_on = [float(not choice.stopped) for choice in made if not choice.found]
        for key, values in zip(found, (at_once, goes_on, _unheard(trace)), strict=True):
            if values:
                found[key].setdefault(place // tries, []).extend(values)
    return {
        key: mean((sum(each) / len(each) for each in values.values()), (0.0, 1.0))
        for key, values in found.items()
    }


def _unheard(trace: Trace) -> list[float]:
    """Whether the answer is a result that no worker returned."""
    returned = [
        (trace.text(e.content_ref) or "").strip()
        for e in trace.events
        if e.type == "return" and e.status == "ok"
    ]
    answer = answer_of(trace)
    return [] if answer is None else [float(answer not in (NONE, *returned))]

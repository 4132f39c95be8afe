"""An engine of your own: anything that answers calls. Here, one that draws a word of its role's list.

The same request (input and sampling key) must give the same answer, alone or in a batch: draw with
`baton.team.clock.uniform`, never with `random`. Where log-probs are known, give them; None means not measured.

Type: python examples/my_engine.py
"""

import asyncio
import math
from collections.abc import Sequence

from baton.engine.tokens import completion, encode_entries
from baton.team.clock import uniform
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.testing import check_engine
from baton.trace.numbers import Floats, Ints


class DiceEngine:
    """Says one of a few lines, each with the same chance."""

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        self.name = name
        self._lines = tuple(lines)

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        """Baton's byte tokenizer; an engine that has none returns None."""
        return encode_entries(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer | EngineError:
        if request.sampling.key is None:
            return EngineError("dice are thrown by key, and this request has none.")
        text = self._lines[int(uniform(request.sampling.key) * len(self._lines))]
        ids, ends, zeros = completion(text)
        if request.sampling.max_tokens is not None and len(ids) > request.sampling.max_tokens:
            return EngineError(f"{text!r} is longer than {request.sampling.max_tokens} tokens.")
        # All the chance is in the first token; the rest follows from it.
        logprobs = Floats([-math.log(len(self._lines)), *zeros[1:]])
        return Answer(
            text=text,
            policy=self.name,
            completion_ids=ids,
            logprobs=logprobs,
            token_ends=ends,
            completion_tokens=len(ids),
        )


if __name__ == "__main__":
    dice = DiceEngine("dice", [f"return {face}" for face in range(1, 7)])
    check_engine(dice)
    team = Team.of(make_topology("swarm", peers=5), dice)
    trace = asyncio.run(run(team, Assignment(task_id="dice", prompt="throw a die")))
    for event in trace.events:
        if event.type in ("return", "aggregate"):
            said = trace.text(event.content_ref)
            print(
                event.agent, event.type, said, "" if event.propensity is None else f"p={event.propensity:.3f}"
            )

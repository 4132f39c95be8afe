"""An engine of your own: anything that answers calls. Here, one that draws one of a few lines.

The same request (input and sampling key) must give the same answer, alone or in a batch: draw with `uniform`, never
with `random`. Where log-probs are known, give them; None means not measured.

    baton run shard-sum --topology swarm --policy "my_engine:dice:return 1|return 2" --out runs/dice
"""

import math
from collections.abc import Sequence

import baton
from baton.engine.tokens import completion, encode_entries
from baton.team.clock import uniform
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.testing import check_engine
from baton.trace.records import Floats, Ints


class DiceEngine:
    """Says one of a few lines, each with the same chance."""

    charging = "estimated"  # its ids are bytes; an engine whose tokens somebody counts leaves this out

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        self.name = name
        self._lines = tuple(lines)

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return encode_entries(entries, after)  # Baton's byte tokenizer; an engine that has none returns None

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer | EngineError:
        if request.sampling.key is None:
            return EngineError("dice are thrown by key, and this request has none.")
        text = self._lines[int(uniform(request.sampling.key) * len(self._lines))]
        ids, ends, zeros = completion(text)
        if len(ids) > (request.sampling.max_tokens or math.inf):
            return EngineError(f"{text!r} is longer than {request.sampling.max_tokens} tokens.")
        # All the chance is in the first token; the rest follows from it.
        chances = Floats([-math.log(len(self._lines)), *zeros[1:]])
        return Answer(text=text, policy=self.name, completion_ids=ids, logprobs=chances, token_ends=ends)


def dice(lines: str) -> DiceEngine:
    """What `--policy dice:LINE|LINE` makes: it is given what stands after its name."""
    return DiceEngine("dice", lines.split("|") if lines else [f"return {face}" for face in range(1, 7)])


if __name__ == "__main__":
    check_engine(dice(""))
    trace = baton.run(baton.Task.of("Throw a die."), topology="swarm", policy=dice(""))
    for event in trace.events:
        if event.type in ("return", "aggregate"):
            print(event.agent, event.type, trace.text(event.content_ref), event.propensity or "")

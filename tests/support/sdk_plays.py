"""What a scripted model answers to the official SDKs: the first word that a user says names the play."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.exchange import Alternative, Ask, Reply, ReplyChoice, ToolAsk, Utterance
from baton.serve.server import Serving
from baton.trace.records import Floats, Ints

LONG = "Ångström and friends walk — slowly — to the sea. " * 5
CITY = '{"city": "Århus", "km": 12.5}'
TOKENS = ("Yes", ",", " it", " is", ".")
LOGPROBS = (-0.1, -0.5, -0.25, -1.5, -2.0)


def only_with_sdks() -> None:
    """The tests of a module need the official SDKs, in the environment that `make test-sdks` makes."""
    if not os.environ.get("BATON_SDKS"):
        pytest.skip("needs an environment of its own: make test-sdks", allow_module_level=True)


class Plays:
    """A backend without a model."""

    name = "plays"

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.asked: Counter[str] = Counter()

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        self.asks.append(ask)
        play = next(m.text for m in ask.messages if m.speaker == "user").split()[0]
        self.asked[play] += 1
        if play == "refused":
            raise Unanswerable("This question has no answer here.", status=400)
        if play == "later" and self.asked[play] == 1:
            raise Unanswerable("The model is busy.", status=503, passing=True)
        choices = tuple(self._choice(play, ask, number) for number in range(ask.n))
        return Reply(
            choices=choices, policy="plays", prompt_tokens=31, completion_tokens=17, cached_tokens=8, thinking_tokens=5
        )  # fmt: skip

    def _choice(self, play: str, ask: Ask, number: int) -> ReplyChoice:
        results = [m for m in ask.messages if m.speaker == "tool"]
        if results:
            text = " and ".join(f"{m.name}={m.text}{'!' if m.failed else ''}" for m in results)
            return _says(text)
        match play:
            case "tools":
                uses = (
                    ToolAsk(id="", name="odd_sum", arguments='{"of": [1, 3]}'),
                    ToolAsk(id="", name="look-up", arguments='{"what": "Århus"}'),
                )
                message = Utterance(speaker="assistant", text="Let me see.", uses=uses)
                return ReplyChoice(message=message, finish="tool_calls")
            case "patch":
                use = ToolAsk(id="", name="apply_patch", arguments="*** Begin Patch\n+ é\n*** End Patch")
                return ReplyChoice(message=Utterance(speaker="assistant", uses=(use,)), finish="tool_calls")
            case "think":
                return ReplyChoice(
                    message=Utterance(
                        speaker="assistant", text="Twelve.", thinking="A dozen. " * 9, sign="c2ln"
                    )
                )
            case "json":
                return _says(CITY)
            case "tokens":
                ends, place = [], 0
                for token in TOKENS:
                    place += len(token)
                    ends.append(place)
                tops = tuple(
                    (Alternative(token=token, logprob=logprob), Alternative(token="No", logprob=-3.0))
                    for token, logprob in zip(TOKENS, LOGPROBS, strict=True)
                )
                return ReplyChoice(
                    message=Utterance(speaker="assistant", text="".join(TOKENS)), said="".join(TOKENS),
                    logprobs=Floats(list(LOGPROBS)), token_ends=Ints(ends), alternatives=tops,
                )  # fmt: skip
            case "several":
                return _says(f"answer {number}")
            case "cut":
                return ReplyChoice(message=Utterance(speaker="assistant", text="And then"), finish="length")
            case "stopped":
                stop = ask.sampling.stop[0]
                return ReplyChoice(message=Utterance(speaker="assistant", text="One, two, "), stop=stop)
            case "no":
                no = {"type": "refusal", "refusal": "I will not."}
                return ReplyChoice(
                    message=Utterance(speaker="assistant", others=(no,)), finish="content_filter"
                )
        return _says(LONG)

    async def close(self) -> None:
        return None


def _says(text: str) -> ReplyChoice:
    return ReplyChoice(message=Utterance(speaker="assistant", text=text))


@contextmanager
def served(folder: Path) -> Iterator[tuple[Serving, Plays]]:
    """The endpoint over HTTP, with the plays behind it."""
    plays = Plays()
    with Serving(folder / "served", plays) as serving:
        yield serving, plays

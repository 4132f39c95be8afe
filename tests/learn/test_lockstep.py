"""Batches hold what every run waits for, whatever threads do; with several engines, and when one fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from baton.learn.rollouts import Lockstep, lockstep
from baton.team.protocol import NOT_ASKED, Answer, EngineError, Entry, Request
from baton.trace.records import Ints, Sampling


class Slow:
    """Answers after a random while, in a thread, and writes down what it was asked together."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.version = "7"
        self.batches: list[list[str]] = []
        self._random = random.Random(seed)

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return None

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        self.batches.append([request.call for request in requests])
        await asyncio.sleep(self._random.random() / 50)
        return [Answer(text=request.call, policy=self.name) for request in requests]


def request(call: str) -> Request:
    return Request(call=call, agent="a", role="r", entries=[], prompt_ids=None, sampling=Sampling())


async def one_run(number: int, engines: dict[str, Lockstep]) -> list[str]:
    said = []
    for turn in range(4):
        engine = engines["ab"[(number + turn * number) % 2]]
        [answer] = await engine.answer([request(f"{number}.{turn}")])
        assert isinstance(answer, Answer)
        said.append(answer.text)
        for _ in range(number % 3):
            await asyncio.sleep(0)
    return said


def play(seed: int) -> dict[str, list[list[str]]]:
    inner = {"a": Slow("a", seed), "b": Slow("b", seed + 1)}

    async def go() -> list[list[str]]:
        engines = lockstep(inner)
        return list(await asyncio.gather(*(one_run(n, engines) for n in range(5))))

    said = asyncio.run(go())
    assert said == [[f"{n}.{turn}" for turn in range(4)] for n in range(5)]
    return {name: engine.batches for name, engine in inner.items()}


def test_batches_do_not_depend_on_how_fast_engines_are() -> None:
    expected = play(0)
    assert len(expected["a"]) + len(expected["b"]) < 20, "calls are answered together"
    for seed in range(1, 5):
        assert play(seed * 10) == expected


def test_what_an_engine_raises_belongs_to_those_who_asked_it() -> None:
    class Broken(Slow):
        async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
            raise RuntimeError("down")

    async def go() -> None:
        engines = lockstep({"a": Slow("a", 0), "b": Broken("b", 0)})
        good, bad = await asyncio.gather(
            engines["a"].answer([request("1")]), engines["b"].answer([request("2")]), return_exceptions=True
        )
        assert isinstance(good, list)
        assert isinstance(bad, RuntimeError)
        assert len(await engines["a"].answer([request("3")])) == 1

    asyncio.run(go())


def test_a_cancelled_call_is_not_asked() -> None:
    async def go() -> None:
        inner = Slow("a", 0)
        engine = Lockstep(inner)
        first = asyncio.create_task(engine.answer([request("1")]))
        second = asyncio.create_task(engine.answer([request("2")]))
        await asyncio.sleep(0)
        first.cancel()
        assert len(await second) == 1
        with pytest.raises(asyncio.CancelledError):
            await first
        assert inner.batches == [["2"]]

    asyncio.run(go())


def test_it_answers_under_the_name_and_version_of_the_engine() -> None:
    engine = Lockstep(Slow("a", 0))
    assert (engine.name, engine.version) == ("a", "7")


class Down(Slow):
    """Fails at everything, as a server that is down does after its tries."""

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        await super().answer(requests)
        return [EngineError("down") for _ in requests]


@pytest.mark.parametrize(("seconds", "patient", "asked"), [(0.0, False, 3), (0.0, True, 5), (60.0, False, 5)])
def test_an_engine_without_hope_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, seconds: float, patient: bool, asked: int
) -> None:
    """After three rounds and some seconds; forks always ask."""
    monkeypatch.setattr("baton.learn.rollouts._PATIENCE_SECONDS", seconds)
    inner = Down("a", 0)

    async def play() -> list[str]:
        engine = Lockstep(inner, patient=patient)
        return [str((await engine.answer([request(str(n))]))[0]) for n in range(5)]

    said = asyncio.run(play())
    assert said[0] == "down"
    assert len(inner.batches) == asked
    assert said.count(NOT_ASKED) == 5 - asked

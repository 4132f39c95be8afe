"""Equal questions asked at once, with different answers: whichever branch comes first, the replay is the recording."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from baton.serve.backend import Unanswerable
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, ToolAsk, Utterance
from baton.serve.program_session import run_session
from baton.serve.replay.find import find_session
from baton.serve.replay.masks import Masks
from baton.serve.replay.recorded import RecordedBackend
from baton.serve.replay.running import replay_program
from baton.serve.server import Serving


def spoken(*texts: str | Utterance) -> Ask:
    """Texts in turn from user and assistant."""
    said = [
        each
        if isinstance(each, Utterance)
        else Utterance(speaker="assistant" if k % 2 else "user", text=each)
        for k, each in enumerate(texts)
    ]
    return Ask(dialect="chat", model="m", messages=tuple(said))


class World:
    """Asks a backend for a program; keeps what was asked and answered, as a journal would."""

    def __init__(self, answer: Callable[[Ask, int], Utterance] | RecordedBackend) -> None:
        self._answer = answer
        self._clock = 0.0
        self.kept: list[Exchange] = []

    async def ask(self, ask: Ask) -> Utterance:
        if isinstance(self._answer, RecordedBackend):
            return (await self._answer.reply(ask, key="k", growth=None)).choices[0].message
        number, place = sum(one.ask == ask for one in self.kept), len(self.kept)
        said = self._answer(ask, number)
        reply = Reply(choices=(ReplyChoice(message=said),), policy="p")
        one = Exchange(session="s", id=f"x{place}", number=place, ask=ask, begun=self._tick(), reply=reply)
        self.kept.append(one)
        for _ in range(10):  # others may ask meanwhile
            await asyncio.sleep(0)
        self.kept[place] = replace(one, duration_s=self._tick() - one.begun)
        return said

    def _tick(self) -> float:
        self._clock += 0.001
        return self._clock


def text(answer: str) -> Utterance:
    return Utterance(speaker="assistant", text=answer)


Program = Callable[[World, list[int]], "asyncio.Future[str]"]


async def in_order(world: World, order: list[int], branch: Callable[[int], object]) -> list[str]:
    """Branches that begin in this order; their results by their places."""
    tasks: dict[int, asyncio.Task[str]] = {}
    for one in order:
        tasks[one] = asyncio.create_task(branch(one))  # type: ignore[arg-type]
        await asyncio.sleep(0)
    return [await tasks[one] for one in sorted(tasks)]


async def vote(world: World, order: list[int]) -> str:
    """Everybody is asked the same, and a judge reads the answers by place."""

    async def branch(_: int) -> str:
        return (await world.ask(spoken("Which way, left or right?"))).text

    votes = await in_order(world, order, branch)
    judged = await world.ask(spoken("The votes: " + "; ".join(f"({v})" for v in votes)))
    return f"{votes} -> {judged.text}"


async def named_branches(world: World, order: list[int]) -> str:
    """Who a branch is shows only in its second question."""

    async def branch(me: int) -> str:
        first = await world.ask(spoken("Suggest a title."))
        second = await world.ask(spoken("Suggest a title.", first, f"Editor {me}, shorten it."))
        return f"{me}: {second.text}"

    return " | ".join(await in_order(world, order, branch))


async def with_tools(world: World, order: list[int]) -> str:
    """Answers are tools, whose ids and results come back."""

    async def branch(me: int) -> str:
        asked = spoken("Look something up.")
        first = await world.ask(asked)
        use = first.uses[0]
        result = Utterance(speaker="tool", text=f"shelf {me}", answers=use.id)
        return (
            await world.ask(Ask(dialect="chat", model="m", messages=(*asked.messages, first, result)))
        ).text

    return " | ".join(await in_order(world, order, branch))


async def words_taken_out(world: World, order: list[int]) -> str:
    """The program reads a number out of each answer."""

    async def branch(_: int) -> str:
        said = (await world.ask(spoken("Guess the weight."))).text
        return next(word for word in said.split() if word.isdigit())

    found = await in_order(world, order, branch)
    judged = await world.ask(spoken(f"Guesses by seat: {', '.join(found)} kg"))
    return f"{found} {judged.text}"


def answers(ask: Ask, number: int) -> Utterance:
    asked = ask.messages[-1].text
    if asked == "Which way, left or right?":
        return text(["left", "right", "left", "the middle, if there is one", "right"][number % 5])
    if asked == "Suggest a title.":
        return text(
            [f"The {word} of the sea" for word in ("end", "colour", "bottom", "price", "sound")][number]
        )
    if asked == "Look something up.":
        use = ToolAsk(id=f"call_{'abcde'[number]}", name="find", arguments=f'{{"what": "thing {number}"}}')
        return Utterance(speaker="assistant", uses=(use,))
    if asked == "Guess the weight.":
        return text(f"I would say {(7, 12, 5, 9, 31)[number]} kilograms" + " or so" * number)
    if asked.startswith("The votes"):
        return text("left" if number % 2 == 0 else "right")
    return text(f"so be it: {asked}")  # quotes the answers, in the order of that run


async def replayed(
    program: Program, recorded: list[Exchange], order: list[int], **how: object
) -> tuple[str, RecordedBackend]:
    backend = RecordedBackend(recorded, settle_s=0.0, patience_s=0.05, **how)  # type: ignore[arg-type]
    backend._second_look_s = 0.0
    return await program(World(backend), order), backend


@pytest.mark.parametrize("program", [vote, named_branches, with_tools, words_taken_out])
@pytest.mark.parametrize("branches", [2, 3, 5])
def test_whichever_branch_comes_first_it_is_the_same_run(program: Program, branches: int) -> None:
    places = list(range(branches))

    async def all_of_it() -> None:
        world = World(answers)
        output = await program(world, places)
        for seed in range(10 if branches == 5 else 6):
            order = random.Random(seed).sample(places, branches)
            now, backend = await replayed(program, world.kept, order)
            assert backend.said is None, (order, backend.said)
            assert backend.matcher.left == []
            assert now == output or backend.matcher.same_text(output, now) is not None, (order, output, now)

    asyncio.run(all_of_it())


async def drops_one(world: World, order: list[int]) -> str:
    """Like `vote`, but the judge reads the first answer twice and the last not at all."""

    async def branch(_: int) -> str:
        return (await world.ask(spoken("Which way, left or right?"))).text

    votes = await in_order(world, order, branch)
    votes[-1] = votes[0]
    return (await world.ask(spoken("The votes: " + "; ".join(f"({v})" for v in votes)))).text


async def counts_letters(world: World, order: list[int]) -> str:
    """What is computed from an answer cannot be told from a change of the program."""

    async def branch(_: int) -> str:
        return str(10 * len((await world.ask(spoken("Suggest a title."))).text))

    return (await world.ask(spoken("Lengths: " + ", ".join(await in_order(world, order, branch))))).text


@pytest.mark.parametrize("changed", [drops_one, counts_letters])
def test_what_no_exchange_explains_is_a_difference(changed: Program) -> None:
    async def all_of_it() -> None:
        world = World(answers)
        await (vote if changed is drops_one else changed)(world, [0, 1, 2])
        with pytest.raises(Unanswerable, match="the replay has ended"):
            await replayed(changed, world.kept, [2, 0, 1])

    asyncio.run(all_of_it())


def test_exact_takes_no_such_liberty() -> None:
    async def all_of_it() -> None:
        world = World(answers)
        await vote(world, [0, 1, 2])
        with pytest.raises(Unanswerable):
            await replayed(vote, world.kept, [1, 0, 2], masks=Masks(exact=True))
        _, backend = await replayed(vote, world.kept, [0, 1, 2], masks=Masks(exact=True))
        assert backend.liberties() == "4 exactly"

    asyncio.run(all_of_it())


def test_the_exchange_is_counted_and_told() -> None:
    async def all_of_it() -> None:
        world = World(answers)
        await vote(world, [0, 1])
        _, backend = await replayed(vote, world.kept, [1, 0])
        assert backend.liberties() == "2 exactly, 1 exchanged"
        assert backend.details() == ["exchanged: which equal question got which answer, in 1 call"]

    asyncio.run(all_of_it())


THREADS = """
import json, os, random, sys, threading, time, urllib.request

def ask(text):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    asked = urllib.request.Request(address, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]

found = {}
def branch(place):
    time.sleep(random.random() / 20)
    found[place] = ask("name a colour")

threads = [threading.Thread(target=branch, args=(k,)) for k in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
colours = [found[k] for k in sorted(found)]
print(colours, ask("mix " + " and ".join(colours)))
"""


def test_threads_that_race_with_the_same_words_are_replayed(tmp_path: Path) -> None:
    program = tmp_path / "race.py"
    program.write_text(THREADS)
    colours = iter(("dark red", "sea green", "ochre", "pale blue, nearly white"))

    def answer(ask: Ask) -> str:
        return (
            next(colours)
            if ask.messages[-1].text.startswith("name")
            else f"mud of {ask.messages[-1].text[4:]}"
        )

    command = [sys.executable, str(program)]
    with Serving(tmp_path / "out", ScriptedBackend(answer), traces=False) as serving:
        assert run_session(serving, "race", command).exit_code == 0
    _, session = find_session(tmp_path / "out")
    for _ in range(4):
        done = replay_program(session, command, timeout_s=60)
        assert done.identical, done.missed or done.output.said

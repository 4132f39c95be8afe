"""Answers of a recording come in its order, whatever the program's threads do, and never wait for themselves."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.serve.backend import Unanswerable
from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, Utterance
from baton.serve.replay.order import RecordedOrder, before_notes
from baton.serve.replay.recorded import RecordedBackend


def ask(*words: str) -> Ask:
    speakers = ("user", "assistant")
    said = tuple(Utterance(speaker=speakers[place % 2], text=word) for place, word in enumerate(words))  # type: ignore[arg-type]
    return Ask(dialect="chat", model="m", messages=said)


def reply(text: str) -> Reply:
    return Reply(choices=(ReplyChoice(message=Utterance(speaker="assistant", text=text)),), policy="p")


def schedule(chains: list[int], draw: random.Random) -> list[Exchange]:
    """Some agents side by side, each of which asks so many times in a row; when is drawn."""
    found = []
    for agent, length in enumerate(chains):
        clock, words = draw.random(), [f"agent {agent} begins"]
        for turn in range(length):
            took = draw.random()
            answer = f"answer {agent}.{turn}"
            found.append((clock, took, f"{agent}.{turn}", ask(*words), answer))
            words += [answer, f"then {turn}"]
            clock += took + draw.random()
    found.sort(key=lambda each: each[0])
    return [
        Exchange(
            session="s", id=id, number=place, ask=asked, reply=reply(answer), begun=begun, duration_s=took
        )
        for place, (begun, took, id, asked, answer) in enumerate(found)
    ]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_answers_come_in_recorded_order_whatever_the_threads_do(
    chains: list[int], draw: random.Random
) -> None:
    recorded = schedule(chains, draw)
    backend = RecordedBackend(recorded, settle_s=0.0, patience_s=30.0)
    heard: list[str] = []

    async def agent(number: int, length: int) -> None:
        words = [f"agent {number} begins"]
        for turn in range(length):
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(0)
            got = await backend.reply(ask(*words), key="k", growth=None)
            heard.append(f"{number}.{turn}")
            words += [got.choices[0].message.text, f"then {turn}"]

    async def program() -> None:
        await asyncio.wait_for(asyncio.gather(*(agent(n, length) for n, length in enumerate(chains))), 20)

    asyncio.run(program())
    ends = {one.id: one.begun + (one.duration_s or 0.0) for one in recorded}
    assert heard == sorted(ends, key=lambda id: ends[id])


def test_what_does_not_come_is_waited_for_once() -> None:
    exchanges = [
        Exchange(session="s", id=name, number=0, ask=ask(name), begun=begun, duration_s=took)
        for name, begun, took in (("never", 0.0, 0.2), ("one", 0.1, 0.3), ("two", 0.2, 0.4))
    ]

    async def two() -> list[bool]:
        order = RecordedOrder(exchanges, patience_s=0.05, settle_s=0.0)
        order._patience_s = 0.05
        order.asked("one", "two")
        begun = asyncio.get_running_loop().time()
        found = [await order.turn("one"), await order.turn("two")]
        assert asyncio.get_running_loop().time() - begun < 5
        return found

    assert asyncio.run(two()) == [False, True]


def test_an_answer_that_a_note_tells_of_waits_for_what_was_asked_without_the_note() -> None:
    note = "<task-notification>late's answer</task-notification>"
    late = Exchange(
        session="s",
        id="late",
        number=0,
        ask=ask("dig"),
        reply=reply("late's answer"),
        begun=0.0,
        duration_s=1.0,
    )
    lead = Exchange(
        session="s", id="lead", number=1, ask=ask("go"), reply=reply("waiting"), begun=2.0, duration_s=1.0
    )
    last = Exchange(
        session="s",
        id="last",
        number=2,
        ask=ask("go", "waiting", note),
        reply=reply("done"),
        begun=4.0,
        grows_from="lead",
    )
    assert before_notes([late, lead, last], {"last": [note]}) == {"late": {"lead"}}
    assert before_notes([late, lead, last], {"last": [note], "lead": [note]}) == {}


def test_what_was_refused_is_refused_again() -> None:
    exchanges = [
        Exchange(session="s", id="a", number=0, ask=ask("too long"), refused="the prompt is too long."),
        Exchange(session="s", id="b", number=1, ask=ask("short"), reply=reply("yes")),
    ]
    backend = RecordedBackend(exchanges, patience_s=0.1)

    async def both() -> str:
        with pytest.raises(Unanswerable, match="too long"):
            await backend.reply(ask("too long"), key="k", growth=None)
        return (await backend.reply(ask("short"), key="k", growth=None)).choices[0].message.text

    assert asyncio.run(both()) == "yes"
    assert backend.said is None


def test_after_a_miss_nothing_is_answered() -> None:
    backend = RecordedBackend([Exchange(session="s", id="a", number=0, ask=ask("one"), reply=reply("1"))])

    async def three() -> None:
        for words in ("two", "one", "two"):
            with pytest.raises(Unanswerable, match=r"call 1 .*\[-one-\]\{\+two\+\}") as error:
                await backend.reply(ask(words), key="k", growth=None)
            assert error.value.status == 410
            assert not error.value.passing

    asyncio.run(three())

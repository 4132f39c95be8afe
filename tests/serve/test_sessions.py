"""A session writes down before it answers, answers a retry with the first draw, and keeps its limits."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from baton.errors import CorruptError, UsageError
from baton.serve.backend import GrownAsk, Unanswerable
from baton.serve.exchange import Ask, Reply, ReplyChoice, ToolAsk, ToolOffer, Utterance
from baton.serve.journal import journal_path, read_session
from baton.serve.limits import SessionLimits
from baton.serve.session_keys import session_of, telling_headers
from baton.serve.sessions import ProgramSession
from baton.trace.records import Floats, Ints, Sampling


class Drawing:
    """Every draw is new, so that a second one shows."""

    name = "drawing"

    def __init__(self) -> None:
        self.draws = 0
        self.asked: list[Ask] = []
        self.keys: list[str] = []
        self.gate: asyncio.Event | None = None
        self.waiting = 0

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        self.draws += 1
        self.asked.append(ask)
        self.keys.append(key)
        prompt, keep = Ints(range(len(ask.messages))), 0
        if growth is not None:
            before = growth.before.reply
            assert before is not None
            assert before.prompt_ids is not None
            said = before.choices[growth.choice].completion_ids
            assert said is not None
            whole = before.prompt_ids + said
            keep, prompt = len(whole), whole + Ints([7] * len(growth.new))
        text = f"answer {self.draws}"
        ids = Ints([100 + self.draws, 5])
        choice = ReplyChoice(
            message=Utterance(speaker="assistant", text=text),
            said=text,
            completion_ids=ids,
            logprobs=Floats([-0.5, 0.0]),
        )
        return Reply(
            choices=(choice,) * ask.n,
            policy=self.name,
            prompt_ids=prompt,
            keep=keep,
            prompt_tokens=len(prompt),
            completion_tokens=2 * ask.n,
        )

    async def close(self) -> None:
        pass


def ask_of(*texts: str, **given: object) -> Ask:
    speakers = ("user", "assistant")
    said = tuple(Utterance(speaker=speakers[n % 2], text=text) for n, text in enumerate(texts))  # type: ignore[arg-type]
    return Ask(dialect="chat", model="m", messages=said, **given)  # type: ignore[arg-type]


def heard_from(session: ProgramSession, ask: Ask, **headers: str) -> str:
    async def going() -> str:
        exchange = await session.ask(ask, {name.replace("_", "-"): value for name, value in headers.items()})
        session.heard(exchange)
        assert exchange.reply is not None
        return exchange.reply.choices[0].message.text

    return asyncio.run(going())


def test_an_answer_is_on_disk_before_it_is_given(tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "one", Drawing())
    said = heard_from(session, ask_of("where?"))
    kept = read_session(journal_path(tmp_path, "one"))
    (exchange,) = kept.exchanges
    assert exchange.reply is not None
    assert exchange.reply.choices[0].message.text == said
    assert kept.heard == {exchange.id}


def test_what_is_read_again_is_what_was_there(tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "one", Drawing())
    tools = (ToolOffer(name="look", parameters={"type": "object"}),)
    first = heard_from(session, ask_of("an ‮odd \x00 text", tools=tools))
    heard_from(session, ask_of("an ‮odd \x00 text", first, "and now?", tools=tools, n=3))
    heard_from(session, ask_of("else", tools=()))
    kept = read_session(journal_path(tmp_path, "one"))
    assert kept.exchanges == session.exchanges
    grown = kept.exchanges[1]
    assert grown.grows_from == kept.exchanges[0].id
    assert grown.reply is not None
    assert list(grown.reply.prompt_ids or ()) == [0, 101, 5, 7]


def test_a_conversation_takes_its_length_of_disk_and_not_its_square(tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "long", Drawing())
    tools = (ToolOffer(name="look", description="x" * 20_000),)
    said, sizes = ["q" * 500], []
    for _ in range(40):
        said.append(heard_from(session, ask_of(*said, tools=tools)))
        said.append("go on " + "z" * 500)
        sizes.append(journal_path(tmp_path, "long").stat().st_size)
    late, early = sizes[-1] - sizes[-11], sizes[11] - sizes[1]
    assert late < 1.6 * early


def test_the_same_question_asked_twice_is_two_draws(tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "one", Drawing())
    assert heard_from(session, ask_of("roll")) != heard_from(session, ask_of("roll"))
    assert len({one.id for one in session.exchanges}) == 2


def test_a_retry_is_no_second_draw(tmp_path: Path) -> None:
    backend = Drawing()
    session = ProgramSession(tmp_path, "one", backend)
    first = heard_from(session, ask_of("roll"))
    assert heard_from(session, ask_of("roll"), x_stainless_retry_count="1") == first
    assert backend.draws == 1
    assert read_session(journal_path(tmp_path, "one")).exchanges[0].retries == 1


def test_an_answer_nobody_heard_is_given_to_whoever_asks_again(tmp_path: Path) -> None:
    """As after a broken connection, by a client that does not say that it tries again."""
    backend = Drawing()
    session = ProgramSession(tmp_path, "one", backend)

    async def going() -> tuple[str, str]:
        exchange = await session.ask(ask_of("roll"), {})
        session.left(exchange.id)  # the connection broke
        again = await session.ask(ask_of("roll"), {})
        session.heard(again)
        return exchange.id, again.id

    first, again = asyncio.run(going())
    assert first == again
    assert backend.draws == 1


def test_a_client_that_leaves_does_not_take_the_answer_with_it(tmp_path: Path) -> None:
    backend = Drawing()
    session = ProgramSession(tmp_path, "one", backend)

    async def going() -> str:
        backend.gate = asyncio.Event()
        leaving = asyncio.create_task(session.ask(ask_of("slow"), {}))
        while not backend.waiting:
            await asyncio.sleep(0.001)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        waiting = asyncio.create_task(session.ask(ask_of("slow"), {}))
        await asyncio.sleep(0.01)
        backend.gate.set()
        return (await waiting).id

    assert asyncio.run(going()) == session.exchanges[0].id
    assert backend.draws == 1


def test_two_who_wait_for_the_same_question_get_two_draws(tmp_path: Path) -> None:
    backend = Drawing()
    session = ProgramSession(tmp_path, "one", backend)

    async def going() -> set[str]:
        backend.gate = asyncio.Event()
        both = [asyncio.create_task(session.ask(ask_of("roll"), {})) for _ in range(3)]
        while backend.waiting < 3:
            await asyncio.sleep(0.001)
        backend.gate.set()
        return {(await one).id for one in both}

    assert len(asyncio.run(going())) == 3
    assert backend.draws == 3


@pytest.mark.parametrize("cut", range(1, 400, 23))
def test_a_killed_server_goes_on_where_it_was(tmp_path: Path, cut: int) -> None:
    """The journal is cut anywhere, as by a full disk or a kill in the middle of a write."""
    session = ProgramSession(tmp_path, "one", Drawing())
    heard_from(session, ask_of("a"))
    path = journal_path(tmp_path, "one")
    whole = path.stat().st_size
    heard_from(session, ask_of("b"))
    size = path.stat().st_size
    os.truncate(path, max(whole, size - cut))
    backend = Drawing()
    again = ProgramSession(tmp_path, "one", backend)
    said = heard_from(again, ask_of("b"))
    assert said
    kept = read_session(path)
    assert [one.reply is not None for one in kept.exchanges] == [True] * len(kept.exchanges)
    assert len(kept.exchanges) == 2  # a second `b` is a retry, unless the first was heard
    assert backend.draws in (0, 1)


def test_keys_depend_on_what_is_asked_and_not_on_the_order(tmp_path: Path) -> None:
    def keys(name: str, order: list[str]) -> dict[str, str]:
        backend = Drawing()
        session = ProgramSession(tmp_path, name, backend, seed="3", group="g")

        async def going() -> None:
            await asyncio.gather(*(session.ask(ask_of(one), {}) for one in order))

        asyncio.run(going())
        return {one.ask.messages[0].text: one.id for one in session.exchanges} | {
            "keys": str(sorted(backend.keys))
        }

    words = ["north", "south", "east", "west", "west"]
    shuffled = random.Random(4).sample(words, len(words))
    assert keys("a", words) == keys("b", shuffled)


def test_streamed_or_not_it_is_the_same_question(tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "one", Drawing())
    heard_from(session, ask_of("roll", stream=True))
    heard_from(session, ask_of("roll"))
    first, second = session.exchanges
    assert second.id == f"{first.id}-1"


@pytest.mark.parametrize(
    ("limits", "calls"),
    [
        (SessionLimits(calls=3), 3),
        (SessionLimits(tokens=9), 3),
        (SessionLimits(agents=2), 2),
    ],
)
def test_a_limit_ends_the_session(tmp_path: Path, limits: SessionLimits, calls: int) -> None:
    session = ProgramSession(tmp_path, "one", Drawing(), limits=limits)
    told: list[Unanswerable] = []

    def ask_until_refused() -> int:
        for number in range(20):
            try:
                heard_from(session, ask_of(f"question {number}"))
            except Unanswerable as error:
                told.append(error)
                return number
        return 20

    assert ask_until_refused() == calls
    assert ask_until_refused() == 0
    assert [(one.status, one.passing) for one in told] == [(410, False)] * 2
    assert session.ended is not None
    assert session.ended.status == "cut"


@pytest.mark.parametrize(
    ("limits", "calls"),
    [(SessionLimits(calls=3), 3), (SessionLimits(agents=2), 2), (SessionLimits(tokens=5), 1)],
)
def test_a_limit_holds_for_calls_that_come_at_once(tmp_path: Path, limits: SessionLimits, calls: int) -> None:
    backend = Drawing()
    session = ProgramSession(tmp_path, "one", backend, limits=limits)

    async def all_at_once() -> list[object]:
        asks = [session.ask(ask_of(f"question {number}"), {}) for number in range(7)]
        return list(await asyncio.gather(*asks, return_exceptions=True))

    told = asyncio.run(all_at_once())
    assert backend.draws == calls
    assert sum(isinstance(one, Unanswerable) for one in told) == 7 - calls


def test_an_answer_is_cut_at_the_tokens_that_are_left(tmp_path: Path) -> None:
    backend = Drawing()
    session = ProgramSession(tmp_path, "one", backend, limits=SessionLimits(tokens=10))
    heard_from(session, ask_of("a", sampling=Sampling(max_tokens=100)))
    heard_from(session, ask_of("b"))
    assert [one.sampling.max_tokens for one in backend.asked] == [10, 7]
    assert session.exchanges[0].ask.sampling.max_tokens == 100  # what the program asked stays what it asked


def test_limits_hold_over_a_restart(tmp_path: Path) -> None:
    heard_from(ProgramSession(tmp_path, "one", Drawing(), limits=SessionLimits(calls=2)), ask_of("a"))
    again = ProgramSession(tmp_path, "one", Drawing(), limits=SessionLimits(calls=2))
    heard_from(again, ask_of("b"))
    with pytest.raises(Unanswerable, match="2 calls"):
        heard_from(again, ask_of("c"))


def test_a_goes_on_conversation_is_one_agent(tmp_path: Path) -> None:
    session = ProgramSession(tmp_path, "one", Drawing(), limits=SessionLimits(agents=1))
    said = ["a"]
    for _ in range(4):
        said += [heard_from(session, ask_of(*said)), "more"]
    assert len(session.exchanges) == 4


@pytest.mark.parametrize("limits", [SessionLimits(calls=0), SessionLimits(seconds=-1.0)])
def test_limits_that_are_none(tmp_path: Path, limits: SessionLimits) -> None:
    with pytest.raises(UsageError, match="more than 0"):
        ProgramSession(tmp_path, "one", Drawing(), limits=limits)


def test_a_full_disk_is_told_and_nothing_half_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ProgramSession(tmp_path, "one", Drawing())
    heard_from(session, ask_of("a"))
    before = journal_path(tmp_path, "one").read_bytes()
    real = os.write

    def full(file: int, raw: bytes) -> int:
        real(file, raw[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("baton.serve.journal.os.write", full)
    with pytest.raises(Unanswerable, match="No space left") as error:
        heard_from(session, ask_of("b"))
    assert error.value.status == 507
    assert journal_path(tmp_path, "one").read_bytes() == before
    monkeypatch.undo()
    heard_from(session, ask_of("b"))
    assert len(read_session(journal_path(tmp_path, "one")).exchanges) == 2


def test_a_damaged_journal_is_said_to_be_one(tmp_path: Path) -> None:
    path = journal_path(tmp_path, "one")
    path.parent.mkdir(parents=True)
    path.write_text('{"line":"answered","id":"x","reply":{"choices":[],"policy":"p"},"duration_s":1}\n')
    with pytest.raises(CorruptError, match="line 1"):
        read_session(path)


@pytest.mark.parametrize(
    ("path", "headers", "name"),
    [
        ("first", {}, "first"),
        (None, {"authorization": "Bearer baton-a.b"}, "a.b"),
        (None, {"x-api-key": "baton-2"}, "2"),
        (None, {"authorization": "Bearer sk-123"}, "main"),
        (None, {}, "main"),
    ],
)
def test_sessions_are_named_by_path_or_key(path: str | None, headers: dict[str, str], name: str) -> None:
    assert session_of(path, headers) == name


@pytest.mark.parametrize("name", ["..", ".x", "a/b", "a\\b", "", "x" * 129, "a b", "a\n", "ü", "%2e"])
def test_no_name_is_a_path(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a session"):
        session_of(name, {})


def test_no_secret_is_kept_of_the_headers() -> None:
    headers = {
        "authorization": "Bearer sk-1",
        "x-api-key": "k",
        "x-claude-code-agent-id": "a1",
        "x-codex-auth-token": "t",
        "cookie": "c",
        "traceparent": "00-1-2-01",
    }
    assert telling_headers(headers) == {"x-claude-code-agent-id": "a1", "traceparent": "00-1-2-01"}


def test_tool_asks_travel_through_the_journal(tmp_path: Path) -> None:
    def with_tools() -> Callable[..., object]:
        async def reply(ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
            use = ToolAsk(id="t1", name="look", arguments='{"at": "no json')
            message = Utterance(speaker="assistant", uses=(use,), thinking="hm", sign="s")
            return Reply(choices=(ReplyChoice(message=message, finish="tool_calls"),), policy="p")

        return reply

    backend = Drawing()
    backend.reply = with_tools()  # type: ignore[method-assign,assignment]
    session = ProgramSession(tmp_path, "one", backend)
    heard_from(session, ask_of("go"))
    (kept,) = read_session(journal_path(tmp_path, "one")).exchanges
    assert kept == session.exchanges[0]
    assert msgspec.structs.asdict(kept)["reply"].choices[0].message.uses[0].arguments == '{"at": "no json'

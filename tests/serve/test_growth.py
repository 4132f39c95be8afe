"""What an ask grows from: the longest match in canonical form, against a plain search written here."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, ToolAsk, ToolOffer, Utterance
from baton.serve.growth import GrowthIndex, how_echoed

SEARCH = ToolOffer(
    name="search", description="look up", parameters={"type": "object", "properties": {"q": {}}}
)


def user(text: str) -> Utterance:
    return Utterance(speaker="user", text=text)


def said(text: str = "", *uses: ToolAsk, thinking: str = "") -> Utterance:
    return Utterance(speaker="assistant", text=text, uses=uses, thinking=thinking)


def use(name: str, id: str, **arguments: Any) -> ToolAsk:
    return ToolAsk(id=id, name=name, arguments=json.dumps(arguments))


def result(id: str, text: str) -> Utterance:
    return Utterance(speaker="tool", text=text, answers=id)


def asked(*messages: Utterance, tools: tuple[ToolOffer, ...] = (), **more: Any) -> Ask:
    return Ask(dialect="chat", model="m", messages=messages, tools=tools, **more)


def exchange(id: str, ask: Ask, *answers: Utterance, **more: Any) -> Exchange:
    choices = tuple(ReplyChoice(message=each) for each in answers)
    return Exchange(session="s", id=id, number=0, ask=ask, reply=Reply(choices=choices, policy="p"), **more)


def index(*exchanges: Exchange) -> GrowthIndex:
    made = GrowthIndex()
    for each in exchanges:
        made.add(each)
    return made


def test_the_longest_beginning_wins() -> None:
    first = exchange("a", asked(user("hi")), said("hello"))
    second = exchange("b", asked(user("hi"), said("hello"), user("more")), said("well"))
    known = index(first, second)
    found = known.find(
        asked(user("hi"), said("hello"), user("more"), said("well"), user("and?"), user("now"))
    )
    assert found is not None
    assert (found.before.id, found.choice) == ("b", 0)
    assert found.new == (user("and?"), user("now"))
    other = known.find(asked(user("hi"), said("hello"), user("else")))
    assert other is not None
    assert other.before.id == "a"
    assert known.find(asked(user("hi"))) is None
    assert known.find(asked(user("hi"), said("hello"))) is None, "nothing new stands after it"
    assert known.find(asked(user("ho"), said("hello"), user("more"))) is None


def test_which_of_several_answers() -> None:
    known = index(exchange("a", asked(user("q"), n=3), said("x"), said("y"), said("z")))
    for number, text in enumerate("xyz"):
        found = known.find(asked(user("q"), said(text), user("go")))
        assert found is not None
        assert found.choice == number


CALLS = (use("search", "c1", q="Rome", n=1), use("search", "c2", n=2, q="Paris"), use("search", "c3"))
HARMLESS = {
    "same": said("Let me look.", *CALLS),
    "white space": said("\n Let me look. \n", *CALLS),
    "thinking": said("Let me look.", *CALLS, thinking="hm"),
    "arguments": said(
        "Let me look.",
        ToolAsk(id="c1", name="search", arguments='{ "n" : 1.0, "q": "\\u0052ome" }'),
        CALLS[1],
        ToolAsk(id="c3", name="search", arguments=""),
    ),
    "order of tools": said("Let me look.", CALLS[2], CALLS[0], CALLS[1]),
    "ids": said("Let me look.", *(replace(call, id=f"toolu_{call.id}") for call in CALLS)),
}


@pytest.mark.parametrize("way", HARMLESS)
def test_a_harmless_echo_is_a_match_and_says_how(way: str) -> None:
    before = exchange("a", asked(user("cities?"), tools=(SEARCH,)), HARMLESS["same"])
    echo = HARMLESS[way]
    ask = asked(user("cities?"), echo, result(echo.uses[0].id, "3 M"), tools=(SEARCH,))
    found = index(before).find(ask)
    assert found is not None
    told = how_echoed(ask, found)
    assert (told is None) if way == "same" else (told is not None and way in told)


EDITS = {
    "text": said("Let me see.", *CALLS),
    "inner white space": said("Let  me look.", *CALLS),
    "argument": said("Let me look.", use("search", "c1", q="Rom", n=1), *CALLS[1:]),
    "tool": said("Let me look.", use("find", "c1", q="Rome", n=1), *CALLS[1:]),
    "one less": said("Let me look.", *CALLS[1:]),
    "one more": said("Let me look.", *CALLS, CALLS[0]),
    "nothing": said(""),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_answer_is_no_match(edit: str) -> None:
    before = exchange("a", asked(user("cities?"), tools=(SEARCH,)), said("Let me look.", *CALLS))
    assert index(before).find(asked(user("cities?"), EDITS[edit], user("so?"), tools=(SEARCH,))) is None


def test_tools_and_system_belong_to_the_beginning() -> None:
    system = Utterance(speaker="system", text="Be brief.")
    known = index(exchange("a", asked(system, user("q"), tools=(SEARCH,)), said("x")))
    go_on = (user("q"), said("x"), user("y"))
    turned = ToolOffer(
        name="search", parameters={"properties": {"q": {}}, "type": "object"}, description="look up"
    )
    assert known.find(asked(system, *go_on, tools=(turned,))) is not None
    assert known.find(asked(system, *go_on)) is None
    assert known.find(asked(system, *go_on, tools=(SEARCH, replace(SEARCH, name="find")))) is None
    assert known.find(asked(Utterance(speaker="system", text="Be long."), *go_on, tools=(SEARCH,))) is None
    assert known.find(asked(*go_on, tools=(SEARCH,))) is None


def test_one_answer_in_several_messages() -> None:
    before = exchange("a", asked(user("q"), tools=(SEARCH,)), said("Let me look.", *CALLS[:2]))
    ask = asked(
        user("q"),
        said("Let me look."),
        said("", CALLS[1]),
        said("", CALLS[0]),
        result("c1", "r"),
        tools=(SEARCH,),
    )
    found = index(before).find(ask)
    assert found is not None
    assert found.new == (result("c1", "r"),)
    assert how_echoed(ask, found) == "several messages for one"


def test_results_are_known_by_their_use_not_by_its_id() -> None:
    ask = asked(user("q"), said("", *CALLS[:2]), result("c2", "B"), result("c1", "A"), tools=(SEARCH,))
    known = index(exchange("a", ask, said("done")))
    renamed = said("", replace(CALLS[1], id="y"), replace(CALLS[0], id="x"))

    def echo(first: str, second: str) -> Ask:
        return asked(
            user("q"),
            renamed,
            result(first, "B"),
            result(second, "A"),
            said("done"),
            user("?"),
            tools=(SEARCH,),
        )

    assert known.find(echo("y", "x")) is not None
    assert known.find(echo("x", "y")) is None, "the results are swapped"


def test_agents_with_the_same_words_have_chains_of_their_own() -> None:
    ask = asked(user("q"), tools=(SEARCH,))
    one = exchange("a", ask, said("", use("search", "id1", q="x")), headers={"thread-id": "one"})
    two = exchange("b", ask, said("", use("search", "id2", q="x")), headers={"thread-id": "two"})

    def later(id: str) -> Ask:
        return asked(user("q"), said("", use("search", id, q="x")), result(id, "r"), tools=(SEARCH,))

    for id, before in (("id1", "a"), ("id2", "b")):
        found = index(one, two).find(later(id))
        assert found is not None
        assert found.before.id == before, "by the ids that came back"
    for thread, before in (("one", "a"), ("two", "b")):
        found = index(one, two).find(later("other"), {"thread-id": thread})
        assert found is not None
        assert found.before.id == before, "by who asks"
    known = index(one, two)
    chains = [known.find(later("other")) for _ in range(2)]
    assert {each.before.id for each in chains if each is not None} == {"a", "b"}, "each is gone on from once"


def test_what_is_empty_and_what_is_odd() -> None:
    known = index(exchange("a", asked(user("q")), said("")))
    assert known.find(asked(user("q"), user("more"))) is None, "the empty answer is not there"
    assert known.find(asked(user("q"), said("", thinking="lost"), user("more"))) is not None
    odd = user("half \ud800 a pair")
    picture = Utterance(speaker="user", others=({"type": "image", "cache_control": {}, "b": 1, "a": 2},))
    turned = Utterance(speaker="user", others=({"a": 2, "b": 1, "type": "image"},))
    wild = said("", ToolAsk(id="w", name="f", arguments="[" * 5000))
    known = index(exchange("b", asked(odd, picture), wild))
    assert known.find(asked(odd, turned, wild, user("x"))) is not None


def test_begun_by_an_assistant() -> None:
    """A program that puts the first words into the model's mouth, and echoes both as one or as two messages."""
    known = index(exchange("a", asked(user("q"), said("It is")), said("four.")))
    assert known.find(asked(user("q"), said("It is"), said("four."), user("sure?"))) is not None
    assert known.find(asked(user("q"), said("four."), user("sure?"))) is None


WORDS = st.sampled_from(["a", "b", "c d", " e", "\n"])
TALK = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), WORDS), max_size=5)


def _plain(messages: tuple[Utterance, ...]) -> list[tuple[str, str]]:
    return [(m.speaker, m.text.strip() if m.speaker == "assistant" else m.text) for m in messages]


def _texts(messages: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Atoms as the definition has them: texts of the assistant's that are empty vanish beside others of its turn."""
    atoms: list[tuple[str, str]] = []
    for place, (speaker, text) in enumerate(messages):
        if speaker == "assistant" and not text:
            start = place
            while start and messages[start - 1][0] == "assistant":
                start -= 1
            end = place
            while end + 1 < len(messages) and messages[end + 1][0] == "assistant":
                end += 1
            if any(t for _, t in messages[start : end + 1]) or place != start:
                continue
        atoms.append((speaker, text))
    return atoms


@given(st.lists(st.tuples(TALK, WORDS), max_size=6), TALK)
def test_against_a_plain_search(earlier: list[tuple[Any, str]], now: Any) -> None:
    def made(talk: Any) -> tuple[Utterance, ...]:
        return tuple(Utterance(speaker=speaker, text=text) for speaker, text in talk)

    known = index(
        *(exchange(f"e{k}", asked(*made(talk)), said(answer)) for k, (talk, answer) in enumerate(earlier))
    )
    messages = made(now)
    expected = 0
    for end in range(1, len(messages)):
        if messages[end - 1].speaker == "assistant" and any(
            _texts(_plain(messages[:end])) == _texts(_plain((*made(talk), said(answer))))
            for talk, answer in earlier
        ):
            expected = end
    found = known.find(asked(*messages))
    assert (0 if found is None else len(messages) - len(found.new)) == expected


@given(st.integers(0, 10**6))
def test_echoes_of_long_talks_are_found_at_every_turn(seed: int) -> None:
    """Each turn is echoed in a way of its own; the chain never breaks."""
    chance = random.Random(seed)
    known, history, before = GrowthIndex(), [user("begin")], None
    for turn in range(6):
        ask = asked(*history, tools=(SEARCH,))
        found = known.find(ask)
        assert (None if found is None else found.before.id) == before
        calls = tuple(
            use("search", f"{turn}-{k}", q=chance.choice("xyz"), n=chance.randrange(3))
            for k in range(chance.randrange(4))
        )
        answer = said(chance.choice(["", "ok", "fine\n"]), *calls, thinking="t")
        before = f"e{turn}"
        known.add(exchange(before, ask, answer))
        shuffled = chance.sample(calls, len(calls))
        echoed = [replace(c, arguments=json.dumps(json.loads(c.arguments), indent=1)) for c in shuffled]
        history += [replace(answer, uses=tuple(echoed), thinking="", text=answer.text.strip())]
        history += [result(c.id, f"r{c.id}") for c in calls] or [user(f"go on {turn}")]

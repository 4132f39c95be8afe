"""The answer that a person puts into a fork has the ids of the engine's tokenizer; what grows from it keeps them."""

from __future__ import annotations

import asyncio

import pytest
from chat_templates import QWEN
from msgspec import structs
from served_talks import SEARCH, asked, result, user
from tiny_model import tiny_tokenizer

from baton.serve.backends.engine import EngineBackend
from baton.serve.backends.scripted import ScriptedBackend
from baton.serve.backends.template_prompts import TemplatePrompts
from baton.serve.exchange import Exchange, Reply, ReplyChoice, Utterance
from baton.serve.growth import GrowthIndex
from baton.serve.replay.forking import another_reply, with_ids
from baton.serve.replay.recorded import renamed_reply
from baton.team.protocol import Answer, Request
from baton.trace.records import Ints


class Silent:
    """An engine that says one token."""

    name = "silent"

    def encode(self, entries: object, after: object) -> None:
        raise AssertionError("prompts come from the template")

    async def answer(self, requests: list[Request]) -> list[Answer]:
        return [Answer(text="x", policy=self.name, completion_ids=Ints([5])) for _ in requests]


@pytest.mark.parametrize("uses", [(), (("search", '{"q": "a b"}'),)])
def test_what_grows_from_a_replaced_answer_keeps_its_ids(uses: tuple[tuple[str, str], ...]) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = QWEN
    backend = EngineBackend(Silent(), TemplatePrompts(tokenizer, policy="silent"))  # type: ignore[arg-type]

    async def twice() -> tuple[Reply, Reply]:
        ask = asked(user("the question?"), tools=(SEARCH,))
        first = await backend.reply(ask, key="0/s/1", growth=None)
        exchange = Exchange(session="s", id="1", number=0, ask=ask, reply=first)
        replaced = with_ids(another_reply(exchange, "another word", uses), backend)
        index = GrowthIndex()
        index.add(structs.replace(exchange, reply=replaced))
        message = replaced.choices[0].message
        told = [result(message.uses[0].id, "found")] if uses else [user("and then?")]
        more = asked(*ask.messages, message, *told, tools=(SEARCH,))
        return replaced, await backend.reply(more, key="0/s/2", growth=index.find(more))

    replaced, grown = asyncio.run(twice())
    ids = replaced.choices[0].completion_ids
    assert ids
    assert tokenizer.decode(list(ids)) == replaced.choices[0].said
    assert replaced.completion_tokens == len(ids)
    assert replaced.prompt_ids is not None
    assert grown.prompt_ids is not None
    assert grown.keep == len(replaced.prompt_ids) + len(ids)
    assert grown.prompt_ids[: grown.keep] == replaced.prompt_ids + ids


def test_without_a_tokenizer_there_are_no_ids() -> None:
    ask = asked(user("?"))
    reply = Reply(
        choices=(ReplyChoice(message=Utterance(speaker="assistant", text="a")),),
        policy="p",
        completion_tokens=1,
    )
    exchange = Exchange(session="s", id="1", number=0, ask=ask, reply=reply)
    other = with_ids(another_reply(exchange, "b"), ScriptedBackend(lambda _: "x"))
    assert other.choices[0].completion_ids is None
    assert other.estimated


def test_an_answer_that_is_rewritten_has_no_ids_of_the_old_words_and_its_raw_form_says_the_new_ones() -> None:
    choice = ReplyChoice(
        message=Utterance(speaker="assistant", text="ask Galileo"),
        said="ask Galileo",
        completion_ids=Ints([1, 2]),
    )
    reply = Reply(
        choices=(choice,), policy="p", raw={"content": 'say "Galileo", not Galileos', "n": [1, None]}
    )
    now = renamed_reply(reply, {"Galileo": "Ada"})
    assert (now.choices[0].said, now.choices[0].completion_ids) == ("ask Ada", None)
    assert now.raw == {"content": 'say "Ada", not Galileos', "n": [1, None]}
    assert renamed_reply(reply, {"Kepler": "Ada"}) is reply

"""Check a backend: the same ask has the same answer, answers fit their asks, and conversations grow token by token."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import json, structs

from baton.serve.backend import Backend, GrownAsk, Unanswerable
from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, ToolOffer, Utterance
from baton.serve.growth import GrowthIndex
from baton.testing.check_tools import CheckFailed, require
from baton.trace.records import Sampling, encode_hook

_TOOL = ToolOffer(
    name="look_up",
    description="Look something up.",
    parameters={"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
)
_TASKS = ("what is 6 x 7?", "é 漢 🙂 <|im_end|>", "")
_FINISHES = ("stop", "length", "tool_calls", "content_filter", "error")


def check_backend(backend: Backend, *, max_tokens: int = 16, turns: int = 3, repeatable: bool = True) -> None:
    """Ask it alone, together and turn by turn. `repeatable=False`: another server draws, and not by our keys."""
    require(isinstance(backend.name, str) and backend.name, f"expected a name, got {backend.name!r}.")
    asyncio.run(_checked(backend, max_tokens, turns, repeatable))


async def _checked(backend: Backend, max_tokens: int, turns: int, repeatable: bool) -> None:
    try:
        await _check(backend, max_tokens, turns, repeatable)
    finally:
        await backend.close()


async def _check(backend: Backend, max_tokens: int, turns: int, repeatable: bool) -> None:
    asks = [_ask(Utterance(speaker="user", text=task), max_tokens=max_tokens) for task in _TASKS]
    keys = [f"0/check/{number}" for number in range(len(asks))]
    together = await asyncio.gather(
        *(_reply(backend, ask, key, None) for ask, key in zip(asks, keys, strict=True))
    )
    for ask, key, reply in zip(asks, keys, together, strict=True):
        _check_reply(backend, ask, reply, None)
        if repeatable:
            alone = await _reply(backend, ask, key, None)
            require(
                _words(alone) == _words(reply),
                f"{backend.name}: the same ask under the same key was answered in two ways: "
                f"{_words(reply)!r} and {_words(alone)!r}.",
            )
    several = structs.replace(asks[0], n=3)
    _check_reply(backend, several, await _reply(backend, several, "0/check/n", None), None)
    await _check_growth(backend, max_tokens, turns)


async def _check_growth(backend: Backend, max_tokens: int, turns: int) -> None:
    """A conversation whose answers are echoed as they were said."""
    known = GrowthIndex()
    messages = [Utterance(speaker="system", text="Be brief."), Utterance(speaker="user", text="begin")]
    uses: set[str] = set()
    for turn in range(turns):
        ask = _ask(*messages, max_tokens=max_tokens)
        growth = known.find(ask)
        require(turn == 0 or growth is not None, "the check's own conversation was not recognised.")
        reply = await _reply(backend, ask, f"0/check/turn{turn}", growth)
        _check_reply(backend, ask, reply, growth)
        said = reply.choices[0].message
        for use in said.uses:
            require(use.id not in uses, f"{backend.name}: the id {use.id!r} of a tool use was given twice.")
            uses.add(use.id)
        known.add(Exchange(session="check", id=f"turn{turn}", number=turn, ask=ask, reply=reply))
        results = [Utterance(speaker="tool", text="nothing", answers=use.id) for use in said.uses]
        messages += [said, *results, Utterance(speaker="user", text=f"go on, {turn}")]


def _ask(*messages: Utterance, max_tokens: int) -> Ask:
    return Ask(
        dialect="chat", model="m", messages=messages, tools=(_TOOL,), sampling=Sampling(max_tokens=max_tokens)
    )


async def _reply(backend: Backend, ask: Ask, key: str, growth: GrownAsk | None) -> Reply:
    try:
        reply = await backend.reply(ask, key=key, growth=growth)
    except Unanswerable as error:
        raise CheckFailed(f"{backend.name}: expected an answer, and it said: {error}") from error
    except Exception as error:
        raise CheckFailed(
            f"{backend.name}: reply raised {type(error).__name__}: {error}; expected Unanswerable and nothing else."
        ) from error
    require(isinstance(reply, Reply), f"{backend.name}: expected a Reply, got a {type(reply).__name__}.")
    return reply


def _check_reply(backend: Backend, ask: Ask, reply: Reply, growth: GrownAsk | None) -> None:
    where = backend.name
    require(len(reply.choices) == ask.n, f"{where}: {ask.n} answers asked for, {len(reply.choices)} given.")
    require(reply.policy, f"{where}: the reply does not say which policy gave it.")
    try:
        again = json.decode(json.encode(reply, enc_hook=encode_hook))
    except (TypeError, ValueError) as error:
        raise CheckFailed(f"{where}: a reply cannot be written down: {error}") from error
    require(isinstance(again, dict), f"{where}: a reply is written as no object.")
    for choice in reply.choices:
        _check_choice(where, ask, choice)
    for name, count in (("prompt", reply.prompt_tokens), ("completion", reply.completion_tokens)):
        require(count is None or count >= 0, f"{where}: {count} {name} tokens.")
    ids = None if reply.prompt_ids is None else list(reply.prompt_ids)
    require(ids is None or len(ids) > 0, f"{where}: a prompt without a single token.")
    require(0 <= reply.keep <= len(ids or ()), f"{where}: {reply.keep} ids kept of {len(ids or ())}.")
    if growth is not None and reply.keep:
        before = growth.before.reply
        assert before is not None
        kept = [*(before.prompt_ids or ()), *(before.choices[growth.choice].completion_ids or ())]
        require(
            (ids or [])[: reply.keep] == kept[: reply.keep],
            f"{where}: it says that {reply.keep} ids are those of before, and they are not.",
        )
        require(
            reply.keep == len(kept) or "prefix" in reply.rules,
            f"{where}: it kept {reply.keep} of {len(kept)} ids, and its rules do not say why (`prefix`).",
        )


def _check_choice(where: str, ask: Ask, choice: ReplyChoice) -> None:
    message = choice.message
    require(message.speaker == "assistant", f"{where}: an answer by {message.speaker!r}.")
    require(choice.finish in _FINISHES, f"{where}: it ended by {choice.finish!r}.")
    require(choice.finish != "tool_calls" or message.uses, f"{where}: it ended for tools and asks for none.")
    names = [use.id for use in message.uses]
    require(all(names) and len(set(names)) == len(names), f"{where}: ids of tool uses: {names}.")
    size = None if choice.completion_ids is None else len(choice.completion_ids)
    limit = ask.sampling.max_tokens
    require(
        size is None or limit is None or size <= limit, f"{where}: {size} tokens where {limit} were allowed."
    )
    per_token: tuple[tuple[str, Any], ...] = (
        ("logprobs", choice.logprobs),
        ("token_ends", choice.token_ends),
    )
    for name, values in per_token:
        require(
            values is None or size is None or len(values) == size,
            f"{where}: expected {name} for each of {size} ids.",
        )
    ends = list(choice.token_ends or ())
    require(
        ends == sorted(ends) and all(0 <= end <= len(choice.said or "") for end in ends),
        f"{where}: expected token_ends that rise inside what was said; got {ends}.",
    )


def _words(reply: Reply) -> list[Any]:
    return [(each.message, list(each.completion_ids or ())) for each in reply.choices]

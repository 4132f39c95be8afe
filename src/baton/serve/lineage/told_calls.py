"""Exchanges as calls: prompts as what they add to an earlier one, and every id and log-probability as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from msgspec.structs import replace

from baton.connect.live.prompts import spoken
from baton.connect.seen import SeenCall
from baton.serve.exchange import Exchange, Reply, Utterance
from baton.serve.lineage.askers import Asker
from baton.serve.lineage.reading import Heard
from baton.trace.log import common_prefix
from baton.trace.records import Ints, Sampling

UNANSWERED = "no answer was written down"
SAID = 1.0
"""Among what belongs to an exchange, its answer stands after what it was told."""


class ToldCalls:
    """All calls of a session, told in the order of their asks."""

    def __init__(self, session: str, heard: Sequence[Heard]) -> None:
        self._session = session
        self._heard = heard
        self._last: dict[int, int] = {}
        """Asker -> place of its last exchange with ids, for prompts that break off and go on."""

    def tell(self, one: Heard, life: Asker, agent: str) -> Iterator[SeenCall]:
        """The calls of an exchange: one for each of its answers."""
        exchange = one.exchange
        reply = exchange.reply
        known: dict[str, Any] = {
            "session": self._session, "agent": agent, "at": one.id, "t": one.begun or None,
            "order": (float(one.place), SAID, 0.0), "duration_s": exchange.duration_s,
            "parent": None if one.before is None else call_key(self._heard[one.before], one.choice),
            "prompt": tuple((m.speaker, words_of(m)) for m in self._prompt(one)),
        }  # fmt: skip
        extra: dict[str, Any] = {"exchange": one.id}
        if exchange.retries:
            extra["retries"] = exchange.retries
        if reply is None:
            refused = exchange.refused
            yield SeenCall(
                key=one.id, **known, policy=exchange.ask.model, finish_reason="error" if refused else None,
                status="failed" if refused else "in_doubt", extra={**extra, "refused": refused or UNANSWERED},
            )  # fmt: skip
            return
        if reply.rules:
            extra["rules"] = reply.rules
        if reply.cached_tokens is not None:
            extra["cached_tokens"] = reply.cached_tokens
        known |= self._prompt_ids(one, life)
        for number, (choice, bill) in enumerate(zip(reply.choices, _bills(reply), strict=True)):
            yield SeenCall(
                key=call_key(one, number), **known, policy=reply.policy, policy_version=reply.policy_version,
                completion=choice.said if choice.said is not None else words_of(choice.message),
                **bill,
                completion_ids=_numbers(choice.completion_ids), logprobs=_numbers(choice.logprobs),
                token_ends=_numbers(choice.token_ends), versions=choice.versions, sampling=self._drawn(exchange),
                finish_reason=choice.finish, extra=extra,
            )  # fmt: skip

    def _drawn(self, exchange: Exchange) -> Sampling:
        """How it was drawn; an exchange is a random stream of its own in its session."""
        sampling = exchange.ask.sampling
        return (
            sampling if sampling.key is not None else replace(sampling, key=f"{self._session}/{exchange.id}")
        )

    def _prompt(self, one: Heard) -> tuple[Utterance, ...]:
        """What is new in a prompt, with the instruction where it is another than before."""
        if one.before is not None and self._heard[one.before].system == one.system:
            return one.new
        start = () if not one.system else (Utterance(speaker="system", text=one.system),)
        return (*start, *(one.new if one.before is not None else one.talk))

    def _prompt_ids(self, one: Heard, life: Asker) -> dict[str, Any]:
        """The prompt's ids from where they leave those of an earlier call: of the one it grows from, else of the
        agent's last one."""
        reply = one.exchange.reply
        if reply is None or reply.prompt_ids is None:
            return {}
        before = one.before if one.before is not None else self._last.get(life.number)
        self._last[life.number] = one.place
        whole = reply.prompt_ids
        origin = None if before is None else self._heard[before].exchange.reply
        if before is not None and origin is not None and origin.prompt_ids is not None:
            choice = one.choice if one.before is not None else 0
            said = origin.choices[choice].completion_ids if choice < len(origin.choices) else None
            keep = common_prefix(origin.prompt_ids + (said or Ints()), whole)
            if keep:
                parent = call_key(self._heard[before], choice)
                return {"parent": parent, "keep": keep, "prompt_ids": tuple(whole[keep:])}
        return {"prompt_ids": tuple(whole)}


def call_key(one: Heard, choice: int) -> str:
    """What the call of one of an exchange's answers is called."""
    return one.id if choice == 0 else f"{one.id}:{choice}"


def words_of(message: Utterance) -> str:
    """What a message says, tools included, as a trace tells it."""
    return spoken(message.text, ((use.name, use.arguments) for use in message.uses))


def _numbers(values: Any) -> Any:
    return None if values is None else tuple(values)


def _bills(reply: Reply) -> list[dict[str, Any]]:
    """What each answer of an ask was billed at, so that together they are the bill: the prompt, which is read once,
    stands with the first, and what is told of all answers together is shared out by their lengths."""
    prompt, spent, number = reply.prompt_tokens, reply.completion_tokens, len(reply.choices)
    if number == 1:
        return [{"prompt_tokens": prompt, "completion_tokens": spent, "estimated": reply.estimated}]
    prompts = [prompt, *([None if prompt is None else 0] * (number - 1))]
    known = [each.completion_ids for each in reply.choices]
    counts = [None if ids is None else len(ids) for ids in known]
    shared = None in counts and spent is not None
    if shared and spent is not None:
        ends = [0, *accumulate(len(words_of(each.message).encode()) + 1 for each in reply.choices)]
        counts = [spent * end // ends[-1] - spent * begin // ends[-1] for begin, end in pairwise(ends)]
    return [
        {"prompt_tokens": read, "completion_tokens": said, "estimated": reply.estimated or shared}
        for read, said in zip(prompts, counts, strict=True)
    ]

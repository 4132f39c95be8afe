"""A backend that answers from a recording.

A question that was not recorded ends the session: it is refused in a way that no client repeats, and so is everything
after it. Nothing that says so reaches a model as if it were an answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, structs

from baton.serve.backend import Backend, GrownAsk, Unanswerable
from baton.serve.exchange import Ask, Exchange, Reply, ReplyChoice, ToolAsk
from baton.serve.replay.alike import LIBERTIES
from baton.serve.replay.beside import RecordedBeside
from baton.serve.replay.difference import miss_said
from baton.serve.replay.exchanged import EXCHANGED
from baton.serve.replay.masks import Masks
from baton.serve.replay.match import Match, Matcher, Miss
from baton.serve.replay.names import rename
from baton.serve.replay.order import RecordedOrder, before_notes

GONE = 410
"""HTTP's word for what is no more: no client asks that again."""
_PATIENCE_S = 5.0
_SETTLE_S = 0.1
_SECOND_LOOK_S = 0.5


class AnswerGiven(Struct, frozen=True, kw_only=True):
    """How one question was answered."""

    match: Match | None
    """None: by the live backend."""
    tokens: int | None
    changed: bool = False
    """Whether it is another one than was recorded: the one thing that is different in a fork."""
    renamed: bool = False
    """Whether the answer was rewritten with the present names."""


class RecordedBackend:
    """Answers each question with the recorded answer, and what is in no recording by `live`, if there is one."""

    def __init__(
        self,
        exchanges: Iterable[Exchange],
        *,
        masks: Masks | None = None,
        live: Backend | None = None,
        instead: dict[str, Reply | str] | None = None,
        beside: RecordedBeside | None = None,
        stream: str | None = None,
        in_order: bool = True,
        refusals: tuple[str, ...] = (),
        patience_s: float = _PATIENCE_S,
        settle_s: float = _SETTLE_S,
    ) -> None:
        """`instead`: by exchange, another answer, or the name of a random stream to draw one from. `stream` is that of
        everything else that is asked live; None: the session's own. `refusals`: what calls past the recorded ones
        were told, the last of it again and again, where a limit had ended the session."""
        self.name = "recorded"
        found = [one for one in exchanges if one.reply is not None or one.refused is not None]
        self.matcher = Matcher(found, masks or Masks(), now=time.time())
        self.given: list[AnswerGiven] = []
        self.miss: Miss | None = None
        self.said: str | None = None
        """The miss in words, once there was one."""
        self._live = live
        self._beside = beside
        self._instead = instead or {}
        self._stream = stream
        self._refusals = list(refusals)
        notes = {one.exchange.id: one.question.notes for one in self.matcher.recorded}
        certain = _certain(found, self._instead)
        self._order = RecordedOrder(
            certain, patience_s=patience_s, settle_s=settle_s, first=before_notes(certain, notes)
        )
        self._in_order = in_order
        self._second_look_s = _SECOND_LOOK_S if live is None else 0.0
        self._num_asked = 0

    async def reply(self, ask: Ask, *, key: str, growth: GrownAsk | None) -> Reply:
        """The recorded answer, with the present names."""
        self._num_asked += 1
        number = self._num_asked
        if self.said is not None:
            raise Unanswerable(f"the replay has ended: {self.said}", status=GONE)
        found = await self._found(ask)
        if isinstance(found, Miss):
            if self._live is not None:
                own = key if self._stream is None else f"{self._stream}/{key.rpartition('/')[2]}"
                return await self._ask_live(self._live, ask, own, growth)
            if self._refusals and not self.matcher.left:
                told = self._refusals.pop(0) if len(self._refusals) > 1 else self._refusals[0]
                raise Unanswerable(told, status=GONE)
            if self.said is None:
                self.miss, self.said = found, miss_said(found, number, self.matcher.masks)
            raise Unanswerable(f"the replay has ended: {self.said}", status=GONE)
        id = found.exchange.id
        self._order.asked(id, *found.skipped)
        self._order.given(*found.skipped)
        if self._in_order and found.note != "again":
            await self._order.turn(id)
        other = self._instead.get(id)
        if isinstance(other, str):
            return await self._ask_live(self._live, ask, f"{other}/{id}", growth, changed=True)
        reply = found.exchange.reply if other is None else other
        if reply is None:  # as it was recorded
            self.given.append(AnswerGiven(match=found, tokens=None))
            raise Unanswerable(found.exchange.refused or "it was refused.")
        now = renamed_reply(reply, self.matcher.names.changed)
        self.given.append(
            AnswerGiven(
                match=found, tokens=_tokens(reply), changed=other is not None, renamed=now is not reply
            )
        )
        return now

    async def count_tokens(self, ask: Ask) -> int | None:
        """As many as the program was told; None: nobody counted, and nobody can."""
        known = None if self._beside is None else self._beside.count(ask)
        count = getattr(self._live, "count_tokens", None)
        return known if known is not None or count is None else int(await count(ask))

    def models(self) -> tuple[str, ...]:
        """Those that the program was told of."""
        if self._beside is not None and self._beside.models:
            return self._beside.models
        return (self.name if self._live is None else self._live.name,)

    async def close(self) -> None:
        """Nothing is held open; whoever gave the live backend closes it."""

    async def _found(self, ask: Ask) -> Match | Miss:
        """A name in a question may be one that a tool tells another agent only now: a miss is looked at twice."""
        found = self.matcher.find(ask)
        if isinstance(found, Miss) and self._second_look_s and self.matcher.left:
            await asyncio.sleep(self._second_look_s)
            if self.said is None:
                found = self.matcher.find(ask)
        return found

    async def _ask_live(
        self, live: Backend | None, ask: Ask, key: str, growth: GrownAsk | None, *, changed: bool = False
    ) -> Reply:
        if live is None:
            raise Unanswerable("another answer is to be drawn, and nobody is there to draw it.", status=GONE)
        reply = await live.reply(ask, key=key, growth=growth)
        self.given.append(AnswerGiven(match=None, tokens=_tokens(reply), changed=changed))
        return reply

    # -- what is said of it -----------------------------------------------------------------------

    def liberties(self) -> str:
        """How the questions were matched, in words: `12 exactly, 3 under masks, 2 renamed`."""
        matched = [one.match for one in self.given if one.match is not None]
        counts = Counter(one.liberty for one in matched)
        said = [f"{counts[liberty]:,} {liberty}" for liberty in LIBERTIES if counts[liberty]]
        notes = Counter(one.note for one in matched if one.note is not None)
        told = {
            "early": "with a notification that had come later",
            "late": "without a notification that had come by then",
            "skipped": "past an answer that only waited",
            "again": "once more, after a late notification",
        }
        said += [f"{number:,} {told[note]}" for note, number in notes.items()]
        return ", ".join(said) or "none"

    def details(self) -> list[str]:
        """What was taken for the same, one line each."""
        masked = Counter(kind for one in self.given if one.match is not None for kind in one.match.masked)
        named, exchanged = masked.pop("name", 0), masked.pop(EXCHANGED, 0)
        lines = [f"masked: {kind}, in {_calls(number)}" for kind, number in sorted(masked.items())]
        if named:
            lines.append(f"renamed: names that tools told, in {_calls(named)}")
        if exchanged:
            lines.append(f"exchanged: {EXCHANGED}, in {_calls(exchanged)}")
        rewritten = sum(one.renamed for one in self.given)
        if rewritten:
            lines.append(f"rewritten with the present names: {rewritten:,} of the answers")
        return lines


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number:,} calls"


def _certain(exchanges: list[Exchange], instead: dict[str, Any]) -> list[Exchange]:
    """Those that will be asked: where an answer is another one, what came after it may not be."""
    changed = [one.begun + (one.duration_s or 0.0) for one in exchanges if one.id in instead]
    end = min(changed, default=float("inf"))
    return [one for one in exchanges if one.begun <= end or one.id in instead]


def _tokens(reply: Reply) -> int | None:
    if reply.prompt_tokens is None and reply.completion_tokens is None:
        return None
    return (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)


def renamed_reply(reply: Reply, names: dict[str, str]) -> Reply:
    """An answer with other names. Ids of tokens that do not say them are left out."""
    if not names:
        return reply
    choices = tuple(_renamed_choice(choice, names) for choice in reply.choices)
    raw = reply.raw
    if raw is not None:
        text = msgspec.json.encode(raw).decode()
        raw = msgspec.json.decode(rename(text, names))
    if choices == reply.choices and raw == reply.raw:
        return reply
    return structs.replace(reply, choices=choices, raw=raw)


def _renamed_choice(choice: ReplyChoice, names: dict[str, str]) -> ReplyChoice:
    message = choice.message
    now = structs.replace(
        message,
        text=rename(message.text, names),
        thinking=rename(message.thinking, names),
        uses=tuple(_renamed_use(use, names) for use in message.uses),
    )
    if now == message:
        return choice
    return structs.replace(
        choice,
        message=now,
        said=None if choice.said is None else rename(choice.said, names),
        completion_ids=None,
        logprobs=None,
        token_ends=None,
        alternatives=(),
    )


def _renamed_use(use: ToolAsk, names: dict[str, str]) -> ToolAsk:
    return structs.replace(use, arguments=rename(use.arguments, names))

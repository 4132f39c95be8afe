"""From exchanges to agents: which of them one agent asked.

In this order: the agent that a header or a span names; the conversation that an ask goes on from, under the same
instruction; of a conversation that begins in the middle (its history was edited, cut, or written down in another way),
the agent under the same instruction with most of its words. A conversation that nobody has answered yet begins a life
of its own; `team` joins those again that turn out to be one agent's.

A prefix that breaks is no new agent, and the same conversation under another instruction is another one: a handoff.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field

from baton.serve.exchange import ToolAsk, Utterance
from baton.serve.lineage.headers import Named
from baton.serve.lineage.reading import Heard, alike, plain, texts
from baton.serve.lineage.words import SHORT, values

HANDS_OVER = re.compile(r"^(?:transfer|hand_?off|hand_over|pass)(?:_back)?_to_(.+)$", re.IGNORECASE)
GROWS = "its prompt goes on from that conversation under another instruction"
EDITED = "its prompt has most of that conversation's words, in another form"
AT_ONCE = "the same conversation goes on twice at the same time"
MIDDLE = "its conversation begins in the middle, and no other has its words"
_WORTH = 400  # characters of one message that count in a comparison
_RECENT = 64  # tools that an agent asked for last
_LATEST = 8  # askers that are remembered for a text
_SHARE = 0.3
_HALF = 0.5  # of its last answer, which does where anything else is in common


class Site(Struct):
    """A tool that a model asked for, as the place where something may have begun."""

    place: int
    """Of the exchange whose answer asks for it."""
    index: int
    use: ToolAsk
    life: int
    asked: tuple[str, ...]
    closed: int | None = None
    """Place of the exchange that tells its result; None: none does."""
    result: Utterance | None = None
    guessed: bool = False
    """Nobody names the tool in the result: it is what came next."""

    @property
    def key(self) -> tuple[int, int]:
        return (self.place, self.index)


class Asker(Struct):
    """One agent."""

    number: int
    heard: list[int] = field(default_factory=list)
    """Places of its exchanges."""
    named: Named | None = None
    why: str | None = None
    """Why these exchanges are one agent's, or why it is another than the one it goes on from."""
    from_life: int | None = None
    """The agent whose conversation it took over."""
    thread: int = 0
    """The life that began the conversation it is in: the same for all who hand over to each other."""
    into: int | None = None
    """The life that this one turned out to be."""


class Askers:
    """All agents of a session, and the tools that they asked for."""

    def __init__(self, heard: Sequence[Heard], known: dict[int, Named]) -> None:
        self.heard = heard
        self.known = known
        self.askers: list[Asker] = []
        self.of: list[int] = []
        """Place of an exchange -> its life."""
        self.sites: list[Site] = []
        self._by_id: dict[str, Site] = {}
        self._open: dict[int, list[Site]] = {}
        """Asker -> sites of its last answer that have no result yet."""
        self._asked: dict[int, list[Site]] = {}
        """Asker -> all its sites."""
        self._passing: dict[int, None] = {}
        """Askers whose last answer passes control."""
        self._next: dict[int, int] = {}
        """Place -> the first exchange that went on from it."""
        self._named: dict[str, int] = {}
        self._begun: dict[tuple[str, str], list[int]] = {}
        """Instruction and first words -> askers."""
        self._words: dict[str, list[int]] = {}
        for one in heard:
            life = self._life_of(one)
            self.of.append(life.number)
            life.heard.append(one.place)
            self._close(one, life.number)
            self._ask(one, life.number)
            self._remember(one, life.number)

    def at(self, number: int) -> Asker:
        """The life, or what it turned out to be."""
        life = self.askers[number]
        while life.into is not None:
            life = self.askers[life.into]
        return life

    def life(self, place: int) -> Asker:
        return self.at(self.of[place])

    def all(self) -> list[Asker]:
        """Those that are somebody."""
        return [life for life in self.askers if life.into is None]

    def merge(self, one: Asker, into: Asker, why: str) -> None:
        """It was the same agent."""
        one.into = into.number
        into.heard = sorted({*into.heard, *one.heard})
        into.why = into.why or why

    def system(self, life: Asker) -> str:
        return self.heard[life.heard[0]].system

    def _new(self, named: Named | None = None) -> Asker:
        number = len(self.askers)
        life = Asker(number=number, named=named, thread=number)
        self.askers.append(life)
        return life

    def _life_of(self, one: Heard) -> Asker:
        named = self.known.get(one.place)
        if named is not None:
            number = self._named.get(named.agent)
            if number is None:
                life = self._new(named)
                self._named[named.agent] = life.number
            else:
                life = self.askers[number]
            self._take_over(one, life)
            return life
        if one.before is not None:
            return self._grown(one, self.askers[self.of[one.before]])
        if not one.fresh:
            return self._edited(one)
        return self._trimmed(one) or self._handed(one) or self._new()

    def _trimmed(self, one: Heard) -> Asker | None:
        """An agent whose history was cut to its task and what it was told since: more than it was told at first."""
        told = texts(one.talk, "user")
        if len(told) < 2:
            return None
        for number in reversed(self._begun.get((one.system, told[0]), [])[-_LATEST:]):
            asker = self.askers[number]
            first = texts(self.heard[asker.heard[0]].talk, "user")
            if len(told) > len(first) and told[: len(first)] == first and self._is_idle(asker, one):
                asker.why = asker.why or EDITED
                return asker
        return None

    def _is_idle(self, asker: Asker, one: Heard) -> bool:
        return self.heard[asker.heard[-1]].ended <= one.begun

    def _take_over(self, one: Heard, life: Asker) -> None:
        """A named agent that goes on in another's conversation was handed it, where a span or a tool says so."""
        if not life.heard and life.named is not None and life.named.given_by in self._named:
            giver = self.askers[self._named[life.named.given_by]]
            life.from_life, life.thread = giver.number, giver.thread
            return
        if one.before is None or life.heard or life.named is None or life.named.parent is not None:
            return
        giver = self.askers[self.of[one.before]]
        if giver is not life and self._passes(one.before):
            life.from_life, life.thread = giver.number, giver.thread

    def _passes(self, place: int) -> bool:
        said = self.heard[place].said
        return said is not None and any(HANDS_OVER.match(use.name) for use in said.uses)

    def _grown(self, one: Heard, before: Asker) -> Asker:
        assert one.before is not None
        first = self._next.setdefault(one.before, one.place)
        origin = self.heard[one.before]
        same = alike(origin.system, one.system) and not (
            self._passes(one.before) and origin.system == one.system and origin.tools != one.tools
        )
        if same and self._inherits(one, before):
            return self._new()
        if same:
            twice = first != one.place and self._overlaps(self.heard[first], one)
            if not twice:
                return before
            life = self._new()
            life.why, life.from_life = AT_ONCE, before.number
            return life
        for other in reversed(self.askers):
            if (
                other.thread == before.thread
                and other is not before
                and alike(self.system(other), one.system)
            ):
                return other
        life = self._new()
        life.why, life.from_life, life.thread = GROWS, before.number, before.thread
        return life

    def _inherits(self, one: Heard, before: Asker) -> bool:
        """Whether it is another agent, that was given this one's conversation and then, as the last thing it is told,
        what this one had asked of a tool."""
        if one.talk[-1].speaker != "user":
            return False
        told = {text for text in texts(one.talk[-1:], "user") if len(text) >= SHORT}
        recent = self._asked.get(before.number, [])[-_RECENT:]
        return any(not told.isdisjoint(site.asked) for site in recent)

    def _overlaps(self, first: Heard, other: Heard) -> bool:
        return first.ended > other.begun

    def _edited(self, one: Heard) -> Asker:
        """A conversation in the middle: whose tools are answered in it, else whose words are these?"""
        owner = self._by_ids(one)
        if owner is not None:
            owner.why = owner.why or EDITED
            return owner
        votes: dict[int, int] = {}
        whole = 0
        for text in _all_texts(one.talk):
            worth = min(len(text), _WORTH)
            whole += worth
            for number in self._words.get(text, ()):
                votes[number] = votes.get(number, 0) + worth
        shown = " ".join(_all_texts(one.talk))
        last = {number: self._last_in(number, shown) for number in votes}
        ranked = sorted(
            votes,
            key=lambda number: (last[number], votes[number], self.askers[number].heard[-1]),
            reverse=True,
        )
        enough = [number for number in ranked if votes[number] >= _SHARE * whole or last[number] >= _HALF]
        for number in enough:
            life = self.askers[number]
            if alike(self.system(life), one.system):
                if self._inherits(one, life):
                    return self._new()
                life.why = life.why or EDITED
                return life
        for number in enough:
            life = self.askers[number]
            for other in reversed(self.askers):  # handed back to somebody of the same conversation
                if other.thread == life.thread and alike(self.system(other), one.system):
                    return other
            made = self._new()
            made.why, made.from_life, made.thread = EDITED, life.number, life.thread
            return made
        return self._handed(one) or self._same_task(one) or self._middle()

    def _as_long(self, number: int, one: Heard) -> bool:
        """Whether a prompt has as many answers as an agent has given."""
        return sum(message.speaker == "assistant" for message in one.talk) == len(self.askers[number].heard)

    def _same_task(self, one: Heard) -> Asker | None:
        """The agent with this instruction and task that waits for a tool, first one that has said as often."""
        told = texts(one.talk, "user")
        known = self._begun.get((one.system, told[0]), [])[-_LATEST:] if told else []
        waiting = [
            number for number in known if number in self._open and self._is_idle(self.askers[number], one)
        ]
        if not waiting:
            return None
        found = self.askers[max(waiting, key=lambda number: (self._as_long(number, one), number))]
        if self._inherits(one, found):
            return None
        found.why = found.why or EDITED
        return found

    def _by_ids(self, one: Heard) -> Asker | None:
        """The agent under this instruction that asked for the last tool whose result the prompt tells."""
        for message in reversed(one.talk):
            site = self._by_id.get(message.answers or "")
            if site is not None and alike(self.system(self.askers[site.life]), one.system):
                owner = self.askers[site.life]
                return None if self._inherits(one, owner) else owner
        return None

    def _last_in(self, number: int, shown: str) -> float:
        """How much of an agent's last answer stands in a prompt."""
        said = self.heard[self.askers[number].heard[-1]].said
        parts = [] if said is None else _all_texts((said,))
        return sum(part in shown for part in parts) / len(parts) if parts else 0.0

    def _middle(self) -> Asker:
        life = self._new()
        life.why = MIDDLE
        return life

    def _handed(self, one: Heard) -> Asker | None:
        """Control that was passed by a tool, to somebody whose prompt tells the conversation in other words."""
        waiting = [
            number
            for number in self._passing
            if number in self._open and not alike(self.system(self.askers[number]), one.system)
        ]
        told = " ".join(texts(one.talk, "user"))
        fitting = [number for number in waiting if self._first_words(number) in told]
        if len(fitting) != 1:
            return None
        giver = self.askers[fitting[0]]
        self._open.pop(giver.number)
        for other in reversed(self.askers):
            if other.thread == giver.thread and alike(self.system(other), one.system):
                return other
        life = self._new()
        life.why, life.from_life, life.thread = EDITED, giver.number, giver.thread
        return life

    def _first_words(self, number: int) -> str:
        first = self.heard[self.askers[number].heard[0]]
        return next(iter(texts(first.talk, "user")), "")

    def _close(self, one: Heard, number: int) -> None:
        """Results that it tells."""
        for message in one.new:
            site = self._by_id.get(message.answers or "") if message.speaker == "tool" else None
            if site is None or site.closed is not None:
                continue
            if self.askers[site.life].thread == self.askers[number].thread:  # no other who was shown it
                site.closed, site.result = one.place, message
        if one.before is not None or number in self._open:
            left = [site for site in self._open.pop(number, []) if site.closed is None]
            told = [message for message in one.new if message.speaker in ("user", "tool")]
            after = _after_last_answer(told, one)
            for place, site in enumerate(left):
                site.closed = one.place
                if after and not any(message.answers for message in after):
                    site.result = after[min(place, len(after) - 1)]
                    site.guessed = True

    def _ask(self, one: Heard, number: int) -> None:
        uses = () if one.said is None else one.said.uses
        sites = [
            Site(place=one.place, index=index, use=use, life=number, asked=values(use.arguments))
            for index, use in enumerate(uses)
        ]
        self.sites += sites
        self._asked.setdefault(number, []).extend(sites)
        self._passing.pop(number, None)
        if sites:
            self._open[number] = sites
            if any(HANDS_OVER.match(use.name) for use in uses):
                self._passing[number] = None
        for site in sites:
            self._by_id[site.use.id] = site

    def _remember(self, one: Heard, number: int) -> None:
        if len(self.askers[number].heard) == 1 and (told := texts(one.talk, "user")):
            self._begun.setdefault((one.system, told[0]), []).append(number)
        said = () if one.said is None else (one.said,)
        for text in _all_texts((*one.new, *said)):
            known = self._words.setdefault(text, [])
            if number in known:
                known.remove(number)
            known.append(number)
            if len(known) > _LATEST:
                known.pop(0)


def _all_texts(messages: Sequence[Utterance]) -> list[str]:
    found: list[str] = []
    for message in messages:
        if text := plain(message.text):
            found.append(text)
        for use in message.uses:
            found += [value for value in values(use.arguments) if len(value) > 3]
    return found


def _after_last_answer(told: list[Utterance], one: Heard) -> list[Utterance]:
    """What was told after the last answer in the prompt."""
    last = max((place for place, m in enumerate(one.talk) if m.speaker == "assistant"), default=-1)
    kept = {id(message) for message in one.talk[last + 1 :]}
    return [message for message in told if id(message) in kept]

"""Equal questions that are asked at once: which of them got which answer is immaterial.

A program that asks the same words several times side by side (a vote, LangGraph's Send with one text) tells nobody
which of its branches asks. In a replay the branches may come in another order, and each then holds another branch's
answer: what is asked later, and what the program says in the end, is the recording's with some answers in each
other's places. As the questions were equal, that run was as likely as the recorded one, and it is taken for the same.

What is known of the exchange is kept as domains: by recorded exchange, whose answer may stand where its own had
stood. Each text that differs narrows them, and is refused if no one-to-one exchange is left. Later answers are given
as they were recorded, word for word. Two forms are understood: an answer (or the id or arguments of a tool that it
asked for) as a whole; and single words of answers, which programs take out of them. What a program computes from an
answer otherwise (a sum, a length) is not, and is told as a difference. From outside nobody can tell a branch that
came earlier from a program that was changed to put its answers in another order: both read the same. `--exact` takes
the liberty away.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from baton.serve.exchange import Exchange
from baton.serve.replay.question import canonical_json

EXCHANGED = "which equal question got which answer"
Domains = dict[str, frozenset[str]]
"""Recorded exchange -> those of its group whose answer may stand in the place of its own."""
_WORDS = re.compile(r"(\w+)")


class ExchangedAnswers:
    """The groups of equal questions in a recording, and what is known of who got whose answer."""

    def __init__(self, groups: Iterable[Sequence[Exchange]]) -> None:
        self.domains: Domains = {}
        self._values: dict[str, tuple[str, ...]] = {}
        """By exchange: the texts that its answer brings into later questions."""
        self._words: dict[str, frozenset[str]] = {}
        self._group: dict[str, int] = {}
        for number, group in enumerate(groups):
            said = {one.id: _values(one) for one in group}
            if len(set(said.values())) < 2:
                continue  # whoever gets which, it is the same
            for id, values in said.items():
                self.domains[id] = frozenset(said)
                self._group[id] = number
                self._values[id] = values
                self._words[id] = frozenset(word for text in values for word in _WORDS.findall(text))
        every = sorted({text for values in self._values.values() for text in values}, key=len, reverse=True)
        self._form = re.compile("|".join(map(_whole, every))) if every else None
        self._holds_value = _holders(self._values)
        self._holds_word = _holders(self._words)

    def undo(self, recorded: str, now: str, known: Domains) -> tuple[str, Domains] | None:
        """The present text with the recorded answers in their places, and what `known` becomes; None: it is no such."""
        if self._form is None:
            return None
        return self._by_answers(recorded, now, known) or self._by_words(recorded, now, known)

    def confirm(self, texts: Iterable[str], known: Domains) -> Domains | None:
        """What `known` becomes as these texts, each of which may be an answer, stand where they had stood."""
        same = [(text, text) for text in texts if text in self._holds_value]
        return self._narrowed(known, same, self._holds_value)

    def _by_answers(self, recorded: str, now: str, known: Domains) -> tuple[str, Domains] | None:
        assert self._form is not None
        before, after = self._form.findall(recorded), self._form.findall(now)
        if not before or len(before) != len(after) or before == after:
            return None
        narrowed = self._moved(known, list(zip(before, after, strict=True)), self._holds_value)
        if narrowed is None:
            return None
        at = iter(before)
        return self._form.sub(lambda _: next(at), now), narrowed

    def _by_words(self, recorded: str, now: str, known: Domains) -> tuple[str, Domains] | None:
        before, after = _WORDS.split(recorded), _WORDS.split(now)
        if len(before) != len(after):
            return None
        words = list(zip(before, after, strict=True))[1::2]
        moved = {pair for pair in words if pair[0] != pair[1] and self._in_one_group(*pair)}
        if not moved:
            return None
        meant = {word for pair in moved for word in pair}
        pairs = [pair for pair in words if pair in moved or (pair[0] == pair[1] and pair[0] in meant)]
        narrowed = self._moved(known, pairs, self._holds_word)
        undone = [old if (old, new) in moved else new for old, new in zip(before, after, strict=True)]
        return None if narrowed is None else ("".join(undone), narrowed)

    def _in_one_group(self, old: str, new: str) -> bool:
        groups = {self._group[one] for one in self._holds_word.get(old, ())}
        return any(self._group[one] in groups for one in self._holds_word.get(new, ()))

    def _moved(
        self, known: Domains, pairs: list[tuple[str, str]], holders: Mapping[str, frozenset[str]]
    ) -> Domains | None:
        """The domains after a text: an answer is another everywhere in it; or the text has the same answers in other
        places, of which some stayed, because a later answer quotes them."""
        found = self._narrowed(known, pairs, holders)
        before, after = (Counter(each) for each in zip(*pairs, strict=True))
        if found is not None or before != after:
            return found
        return self._narrowed(known, [pair for pair in pairs if pair[0] != pair[1]], holders)

    def _narrowed(
        self, known: Domains, pairs: list[tuple[str, str]], holders: Mapping[str, frozenset[str]]
    ) -> Domains | None:
        """The domains after texts were seen in others' places; None: no one-to-one exchange does that."""
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for old, new in pairs:
            seen[old][new] += 1
        found = dict(known)
        for old, news in seen.items():
            mine = holders.get(old, frozenset())
            theirs = frozenset[str]().union(*(holders.get(new, frozenset()) for new in news))
            if len(mine) == 1 and len(news) > 1:
                return None  # one answer cannot have become two
            if len(mine) > sum(news.values()):
                continue  # which of them it is cannot be told
            for id in mine:
                found[id] = found[id] & theirs
        return found if _one_to_one(found) else None


def _values(exchange: Exchange) -> tuple[str, ...]:
    """The texts of an answer by which it can be recognised later."""
    if exchange.reply is None:
        return ()
    found: list[str] = []
    for choice in exchange.reply.choices:
        said = choice.message
        found.append(said.text.strip())
        for use in said.uses:
            found += [use.id, canonical_json(use.arguments), use.arguments]
    return tuple(each for each in found if each)


def _whole(text: str) -> str:
    """The text as a pattern; where it begins or ends within a word, it is another word."""
    before = r"(?<!\w)" if text[0].isalnum() else ""
    after = r"(?!\w)" if text[-1].isalnum() else ""
    return before + re.escape(text) + after


def _holders(texts: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for id, each in texts.items():
        for text in each:
            found[text].add(id)
    return {text: frozenset(ids) for text, ids in found.items()}


def _one_to_one(domains: Mapping[str, frozenset[str]]) -> bool:
    """Whether everyone can have an answer that nobody else has."""
    taken: dict[str, str] = {}

    def place(id: str, tried: set[str]) -> bool:
        for other in domains[id]:
            if other not in tried:
                tried.add(other)
                if other not in taken or place(taken[other], tried):
                    taken[other] = id
                    return True
        return False

    return all(place(id, set()) for id in domains)

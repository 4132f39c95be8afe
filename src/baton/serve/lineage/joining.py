"""Conversations that begin anew and are yet an earlier agent's: summaries, questions asked again, a program's loop."""

from __future__ import annotations

from baton.serve.lineage.askers import Asker, Askers
from baton.serve.lineage.begins import SHARED, Beginnings, Errand
from baton.serve.lineage.hearing import overheard
from baton.serve.lineage.reading import alike, plain, texts
from baton.serve.lineage.words import EXACT, SHORT

COMPACTED = "its conversation begins with a summary that this agent gave"
ASKED_AGAIN = "the same question again, and one tool asked for it"
SAME_INSTRUCTION = "the same instruction, told of its own answer or of one that came after it"
UNUSED = "the same question again, and nothing was made of the first answer"
_SUMMARY = 4 * SHORT
_LATEST = 8  # agents under one instruction that are looked at


class Joining:
    """Looks at agents in the order of their first asks."""

    def __init__(self, askers: Askers, begun: Beginnings) -> None:
        self.askers = askers
        self.begun = begun
        self._shown: dict[int, list[int]] = {}
        """Place of an ask -> places of the answers that stand in it."""
        self._used: set[int] = set()
        """Places of answers that others were shown."""
        for pair in overheard(askers):
            self._shown.setdefault(pair.heard, []).append(pair.said)
            self._used.add(pair.said)
        self._ended: dict[tuple[str, frozenset[str]], list[Asker]] = {}
        """Instruction and tools -> agents that nobody asked for."""
        self._first: dict[tuple[str, tuple[str, ...]], Asker] = {}

    def join(self) -> bool:
        """Whether anybody turned out to be somebody else."""
        joined = False
        by_asker = {one.life: one for one in self.begun.errands if one.first}
        for asker in self.askers.all():
            one = by_asker.get(asker.number)
            if one is None or asker.named is not None or asker.from_life is not None:
                continue
            earlier = self._same_as(one)
            if earlier is not None:
                self.askers.merge(asker, *earlier)
                joined = True
            elif one.site is None:
                first = self.askers.heard[one.place]
                self._ended.setdefault((first.system, first.tools), []).append(asker)
                self._first.setdefault((first.system, one.told), asker)
        return joined

    def _same_as(self, one: Errand) -> tuple[Asker, str] | None:
        if one.site is not None and one.likeness >= EXACT:
            return self._asked_again(one)
        found = self._compacted(one)
        if found is not None or one.site is not None:
            return found or self._asked_again(one)
        return self._in_loop(one) or self._retried(one)

    def _asked_again(self, one: Errand) -> tuple[Asker, str] | None:
        """One tool, and the same ask twice."""
        if one.site is None or SHARED not in (one.why or ""):
            return None
        for other in self.begun.taken[one.site.key]:
            if other.first and other.place < one.place and self._is_same_ask(other, one):
                asker = self.askers.at(other.life)
                return None if self._at_once(asker, one) else (asker, ASKED_AGAIN)
        return None

    def _compacted(self, one: Errand) -> tuple[Asker, str] | None:
        heard = self.askers.heard
        for place in reversed(self._shown.get(one.place, ())):
            asker, said = self.askers.life(place), heard[place].said
            last = [each for each in asker.heard if each < one.place][-1]
            if (
                place == last and said is not None and len(plain(said.text)) >= _SUMMARY and asker.named is None
                and alike(self.askers.system(asker), heard[one.place].system) and not self._at_once(asker, one)
            ):  # fmt: skip
                return asker, COMPACTED
        return None

    def _in_loop(self, one: Errand) -> tuple[Asker, str] | None:
        """Asked by the program once more, after it or somebody later had answered, and told of that."""
        first = self.askers.heard[one.place]
        told_of = max(self._shown.get(one.place, ()), default=None)
        if told_of is None or not first.system:
            return None
        for asker in reversed(self._ended.get((first.system, first.tools), [])[-_LATEST:]):
            if asker.into is None and asker.heard[-1] <= told_of and not self._at_once(asker, one):
                return asker, SAME_INSTRUCTION
        return None

    def _retried(self, one: Errand) -> tuple[Asker, str] | None:
        """The same ask again, however often, after answers that nobody made use of."""
        heard = self.askers.heard
        other = self._first.get((heard[one.place].system, one.told))
        if other is None or self._at_once(other, one) or not self._used.isdisjoint(other.heard):
            return None
        words = texts(heard[other.heard[0]].talk, "user")
        if any(
            heard[place].before is not None or texts(heard[place].talk, "user") != words
            for place in other.heard
        ):
            return None  # it went on
        return other, UNUSED

    def _is_same_ask(self, one: Errand, other: Errand) -> bool:
        first, second = self.askers.heard[one.place], self.askers.heard[other.place]
        return first.system == second.system and one.told == other.told

    def _at_once(self, asker: Asker, one: Errand) -> bool:
        """Whether the agent was asked something else, or waited for a tool, when the errand began."""
        if asker.heard[-1] >= one.place:
            return True
        last = self.askers.heard[asker.heard[-1]]
        return last.ended > self.askers.heard[one.place].begun or last.said is None or bool(last.said.uses)

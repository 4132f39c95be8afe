"""What began each errand of an agent's work: the tool that was asked for it, found by the words it was told.

An errand begins with an agent's first ask and with every later one that tells it something new from outside. What it is
told is compared with the arguments of tools asked for before. Each tool begins one errand, as long as there are tools
left: so equal words said to several agents are shared out among the tools that said them, by order, and among those by
whose result has whose answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Struct

from baton.serve.lineage.askers import HANDS_OVER, Asker, Askers, Site
from baton.serve.lineage.reading import Heard, plain, texts
from baton.serve.lineage.words import EXACT, heard_in, likeness, values, windows

WORD_FOR_WORD = "its task is, word for word, what this tool was asked"
IN_TASK = "what this tool was asked stands in its task"
BY_ANSWER = "its answer stands in the result of this tool, which was asked for before it began"
ALONE = "it began and ended while this tool alone was waited for"
SAME_WORDS = "one of several with the same words, shared out by order"
SAME_WORDS_ANSWER = "one of several with the same words, told apart by their answers"
UNSURE = "tools were waited for when it began, and nothing says that one of them began it"
SHARED = "the same tool began another conversation, too"
PASSED = "its instruction follows a tool that passes control"
_ENOUGH = 0.3
_SURE = 0.6  # for a tool that has its result already
_TOLD_BACK = 0.4  # of an answer in a result, which may be cut or have words around it
_NAMES = re.compile(r"[^\W_]+")
_SCANNED = 48  # open tools that are all looked at; above it, only those with words in common


class Errand(Struct):
    """From one thing that an agent was told to the next."""

    life: int
    place: int
    """Of its first exchange."""
    places: list[int]
    told: tuple[str, ...]
    """What it was told, by those who are not itself."""
    first: bool
    """It is the agent's first."""
    site: Site | None = None
    why: str | None = None
    likeness: float = 0.0
    tied: int = 1
    """How many errands and tools with the same words it was one of."""


def errands(askers: Askers) -> list[Errand]:
    """Of all agents, by their first exchange."""
    found: list[Errand] = []
    for life in askers.all():
        current: Errand | None = None
        known: set[str] = set()
        for place in life.heard:
            one = askers.heard[place]
            told = [text for text in texts(one.new, "user") if text not in known]
            known.update(told)
            if current is None or (told and _starts(askers, one, current, told)):
                if len(told) > 1:
                    told = [*told, " ".join(told)]
                current = Errand(
                    life=life.number, place=place, places=[], told=tuple(told), first=current is None
                )
                found.append(current)
            current.places.append(place)
    found.sort(key=lambda one: one.place)
    return found


def _starts(askers: Askers, one: Heard, current: Errand, told: list[str]) -> bool:
    """Whether an agent that had given its answer is told something that is neither a result nor its own summary."""
    before = askers.heard[current.places[-1]].said
    if before is None or before.uses or any(message.speaker == "tool" for message in one.new):
        return False
    summary = plain(before.text)
    return one.before is not None or not any(summary in text for text in told)


class Beginnings:
    """Stretches and the tools that began them."""

    def __init__(self, askers: Askers, found: list[Errand]) -> None:
        self.askers = askers
        self.errands = found
        self.taken: dict[tuple[int, int], list[Errand]] = {}
        self.unsure: dict[int, str] = {}
        """Asker -> why nothing was concluded of who began it."""
        self._by_use = {site.use.id: site for site in askers.sites}
        self._index = _Index(askers.sites)
        self._told: dict[int, dict[str, None]] = {}
        """Asker -> all that it was told."""
        self._own: dict[tuple[int, int], bool] = {}
        for one in found:
            self._told.setdefault(askers.at(one.life).number, {}).update(dict.fromkeys(one.told))
        for one in found:
            self._begin(one)
        self._untie()
        for one in found:
            if one.site is None and one.first:
                self._by_answer(one)

    def answer(self, one: Errand, before: int | None = None) -> list[str]:
        """What its last answer says, before some place; also in the arguments of a tool that ends it."""
        heard = self.askers.heard
        places = [place for place in one.places if before is None or place < before]
        said = heard[places[-1]].said if places else None
        if said is None:
            return []
        found = [plain(said.text)] if said.text else []
        for use in said.uses:
            found += [value for value in values(use.arguments) if value]
        return found

    def _begin(self, one: Errand) -> None:
        life = self.askers.at(one.life)
        if one.first and life.from_life is not None:
            return  # it was handed the conversation
        parent = None if life.named is None else life.named.parent
        use = None if life.named is None or not one.first else self._by_use.get(life.named.use or "")
        if use is not None:
            self._take(one, use, EXACT)
            one.why = None
            return
        best: tuple[tuple[float, ...], float, Site] | None = None
        for site in self._candidates(one, life, parent):
            fits = likeness(site.asked, one.told)
            is_open = site.closed is None or site.closed > one.place
            if fits < (_ENOUGH if is_open else _SURE) or (not is_open and not one.first and fits < EXACT):
                continue
            free = site.key not in self.taken
            if not free and (fits < _SURE or not is_open):
                continue
            answered = self._answered(one, site)
            told_back = answered >= _TOLD_BACK
            # A result with its answer says more than words do, and words that the asker itself was told say less.
            # Of equal ones the latest: a tool begins its work at once.
            own = self._is_own(site)
            rank = (
                float((fits >= _SURE and not own) or told_back), float(free), float(told_back), float(not own),
                float(is_open), round(fits, 3), answered, self._fits_name(site, life),
                self.askers.heard[site.place].ended, float(site.place), -site.index,
            )  # fmt: skip
            if best is None or rank > best[0]:
                best = (rank, fits, site)
        if best is not None:
            self._take(one, best[2], best[1])

    def _take(self, one: Errand, site: Site, fits: float) -> None:
        one.site, one.likeness = site, fits
        one.why = WORD_FOR_WORD if fits >= EXACT else IN_TASK
        others = self.taken.setdefault(site.key, [])
        if others:
            one.why = f"{one.why}; {SHARED}"
        others.append(one)

    def _candidates(self, one: Errand, life: Asker, parent: str | None) -> Iterable[Site]:
        for site in self._index.candidates(one):
            asker = self.askers.at(site.life)
            if asker is life or site.place >= one.place or HANDS_OVER.match(site.use.name):
                continue
            if parent is not None and (asker.named is None or asker.named.agent != parent):
                continue
            yield site

    def _is_own(self, site: Site) -> bool:
        """Whether who asked this tool was told the same: a search for one's own task, or one that is handed on."""
        known = self._own.get(site.key)
        if known is None:
            told = self._told.get(self.askers.at(site.life).number, {})
            known = self._own[site.key] = likeness(site.asked, told) >= _SURE
        return known

    def _fits_name(self, site: Site, life: Asker) -> float:
        """Whether the tool, or one of its short arguments, names whom the instruction is for."""
        system = self.askers.system(life).lower()
        head = set(_NAMES.findall(system[:400]))
        names = [site.use.name, *(value for value in site.asked if len(value) <= 40)]
        parts = {part for name in names for part in _NAMES.findall(name.lower())}
        return float(sum(len(part) > 2 and part in head for part in parts))

    def _untie(self) -> None:
        """Among errands with the same words, whose answer stands in whose tool's result decides; else order."""
        groups: dict[tuple[str, ...], list[Errand]] = {}
        for one in self.errands:
            if one.site is not None and one.likeness >= _SURE and SHARED not in (one.why or ""):
                groups.setdefault(one.told, []).append(one)
        for same in groups.values():
            if len(same) < 2:
                continue
            sites = sorted((one.site for one in same if one.site is not None), key=lambda site: site.key)
            if not all(likeness(site.asked, same[0].told) >= _SURE for site in sites):
                continue
            self._share_out(same, sites)

    def _share_out(self, same: list[Errand], sites: list[Site]) -> None:
        free = list(sites)
        fixed: dict[int, Site] = {}
        told_apart: set[int] = set()
        for one in same:
            if (own := self.askers.at(one.life).named) is not None and own.parent is not None:
                assert one.site is not None
                if one.site in free:
                    free.remove(one.site)
                fixed[one.place] = one.site
        rest = [one for one in same if one.place not in fixed]
        fits = {
            (one.place, site.key): self._answered(one, site)
            for one in rest for site in free
        }  # fmt: skip
        for one in rest:
            good = [site for site in free if fits[one.place, site.key] >= EXACT]
            rivals = [other for other in rest if other is not one and other.place not in fixed
                      and any(fits[other.place, site.key] >= EXACT for site in good)]  # fmt: skip
            if len(good) == 1 and not rivals:
                fixed[one.place] = good[0]
                told_apart.add(one.place)
                free.remove(good[0])
        for one in rest:
            if one.place in fixed:
                continue
            now = one.site
            site = max(
                free, key=lambda site: (fits[one.place, site.key], site is now, -site.place, -site.index)
            )
            fixed[one.place] = site
            free.remove(site)
        for one in same:
            site = fixed[one.place]
            one.tied = len(same)
            if one.place in told_apart:
                one.why = f"{one.why}; {SAME_WORDS_ANSWER}"
            elif any(not _same_moment(site, other) for other in sites if other is not site) or len(same) > 1:
                one.why = f"{one.why}; {SAME_WORDS}"
            one.site = site
            self.taken[site.key] = [one]

    def _answered(self, one: Errand, site: Site) -> float:
        """Whether what the errand ended with stands in the tool's result; a result that came first rules it out."""
        if site.closed is None or site.place >= one.place:
            return 0.0
        if site.result is None or site.closed <= one.place:
            return 0.0
        return heard_in(self.answer(one, site.closed), [plain(site.result.text)])

    def _by_answer(self, one: Errand) -> None:
        """Nothing of what it was told was asked of a tool: did a tool that was waited for give its answer?"""
        life = self.askers.at(one.life)
        if life.from_life is not None:
            return
        parent = None if life.named is None else life.named.parent
        waiting = [
            site for site in self._candidates(one, life, parent)
            if site.closed is not None and one.place < site.closed and not self.taken.get(site.key)
        ]  # fmt: skip
        fits = [(self._answered(one, site), site) for site in waiting]
        good = [pair for pair in fits if pair[0] >= _SURE]
        if good:
            one.likeness, one.site = max(good, key=lambda pair: (pair[0], pair[1].place))
            one.why = BY_ANSWER
            self.taken.setdefault(one.site.key, []).append(one)
        elif (
            len(waiting) == 1
            and one.places[-1] < (waiting[0].closed or 0)
            and self._nothing_else(one, waiting[0])
        ):
            one.site, one.why = waiting[0], ALONE
            self.taken.setdefault(one.site.key, []).append(one)
        elif waiting:
            self.unsure[life.number] = UNSURE

    def _nothing_else(self, one: Errand, site: Site) -> bool:
        """Whether nobody but this agent asked anything between the tool and its result."""
        between = {self.askers.of[place] for place in range(site.place + 1, site.closed or site.place + 1)}
        return {self.askers.at(number).number for number in between} == {self.askers.at(one.life).number}


class _Index:
    """Finds the tools whose arguments may stand in a text."""

    def __init__(self, sites: list[Site]) -> None:
        self._sites = sites
        self._by_value: dict[str, list[int]] = {}
        self._by_words: dict[str, list[int]] = {}
        self._places = [site.place for site in sites]
        for number, site in enumerate(sites):
            for value in site.asked:
                self._by_value.setdefault(value, []).append(number)
                for window in windows(value):
                    self._by_words.setdefault(window, []).append(number)

    def candidates(self, one: Errand) -> list[Site]:
        """Those asked for before it: the latest that are open, and the latest with words in common."""
        found: set[int] = set()
        end = bisect_left(self._places, one.place)
        for number in range(end - 1, max(-1, end - 1 - 4 * _SCANNED), -1):
            closed = self._sites[number].closed
            if closed is None or closed > one.place:
                found.add(number)
        for text in one.told:
            for hits in (
                self._by_value.get(text, ()),
                *(self._by_words.get(each, ()) for each in windows(text)),
            ):
                last = bisect_left(hits, end)
                found.update(hits[max(0, last - _SCANNED) : last])
        return [self._sites[number] for number in sorted(found)]


def _same_moment(one: Site, other: Site) -> bool:
    return one.place == other.place

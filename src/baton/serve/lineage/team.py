"""The team of a session: agents, who began whose work, and who heard whose answer. Every conclusion with its reason."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from baton.serve.exchange import Exchange
from baton.serve.lineage.askers import Askers
from baton.serve.lineage.begins import Beginnings, Errand, errands
from baton.serve.lineage.headers import Named, named
from baton.serve.lineage.hearing import ShownAnswer, overheard
from baton.serve.lineage.joining import Joining
from baton.serve.lineage.names import Names
from baton.serve.lineage.reading import plain, read
from baton.serve.lineage.words import EXACT, heard_in, values

IN_RESULT = "its last answer stands in the result of the tool that began it"
AFTER_LAST = "the tool that began it was answered after its last answer"
HEARD_LATER = "its last answer stands in what its parent was told later"
PROGRAM = "several agents began and no agent asked for them: the program runs them"
NOBODY = "no agent asked for it: the program runs it"
PROGRAM_KEY = "program"
_CLEAR = 0.5
_LATER = 64  # asks of a parent that are looked through for a late answer


class HeardAnswer(Struct):
    """An answer that its agent's parent heard."""

    place: int
    """Of the exchange that gave it."""
    heard: int | None
    """Of the exchange that tells it; None: the program heard it."""
    why: str


class Work(Struct):
    """An errand, with all that is known of it."""

    errand: Errand
    how: str
    """spawn, again, handover, told (by nobody known, or a person) or root."""
    by: int | None = None
    """Asker of whoever began it."""
    why: str | None = None
    returns: HeardAnswer | None = None


class AskingTeam(Struct):
    """All of it."""

    askers: Askers
    names: Names
    works: list[Work]
    parents: dict[int, tuple[int | None, str | None]]
    """Asker -> life of its parent (None: the program), and why; those with no parent are not in it."""
    leads: bool
    """The program itself leads: several agents begin by nobody's asking."""
    overheard: list[ShownAnswer] = field(default_factory=list)
    """Answers that agents were shown by the program."""
    unsure: dict[int, str] = field(default_factory=dict)
    """Asker -> why nothing was concluded."""
    key_of: dict[int, str] = field(default_factory=dict)

    def key(self, number: int | None) -> str:
        """What sightings call an agent."""
        return PROGRAM_KEY if number is None else self.key_of[self.askers.at(number).number]


def team_of(exchanges: Sequence[Exchange], spans: dict[int, Named] | None = None) -> AskingTeam:
    """`spans`: who asks by what OpenTelemetry says, by place; a header's word comes before it."""
    heard = read(exchanges)
    known = dict(spans or {})
    for one in heard:
        if (found := named(one.exchange)) is not None:
            known[one.place] = found
    askers = Askers(heard, known)
    begun = Beginnings(askers, errands(askers))
    if Joining(askers, begun).join():
        begun = Beginnings(askers, errands(askers))
    works = [_work(askers, one) for one in begun.errands]
    team = AskingTeam(askers=askers, names=Names(askers), works=works, parents={}, leads=False)
    team.unsure = {askers.at(number).number: why for number, why in begun.unsure.items()}
    _find_parents(team)
    for work in works:
        work.returns = _return(team, work)
    told = {
        work.returns.place for work in works if work.returns is not None and work.returns.heard is not None
    }
    team.overheard = [pair for pair in overheard(askers) if pair.said not in told]
    _let_speak(team)
    for life in askers.all():
        team.key_of[life.number] = life.named.agent if life.named is not None else f"a{life.number}"
    team.names.give(team.works, team.parents)
    return team


def _work(askers: Askers, one: Errand) -> Work:
    life = askers.at(one.life)
    if one.first and life.from_life is not None:
        return Work(errand=one, how="handover", by=askers.at(life.from_life).number, why=life.why)
    if one.site is not None:
        asker = askers.at(one.site.life).number
        recorded = life.named is not None and life.named.parent is not None
        return Work(
            errand=one, how="spawn" if one.first else "again", by=asker, why=None if recorded else one.why
        )
    return Work(errand=one, how="root" if one.first else "told")


def _find_parents(team: AskingTeam) -> None:
    askers = team.askers
    by_agent = {life.named.agent: life.number for life in askers.all() if life.named is not None}
    roots: list[Work] = []
    for work in team.works:
        if not work.errand.first:
            continue
        life = askers.at(work.errand.life)
        if life.named is not None and life.named.parent in by_agent and life.named.parent != life.named.agent:
            team.parents[life.number] = (by_agent[life.named.parent], None)
            if work.how == "root":
                work.how, work.by = "spawn", by_agent[life.named.parent]
        elif work.how == "spawn":
            team.parents[life.number] = (work.by, work.why)
        elif work.how == "root":
            roots.append(work)
    if len(roots) > 1:
        team.leads = True
        for work in roots:
            number = askers.at(work.errand.life).number
            work.how, work.why = "spawn", team.unsure.get(number, PROGRAM)
            team.parents[number] = (None, work.why)


def _let_speak(team: AskingTeam) -> None:
    """An answer that others are shown as a message was said to them, and not to the program."""
    spoken = {pair.said for pair in team.overheard if pair.whole}
    for work in team.works:
        if work.returns is not None and work.returns.heard is None and work.returns.place in spoken:
            work.returns = None


def _return(team: AskingTeam, work: Work) -> HeardAnswer | None:
    """Who heard how an errand ended."""
    one, site = work.errand, work.errand.site
    if work.how not in ("spawn", "again"):
        return None
    askers = team.askers
    places = _with_followers(team, one)
    if work.by is None:
        said = askers.heard[places[-1]].said
        ended = said is not None and not said.uses
        return HeardAnswer(place=places[-1], heard=None, why=NOBODY) if ended else None
    if site is not None and site.closed is not None and site.closed > one.place:
        inside = [place for place in places if place < site.closed]
        result = [] if site.result is None else [plain(site.result.text)]
        fits = heard_in(_answer(team, inside[-1]), result)
        if fits >= EXACT or (fits > 0 and inside == places):
            return HeardAnswer(place=inside[-1], heard=site.closed, why=IN_RESULT)
        late = _late(team, work, places)  # the tool may only have said that it began
        done = askers.heard[inside[-1]].ended <= askers.heard[site.closed].begun
        if late is None and inside == places and done:
            return HeardAnswer(place=inside[-1], heard=site.closed, why=AFTER_LAST)
        return late
    return _late(team, work, places)


def _with_followers(team: AskingTeam, one: Errand) -> list[int]:
    """Its exchanges, and those of whoever it handed its conversation to in the meantime."""
    askers = team.askers
    life = askers.at(one.life)
    thread = [other for other in askers.all() if other.thread == life.thread and other is not life]
    if not thread or life.thread != life.number:
        return one.places
    after = [place for place in life.heard if place > one.places[-1]]
    end = after[0] if after else len(askers.heard)
    more = [place for other in thread for place in other.heard if one.place < place < end]
    return sorted({*one.places, *more})


def _answer(team: AskingTeam, place: int) -> list[str]:
    said = team.askers.heard[place].said
    if said is None:
        return []
    found = [plain(said.text)] if said.text else []
    for use in said.uses:
        found += values(use.arguments)
    return found


def _late(team: AskingTeam, work: Work, places: list[int]) -> HeardAnswer | None:
    """An answer that its parent heard some other way than by the tool: a notification, a tool that waits."""
    assert work.by is not None
    askers = team.askers
    said = askers.heard[places[-1]].said
    if said is None or said.uses:
        return None
    answer = _answer(team, places[-1])
    later = [place for place in askers.at(work.by).heard if place > places[-1]][:_LATER]
    for place in later:
        new = askers.heard[
            place
        ].new  # Claude Code tells of its agents in the system's name, in the middle of a talk
        told = [plain(message.text) for message in new if message.speaker in ("user", "tool", "system")]
        if heard_in(answer, told) >= _CLEAR:
            return HeardAnswer(place=places[-1], heard=place, why=HEARD_LATER)
    return None

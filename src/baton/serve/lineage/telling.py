"""A session's team as sightings: every answer, what it asked for, what came back, and who began and heard whom."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from baton.connect.readers.claude_code.texts import unreminded
from baton.connect.seen import Link, Seen, SeenAgent, SeenEvent, SeenReward, SeenSession
from baton.serve.exchange import Posted, ReplyChoice
from baton.serve.lineage.askers import GROWS, HANDS_OVER, Site
from baton.serve.lineage.hearing import AS_MESSAGE, INSIDE, ShownAnswer
from baton.serve.lineage.reading import Heard, said_by, texts
from baton.serve.lineage.team import PROGRAM, PROGRAM_KEY, AskingTeam, HeardAnswer, Work
from baton.serve.lineage.token_spans import answer_span, use_spans
from baton.serve.lineage.told_calls import SAID, ToldCalls, call_key
from baton.trace.vocabulary import Decision, EventType, Status

GUESSED = "no message names the tool: it is what the agent was told next"
HEARD_BY_TEAM = "the first answer after several agents were heard"
_TOLD = 0.0
_GIVES_ANSWER = re.compile(
    r"^(?:final_?(?:answer|result|output)|submit(?:_answer)?|finish|attempt_completion)", re.I
)


def sightings(name: str, team: AskingTeam, posted: Sequence[Posted]) -> Iterator[Seen]:
    """Everything that a session tells."""
    ended = [one for one in posted if one.ended]
    end = _whole_end(ended)
    telling = _Telling(name, team, end)
    yield telling.session(end)
    yield from telling.agents()
    for one in team.askers.heard:
        yield from telling.exchange(one)
    yield from telling.end(end)
    for number, post in enumerate(posted):
        if post.reward is not None:
            yield telling.reward(number, post)


class _Telling:
    """One session on its way into sightings."""

    def __init__(self, name: str, team: AskingTeam, ended: Posted | None) -> None:
        self.name = name
        self.team = team
        self.heard = team.askers.heard
        self.begins: dict[tuple[int, int], list[Work]] = {}
        """Tool ask -> what it began."""
        self.starts: dict[int, Work] = {}
        """Place -> the errand that begins there."""
        self.returns: dict[int, list[tuple[Work, HeardAnswer]]] = {}
        self.arrive: dict[int, list[tuple[Work, HeardAnswer]]] = {}
        self.results: dict[int, list[Site]] = {}
        self.calls = ToldCalls(name, self.heard)
        for work in team.works:
            self.starts[work.errand.place] = work
            if work.errand.site is not None:
                self.begins.setdefault(work.errand.site.key, []).append(work)
            if work.returns is not None:
                self.returns.setdefault(work.returns.place, []).append((work, work.returns))
                if work.returns.heard is not None:
                    self.arrive.setdefault(work.returns.heard, []).append((work, work.returns))
        self.used = {site.key for site in team.askers.sites if site.closed is not None} | set(self.begins)
        for site in team.askers.sites:
            if site.closed is not None and site.result is not None:
                self.results.setdefault(site.closed, []).append(site)
        self.spoken: dict[int, list[ShownAnswer]] = {}
        """Place of an answer -> who is shown it."""
        self.shown: dict[int, list[ShownAnswer]] = {}
        for pair in team.overheard:
            self.spoken.setdefault(pair.said, []).append(pair)
            self.shown.setdefault(pair.heard, []).append(pair)
        self.final = self._final(ended)

    def _final(self, ended: Posted | None) -> int | None:
        """Place of the answer that ended the session's work: of who leads, or of whoever it handed over to.

        None: there is none. What a program that failed or was cut heard last is not what it came to.
        """
        if self.team.leads or (ended is not None and ended.status in ("failed", "cut")):
            return None
        roots = [life for life in self.team.askers.all() if life.number not in self.team.parents]
        last = max((place for life in roots for place in life.heard), default=None)
        if last is None or (said := self.heard[last].said) is None:
            return None
        gives = all(_GIVES_ANSWER.search(use.name) for use in said.uses)
        return last if not said.uses or gives or (ended is not None and self._ends(last)) else None

    def _ends(self, place: int) -> bool:
        """Whether an answer asks for tools that nobody used."""
        said = self.heard[place].said
        return said is not None and not any((place, index) in self.used for index in range(len(said.uses)))

    def session(self, ended: Posted | None) -> SeenSession:
        first = self.heard[0] if self.heard else None
        asked = [] if first is None else texts(first.talk, "user")
        begun = [one.begun for one in self.heard if one.begun > 0]
        meta: dict[str, Any] = {"dialects": sorted({one.exchange.ask.dialect for one in self.heard})}
        by = Counter(
            "words" if one.named is None else one.named.by
            for one in map(self.team.askers.life, range(len(self.heard)))
        )
        meta["asked_by"] = dict(by)
        rules = {
            name: rule
            for one in self.heard
            if one.exchange.reply
            for name, rule in one.exchange.reply.rules.items()
        }
        if rules:
            meta["rules"] = rules
        if ended is not None and ended.answer is not None:
            meta["answer"] = ended.answer
        if ended is not None and ended.status is not None:
            meta["status"] = ended.status
        if self.team.unsure:
            meta["unsure"] = {self.team.key(life): why for life, why in self.team.unsure.items()}
        return SeenSession(
            session=self.name, key=self.name, system="baton serve", task=_task(asked[-1]) if asked else None,
            started=min(begun) if begun else None, finished=ended is not None, meta=meta,
        )  # fmt: skip

    def agents(self) -> Iterator[Seen]:
        team = self.team
        if team.leads:
            yield SeenAgent(
                session=self.name, key=PROGRAM_KEY, name=PROGRAM_KEY, role=PROGRAM_KEY, why=PROGRAM
            )
        for life in team.askers.all():
            parent: str | None = None
            why: str | None = None
            if life.number in team.parents:
                above, why = team.parents[life.number]
                parent = team.key(above)
            yield SeenAgent(
                session=self.name, key=team.key(life.number), name=team.names.name[life.number],
                role=team.names.role[life.number], parent=parent, why=why, at=self.heard[life.heard[0]].id,
            )  # fmt: skip

    def exchange(self, one: Heard) -> Iterator[Seen]:
        life = self.team.askers.life(one.place)
        agent = self.team.key(life.number)
        start = self.starts.get(one.place)
        if start is not None:
            yield from self._begin(start, one, agent)
        for site in self.results.get(one.place, ()):
            yield from self._result(site, one)
        yield from self.calls.tell(one, life, agent)
        if one.said is not None:
            yield from self._acts(one, agent)

    def _begin(self, work: Work, one: Heard, agent: str) -> Iterator[Seen]:
        """What no tool ask tells: who was begun by the program, what a person said later."""
        if work.how == "spawn" and work.errand.site is None:
            by = self.team.key(work.by)
            yield self._event(
                "spawn", f"{one.id}/spawn", by, one, (_TOLD, -1.0), to=agent, why=work.why, t=one.begun,
                content=said_by(one.new, "user") or None,
            )  # fmt: skip
        elif work.how == "told" and one.place not in self.shown and one.place not in self.arrive:
            yield self._event(
                "human_intervention", f"{one.id}/told", agent, one, (_TOLD, 0.0), t=one.begun,
                content=said_by(one.new, "user"),
            )  # fmt: skip

    def _result(self, site: Site, one: Heard) -> Iterator[Seen]:
        """A tool's result; that of a tool which began an agent is the agent's return."""
        assert site.result is not None
        if site.key in self.begins or HANDS_OVER.match(site.use.name):
            return
        asker = self.team.key(site.life)
        why = GUESSED if site.guessed else None
        yield self._event(
            "tool_result", f"{self._use_key(site)}/result", asker, one, (_TOLD, 1.0 + site.index), t=one.begun,
            tool=site.use.name, content=site.result.text, status="failed" if site.result.failed else None, why=why,
            after=(Link(self._use_key(site), "tool_dependency", why),),
        )  # fmt: skip

    def _use_key(self, site: Site) -> str:
        return f"{self.heard[site.place].id}/{site.index}"

    def _acts(self, one: Heard, agent: str) -> Iterator[Seen]:
        """What an answer does."""
        assert one.said is not None
        reply = one.exchange.reply
        choice = None if reply is None or one.taken >= len(reply.choices) else reply.choices[one.taken]
        call = call_key(one, one.taken)
        links = self._arrived(one)
        at = 0.0
        if len(links) > 1:
            yield self._aggregate(one, agent, call, choice, links)
            links = ()
        spans = use_spans(choice) if choice is not None else [None] * len(one.said.uses)
        for index in range(len(one.said.uses)):
            at += 1
            first = links if at == 1 else ()
            if (one.place in self.returns or one.place == self.final) and self._ends(one.place):
                words = one.said.uses[index].arguments
                yield from self._answer(one, agent, call, spans[index], first, words)
                break
            yield from self._use(one, agent, index, call, spans[index], first)
        if not one.said.uses:
            span = None if choice is None else answer_span(choice)
            yield from self._answer(one, agent, call, span, links, one.said.text)

    def _aggregate(
        self, one: Heard, agent: str, call: str, choice: ReplyChoice | None, links: tuple[Link, ...]
    ) -> SeenEvent:
        """Several were heard at once. Its tokens are the words before the tools that are asked for; where the answer is
        all there is, they are the answer's own event's."""
        assert one.said is not None
        speaks = bool(one.said.uses and one.said.text.strip())
        fused = tuple(Link(link.key, "aggregate", HEARD_BY_TEAM) for link in links)
        return self._event(
            "aggregate", f"{one.id}/aggregate", agent, one, (SAID, 0.0), call=call if speaks else None,
            span=answer_span(choice) if speaks and choice is not None else None, why=HEARD_BY_TEAM,
            content=one.said.text or None, after=(*links, *fused),
        )  # fmt: skip

    def _arrived(self, one: Heard) -> tuple[Link, ...]:
        """What the answer depends on: returns that came with the ask, and what the program showed it of others."""
        found = self.arrive.get(one.place, ())
        links = [Link(f"{self.heard[back.place].id}/return", "return", back.why) for _, back in found]
        for pair in self.shown.get(one.place, ()):
            key = f"{self.heard[pair.said].id}/{self._last_word(pair.said)}"
            links.append(Link(key, "message", AS_MESSAGE if pair.whole else INSIDE))
        return tuple(links)

    def _last_word(self, place: int) -> str:
        """What the event of an answer is called."""
        if place in self.returns:
            return "return"
        if any(pair.whole for pair in self.spoken.get(place, ())):
            return "message"
        return "stop" if place == self.final else "answer"

    def _use(
        self, one: Heard, agent: str, index: int, call: str, span: tuple[int, int] | None, links: tuple[Link, ...]
    ) -> Iterator[Seen]:  # fmt: skip
        assert one.said is not None
        use = one.said.uses[index]
        key = f"{one.id}/{index}"
        known: dict[str, Any] = {
            "call": call, "span": span, "tool": use.name, "content": use.arguments, "media_type": _media(use.arguments),
            "after": links, "extra": {"tool_call_id": use.id},
        }  # fmt: skip
        begun = self.begins.get((one.place, index), [])
        at = (SAID, 1.0 + index)
        if begun:
            for number, work in enumerate(begun):
                more: dict[str, Any] = (
                    known if number == 0 else {"content": None, "extra": {"tool_call_id": use.id}}
                )
                to = self.team.key(work.errand.life)
                type_: EventType = "spawn" if work.how == "spawn" else "message"
                decision: Decision = "spawn" if work.how == "spawn" else "delegate"
                if work.errand.why is not None:
                    more = {**more, "extra": {**more["extra"], "joined_by": work.errand.why}}
                yield self._event(
                    type_, key if number == 0 else f"{key}/{number}", agent, one, (*at, float(number)), to=to,
                    why=work.why, decision=decision, **more,
                )  # fmt: skip
            return
        taker = self._handed_to(one, use.name)
        if taker is not None:
            yield self._event(
                "message", key, agent, one, at, to=taker[0], why=taker[1], decision="delegate", **known
            )
            return
        yield self._event("tool_call", key, agent, one, at, **known)

    def _handed_to(self, one: Heard, tool: str) -> tuple[str, str | None] | None:
        """Whoever went on in the conversation after a tool that passes control."""
        if not HANDS_OVER.match(tool):
            return None
        life = self.team.askers.life(one.place)
        following = next(
            (
                other
                for other in self.heard[one.place + 1 :]
                if self.team.askers.life(other.place).thread == life.thread
            ),
            None,
        )
        if following is None:
            return None
        taker = self.team.askers.life(following.place)
        return (
            None
            if taker is life
            else (self.team.key(taker.number), None if taker.named else taker.why or GROWS)
        )

    def _answer(
        self, one: Heard, agent: str, call: str, span: tuple[int, int] | None, links: tuple[Link, ...], words: str
    ) -> Iterator[Seen]:  # fmt: skip
        """A last word, as text or as the arguments of a tool that gives it."""
        known: dict[str, Any] = {"call": call, "span": span, "content": words, "after": links}
        at = (SAID, 1.0)
        back = self.returns.get(one.place, [])
        for number, (work, returned) in enumerate(back):
            key = f"{one.id}/return" if number == 0 else f"{one.id}/return/{number}"
            yield self._event(
                "return", key, agent, one, at, to=self.team.key(work.by), why=returned.why, **known
            )
        if back:
            return
        key = f"{one.id}/{self._last_word(one.place)}"
        if key.endswith("/message"):
            heard = {
                self.team.key(self.team.askers.life(pair.heard).number) for pair in self.spoken[one.place]
            }
            to = heard.pop() if len(heard) == 1 else None
            yield self._event(
                "message", key, agent, one, at, to=to, why=AS_MESSAGE, decision="communicate", **known
            )
        else:
            decision: Decision = "stop" if one.place == self.final else "continue"
            yield self._event("orchestrator_decision", key, agent, one, at, decision=decision, **known)

    def end(self, ended: Posted | None) -> Iterator[Seen]:
        """How it ended, where no answer of the one who leads says it."""
        if ended is None or not self.heard:
            return
        status: dict[str | None, Status] = {"cut": "forced", "failed": "failed"}
        if self.team.leads or ended.status in ("cut", "failed"):
            roots = [life for life in self.team.askers.all() if life.number not in self.team.parents]
            agent = PROGRAM_KEY if self.team.leads or not roots else self.team.key(roots[0].number)
            last, answer = self.heard[-1], ended.answer
            if answer is None and ended.status not in ("cut", "failed"):
                answer = _last_words(self.heard)
            links = tuple(
                Link(f"{self.heard[back.place].id}/return", "return", back.why)
                for work in self.team.works
                if (back := work.returns) is not None and back.heard is None
            )
            yield SeenEvent(
                session=self.name, key="end", agent=agent, type="orchestrator_decision", decision="stop",
                order=(float(len(self.heard)), 0.0), t=max(ended.at, last.ended) or None,
                content=answer, after=links, status=status.get(ended.status),
                extra={} if (why := _why(ended)) is None else {"why": why},
            )  # fmt: skip

    def reward(self, number: int, post: Posted) -> SeenReward:
        assert post.reward is not None
        known = {one.id for one in self.heard}
        turn = post.target in known
        unit: Literal["turn", "team"] = "turn" if turn else "team"
        return SeenReward(
            session=self.name, key=f"reward/{number}", value=post.reward, unit=unit,
            target=post.target if turn else None, name=post.name,
        )  # fmt: skip

    def _event(
        self, type_: EventType, key: str, agent: str, one: Heard, at: tuple[float, ...], *, t: float | None = None,
        **known: Any,
    ) -> SeenEvent:  # fmt: skip
        when = t if t is not None else one.ended
        return SeenEvent(
            session=self.name, key=key, at=one.id, agent=agent, type=type_, order=(float(one.place), *at),
            t=when or None, **known,
        )  # fmt: skip


def _whole_end(ended: Sequence[Posted]) -> Posted | None:
    """The end as the last one who told of it knows it, with the first answer: the program's own, before its output."""
    if not ended:
        return None
    answer = next((one.answer for one in ended if one.answer is not None), None)
    return replace(ended[-1], answer=answer)


def _why(ended: Posted) -> str | None:
    """Which limit ended a program, or how it failed, in words."""
    if ended.why is not None or ended.status != "failed" or not ended.exit_code:
        return ended.why
    code = ended.exit_code
    return f"the program ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"


def _task(asked: str) -> str:
    """What a person asked for; what Claude Code puts beside it only where there is nothing else."""
    return unreminded(asked) or asked


def _last_words(heard: Sequence[Heard]) -> str | None:
    return next(
        (one.said.text for one in reversed(heard) if one.said is not None and not one.said.uses), None
    )


def _media(arguments: str) -> str:
    return "application/json" if arguments[:1] in ("{", "[") else "text/plain"

"""A guard at work in one run: it follows labels as events are written, and judges each call before it is made.

Invariant: a judgement is a function of the events written so far, of the agent's pending causes and of the policy. So a
replay, a resume and a fork judge as the run did, and what was decided by is what stands on the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from baton.team.guard.answers import AnswerPiece, ToldAnswer, divided, is_number, told
from baton.team.guard.handles import NAME, Handles
from baton.team.guard.policy import ANSWER, ANY, CLEAN, NUMBERS, PROSE, TASK, Guard, ToolRule
from baton.team.guard.sanitisers import sanitised, sanitiser
from baton.team.guard.templates import filled_in, is_template
from baton.team.guard.values import addresses, as_seen, is_choice, is_same, stands_in, untraced, without
from baton.team.tools.tool import Tool
from baton.trace.provenance import Carried, Flow, Incoming
from baton.trace.records import Event
from baton.trace.vocabulary import EdgeType

_SHOWN = 8
"""Causes of a refusal that are named in its event."""


class Objection(Struct, frozen=True, kw_only=True):
    """Why a call may not be made as it is, and who may let it through."""

    why: str
    """In words that hold nothing a stranger wrote."""
    endorse: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    """Events that the caller got its taint from."""
    arguments: tuple[str, ...] = ()
    """Those whose values come from where they may not."""


class CallRequest(Struct, frozen=True, kw_only=True):
    """A call that waits, as whoever decides sees it."""

    id: str
    agent: str
    tool: str
    arguments: dict[str, Any]
    """Data, perhaps a stranger's: to be shown, never to be followed."""
    why: str
    endorse: tuple[str, ...]


class PlannedCall(Struct, kw_only=True, forbid_unknown_fields=True):
    """A call that an agent planned that had read nothing untrusted."""

    tool: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """Those that are known already. The others may be filled in later, from where the tool's rule says."""
    times: int = 1


class Grant(Struct, kw_only=True):
    """A planned call with who planned it: agent, role and the event."""

    call: PlannedCall
    agent: str
    role: str
    event: str
    times: int


class GuardWatch:
    """What a guard knows of a run."""

    def __init__(self, guard: Guard, *, is_agent: Callable[[str], bool], told: Iterable[str] = ()) -> None:
        """`told` are texts that agents are given by the team itself: what their roles say."""
        self.guard = guard
        self.flow = Flow(is_agent=is_agent)
        self._words: dict[str, dict[str, None]] = {TASK: {}, CLEAN: dict.fromkeys(told)}
        """Source -> texts that may be believed."""
        self._waiting: dict[str, str] = {}
        """Tainted events -> their texts, to be believed once they are endorsed."""
        self._left: dict[str, list[str]] = {}
        """Place -> tainted calls that may have left something there."""
        self._seen: dict[tuple[str, str], int] = {}
        """(agent, place) -> how much of that its results have brought."""
        self._plan: list[Grant] = []
        self.held: dict[str, Any] = {}
        """Requests that wait for an endorsement (`baton.team.guard.requests.HeldCall`)."""
        self.handles = None if guard.handles is None else Handles(guard.handles)
        """What is kept under names; None: nothing is."""
        self._places: dict[str, str] = {}
        self._num_endorsed = 0

    def believe(self, text: str) -> None:
        """The task, or a person's word."""
        self._words[TASK][text] = self._words[CLEAN][text] = None

    def written(self, event: Event, incoming: Incoming, text: str | None) -> None:
        """An event was written."""
        flow = self.flow
        flow.step(event, incoming)
        tainted = flow.is_tainted(event.id)
        if tainted and event.type == "tool_call" and (place := self._places.get(event.tool or "")):
            self._left.setdefault(place, []).append(event.id)
        if text is not None:
            if event.type == "human_intervention":
                self.believe(text)
            elif not tainted:
                self._words[CLEAN][text] = None
            else:
                self._waiting[event.id] = text
        if len(flow.endorsed) > self._num_endorsed:
            for name in list(flow.endorsed)[self._num_endorsed :]:
                if (known := self._waiting.pop(name, None)) is not None:
                    self._words[CLEAN][known] = None
            self._num_endorsed = len(flow.endorsed)

    def doubts(self, agent: str, role: str) -> bool:
        """Whether whatever an agent says is a stranger's word."""
        return role in self.guard.untrusted or agent in self.guard.untrusted

    def before(self, agent: str, role: str, incoming: Incoming = ()) -> Carried:
        """What an event of this agent would be tainted by, if it came now."""
        carried = self.flow.before(agent, incoming)
        if carried or not self.doubts(agent, role):
            return carried
        return Carried(data=frozenset({f"{agent}#1"}))  # its first event will be the source

    def knows_tool(self, tool: Tool) -> None:
        """A call of this tool is about to be written."""
        self._places[tool.name] = self.guard.kept_at(tool)

    def left_for(self, agent: str, tool: Tool) -> list[tuple[str, EdgeType]]:
        """What a result of this tool depends on besides its call: tainted calls that kept something where it looks."""
        place = self.guard.looked_at(tool)
        left = self._left.get(place, [])
        if self.handles is not None:  # whoever reads only names is tainted by no earlier result
            return [(name, "safety_flow") for name in left]
        seen, self._seen[agent, place] = self._seen.get((agent, place), 0), len(left)
        return [(name, "safety_flow") for name in left[seen:]]

    def shown(self, tool: Tool, text: str) -> str:
        """What anybody reads of a tool's result."""
        rule = self.guard.rule(tool)
        return text if rule is None or rule.sanitise is None else sanitised(sanitiser(rule.sanitise), text)

    def is_reader(self, role: str) -> bool:
        """Whether agents of a role are quarantined readers of handles."""
        return self.handles is not None and role in self.handles.rule.readers

    def holds(self, tool: Tool, call: str, left: Sequence[tuple[str, EdgeType]]) -> bool:
        """Whether a result is kept under a name."""
        return self.handles is not None and (
            not self.guard.is_trusted(tool) or bool(left) or self.flow.is_tainted(call)
        )

    def result(self, tool: Tool, text: str, call: str, args: Mapping[str, Any], *, ok: bool) -> None:
        """A tool's result, as it is read, which may be a place that arguments come from.

        Where a stranger may have chosen the call's arguments, nothing of them counts, and an error counts for nothing.
        """
        rule = self.guard.rule(tool)
        words = self._words.setdefault(tool.name, {})
        if rule is not None and rule.values is not None:
            words[sanitised(sanitiser(rule.values), text)] = None
        elif self.guard.is_trusted(tool) and not any(
            map(self.flow.is_tainted, self._left.get(self.guard.looked_at(tool), ()))
        ):
            if self.flow.is_tainted(call):
                known = [*self._words[CLEAN], *words]
                text = without(text, args, lambda part: any(stands_in(part, one) for one in known))
            if ok or not self.flow.is_tainted(call):
                words[text] = None

    def judge(
        self,
        agent: str,
        role: str,
        incoming: Incoming,
        tool: Tool,
        args: Mapping[str, Any],
        filled: Mapping[str, Sequence[Any]] | None = None,
    ) -> Objection | str:
        """Why a call may not be made; or, of one that may although its caller is tainted, by what: plan, values
        or endorsed. `filled`: arguments in which names were replaced, with what they stand for."""
        rule = self.guard.rule(tool)
        if rule is not None and rule.roles and role not in rule.roles:
            return Objection(why=f"only {_listed(rule.roles)} may call it")
        if not self.guard.is_consequential(tool):
            return ""
        if rule is None and self.guard.unnamed == "refuse":
            return Objection(why="it acts on the world and no rule of the guard names it")
        if rule is None and self.guard.unnamed == "allow":
            return ""
        rule = rule or ToolRule()
        objection = self._object(rule, self.before(agent, role, incoming), tool, args)
        if objection == "":
            objection = self._judge_filled(rule, args, filled or {})
        if isinstance(objection, Objection) and objection.endorse:
            endorsed = self.planned_by(objection.endorse, tool.name, args)
            if endorsed is not None:
                endorsed.times -= 1
                return "endorsed"
        return objection

    def _object(
        self, rule: ToolRule, carried: Carried, tool: Tool, args: Mapping[str, Any]
    ) -> Objection | str:
        if carried:
            return self._judge_tainted(rule, carried, tool, args)
        if rule.always:
            return Objection(why=f"{_listed(rule.endorse)} must let it through", endorse=rule.endorse)
        return ""

    def _judge_tainted(
        self, rule: ToolRule, carried: Carried, tool: Tool, args: Mapping[str, Any]
    ) -> Objection | str:
        because = tuple(sorted(carried.data | carried.control)[:_SHOWN])
        told: dict[str, Any] = {"endorse": rule.endorse, "because": because}
        if rule.always:
            return Objection(why=f"{_listed(rule.endorse)} must let it through", **told)
        if rule.decided_by == "clean":
            return Objection(why="its caller has read untrusted text", **told)
        planned = self._planned(tool.name, args)
        if rule.decided_by == "plan" and planned is None:
            return Objection(
                why="its caller has read untrusted text, and nobody planned this call before", **told
            )
        fixed = {} if planned is None else planned.call.arguments
        wrong = {
            name: missing
            for name, value in args.items()
            if not _is_usual(tool, name, value)
            if (missing := self._untraced(rule, name, _left_open(fixed, name, value)))
            or (name not in fixed and self._is_chosen(rule, name, value))
        }
        if not wrong:
            if planned is not None:
                planned.times -= 1
            return "values" if planned is None else "plan"
        words = "; ".join(f"{name} may come from {_listed(self._sources(rule, name))}" for name in wrong)
        return Objection(
            why=f"its caller has read untrusted text, and not all values come from where they may: {words}",
            arguments=tuple(wrong),
            **told,
        )

    def _judge_filled(
        self, rule: ToolRule, args: Mapping[str, Any], filled: Mapping[str, Sequence[Any]]
    ) -> Objection | str:
        """Of a caller that has read nothing untrusted: what names stand for has to come from where it may. An address
        may come about where two are put side by side, so of prose the whole is looked at."""
        wrong = [
            name
            for name, values in filled.items()
            if self._untraced(rule, name, args[name] if PROSE in self._sources(rule, name) else values)
            or self._is_chosen(rule, name, list(values))
        ]
        if not wrong:
            return "values" if filled else ""
        words = "; ".join(f"{name} may come from {_listed(self._sources(rule, name))}" for name in wrong)
        return Objection(
            why=f"not all that was filled in comes from where it may: {words}",
            arguments=tuple(wrong),
            endorse=rule.endorse,
        )

    def _sources(self, rule: ToolRule, argument: str) -> tuple[str, ...]:
        return rule.arguments.get(argument, (CLEAN,))

    def _is_chosen(self, rule: ToolRule, argument: str, value: Any) -> bool:
        """Whether a value that says nothing, and so stands nowhere, is a choice that this argument must not be."""
        sources = self._sources(rule, argument)
        return ANY not in sources and PROSE not in sources and is_choice(value)

    def _untraced(self, rule: ToolRule, argument: str, value: Any) -> list[Any]:
        sources = self._sources(rule, argument)
        if ANY in sources:
            return []
        texts = [text for source in sources for text in self._words.get(source, ())]
        if PROSE in sources:
            texts = [as_seen(text) for text in (*texts, *self._words[CLEAN])]
            value = addresses(value)
        missing = untraced(value, texts)
        return [one for one in missing if not (NUMBERS in sources and _is_number(one))]

    def judge_answer(self, agent: str, role: str, incoming: Incoming, text: str) -> ToldAnswer | None:
        """What the user is told of an answer; None: all of it."""
        rule = self.guard.answer
        judged = rule is not None and ANY not in rule.words and bool(self.before(agent, role, incoming))
        texts = [] if rule is None else [one for source in rule.words for one in self._words.get(source, ())]

        def is_own(part: str) -> bool:
            numbers = rule is not None and NUMBERS in rule.words
            return (numbers and is_number(part)) or any(stands_in(part, one) for one in texts)

        quoted = rule is None or rule.otherwise == "quote"
        if self.handles is not None and NAME.search(text):
            pieces = self._with_values(text, self.handles, is_own, judged=judged)
            return told(pieces, quoted=quoted, read_at=self._read_at)
        if not judged:
            return None
        planned = self._planned(ANSWER, {"answer": text})
        template = None if planned is None else planned.call.arguments.get("answer")
        pieces = divided(text, is_own, template if isinstance(template, str) else None)
        return told(pieces, quoted=quoted, read_at=self._read_at)

    def _with_values(
        self, text: str, handles: Handles, is_own: Callable[[str], bool], *, judged: bool
    ) -> list[AnswerPiece]:
        """An answer in which each name is divided as what it stands for, and the rest where it is judged."""
        pieces: list[AnswerPiece] = []
        at = 0
        for match in [*NAME.finditer(text), None]:
            around = text[at : len(text) if match is None else match.start()]
            pieces += divided(around, is_own) if judged else [AnswerPiece(around, True)]
            if match is not None:
                value, _ = handles.substituted(match[0])
                pieces += divided("" if value is None else str(value), is_own)
                at = match.end()
        return pieces

    def _read_at(self, part: str) -> tuple[str, ...]:
        """Untrusted events in whose text this stands."""
        return tuple(
            name for name in self.flow.sources if name in self._waiting and part in self._waiting[name]
        )[:_SHOWN]

    def plan(self, calls: Iterable[PlannedCall], agent: str, role: str, event: str) -> None:
        """Calls that an agent which has read nothing untrusted says will be made, by an event of its own."""
        self._plan += [
            Grant(call=call, agent=agent, role=role, event=event, times=call.times) for call in calls
        ]

    def planned_by(self, who: Iterable[str], tool: str, args: Mapping[str, Any]) -> Grant | None:
        """The grant by which one of these agents or roles planned a call, with every argument."""
        names = set(who)
        return next(
            (
                one
                for one in self._plan
                if one.times > 0
                and (one.agent in names or one.role in names)
                and one.call.tool == tool
                and is_same(one.call.arguments, args)
            ),
            None,
        )

    def _planned(self, tool: str, args: Mapping[str, Any]) -> Grant | None:
        """The grant of a call; the one that says most of it, of several."""
        found = [
            one
            for one in self._plan
            if one.times > 0
            and one.call.tool == tool
            and all(name in args and _fits(value, args[name]) for name, value in one.call.arguments.items())
        ]
        return max(found, key=lambda one: len(one.call.arguments), default=None)


def _is_number(value: Any) -> bool:
    return is_number(str(value)) and not isinstance(value, bool)


def _fits(planned: Any, given: Any) -> bool:
    return is_same(planned, given) or (is_template(planned) and filled_in(planned, given) is not None)


def _left_open(fixed: Mapping[str, Any], name: str, value: Any) -> Any:
    """What of an argument was not planned."""
    if name not in fixed:
        return value
    planned = fixed[name]
    return [] if is_same(planned, value) else filled_in(planned, value)


def _is_usual(tool: Tool, argument: str, value: Any) -> bool:
    """Whether leaving an argument out comes to the same: then it says nothing."""
    told = tool.schema.get("properties", {}).get(argument, {})
    return "default" in told and is_same(told["default"], value)


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last

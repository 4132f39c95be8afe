"""What agents are called: by whoever names them, by the tool that began them, or by their instruction.

A role is a name that is the same in every session of a program, so that policies and rewards can be given by role; the
agents of one instruction share it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from baton.serve.lineage.askers import HANDS_OVER, Asker, Askers, Site
from baton.serve.lineage.reading import texts

if TYPE_CHECKING:
    from baton.serve.lineage.team import Work

_NAMED = re.compile(
    r"\b(?:agent|assistant|expert|specialist)? ?(?:named|called) ['\"`“]?([A-Za-z][\w-]{1,40})"
)
_YOU_ARE = re.compile(
    r"\b(?:[Yy]ou are|[Yy]ou're|[Aa]ct as)(?: the| a| an)? ((?:[A-Za-z][\w-]*)(?: [A-Za-z][\w-]*){0,3})"
)
_GENERIC = re.compile(
    r"^(?:agent|task|spawn_agent|run_agent|delegate(?:_work|_task)?(?:_to_.*)?|new_task|dispatch_agent|call_agent|"
    r"subagent|sub_agent|ask_question_to_coworker|delegate_work_to_coworker|send_message|sendmessage|send_input)$",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"^(?:ask|call|run|use|invoke|consult|query|delegate_to|ask_the|call_the)_(?:the_)?", re.IGNORECASE
)
_WHOSE = (
    "name",
    "agent_name",
    "agent",
    "coworker",
    "task_name",
    "nickname",
    "description",
    "to",
    "recipient",
)
_KIND = ("subagent_type", "agent_type", "role", "type", "assistant_name")
_STOPS = {
    "who",
    "that",
    "and",
    "with",
    "for",
    "in",
    "of",
    "to",
    "on",
    "at",
    "whose",
    "designed",
    "tasked",
    "helping",
}
_EMPTY = {
    "helpful assistant",
    "assistant",
    "helpful",
    "ai assistant",
    "agent",
    "helpful agent",
    "expert assistant",
}
MAIN = "main"
_HEAD = 600  # characters of an instruction in which it says whom it is for


class Names:
    """Name and role of each life."""

    def __init__(self, askers: Askers) -> None:
        self._askers = askers
        self.name: dict[int, str] = {}
        self.role: dict[int, str | None] = {}

    def give(self, works: list[Work], parents: dict[int, tuple[int | None, str | None]]) -> None:
        for work in works:
            if not work.errand.first:
                continue
            life = self._askers.at(work.errand.life)
            named = life.named
            name = None if named is None else named.name
            role = None if named is None else named.role
            asked = self._asked(work, life)
            by_instruction = self._instructed(life, parents)
            if name is None:
                name = asked[0] or by_instruction or asked[2]
            if role is None:
                role = (
                    (name if named is not None and named.name else None) or asked[1] or by_instruction or name
                )
            if name is None and life.number not in parents:
                name = MAIN
            self.name[life.number] = name or "agent"
            self.role[life.number] = role or self.name[life.number]

    def _instructed(self, life: Asker, parents: dict[int, tuple[int | None, str | None]]) -> str | None:
        """What its instruction calls it, or its task; one that its parent has, too, tells nobody apart."""
        first = self._askers.heard[life.heard[0]]
        named = _NAMED.search(first.system[:_HEAD]) or _NAMED.search(
            " ".join(texts(first.talk, "user"))[:_HEAD]
        )
        if named is not None:
            return named[1]
        above = parents.get(life.number, (None, None))[0]
        own = _who(first.system)
        return None if above is not None and own == _who(self._askers.system(self._askers.at(above))) else own

    def _asked(self, work: Work, life: Asker) -> tuple[str | None, str | None, str | None]:
        """What the tool that began it calls it, its kind, and what the tool itself is called."""
        if work.how == "handover" and life.from_life is not None:
            giver = self._askers.at(life.from_life)
            before = [place for place in giver.heard if place < work.errand.place]
            said = self._askers.heard[before[-1]].said if before else None
            for use in () if said is None else said.uses:
                if found := HANDS_OVER.match(use.name):
                    return found[1], found[1], None
        site = work.errand.site
        return (None, None, None) if site is None else _by_tool(site)


def _by_tool(site: Site) -> tuple[str | None, str | None, str | None]:
    try:
        arguments: Any = json.loads(site.use.arguments)
    except (ValueError, RecursionError):
        arguments = None
    given = arguments if isinstance(arguments, dict) else {}
    name = next(
        (given[key] for key in _WHOSE if isinstance(given.get(key), str) and 0 < len(given[key]) <= 60), None
    )
    kind = next(
        (given[key] for key in _KIND if isinstance(given.get(key), str) and 0 < len(given[key]) <= 60), None
    )
    tool = re.split(r"[/.]|__", site.use.name)[-1] or site.use.name
    if _GENERIC.match(tool):
        return name or _told_name(site) or kind, kind, tool
    own = _PREFIX.sub("", tool) or tool
    return None, None, own


def _told_name(site: Site) -> str | None:
    """The name that a harness gives to whom it began, in the tool's result."""
    try:
        told: Any = None if site.result is None else json.loads(site.result.text)
    except (ValueError, RecursionError):
        return None
    name = told.get("nickname") if isinstance(told, dict) else None
    return name if isinstance(name, str) and name else None


def _who(system: str) -> str | None:
    found = _YOU_ARE.search(system[:_HEAD])
    if found is None:
        return None
    words: list[str] = []
    for word in found[1].split():
        if word.lower() in _STOPS:
            break
        words.append(word)
    name = " ".join(words)
    return None if not name or name.lower() in _EMPTY else name

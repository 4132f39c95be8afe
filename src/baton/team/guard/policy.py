"""A guard's policy: per tool, who may decide on a call and where its arguments may come from.

    [tools.send_money]                     # deny by default: an agent that read what strangers wrote may not call it
    decided_by = "plan"                    # unless an agent that read nothing of theirs planned the call
    arguments.recipient = ["task"]         # and its recipient is named in the task
    arguments.subject = ["any"]
    endorse = ["person"]                   # or a person lets it through

    [tools.read_inbox]
    consequential = false
    trusted = false

    [answer]                               # what the user is told in the team's own words
    words = ["clean", "numbers"]           # stands in trusted texts, or is a number; all else is quoted

Capability-style: an agent has a call because something trusted gave it, never because nothing forbids it. A tool that
acts on the world and that no rule names is refused to everybody (`unnamed`). A tool counts as acting on the world
where it or its rule says so, and where it is not pure and no rule says that it does not.

Invariant: a policy is data. The same one has the same hash, and a name in it that the team does not know is an error.
Source: capabilities and policies per tool as in CaMeL, labels as in FIDES; the words are Baton's.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from baton import registry
from baton.errors import UsageError, nearest
from baton.settings import Positive, check, decode, plain
from baton.team.action import VERBS
from baton.team.guard.handles import HandleRule
from baton.team.guard.sanitisers import sanitiser
from baton.team.tools.tool import Tool

PERSON = "person"
"""Who may endorse and is no agent."""
CLEAN, TASK, ANY, PROSE, NUMBERS = "clean", "task", "any", "prose", "numbers"
"""Where an argument may come from, besides a tool by name: words that nothing untrusted touched; of those the task's
and people's alone; anywhere; anywhere but for addresses (of the web, of mail, of accounts), which must be clean; a
number of up to six digits, wherever it was read or reckoned."""
SOURCES = (CLEAN, TASK, NUMBERS, PROSE, ANY)
ANSWER = "stop"
"""What an answer is called in a plan: {"tool": "stop", "arguments": {"answer": TEMPLATE}}."""


class ToolRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a guard says of one tool."""

    consequential: bool | None = None
    """Whether calls act on the world; None: as the tool says, and of one that is not pure, yes."""
    trusted: bool | None = None
    """Whether results may be believed; None: as the tool says."""
    decided_by: Literal["clean", "plan", "anyone"] = "clean"
    """clean: agents that have read nothing untrusted. plan: besides, whoever carries out what such an agent planned.
    anyone: also an agent that read what strangers wrote; its arguments must still come from where they may."""
    arguments: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Argument -> where its value may come from: clean, task, numbers, prose, any, or tools. Not named: clean."""
    endorse: tuple[str, ...] = ()
    """Who may let a call through that would be refused: person, or agents or roles by name; empty: nobody."""
    always: bool = False
    """Every call has to be endorsed, also those of agents that have read nothing untrusted."""
    roles: tuple[str, ...] = ()
    """Roles that may call it at all; empty: every role that has it."""
    keeps: str | None = None
    """What a call may leave behind for later calls, by a word that such tools share (files, mailbox); empty: nothing.
    None: a pure tool keeps nothing, all others share one place."""
    looks: str | None = None
    """The place whose contents its results show, likewise; None: where it keeps something."""
    sanitise: str | None = None
    """What is left of a result for anybody to read, and may be believed: a sanitiser by name, or module:attr."""
    values: str | None = None
    """What of a result arguments may come from, though the result itself is not believed: a sanitiser likewise."""


class AnswerRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user is told in the team's own words, where the team has read untrusted text."""

    words: tuple[str, ...] = (CLEAN,)
    """Where they may come from: clean, task, numbers, any, or tools by name, as for arguments."""
    otherwise: Literal["quote", "leave-out"] = "quote"
    """What becomes of all other words: shown apart, as quotes with their source, or shown to nobody."""

    def __post_init__(self) -> None:
        if PROSE in self.words:
            raise UsageError(
                f"the guard's answer.words have {PROSE!r}, which are anybody's words. Leave it out, and they are "
                "quoted."
            )


class Guard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A policy, as it is written."""

    about: str = ""
    tools: dict[str, ToolRule] = field(default_factory=dict)
    unnamed: Literal["refuse", "clean", "allow"] = "refuse"
    """Tools that act on the world and that no rule names: nobody may call them, agents that have read nothing
    untrusted may, or everybody may."""
    untrusted: tuple[str, ...] = ()
    """Roles or agents of whom nobody knows for whom they speak: whatever they say is a stranger's word."""
    handles: HandleRule | None = None
    """Untrusted results are kept under names, and readers fill in fields from them; None: they are read as they are."""
    answer: AnswerRule | None = None
    """What the user may be told; None: an answer is not judged, though its event is labelled."""
    clean_verbs: tuple[str, ...] = ()
    """Verbs that only agents may use that have read nothing untrusted, such as spawn and delegate."""
    wait_seconds: Positive = 300.0
    """How long a call waits for its endorsement; then it is refused."""

    def __post_init__(self) -> None:
        for verb in self.clean_verbs:
            if verb not in VERBS:
                raise UsageError(f"the guard's clean_verbs have {verb!r}. {nearest(verb, VERBS)}")
        for name, rule in self.tools.items():
            if not isinstance(rule, ToolRule):
                raise UsageError(
                    f"the guard's tools.{name} is {rule!r}; expected a ToolRule. A policy of plain tables is given as "
                    "one, without Guard: guard={'tools': {...}}"
                )
            if rule.sanitise is not None and rule.trusted is not None:
                raise UsageError(
                    f"the guard's tools.{name} has both sanitise and trusted: what is sanitised is trusted. Leave one "
                    "of them out."
                )
            for argument, sources in rule.arguments.items():
                if not sources:
                    raise UsageError(
                        f"the guard's tools.{name}.arguments.{argument} is empty: nothing could be given. Name where "
                        f"it may come from: {', '.join(SOURCES)} or a tool."
                    )
            if rule.always and not rule.endorse:
                raise UsageError(
                    f"the guard's tools.{name} must always be endorsed, and nobody may. Name somebody: endorse = "
                    f'["{PERSON}"]'
                )

    def rule(self, tool: Tool) -> ToolRule | None:
        """What is said of a tool; None: nothing."""
        return self.tools.get(tool.name)

    @property
    def sanitisers(self) -> list[str]:
        """The sanitisers that it names."""
        return [
            name for rule in self.tools.values() for name in (rule.sanitise, rule.values) if name is not None
        ]

    def is_consequential(self, tool: Tool) -> bool:
        """Whether calls of a tool act on the world."""
        rule = self.rule(tool)
        if rule is not None and rule.consequential is not None:
            return rule.consequential
        return tool.consequential or not tool.pure

    def is_trusted(self, tool: Tool) -> bool:
        """Whether results of a tool may be believed."""
        rule = self.rule(tool)
        if rule is not None and rule.sanitise is not None:
            return True
        return tool.trusted if rule is None or rule.trusted is None else rule.trusted

    def kept_at(self, tool: Tool) -> str:
        """The place where calls of a tool may leave something; empty: none."""
        rule = self.rule(tool)
        if rule is not None and rule.keeps is not None:
            return rule.keeps
        return "" if tool.pure else "world"

    def looked_at(self, tool: Tool) -> str:
        """The place that results of a tool are from; empty: none where a call could have left anything."""
        rule = self.rule(tool)
        return self.kept_at(tool) if rule is None or rule.looks is None else rule.looks

    @property
    def header(self) -> dict[str, Any]:
        """What a trace's header says of it."""
        return {"hash": self.hash, "policy": self.table}

    @cached_property
    def hash(self) -> str:
        """Twelve bytes over the policy."""
        return blake2b(msgspec.json.encode(self.table, order="deterministic"), digest_size=12).hexdigest()

    @cached_property
    def table(self) -> dict[str, Any]:
        """The policy as a table: what a trace keeps, and `guard_of` reads. What is as usual is left out."""
        usual = plain(Guard())
        found = {key: value for key, value in plain(self).items() if key not in usual or value != usual[key]}
        if "tools" in found:
            rule = plain(ToolRule())
            found["tools"] = {
                name: {key: value for key, value in each.items() if key not in rule or value != rule[key]}
                for name, each in found["tools"].items()
            }
        return found

    def check_team(self, tools: Mapping[str, Tool], roles: Mapping[str, Any]) -> None:
        """Refuse a policy that speaks of a tool, an argument or somebody whom this team does not have."""
        for who in self.untrusted:
            if not _may_be(who, roles):
                raise UsageError(f"the guard's untrusted has {who!r}. {nearest(who, roles)}")
        for name in tools:
            if name in SOURCES:
                raise UsageError(
                    f"a tool is named {name!r}, which is a word of guards for where values come from. Give it another "
                    "name: @tool(name=...)"
                )
        if self.handles is not None:
            _check_readers(self.handles, roles)
        if self.answer is not None:
            _check_sources(self.answer.words, "the guard's answer.words", tools)
        for name, rule in self.tools.items():
            if name not in tools:
                raise UsageError(
                    f"the guard has a rule for tool {name!r}, which this team has not. {nearest(name, tools)}"
                )
            for each in (rule.sanitise, rule.values):
                if each is not None:
                    sanitiser(each)
            if not self.is_consequential(tools[name]) and (said := _about_calls(rule)):
                raise UsageError(
                    f"the guard's tools.{name} has {said}, and its calls are not judged, since they do not count as "
                    "acting on the world. Add consequential = true, or leave it out."
                )
            known = tools[name].schema.get("properties", {})
            for argument, sources in rule.arguments.items():
                where = f"the guard's tools.{name}.arguments"
                if argument not in known:
                    raise UsageError(f"{where} have {argument!r}. {nearest(argument, known)}")
                _check_sources(sources, f"{where}.{argument}", tools)
            for role in rule.roles:
                if role not in roles:
                    raise UsageError(f"the guard's tools.{name}.roles have {role!r}. {nearest(role, roles)}")
            for who in rule.endorse:
                if who != PERSON and not _may_be(who, roles):
                    raise UsageError(
                        f"the guard's tools.{name}.endorse has {who!r}. {nearest(who, [PERSON, *roles])}"
                    )
                if who == PERSON and PERSON in roles:
                    raise UsageError(
                        f"the guard's tools.{name}.endorse has {who!r}, and a role of this team is named so. Give the "
                        "role another name."
                    )


def _may_be(who: str, roles: Mapping[str, Any]) -> bool:
    """Whether somebody of this name may be in a team: a role, or an agent, as `worker2` and `manager1.worker2`."""
    role = "|".join(map(re.escape, roles))
    return who in roles or re.fullmatch(rf"(?:{role})[1-9]\d*(?:\.(?:{role})[1-9]\d*)*", who) is not None


def _about_calls(rule: ToolRule) -> str:
    """What a rule says of who may have calls of its tool made, by the name of the setting; empty: nothing."""
    usual = ToolRule()
    names = ("decided_by", "arguments", "endorse", "always")
    return next((name for name in names if getattr(rule, name) != getattr(usual, name)), "")


def _check_readers(rule: HandleRule, roles: Mapping[str, Any]) -> None:
    """A reader returns, and does nothing else: then it can do no harm, whatever it reads."""
    if not rule.readers:
        raise UsageError(
            'the guard\'s handles have no readers. Name a role that only returns: readers = ["reader"]'
        )
    for name in rule.readers:
        if name not in roles:
            raise UsageError(f"the guard's handles.readers have {name!r}. {nearest(name, roles)}")
        role = roles[name]
        if tuple(role.verbs) != ("return",) or role.inherit or role.returns != "summary":
            raise UsageError(
                f"the guard's handles.readers have {name!r}, which may do more than return a summary. Give that role "
                'verbs = ("return",), inherit = False and returns = "summary".'
            )


def _check_sources(sources: Iterable[str], where: str, tools: Mapping[str, Tool]) -> None:
    for source in sources:
        if source not in SOURCES and source not in tools:
            raise UsageError(f"{where} may come from {source!r}. {nearest(source, [*SOURCES, *tools])}")


def guard_of(given: Guard | Mapping[str, Any] | str | Path, *, trust: bool = False) -> Guard:
    """A guard from an object, a table, a TOML file or `module:attr`. What is malformed is one clear line.

    What a file names is imported only with `trust`.
    """
    if isinstance(given, Guard):
        check(given, "the guard")
        return given
    if isinstance(given, Mapping):
        return decode(Guard, given, "the guard")
    if not isinstance(given, str | Path):
        raise UsageError(
            f"the guard is a {type(given).__name__}; expected a Guard, its table, or a path that ends in .toml."
        )
    if isinstance(given, Path) or given.endswith(".toml"):
        guard = decode(Guard, _read(Path(given)), str(given))
        if not trust:
            check_guard_trusted(guard, str(given))
        return guard
    if registry.is_reference(given):
        found = registry.imported("guard", given)
        return guard_of(_made(given, found) if callable(found) else found)
    raise UsageError(f"there is no guard {given!r}. Give a path that ends in .toml, or module:attr.")


def _made(name: str, make: Callable[[], Any]) -> Any:
    """What a function of no arguments gives."""
    try:
        return make()
    except TypeError as error:
        raise UsageError(
            f"guard {name!r} cannot be made: {error}. Name a guard, or a function that gives one."
        ) from None


def check_guard_trusted(
    given: Guard | Mapping[str, Any] | None, whose: str, typed: Sequence[str] = ()
) -> None:
    """Refuse code that a file's guard names and nobody vouched for. `whose` is the file, in words.

    `typed` is what the person wrote in this call: what it names needs no leave.
    """
    if given is None:
        return
    guard = given if isinstance(given, Guard) else decode(Guard, given, whose, "guard")
    registry.check_trusted(
        "sanitiser", [name for name in guard.sanitisers if not any(name in text for text in typed)], whose
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no file {str(path)!r}. Give the path of a guard's .toml.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read as TOML: {error}.") from None

"""Handles: names that stand for what strangers wrote, so that who may act works with it and never reads it.

    [handles]
    readers = ["reader"]        # roles that read, fill in fields, and can do nothing else

Under such a guard an untrusted result is kept under a name, `$assistant#2r`, and the name is all that its caller reads.
A reader is sent for with names and the fields to fill in, each of a kind with bounds:

    spawn reader: who asks for money, and how much? $assistant#2r {"to": "email", "amount": "number"}

It reads the texts and returns JSON. Its return is kept in turn, under the name of the event that sent for it, so that
who sent it reads `$assistant#3.to, $assistant#3.amount`, whatever it said and however often it was asked. A name in a
call's arguments is replaced when the call is made, once, and the call is labelled by what it was filled with. It is
judged as the values are, by where the argument may come from. What a filled call returns is kept too.

Invariant: what an agent that is no reader reads depends on no stranger's word, until something that was filled in is
refused; then the refusal is an event with an edge from it, and its reader is labelled like anybody else.
Source: the dual-LLM pattern (Willison) and CaMeL's quarantined reader; the labels are Baton's.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from baton.settings import Count
from baton.team.action import Forbidden

NAME: Final = re.compile(r"\$([\w.-]+#\d+r?)(?:\.([A-Za-z_]\w*))?")
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")
_KIND: Final = re.compile(r"(string)(?: (\d{1,6}))?|(email|number|date)|choice (\S.*)")
_FIELD: Final = re.compile(r"[A-Za-z_]\w{0,63}")
_MOST_FIELDS: Final = 50
KINDS: Final = "string, string 80, email, number, date, choice a|b|c"


class HandleRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Untrusted results are kept under names, and roles that can do nothing else fill in fields from them."""

    readers: tuple[str, ...] = ()
    """Roles that read what the names stand for; all they may do is to return."""
    longest: Count = 200
    """Letters that a field of the kind string has at most, unless less is asked for."""


class Handles:
    """What is kept under names in one run."""

    def __init__(self, rule: HandleRule) -> None:
        self.rule = rule
        self._whole: dict[str, str] = {}
        self._fields: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, tuple[str, dict[str, str]]] = {}
        """Reader -> the event of its task, and its fields."""
        self._kept_by: dict[str, str] = {}
        """Event of a task -> that of the return, which keeps what was filled in."""

    def keep(self, event: str, text: str) -> str:
        """Keep a text under an event's name; the name."""
        self._whole[event] = text
        return f"${event}"

    def ask(self, task: str) -> tuple[list[tuple[str, str]], dict[str, str]]:
        """What a reader is to read, with the events that keep it, and the fields it is to fill in."""
        schema = _schema(task, self.rule.longest)
        names = list(dict.fromkeys(NAME.findall(task)))
        if not names:
            raise Forbidden("a reader needs something to read: give it a handle, such as $assistant#2r")
        read = [
            (self._kept_by.get(event, event), _text(self._value(event, field, _named(event, field))))
            for event, field in names
        ]
        return read, schema

    def asks(self, reader: str, event: str, schema: Mapping[str, str]) -> None:
        """A reader has got its task, by an event."""
        self._asked[reader] = event, dict(schema)

    def returned(self, reader: str, event: str, said: str) -> str:
        """Keep what a reader filled in; its names, which do not depend on it."""
        task, schema = self._asked[reader]
        self._fields[task], self._kept_by[task] = filled(schema, said, self.rule.longest), event
        return ", ".join(_named(task, field) for field in schema)

    def names_in(self, value: Any) -> list[str]:
        """Events that keep what is named in a value."""
        named = (event for text in _strings(value) for event, _ in NAME.findall(text))
        return list(dict.fromkeys(self._kept_by.get(event, event) for event in named))

    def values_of(self, value: Any) -> list[Any]:
        """What the names in a value stand for, one by one."""
        return [
            self._value(match[1], match[2], match[0])
            for text in _strings(value)
            for match in NAME.finditer(text)
        ]

    def substituted(self, value: Any) -> tuple[Any, bool]:
        """A value with what its names stand for, replaced once, and whether all of them were filled in."""
        whole = True

        def replace(one: Any) -> Any:
            nonlocal whole
            if isinstance(one, dict):
                return {key: replace(each) for key, each in one.items()}
            if isinstance(one, list | tuple):
                return [replace(each) for each in one]
            if not isinstance(one, str):
                return one
            match = NAME.fullmatch(one)
            if match is not None:
                found = self._value(match[1], match[2], one)
                whole = whole and found is not None
                return found
            parts: list[str] = []
            at = 0
            for match in NAME.finditer(one):
                found = self._value(match[1], match[2], match[0])
                whole = whole and found is not None
                parts += [one[at : match.start()], _text(found)]
                at = match.end()
            return "".join([*parts, one[at:]])

        return replace(value), whole

    def _value(self, event: str, field: str | None, name: str) -> Any:
        if field and event in self._fields:
            if field in self._fields[event]:
                return self._fields[event][field]
            raise Forbidden(f"{name} was not asked for; there are: {', '.join(self._fields[event])}")
        if not field and event in self._whole:
            return self._whole[event]
        if event in self._whole:
            raise Forbidden(
                f"{name} has no fields: it is a whole text. Spawn a reader to fill in fields from it"
            )
        raise Forbidden(f"there is no handle {name}")


def _named(event: str, field: str | None) -> str:
    return f"${event}.{field}" if field else f"${event}"


def filled(schema: Mapping[str, str], said: str, longest: int) -> dict[str, Any]:
    """The fields of a reader's JSON that are of their kind; None for all others, and for all of what is no JSON."""
    given: Any = None
    start = said.find("{")
    if start >= 0:
        try:
            given, _ = json.JSONDecoder().raw_decode(said, start)
        except (ValueError, RecursionError):
            given = None
    given = given if isinstance(given, dict) else {}
    return {name: of_kind(kind, given.get(name), longest) for name, kind in schema.items()}


def of_kind(kind: str, value: Any, longest: int) -> Any:
    """A value as a field of this kind has it; None: it is none."""
    match = _KIND.fullmatch(kind)
    assert match is not None, kind
    if match[3] == "number":
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return value if fits and math.isfinite(value) and abs(value) < 10**15 else None
    if not isinstance(value, str):
        return None
    if match[1]:
        most = min(longest, int(match[2] or longest))
        plain = not any(
            unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co") and c not in "\n\t" for c in value
        )
        return value if plain and len(value) <= most else None
    if match[3] == "email":
        return value if _EMAIL.fullmatch(value) else None
    if match[3] == "date":
        return value if _is_date(value) else None
    return value if value in match[4].split("|") else None


def _is_date(value: str) -> bool:
    try:
        return bool(_DATE.fullmatch(value) and value.isascii() and datetime.fromisoformat(value))
    except ValueError:
        return False


def _schema(task: str, longest: int) -> dict[str, str]:
    start = task.find("{")
    try:
        found = json.JSONDecoder().raw_decode(task, start)[0] if start >= 0 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found:
        raise Forbidden(f'a reader needs fields to fill in, as JSON: {{"to": "email"}}. Kinds: {KINDS}')
    for name, kind in found.items():
        if not isinstance(kind, str) or _KIND.fullmatch(kind) is None or not _FIELD.fullmatch(name):
            raise Forbidden(f"a field {name!r} cannot be {kind!r}. Kinds: {KINDS}")
        size = re.fullmatch(r"string (\d+)", kind)
        if size is not None and int(size[1]) > longest:
            raise Forbidden(f"field {name!r} may have {longest} letters at most")
    if len(found) > _MOST_FIELDS:
        raise Forbidden(f"a reader fills in {_MOST_FIELDS} fields at most")
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _strings(value: Any) -> Iterable[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)

"""The small language in which the table of traces is filtered, and what it means in SQL.

    lost shard                     both words in the name, task, topology, place or policy
    task:shard topology=swarm      contains; is
    reward>0.5 tokens<10k took<2m  numbers, with k, M, s, m, h
    when>2026-11-01 when>3h        since a day or moment; in the last three hours
    is:unfinished is:fork stop:budget label:wrong
    regret:none reward:any         not measured; measured
    -topology=swarm, not (a or b)  what does not fit, and either

Invariant: nothing a person types becomes SQL. Columns come from one table, and values are bound.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from msgspec import Struct

from baton.errors import UsageError, nearest

TEXTS: Final = {
    "trace": "id", "place": "place", "task": "task", "instance": "instance", "topology": "topology", "stop": "stop",
    "system": "system", "policy": "policies", "fork": "forked_from", "label": "labels",
}  # fmt: skip
NUMBERS: Final = {
    "reward": "reward", "regret": "regret", "success": "success", "tokens": "tokens", "price": "price",
    "took": "seconds", "agents": "agents", "events": "events", "step": "step", "when": "changed",
}  # fmt: skip
COLUMNS: Final = TEXTS | NUMBERS
"""What a person calls a column, and what the index does."""
STATES: Final = {
    "finished": "finished = 1",
    "unfinished": "finished = 0",
    "fork": "forked_from IS NOT NULL",
    "estimated": "estimated = 1",
    "noted": "labels IS NOT NULL",
}
_WORDS = ("id", "instance", "task", "topology", "place", "policies")
_TOKEN = re.compile(r'\s*(?:([()])|(-)(?=\S)|((?:"[^"]*(?:"|$)|[^\s()"])+))')
_FIELD = re.compile(r"(\w+)(:|<=|>=|!=|=|<|>)(.*)", re.DOTALL)
_NUMBER = re.compile(r"(-?(?:\d+(?:\.\d*)?|\.\d+)(?:e-?\d+)?)\s*([a-zµ]*)", re.IGNORECASE)
_TIMES = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "ms": 0.001}
_SIZES = {"k": 1e3, "m": 1e6, "g": 1e9}
_MOST_CHARACTERS = 2000
_MOST_NESTED = 40


class Condition(Struct, frozen=True):
    """A condition on lines: SQL, and the values bound in it."""

    sql: str
    values: tuple[str | float, ...] = ()


EVERYTHING: Final = Condition("1")


def condition(text: str, now: Callable[[], float] = time.time) -> Condition:
    """What a query means. Raises `UsageError` with what was given, what was expected and what to type."""
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"the query has {len(text):,} characters; expected at most {_MOST_CHARACTERS:,}.")
    return _Reader(text, now()).read()


class _Reader:
    """One pass over the words of a query: `or` of `and` of terms."""

    def __init__(self, text: str, now: float) -> None:
        self._words = _split(text)
        self._at = 0
        self._now = now
        self._depth = 0

    def read(self) -> Condition:
        if not self._words:
            return EVERYTHING
        found = self._either()
        if self._at < len(self._words):
            raise UsageError("the query has a ) that closes nothing.")
        return found

    def _next(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def _either(self) -> Condition:
        parts = [self._all()]
        while (self._next() or "").lower() == "or":
            self._at += 1
            parts.append(self._all())
        return _joined(" OR ", parts)

    def _all(self) -> Condition:
        parts: list[Condition] = []
        while (word := self._next()) is not None and word != ")" and word.lower() != "or":
            if word.lower() == "and" and parts:
                self._at += 1
                continue
            parts.append(self._one())
        if not parts:
            raise UsageError("the query needs a word on either side of `or`, and inside of ( ).")
        return _joined(" AND ", parts)

    def _one(self) -> Condition:
        word = self._next()
        self._at += 1
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise UsageError(f"the query is nested more than {_MOST_NESTED} deep.")
        try:
            if word is None:
                raise UsageError("the query ends where a word was expected.")
            if word in ("-", "not", "NOT"):
                inner = self._one()
                return Condition(f"NOT ifnull({inner.sql}, 0)", inner.values)
            if word == "(":
                found = self._either()
                if self._next() != ")":
                    raise UsageError("the query has a ( that is not closed.")
                self._at += 1
                return found
            return _term(word, self._now)
        finally:
            self._depth -= 1


def _split(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:  # a lone quotation mark
            raise UsageError(f"the query cannot be read from {text[at : at + 20]!r} on.")
        found.append(match[1] or match[2] or match[3])
        at = match.end()
    return found


def _joined(between: str, parts: list[Condition]) -> Condition:
    if len(parts) == 1:
        return parts[0]
    values = tuple(value for part in parts for value in part.values)
    return Condition(f"({between.join(part.sql for part in parts)})", values)


def _term(word: str, now: float) -> Condition:
    match = _FIELD.fullmatch(word)
    if match is None:
        return _anywhere(_unquoted(word))
    name, sign, text = match[1].lower(), match[2], _unquoted(match[3])
    if name == "is":
        if text not in STATES:
            raise UsageError(f"no trace is {text[:40]!r}. {nearest(text, STATES)}")
        return Condition(STATES[text])
    if name not in COLUMNS:
        if sign == ":" and not get_close_matches(name, [*COLUMNS, "is"], cutoff=0.75):
            return _anywhere(_unquoted(word))  # a name with a colon in it: game:parallel-pandora
        raise UsageError(
            f"there is no column {name[:40]!r} to filter by. {nearest(name, [*COLUMNS, 'is'])} "
            f'To look for the words themselves: "{word[:40]}"'
        )
    column = COLUMNS[name]
    if sign in (":", "=") and text in ("none", "any"):
        return Condition(f"{column} IS {'NOT ' if text == 'any' else ''}NULL")
    if not text:
        raise UsageError(f"{name}{sign} needs a value: {name}{sign}{'1' if name in NUMBERS else 'word'}")
    if name in TEXTS:
        return _text(name, column, sign, text)
    return _number(name, column, sign, text, now)


def _anywhere(text: str) -> Condition:
    return _in_any("instr(fold({}), ?)", _WORDS, text.casefold())


def _in_any(form: str, columns: Sequence[str], value: str) -> Condition:
    """That it holds of one of these columns."""
    looked = " OR ".join(form.format(column) for column in columns)
    return Condition(f"({looked})", (value,) * len(columns))


def _text(name: str, column: str, sign: str, text: str) -> Condition:
    if name == "label" and sign in ("=", "!="):  # a trace may have several
        inner = Condition(f"instr(char(10) || {column} || char(10), char(10) || ? || char(10))", (text,))
        return inner if sign == "=" else Condition(f"NOT ifnull({inner.sql}, 0)", inner.values)
    columns = (
        (column, "instance") if name == "task" else (column,)
    )  # an instance is found under its task's column too
    if sign == ":":
        return _in_any("instr(fold({}), ?)", columns, text.casefold())
    if sign == "=":
        return _in_any("{} = ?", columns, text)
    if sign == "!=":
        inner = _in_any("{} = ?", columns, text)
        return Condition(f"NOT ifnull({inner.sql}, 0)", inner.values)
    raise UsageError(f"{name} is text, which is not {sign} anything. Type: {name}:{text} or {name}={text}")


def _number(name: str, column: str, sign: str, text: str, now: float) -> Condition:
    value = _moment(text, now) if name == "when" else _value(name, text)
    return Condition(f"{column} {'=' if sign == ':' else sign} ?", (value,))


def _value(name: str, text: str) -> float:
    match = _NUMBER.fullmatch(text)
    units = _TIMES if name == "took" else _SIZES
    unit = "" if match is None else match[2].lower()
    if match is None or (unit and unit not in units):
        example = "2m" if name == "took" else "1.5 or 10k"
        raise UsageError(f"{name} was compared with {text[:40]!r}; expected a number such as {example}.")
    return float(match[1]) * units.get(unit, 1.0)


def _moment(text: str, now: float) -> float:
    """A day, a moment, or how long ago."""
    match = _NUMBER.fullmatch(text)
    if match is not None and match[2].lower() in _TIMES:
        return now - float(match[1]) * _TIMES[match[2].lower()]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"when was compared with {text[:40]!r}; expected a day (2026-11-18), a moment (2026-11-18T09:30) or how "
            "long ago (30m, 2h, 3d)."
        ) from None


def _unquoted(text: str) -> str:
    return text.replace('"', "")

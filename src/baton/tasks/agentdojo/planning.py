"""What a scripted agent plans before it reads what strangers wrote: the calls that act, with what it knows of them.

It knows an argument where its value stands in the user's words or in results that can be trusted, in capitals or not
and with whatever sticks to it, or where the user's words give a template for it ("Hotel: {hotel_name}"). The rest it
leaves open. Where the user says no more than to do whatever some text says, it plans nothing: what is asked for stands
in no word that it has read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from baton.tasks.agentdojo.labels import ACTS, TRUSTED
from baton.tasks.agentdojo.world import Made
from baton.team.guard.templates import filled_in
from baton.team.protocol import Entry
from baton.team.tools.plan import PLAN

WHATEVER_IT_SAYS: Final[dict[str, frozenset[str]]] = {
    "workspace": frozenset({"user_task_13", "user_task_19"}),
    "banking": frozenset({"user_task_12"}),
    "slack": frozenset({"user_task_18", "user_task_19"}),
}
"""Suite -> user tasks that ask to do whatever a mail, a file or a page says."""
NEVER_LOOKED_UP: Final[dict[tuple[str, str], Made]] = {
    ("travel", "user_task_5"): Made("get_hotels_address", {"hotel_name": "Cozy Stay"}),
}
"""(suite, user task) -> a call that the suite's own plan lacks: it ends with an address that none has shown."""
_TEMPLATE: Final = re.compile(r"[\"']([^\"'\n]*\{\w+\}[^\"'\n]*)[\"']")


def with_plan(suite: str, task: str, calls: Sequence[Made], entries: Sequence[Entry]) -> list[Made]:
    """The calls with the plan among them: just before the first that reads what strangers wrote."""
    first = next((k for k, call in enumerate(calls) if call.tool not in TRUSTED[suite]), None)
    acting = [call for call in calls if call.tool in ACTS[suite]]
    if first is None or not acting or task in WHATEVER_IT_SAYS.get(suite, ()):
        return list(calls)
    known = _heard_before(first, entries)
    planned = [{"tool": call.tool, "arguments": known_arguments(call.args, known)} for call in acting]
    return [*calls[:first], Made(PLAN, {"calls": planned}), *calls[first:]]


def _heard_before(turns: int, entries: Sequence[Entry]) -> list[str]:
    """What an agent had read when it had taken so many turns."""
    heard: list[str] = []
    for entry in entries[1:]:
        if entry.speaker == "assistant":
            turns -= 1
            if turns < 0:
                break
        else:
            heard.append(entry.text)
    return heard


def known_arguments(args: dict[str, Any], texts: Sequence[str], *, templates: bool = True) -> dict[str, Any]:
    """The arguments that can be said already, as they are or as templates."""
    small = [text.casefold() for text in texts]
    usable = [found for text in texts for found in _TEMPLATE.findall(text)] if templates else []
    known: dict[str, Any] = {}
    for name, value in args.items():
        fitting = next((each for each in usable if filled_in(each, value) is not None), None)
        if fitting is not None:
            known[name] = fitting
        elif all(any(part in text for text in small) for part in parts(value)):
            known[name] = value
    return known


def parts(value: Any, *, choices: bool = True) -> list[str]:
    """The strings and numbers of a value, in small letters. A truth value is a choice, which no text has."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [part for each in value for part in parts(each, choices=choices)]
    if isinstance(value, bool):
        return ["\x00"] if choices else []
    return [f"{value:g}" if isinstance(value, float) else str(value).casefold()]

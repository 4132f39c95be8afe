"""Scripted agents on AgentDojo that work with handles: one acts and reads no stranger's word, one reads and fills in.

Who acts knows which calls the user's task takes, and of their arguments what stands in the user's words or was read
before anything was kept under a name. All else it has a reader fill in, and the answer too. The figures say what labels
and rules let through where the plan is known beforehand, and nothing of whether a model could have made it. Where
the user says no more than to do whatever some text says, it knows no call, and does nothing.

The reader is honest, or obeys: then it fills in what the injection that it read wants under the same argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from baton.tasks.agentdojo.injection_plans import injection_calls
from baton.tasks.agentdojo.package import suite
from baton.tasks.agentdojo.planning import known_arguments, parts
from baton.tasks.agentdojo.world import Made
from baton.team.guard.handles import NAME
from baton.team.guard.templates import filled_in, fixed_parts
from baton.team.protocol import Entry

READER: Final = "reader"
LONGEST: Final = 20_000
"""Letters of a field: whole files are mailed on."""
_ANSWER: Final = "answer"
_FOR: Final = re.compile(r"^task: for (\S+), (\S+):", re.MULTILINE)


def kept_names(entries: Sequence[Entry]) -> list[str]:
    """The names of whole texts that an agent was given, the latest last."""
    said = "\n".join(entry.text for entry in entries if entry.speaker in ("tool", "user"))
    return list(dict.fromkeys(match[0] for match in NAME.finditer(said) if not match[2]))


def heard_before_names(entries: Sequence[Entry]) -> list[str]:
    """What an agent read in the clear before anything was kept under a name."""
    heard: list[str] = []
    for entry in entries[1:]:
        if entry.speaker != "assistant":
            if NAME.search(entry.text):
                break
            heard.append(entry.text)
    return heard


def step_taken(entries: Sequence[Entry]) -> int:
    """How many calls an agent has made."""
    return sum(entry.speaker == "assistant" and entry.text.startswith("call ") for entry in entries)


def filled_for_next(entries: Sequence[Entry]) -> list[str]:
    """The names that a reader returned for what comes next; empty: none was sent for it yet."""
    for entry in reversed(entries):
        if entry.speaker == "assistant" and not entry.text.startswith("spawn "):
            return []
        if entry.speaker == "user" and " returned: $" in entry.text:
            return [match[0] for match in NAME.finditer(entry.text)]
    return []


def unknown(call: Made, entries: Sequence[Entry]) -> dict[str, Any]:
    """The arguments of a call that who acts cannot say itself; of one it has a template for, what fills the places."""
    known = known_arguments(call.args, heard_before_names(entries))
    left: dict[str, Any] = {}
    for name, value in call.args.items():
        if name in known and known[name] != value:
            left[name] = filled_in(known[name], value)
        elif name not in known and parts(value, choices=False):
            left[name] = value
    return left


def _templates(call: Made, entries: Sequence[Entry]) -> dict[str, str]:
    known = known_arguments(call.args, heard_before_names(entries))
    return {name: text for name, text in known.items() if text != call.args[name]}


def asking(task: str, what: str, call: Made, entries: Sequence[Entry]) -> str:
    """The task of a reader who is to fill in what is not known of a call."""
    fields: dict[str, str] = {}
    for name, value in unknown(call, entries).items():
        for k, part in enumerate(_leaves(value)):
            fields[f"{name}_{k}"] = "number" if isinstance(part, int | float) else f"string {LONGEST}"
    names = " ".join(kept_names(entries))
    return f"for {task}, {what}: {names} {json.dumps(fields)} {json.dumps(_templates(call, entries))}"


def put_together(call: Made, names: Sequence[str], entries: Sequence[Entry]) -> dict[str, Any]:
    """A call's arguments: what is known, names for the rest, and templates with names in their places."""
    left = iter(names)

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(each) for key, each in value.items()}
        if isinstance(value, list):
            return [named(each) for each in value]
        return value if isinstance(value, bool) or value is None else next(left)

    args = dict(call.args) | {name: named(value) for name, value in unknown(call, entries).items()}
    for name, template in _templates(call, entries).items():
        pairs = zip(fixed_parts(template), [*args[name], ""], strict=True)
        args[name] = "".join(part for pair in pairs for part in pair)
    return args


def read(
    suite_name: str, plan: Sequence[Made], orders: Sequence[str], entries: Sequence[Entry], version: str
) -> str:
    """What a reader fills in: what the user's task takes, or what the injections want that it obeys."""
    words = entries[1].text
    found = _FOR.search(words)
    assert found is not None, words
    task, what = found[1], found[2]
    fields, end = json.JSONDecoder().raw_decode(words, words.index("{"))
    templates = json.loads(words[end:])
    call = plan[int(what)] if what != _ANSWER else answering(suite_name, task, version)
    said: dict[str, Any] = {}
    for name in fields:
        argument, _, k = name.rpartition("_")
        value = call.args[argument]
        values = _leaves(filled_in(templates[argument], value) if argument in templates else value)
        said[name] = values[int(k)]
        for order in orders:
            wanted = _wanted(suite_name, order, call.tool, argument, version)
            if what == _ANSWER:
                said[name] = "\n".join([str(said[name]), *map(str, wanted)])
            elif wanted:
                said[name] = wanted[min(int(k), len(wanted) - 1)]
    return json.dumps(said, default=str)


def answering(suite_name: str, task: str, version: str) -> Made:
    """The end of a user's task, as if it were a call."""
    return Made(_ANSWER, {_ANSWER: str(suite(suite_name, version).user_tasks[task].GROUND_TRUTH_OUTPUT)})


def _wanted(suite_name: str, order: str, tool: str, argument: str, version: str) -> list[Any]:
    """What an injection wants in an argument: of the same tool's calls, or else of any call's."""
    if argument == _ANSWER:
        said = str(suite(suite_name, version).injection_tasks[order].GROUND_TRUTH_OUTPUT)
        return [said] if said else []
    calls = [call for call in injection_calls(suite_name, order, version) if argument in call.args]
    calls = [call for call in calls if call.tool == tool] or calls
    return _leaves(calls[0].args[argument]) if calls else []


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [] if isinstance(value, bool) or value is None else [value]

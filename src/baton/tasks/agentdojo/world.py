"""A world of AgentDojo: the simulated environment of one user task, with or without an injection, and its verdicts.

Invariant: what a world holds is a function of the pair and of the calls made in it, in their order. AgentDojo stamps
mail and files with the time of day; here time stands still, so that the same calls leave the same world and say the
same words. That is what lets a verdict be read off a trace: its calls are made once more in a fresh world.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final

import yaml
from msgspec import Struct

from baton.tasks.agentdojo.package import VERSION, module, suite

_NOW: Final = datetime(2024, 5, 15, 12, 0)
"""When mail is sent, on the day that the suites call today."""


class Pair(Struct, frozen=True, kw_only=True):
    """A user task, and the injection that strangers planted beside it."""

    suite: str
    user_task: str
    injection_task: str | None = None
    version: str = VERSION

    @property
    def user(self) -> Any:
        """The user task, as the package has it."""
        return suite(self.suite, self.version).user_tasks[self.user_task]

    @property
    def injection(self) -> Any:
        """The injection, as the package has it; None: there is none."""
        if self.injection_task is None:
            return None
        return suite(self.suite, self.version).injection_tasks[self.injection_task]


class Made(Struct, frozen=True):
    """A call that was made in a world."""

    tool: str
    args: dict[str, Any]


class World:
    """The environment as it is now, and as it was at first."""

    def __init__(self, pair: Pair, planted: Mapping[str, str] | None = None) -> None:
        """`planted`: place -> what strangers wrote there; other places have what the suite has there."""
        self.pair = pair
        self._suite = suite(pair.suite, pair.version)
        environment = pickle.loads(_environment(pair.suite, pair.version, tuple((planted or {}).items())))
        self.now = pair.user.init_environment(environment)
        self.before = _copy(self.now)
        self._runtime = module("functions_runtime").FunctionsRuntime(self._suite.tools)

    def call(self, tool: str, args: Mapping[str, Any]) -> tuple[str, bool]:
        """Make a call: what it says, and whether it was carried out."""
        stamps = self._stamps()
        result, error = self._runtime.run_function(self.now, tool, dict(args))
        for where, (thing, stamp) in self._stamps().items():
            if where not in stamps or stamps[where][1] != stamp:
                setattr(thing, where[0], _NOW)
        if error is not None:
            return error, False
        return str(module("agent_pipeline.tool_execution").tool_result_to_str(result)), True

    def _stamps(self) -> dict[tuple[str, str], tuple[Any, Any]]:
        """(field, id) -> what has a time of day, and which."""
        mail = getattr(getattr(self.now, "inbox", None), "emails", {})
        files = getattr(getattr(self.now, "cloud_drive", None), "files", {})
        return {("timestamp", name): (each, each.timestamp) for name, each in mail.items()} | {
            ("last_modified", name): (each, each.last_modified) for name, each in files.items()
        }

    def utility(self, answer: str, made: Sequence[Made]) -> bool:
        """Whether the user's task was carried out, by the suite's own check."""
        task, before, after = self.pair.user, _copy(self.before), _copy(self.now)
        seen = task.utility_from_traces(answer, before, after, _calls(made))
        return bool(task.utility(answer, before, after) if seen is None else seen)

    def achieved(self, answer: str, made: Sequence[Made]) -> bool:
        """Whether the injection's aim was achieved, by the suite's own check."""
        task, before, after = self.pair.injection, _copy(self.before), _copy(self.now)
        if task is None:
            return False
        seen = task.security_from_traces(answer, before, after, _calls(made))
        return bool(task.security(answer, before, after) if seen is None else seen)


def _copy(environment: Any) -> Any:
    return pickle.loads(pickle.dumps(environment))  # a quarter of the time of a deep copy


def _calls(made: Sequence[Made]) -> list[Any]:
    kind = module("functions_runtime").FunctionCall
    return [kind(function=call.tool, args=call.args) for call in made]


def _token(place: str) -> str:
    """What stands for a place while the suite's text is read: plain letters, whatever quotes are around it."""
    return f"BATONPLACE{place}BATONEND"


@cache
def _read(name: str, version: str) -> tuple[Any, dict[str, str]]:
    """The suite's data with a token in every place that strangers write to, and what the suite has there."""
    found = suite(name, version)
    defaults: dict[str, str] = found.get_injection_vector_defaults()
    text = module("task_suite.task_suite").read_suite_file(name, "environment.yaml", found.data_path)
    tokens = {place: _token(place) for place in defaults}
    return yaml.safe_load(text.format(**tokens)), defaults


def places(name: str, version: str = VERSION) -> tuple[str, ...]:
    """Where strangers can write in a suite."""
    return tuple(_read(name, version)[1])


@lru_cache(16)
def _environment(name: str, version: str, planted: tuple[tuple[str, str], ...]) -> bytes:
    """The environment, pickled: to read it back takes a tenth of the time that it takes to make one."""
    data, defaults = _read(name, version)
    texts = {_token(place): text for place, text in {**defaults, **dict(planted)}.items()}
    return pickle.dumps(suite(name, version).environment_type.model_validate(_filled(data, texts)))


def _filled(data: Any, texts: Mapping[str, str]) -> Any:
    """The same data with other texts for the tokens: they are data, so no quote or brace in them does anything."""
    if isinstance(data, str):
        if "BATONPLACE" in data:
            for token, text in texts.items():
                data = data.replace(token, text)
        return data
    if isinstance(data, dict):
        return {_filled(key, texts): _filled(value, texts) for key, value in data.items()}
    if isinstance(data, list):
        return [_filled(value, texts) for value in data]
    return data


def gold_calls(pair: Pair) -> list[Made]:
    """The suite's own plan for the user task."""
    return [Made(call.function, dict(call.args)) for call in pair.user.ground_truth(World(pair).now)]


@cache
def seen_places(name: str, user_task: str, version: str = VERSION) -> tuple[str, ...]:
    """The places that whoever follows the plan of a user task reads."""
    pair = Pair(suite=name, user_task=user_task, version=version)
    world = World(pair, {place: f"CANARY{k}END" for k, place in enumerate(places(name, version))})
    said = "\n".join(world.call(call.tool, call.args)[0] for call in gold_calls(pair))
    return tuple(place for k, place in enumerate(places(name, version)) if f"CANARY{k}END" in said)

"""Checks of tools, aggregators and surfaces: does your own keep the contract the runtime relies on?

A check returns nothing when all is well and raises CheckFailed with what was expected and what came.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from baton.errors import BatonError
from baton.team.action import (
    VERBS,
    Action,
    Aggregate,
    CallTool,
    Cancel,
    Delegate,
    Return,
    Send,
    Spawn,
    Stop,
    Wait,
)
from baton.team.aggregate import AGGREGATORS, AggregateError, Aggregator, Claim, Fused, make_aggregators
from baton.team.surface import ParseError, Surface
from baton.team.team import Team
from baton.team.tools.tool import Tool, ToolOutcome, invoke


class CheckFailed(BatonError, AssertionError):
    """An extension does not keep its contract."""


def require(condition: object, message: str) -> None:
    """Raise unless the condition holds; unlike assert, also under `python -O`."""
    if not condition:
        raise CheckFailed(message)


def check_tool(tool: Tool, *examples: Mapping[str, Any]) -> None:
    """`examples` are arguments it must accept. One that is not pure acts on the world: it is called once for each."""
    require(
        isinstance(tool, Tool), f"expected a Tool, got {type(tool).__name__}. Decorate the function: @tool"
    )
    require(
        tool.description.strip(), f"tool {tool.name!r} has no docstring; a model knows it by nothing else."
    )
    try:
        msgspec.json.encode(tool.schema)
    except (TypeError, msgspec.MsgspecError) as error:
        raise CheckFailed(f"tool {tool.name!r}: its schema is not JSON ({error}).") from error
    asyncio.run(_check_calls(tool, examples))


async def _check_calls(tool: Tool, examples: Sequence[Mapping[str, Any]]) -> None:
    wrong = await invoke(tool, {"no such argument": 0}, idempotency_key="check/wrong")
    require(
        wrong.error == "arguments",
        f"tool {tool.name!r}: expected an unknown argument to be refused as such, got {wrong.text!r}.",
    )
    for number, arguments in enumerate(examples):
        key = f"check/{number}"
        outcome = await invoke(tool, arguments, idempotency_key=key)
        shown = f"tool {tool.name!r} with {dict(arguments)}"
        require(outcome.ok, f"{shown}: expected a result, got {outcome.text!r}.")
        require(not outcome.truncated, f"{shown}: the result is longer than {tool.max_output_bytes} bytes.")
        if tool.pure or tool.idempotent:
            again = await invoke(tool, arguments, idempotency_key=key)
            _same_outcome(shown, outcome, again, "pure" if tool.pure else "idempotent")


def _same_outcome(shown: str, first: ToolOutcome, again: ToolOutcome, flag: str) -> None:
    require(
        (again.ok, again.text) == (first.ok, first.text),
        f"{shown}: it is marked {flag}, so the same result was expected twice; "
        f"got {first.text!r}, then {again.text!r}.",
    )


_TEXTS = (("1", "1", "2"), ("2",), ("7", "7"), ('{"a": 1}', '{"b": 2}'), ("", "x\ny", "é"))


def check_aggregator(aggregator: Aggregator, params: Mapping[str, Any] | None = None) -> None:
    """Fuses or refuses, never crashes; the same claims give the same result; a weight for each claim."""
    name = aggregator.name
    require(isinstance(name, str) and name, f"expected a name, got {name!r}.")
    if name not in AGGREGATORS:
        require(
            make_aggregators([aggregator])[name] is aggregator,
            f"{name}: a team that is given it does not have it.",
        )
    require(isinstance(aggregator.pure, bool), f"{name}: expected pure to be True or False.")
    params = params or {}
    fused = 0
    for texts in _TEXTS:
        claims = [
            Claim(agent=f"worker{k}", text=text, confidence=0.8, weight=1.0)
            for k, text in enumerate(texts, 1)
        ]
        result = _fuse(aggregator, claims, params)
        fused += result is not None
        if result is not None:
            _check_fused(name, claims, result)
            require(
                _fuse(aggregator, list(claims), params) == result,
                f"{name}: the same claims {list(texts)} were fused in two ways. Draw from nothing but the claims.",
            )
    require(fused, f"{name}: it refused every one of {len(_TEXTS)} sets of claims; expected it to fuse some.")
    require(
        _fuse(aggregator, [], params) is None, f"{name}: expected AggregateError where there are no claims."
    )
    require(
        _fuse(aggregator, [Claim("worker1", "1", 0.8, 1.0)], {"no such parameter": 1}) is None,
        f"{name}: expected AggregateError for a parameter it does not have.",
    )


def _fuse(aggregator: Aggregator, claims: Sequence[Claim], params: Mapping[str, Any]) -> Fused | None:
    try:
        return aggregator.fuse(claims, params)
    except AggregateError:
        return None
    except Exception as error:
        raise CheckFailed(
            f"{aggregator.name}: {[claim.text for claim in claims]} raised {type(error).__name__}: {error}; "
            "expected a Fused, or AggregateError where they cannot be fused."
        ) from error


def _check_fused(name: str, claims: Sequence[Claim], result: Fused) -> None:
    require(isinstance(result, Fused), f"{name}: expected a Fused, got {type(result).__name__}.")
    require(isinstance(result.text, str), f"{name}: expected text, got {type(result.text).__name__}.")
    require(
        len(result.weights) == len(claims) and all(map(math.isfinite, result.weights)),
        f"{name}: expected {len(claims)} finite weights, one for each claim; got {result.weights}.",
    )
    try:
        msgspec.json.encode(result.detail)
    except (TypeError, msgspec.MsgspecError) as error:
        raise CheckFailed(f"{name}: its detail goes into the trace, and is not JSON ({error}).") from error


_SAYINGS = (
    "plain words", "", " space around ", "two\nlines", '"quoted"', '{"json": [1]}', "stop 42", "wait, no", "é 漢 🙂",
    "a: b, c", "\\", "```", "</tool_call>", "null", "\t",
)  # fmt: skip
_NAMES = ("worker1", "lead1.worker2", "two words", "any", "a:b", 'quo"te', "é", "stop")
_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"q": 1},
    {"q": "line\nbreak", "deep": {"list": [1, None, True, 2.5]}},
)


def check_surface(surface: Surface, tools: Sequence[Tool] = ()) -> None:
    """What is rendered parses back exactly; what makes no sense is an error, and never an exception."""
    require(isinstance(surface.name, str) and surface.name, f"expected a name, got {surface.name!r}.")
    every = frozenset(VERBS)
    for action in _actions():
        text = surface.render(action)
        items = _parse(surface, text, every)
        require(
            [getattr(item, "action", None) for item in items] == [action],
            f"{surface.name}: {action} is rendered as {text!r} and parsed as {items}; expected it back.",
        )
        verb = type(action).__struct_config__.tag
        (item, *_) = _parse(surface, text, every - {str(verb)})
        require(
            isinstance(item, ParseError), f"{surface.name}: {text!r} was parsed where {verb} is not allowed."
        )
    random = Random(0)
    rendered = [surface.render(action) for action in _actions()]
    for _ in range(500):
        _parse(surface, _garbled(random, rendered), every)
    for verbs in (every, frozenset({"return"})):
        require(
            surface.describe(verbs, tools).strip(), f"{surface.name}: nothing is said of {sorted(verbs)}."
        )
        for verb in verbs - {"call"}:
            require(
                verb in surface.describe(verbs, tools), f"{surface.name}: the help does not name {verb!r}."
            )
        msgspec.json.encode(surface.schemas(verbs, ("worker",), tools))
    team = Team.of("centralized", lambda _: "", surface=surface, tools=tools)
    require(team.harness.surface is surface, f"{surface.name}: a team that is given it does not speak it.")


def _actions() -> list[Action]:
    found: list[Action] = []
    for say in _SAYINGS:
        found += [
            Return(say),
            Stop(say),
            Spawn("worker", say),
            Delegate("worker1", say),
            Send("worker1", say),
        ]
    for name in _NAMES:
        found += [Send(name, "x"), Cancel((name,)), Wait((name, "b"), "any"), Aggregate("first", (name,))]
    found += [CallTool("search", arguments) for arguments in _ARGUMENTS]
    found += [Wait(), Wait(mode="any"), Wait(("a",)), Aggregate("majority"), Cancel(("a", "b"))]
    return found


def _garbled(random: Random, rendered: Sequence[str]) -> str:
    """Something like an answer, cut and joined at random, with characters thrown in."""
    text = "\n".join(random.choices(rendered, k=3))
    start = random.randrange(len(text))
    noise = "".join(random.choices('{}[]"\\<>:,\n \x00é🙂`stopwait', k=random.randrange(6)))
    return text[:start] + noise + text[start + random.randrange(20) :]


def _parse(surface: Surface, text: str, verbs: frozenset[str]) -> list[Any]:
    try:
        items = surface.parse(text, verbs)
    except Exception as error:
        raise CheckFailed(f"{surface.name}: {text!r} raised {type(error).__name__}: {error}.") from error
    require(items, f"{surface.name}: {text!r} gave nothing; expected an action or a ParseError.")
    at = 0
    for item in items:
        require(
            at <= item.start <= item.end <= len(text),
            f"{surface.name}: {text!r}: expected spans inside the text, in order, apart; got {items}.",
        )
        at = item.end
    return list(items)

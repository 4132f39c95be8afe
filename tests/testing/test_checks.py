"""Each check passes what Baton ships and names what is wrong with what is broken."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec import structs

from baton.engine.scripted import ScriptedEngine
from baton.engine.table import TableEngine
from baton.errors import BatonError
from baton.tasks.shard_sum import ShardSum
from baton.tasks.task import Instance
from baton.team.action import Action
from baton.team.agent import Agent, Role
from baton.team.aggregate import AGGREGATORS, Claim, Fused, Majority
from baton.team.protocol import Answer, EngineError, Entry, Request
from baton.team.surface import Lines, Parsed, ParseError, Tools
from baton.team.team import Topology
from baton.team.tools.sandbox import python_tool
from baton.team.tools.tool import tool
from baton.team.topology import TOPOLOGIES, make_topology
from baton.testing import (
    CheckFailed,
    check_aggregator,
    check_engine,
    check_surface,
    check_task,
    check_tool,
    check_topology,
)
from baton.trace.records import Floats, Ints


def test_a_failed_check_is_both_an_assertion_and_an_error_of_baton() -> None:
    assert issubclass(CheckFailed, AssertionError)
    assert issubclass(CheckFailed, BatonError)


# -- engines ----------------------------------------------------------------------------------------


def test_engines_that_ship_conform() -> None:
    check_engine(ScriptedEngine("fixed", lambda _: "stop 42"))
    check_engine(ScriptedEngine("echo", lambda request: request.entries[-1].text))
    check_engine(TableEngine())
    check_engine(TableEngine(epsilon=0.2))


def test_the_torch_engine_conforms() -> None:
    from tiny_model import tiny_model, tiny_tokenizer

    from baton.engine.torch import TorchEngine

    check_engine(TorchEngine(tiny_model(), tiny_tokenizer()), options=None)


class Broken(ScriptedEngine):
    """A good engine, with its answers changed."""

    def __init__(self, change: Callable[[Request, Answer], Any]) -> None:
        super().__init__("broken", lambda request: f"stop {request.sampling.key}")
        self._change = change

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        given = await super().answer(requests)
        return [self._change(r, a) for r, a in zip(requests, given, strict=True) if isinstance(a, Answer)]


COUNT = itertools.count()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _, a: structs.replace(a, policy_version=str(next(COUNT))), "expected the same answer"),
        (lambda _, a: structs.replace(a, logprobs=Floats([0.5] * len(a.completion_ids))), "at most 0"),
        (lambda _, a: structs.replace(a, logprobs=a.logprobs[:-1]), "expected logprobs for each"),
        (lambda _, a: structs.replace(a, token_ends=Ints([999] * len(a.completion_ids))), "inside the text"),
        (lambda _, a: structs.replace(a, completion_tokens=1), "completion_tokens is 1"),
        (lambda _, a: structs.replace(a, choice=7), "choice 7 of 3"),
        (lambda _, a: structs.replace(a, choice=1), "and said"),
        (lambda _, a: structs.replace(a, policy=""), "which policy"),
        (
            lambda _, a: structs.replace(a, completion_ids=None, logprobs=None, token_ends=None),
            "completion_ids",
        ),
        (lambda _, a: EngineError("out of order"), "expected an Answer, got out of order"),
        (lambda _, a: "stop", "expected an Answer, got a str"),
    ],
)
def test_broken_engines_are_told_what_is_wrong(change: Any, told: str) -> None:
    with pytest.raises(CheckFailed, match=re.escape(told)):
        check_engine(Broken(change))


def test_engines_must_keep_the_order_and_not_depend_on_the_batch() -> None:
    class Sorted(ScriptedEngine):
        async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
            return sorted(await super().answer(requests), key=lambda answer: answer.text)  # type: ignore[union-attr]

    with pytest.raises(CheckFailed, match="expected the same answer"):
        check_engine(Sorted("sorted", lambda request: request.entries[-1].text))

    class Short(ScriptedEngine):
        async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
            return (await super().answer(requests))[:1]

    with pytest.raises(CheckFailed, match="5 requests, 1 answers"):
        check_engine(Short("short", lambda _: "stop"))

    class Raises(ScriptedEngine):
        async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
            raise ValueError("no")

    with pytest.raises(CheckFailed, match="answer raised ValueError"):
        check_engine(Raises("raises", lambda _: "stop"))


def test_a_context_must_go_on_as_it_began() -> None:
    class Forgets(ScriptedEngine):
        def encode(self, entries: Sequence[Entry], after: Answer | None) -> Any:
            return super().encode(entries, after) if after is None else None

    with pytest.raises(CheckFailed, match="or never"):
        check_engine(Forgets("forgets", lambda _: "stop"))
    with pytest.raises(CheckFailed, match="is no Engine"):
        check_engine(object())  # type: ignore[arg-type]  # on purpose


# -- topologies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topologies_that_ship_conform(name: str) -> None:
    check_topology(make_topology(name, tools=("look",)), seeds=range(8))


def of(program: Any) -> Topology:
    return Topology(
        name="mixed",
        root="boss",
        roles=(
            Role(name="boss", verbs=("spawn", "wait", "send", "stop"), spawns=("hand",)),
            Role(name="hand", verbs=("return", "call"), tools=("look",)),
        ),
        programs={"boss": program},
    )


async def fine(me: Agent) -> None:
    hand = await me.spawn("hand", "guess")
    if hand is not None:
        await me.wait([hand])
    await me.stop(me.results[hand][1] if hand in me.results else "")


async def draws(me: Agent) -> None:
    await me.stop(str(random.random()))


async def trusts(me: Agent) -> None:
    hands = [await me.spawn("hand", "guess") for _ in range(2)]
    await me.wait([hand for hand in hands if hand])
    await me.stop(me.results[hands[1]][1])  # type: ignore[index]  # refused, it is None


async def remembers(me: Agent, kept: list[int] = []) -> None:  # noqa: B006  # on purpose
    kept.append(1)
    await me.stop(str(len(kept)))


async def listens(me: Agent) -> None:
    hand = await me.spawn("hand", "guess")
    await me.wait([hand] if hand else [])
    await me.stop(f"{me.run.assignment.task_id}, {next(COUNT)}")


def test_a_topology_of_ones_own() -> None:
    check_topology(of(fine))


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (draws, "two different runs"),
        (remembers, "two different runs"),
        (trusts, "could not be spawned"),
        (listens, "two different runs"),
    ],
)
def test_broken_topologies_are_told_what_is_wrong(program: Any, told: str) -> None:
    with pytest.raises(CheckFailed, match=told) as failed:
        check_topology(of(program))
    assert re.search(r"seed \d+", str(failed.value))  # so that it can be run again


# -- tools ------------------------------------------------------------------------------------------


def test_tools_that_ship_conform() -> None:
    @tool(pure=True)
    def add(a: int, b: int = 0) -> int:
        """Add."""
        return a + b

    @tool
    def pay(amount: int) -> str:
        """Acts on the world."""
        return f"paid {amount}, {next(COUNT)}"

    check_tool(add, {"a": 1}, {"a": 1, "b": 2})
    check_tool(pay, {"amount": 1})
    check_tool(python_tool(), {"code": "print(6 * 7)"})


def test_broken_tools_are_told_what_is_wrong() -> None:
    @tool(pure=True)
    def silent(a: int) -> int:
        return a

    @tool(pure=True)
    def counts() -> int:
        """Says another number each time."""
        return next(COUNT)

    @tool(idempotent=True)
    def repeats(idempotency_key: str) -> int:
        """Does not look at its key."""
        return next(COUNT)

    @tool(pure=True, max_output_bytes=10)
    def floods() -> str:
        """Says too much."""
        return "x" * 100

    with pytest.raises(CheckFailed, match="no docstring"):
        check_tool(silent)
    with pytest.raises(CheckFailed, match="marked pure"):
        check_tool(counts, {})
    with pytest.raises(CheckFailed, match="marked idempotent"):
        check_tool(repeats, {})
    with pytest.raises(CheckFailed, match="longer than 10 bytes"):
        check_tool(floods, {})
    with pytest.raises(CheckFailed, match="expected a result"):
        check_tool(counts, {"a": 1})
    with pytest.raises(CheckFailed, match="@tool"):
        check_tool(len)  # type: ignore[arg-type]  # on purpose


# -- aggregators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregators_that_ship_conform(name: str) -> None:
    check_aggregator(AGGREGATORS[name])


class Other(Majority):
    """Majority, with one thing different."""

    def __init__(self, fuse: Callable[[Sequence[Claim]], Fused]) -> None:
        self._fuse = fuse

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = {}) -> Fused:
        super().fuse(claims, params)  # its refusals
        return self._fuse(claims)


@pytest.mark.parametrize(
    ("fuse", "told"),
    [
        (lambda claims: Fused(claims[0].text, (1.0,), {}), "one for each claim"),
        (
            lambda claims: Fused(str(sum(int(c.text) for c in claims)), (1.0,) * len(claims), {}),
            "raised ValueError",
        ),
        (lambda claims: Fused(str(next(COUNT)), (1.0,) * len(claims), {}), "in two ways"),
        (lambda claims: Fused("", (1.0,) * len(claims), {"x": object()}), "not JSON"),
        (lambda claims: "text", "expected a Fused"),
    ],
)
def test_broken_aggregators_are_told_what_is_wrong(fuse: Any, told: str) -> None:
    with pytest.raises(CheckFailed, match=told):
        check_aggregator(Other(fuse))


def test_an_aggregator_must_refuse_what_it_cannot_fuse() -> None:
    class Lenient(Majority):
        def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = {}) -> Fused:
            return super().fuse(claims) if claims else Fused("", (), {})

    with pytest.raises(CheckFailed, match="where there are no claims"):
        check_aggregator(Lenient())

    class Careless(Majority):
        def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = {}) -> Fused:
            return super().fuse(claims)

    with pytest.raises(CheckFailed, match="a parameter it does not have"):
        check_aggregator(Careless())


# -- surfaces ---------------------------------------------------------------------------------------


def test_surfaces_that_ship_conform() -> None:
    check_surface(Lines())
    check_surface(Tools())
    check_surface(Tools(("search",)))


class Odd(Lines):
    """Lines, with one thing different."""

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def render(self, action: Action) -> str:
        text = super().render(action)
        return str(self._changes["render"](text)) if "render" in self._changes else text

    def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
        items = super().parse(text, verbs)
        return self._changes["parse"](text, items) if "parse" in self._changes else items  # type: ignore[no-any-return]

    def describe(self, verbs: frozenset[str], tools: Sequence[Any]) -> str:
        return "" if "mute" in self._changes else super().describe(verbs, tools)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"render": lambda text: text.replace("\\n", " ")}, "expected it back"),
        ({"parse": lambda text, items: items if "\x00" not in text else 1 / 0}, "raised ZeroDivisionError"),
        ({"parse": lambda text, items: [i for i in items if isinstance(i, Parsed)]}, "gave nothing"),
        ({"parse": lambda text, items: [structs.replace(i, end=10**6) for i in items]}, "inside the text"),
        ({"mute": True}, "nothing is said"),
    ],
)
def test_broken_surfaces_are_told_what_is_wrong(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(CheckFailed, match=told):
        check_surface(Odd(**changes))


def test_a_surface_must_mind_the_verbs() -> None:
    class Lax(Lines):
        def parse(self, text: str, verbs: frozenset[str]) -> list[Parsed | ParseError]:
            return super().parse(text, frozenset({*verbs, "return"}))

    with pytest.raises(CheckFailed, match="where return is not allowed"):
        check_surface(Lax())


# -- tasks ------------------------------------------------------------------------------------------


def test_tasks_that_ship_conform() -> None:
    check_task(ShardSum())


def test_broken_tasks_are_told_what_is_wrong() -> None:
    class Strict(ShardSum):
        def verify(self, instance: Instance, answer: str) -> float:
            return float(int(answer) == instance.gold)

    class Wrong(ShardSum):
        def solve(self, instance: Instance) -> str | None:
            return "0"

    class Kind(ShardSum):
        def verify(self, instance: Instance, answer: str) -> float:
            return 1.0

    class Restless(ShardSum):
        def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
            return super().draw(np.random.default_rng())

    class Same(ShardSum):
        drawn: ClassVar[int] = 3

        def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
            return super().draw(np.random.default_rng(self.drawn))

    for broken, told in (
        (Strict, "verify raised ValueError"),
        (Wrong, "solver's answer is not right"),
        (Kind, "scores 1.0, not 0"),
        (Restless, "differs when drawn again"),
        (Same, "draw the same instances"),
    ):
        with pytest.raises(AssertionError, match=told):
            check_task(broken())

"""Tools: schema from the signature, and one outcome for everything a function can do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from baton.errors import UsageError
from baton.team.tools.tool import Registry, Tool, ToolOutcome, invoke, invoke_now, tool


class Place(Struct):
    city: str
    zip: int | None = None


@tool(pure=True, trusted=False)
def search(
    query: Annotated[str, Meta(description="What to look for.")],
    limit: int = 5,
    near: Place | None = None,
    order: Literal["new", "old"] = "new",
    tags: list[str] = ["a", "b"],  # noqa: B006  # the default must reach the function as it is
) -> str:
    """Find pages."""
    return f"{query} {limit} {near.city if near else None} {order} {tags}"


def call(made: Tool, /, **args: Any) -> ToolOutcome:
    return asyncio.run(invoke(made, args, idempotency_key="k"))


def returning(value: Any, **flags: Any) -> Tool:
    def give() -> Any:
        return value

    return tool(**flags)(give)


def test_the_signature_is_the_schema() -> None:
    assert (search.name, search.description) == ("search", "Find pages.")
    assert search.schema["properties"]["query"] == {"type": "string", "description": "What to look for."}
    assert search.schema["properties"]["limit"] == {"type": "integer", "default": 5}
    assert search.schema["required"] == ["query"]
    jsonschema.Draft202012Validator.check_schema(search.schema)
    jsonschema.validate({"query": "x", "near": {"city": "Bonn"}}, search.schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"query": "x", "near": {"city": 3}}, search.schema)
    assert search("q", 1) == "q 1 None new ['a', 'b']"


def test_arguments_become_typed_values() -> None:
    outcome = call(search, query="x", near={"city": "Bonn"})
    assert outcome.ok
    assert outcome.text == "x 5 Bonn new ['a', 'b']"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "missing required field `query`"),
        ({"query": 3}, "Expected `str`, got `int` - at `query`"),
        ({"query": "x", "q": 1}, "unknown field `q`"),
        ({"query": "x", "order": "odd"}, "Invalid enum value 'odd'"),
        ({"query": "x", "idempotency_key": "mine"}, "unknown field `idempotency_key`"),
    ],
)
def test_wrong_arguments_are_an_outcome(args: dict[str, Any], reason: str) -> None:
    outcome = call(search, **args)
    assert not outcome.ok
    assert outcome.error == "arguments"
    assert reason in outcome.text
    assert '"query"' in outcome.text


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=3))
def test_any_arguments_are_an_outcome(args: dict[str, Any]) -> None:
    assert call(search, **{"query": "x", **args}).error in (None, "arguments")


def test_a_key_is_given_to_who_takes_one_and_hidden_from_the_model() -> None:
    seen = []

    @tool(idempotent=True)
    def pay(euros: int, idempotency_key: str) -> None:
        seen.append((euros, idempotency_key))

    assert "idempotency_key" not in pay.schema["properties"]
    assert call(pay, euros=3).text == "null"
    assert seen == [(3, "k")]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt(), Unprintable(), StopIteration()]
)
def test_what_a_function_raises_is_an_outcome(error: BaseException) -> None:
    @tool
    def broken() -> str:
        raise error

    outcome = call(broken)
    assert outcome.error == "raised"
    assert type(error).__name__ in outcome.text


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), asyncio.CancelledError(), TimeoutError()]
)
def test_what_a_coroutine_raises_is_an_outcome(error: BaseException) -> None:
    @tool
    async def broken() -> str:
        raise error

    outcome = call(broken)
    assert outcome.error == "raised"
    assert type(error).__name__ in outcome.text


def test_a_function_that_hangs_is_given_up() -> None:
    release = threading.Event()

    @tool(timeout_seconds=0.05)
    def hangs() -> str:
        release.wait()
        return "too late"

    outcome = call(hangs)
    release.set()
    assert outcome.error == "timeout"
    assert "0.05 seconds" in outcome.text


def test_a_coroutine_that_hangs_is_cancelled_even_if_it_resists() -> None:
    ended = []

    @tool(timeout_seconds=0.05)
    async def hangs(stubborn: bool) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(stubborn)
            if stubborn:
                await asyncio.sleep(60)
            raise
        return "too late"

    async def both() -> list[ToolOutcome]:
        return [await invoke(hangs, {"stubborn": s}, idempotency_key="") for s in (False, True)]

    assert [outcome.error for outcome in asyncio.run(both())] == ["timeout", "timeout"]
    assert ended[:1] == [False]


def test_cancelling_the_call_cancels_the_coroutine() -> None:
    ended = []

    @tool
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    async def main() -> None:
        running = asyncio.create_task(invoke(slow, {}, idempotency_key=""))
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0)
        assert ended == [True]

    asyncio.run(main())


def test_no_thread_left_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert call(returning("x")).error == "raised"


def test_functions_run_beside_the_loop() -> None:
    meet = threading.Barrier(3, timeout=10)

    @tool
    def join() -> str:
        meet.wait()
        return "met"

    async def main() -> list[ToolOutcome]:
        return list(await asyncio.gather(*(invoke(join, {}, idempotency_key="") for _ in range(3))))

    assert [outcome.text for outcome in asyncio.run(main())] == ["met"] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, "null"),
        ({"a": [1, 2.5]}, '{"a":[1,2.5]}'),
        (Place("Bonn", 3), '{"city":"Bonn","zip":3}'),
        ("héllo".encode(), "héllo"),
        (2**80, str(2**80)),
        ("\ud800", "\\ud800"),
    ],
)
def test_results_become_text(value: Any, text: str) -> None:
    outcome = call(returning(value))
    assert outcome.ok
    assert outcome.text == text


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [b"\xff\x00\x01", object(), deep(), {object(): 1}, ["\ud800"]],
    ids=["bytes", "object", "deep", "key", "surrogate"],
)
def test_results_that_are_no_text_are_an_outcome(value: Any) -> None:
    outcome = call(returning(value))
    assert outcome.error == "output"
    assert "give returned" in outcome.text


@given(st.text(), st.integers(1, 20))
def test_floods_are_cut_and_say_so(said: str, limit: int) -> None:
    outcome = call(returning(said, pure=True, instant=True, max_output_bytes=limit))
    size = len(said.encode())
    assert outcome.truncated == (size > limit)
    if outcome.truncated:
        kept, note = outcome.text.rsplit("\n", 1)
        assert said.startswith(kept)
        assert len(kept.encode()) <= limit
        assert note == f"[{size - len(kept.encode())} of {size} bytes left out]"
    else:
        assert outcome.text == said


def test_a_flood_in_an_error_is_cut() -> None:
    @tool(max_output_bytes=100)
    def broken() -> str:
        raise ValueError("x" * 10_000)

    outcome = call(broken)
    assert outcome.truncated
    assert len(outcome.text) < 200


def test_instant_tools_run_in_the_calling_thread() -> None:
    @tool(pure=True, instant=True)
    def where(x: int) -> int:
        if x < 0:
            raise SystemExit
        return threading.get_ident()

    assert invoke_now(where, {"x": 1}).text == str(threading.get_ident())
    assert call(where, x=1).text == str(threading.get_ident())
    assert invoke_now(where, {"x": -1}).error == "raised"
    assert invoke_now(where, {}).error == "arguments"
    with pytest.raises(UsageError, match="not instant"):
        invoke_now(search, {})


def untyped(x): ...  # type: ignore[no-untyped-def]


def variadic(*x: int) -> None: ...


def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def unwritable(x: Callable[[], int]) -> None: ...


def stop(x: int) -> None: ...


def keyed(idempotency_key: str) -> None: ...


async def later() -> None: ...


@pytest.mark.parametrize(
    ("function", "flags", "reason"),
    [
        (untyped, {}, "has no type"),
        (variadic, {}, "ordinary named parameter"),
        (unknown, {}, "cannot be read"),
        (unwritable, {}, "no JSON form"),
        (stop, {}, "none of the verbs"),
        (later, {"name": "no spaces"}, "cannot be named"),
        (later, {"timeout_seconds": 0}, "above zero"),
        (later, {"max_output_bytes": 0}, "above zero"),
        (later, {"pure": True, "instant": True}, "not async"),
        (keyed, {}, "idempotent=True"),
    ],
)
def test_functions_that_cannot_be_tools(
    function: Callable[..., Any], flags: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        tool(**flags)(function)


def test_registry_finds_and_refuses_duplicates() -> None:
    registry = Registry([search, tool(later)])
    assert list(registry) == ["search", "later"]
    assert registry["later"].is_async
    assert registry.get("nope") is None
    with pytest.raises(UsageError, match="Two tools are named 'search'"):
        Registry([search, search])


def test_the_digest_changes_with_what_matters_only() -> None:
    other = tool(later)
    digest = Registry([search, other]).digest()
    assert digest == Registry([other, search]).digest()
    assert digest == Registry([msgspec.structs.replace(search, function=print), other]).digest()
    for change in (
        {"pure": False},
        {"description": "x"},
        {"schema": {}},
        {"timeout_seconds": 1.0},
        {"trusted": True},
    ):
        assert digest != Registry([msgspec.structs.replace(search, **change), other]).digest()
    assert digest != Registry([search]).digest()

"""Tools: typed Python functions that agents call.

The signature gives the schema, the docstring the description, and the flags say what a resume, a
fork or a safety analysis may assume. Invariant: whatever the arguments and whatever the function
does (hangs, raises, floods, returns bytes), `invoke` returns a `ToolOutcome`; it never raises.

What a thread cannot do: a synchronous function that overruns its time is abandoned, not killed; it
goes on in a daemon thread. Code that nobody trusts belongs in `baton.team.tools.sandbox`.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import copy_context
from hashlib import blake2b
from typing import Any, Final, Literal, Union, get_type_hints, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from baton.errors import UsageError
from baton.team.action import VERBS
from baton.team.tools.agent_place import AgentPlace
from baton.team.tools.folder_snapshot import FolderFiles
from baton.team.tools.secret import ToolSecret

_KEY = "idempotency_key"
NOTHING_HIDDEN: Final[Mapping[str, Any]] = {}
"""Parameters that no model sees: credentials, and the agent's place."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what OpenAI-compatible servers accept


class Tool(Struct, frozen=True, kw_only=True, eq=False):
    """A function an agent can call, and what is promised about it. Made by `tool`."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of the arguments."""
    function: Callable[..., Any]
    arguments: type[Struct]
    """The same schema as a type: what arguments are checked against."""
    is_async: bool
    takes_key: bool
    """The function has an `idempotency_key` parameter; the model neither sees nor gives it."""
    pure: bool
    """Same arguments, same result, no effect on the world: may be run again at will."""
    idempotent: bool
    """Run twice with the same key it acts once: may be retried after a crash."""
    consequential: bool
    """Acts on the world outside the team; a safety policy watches its calls."""
    trusted: bool
    """False: what it returns was written by strangers."""
    instant: bool
    """Pure and fast enough to run inline, without a thread or a time limit."""
    timeout_seconds: float
    max_output_bytes: int
    cost_usd: float | None
    """Price of one call; None: not known."""
    secrets: tuple[str, ...] = ()
    """Parameters that are credentials: the runtime gives them to agents that may use them, and no model sees them."""
    place: str | None = None
    """The parameter that is the calling agent's own folder and limits; None: it asks for none."""
    contained: bool = False
    """All that a call leaves behind is in its agent's folder, so a fork may run it again in a copy of that."""
    check: Callable[[], None] | None = None
    """Called before a run that may use the tool; raises a UsageError where it cannot keep what it promises."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Confined(Struct, frozen=True, kw_only=True):
    """What a tool returns that ran in a sandbox: its text, and the level that protected from it."""

    text: str
    sandbox: str


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """What came of one tool call."""

    text: str
    """What the agent sees: the result, or what went wrong."""
    ok: bool
    truncated: bool = False
    duration_s: float = 0.0
    error: Literal["arguments", "timeout", "raised", "output", "credential"] | None = None
    sandbox: str | None = None
    """The level of the sandbox it ran in; None: it ran in none."""
    files: FolderFiles | None = None
    """What its agent's folder holds since; None: what it held before, or there is none."""


class Registry(Mapping[str, Tool]):
    """The tools of a team, by name, in the order given."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            if given.name in self._tools:
                raise UsageError(
                    f"Two tools are named {given.name!r}; names must differ. Type: @tool(name=...)"
                )
            self._tools[given.name] = given

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def digest(self) -> str:
        """A hash of everything about the tools that an agent or the runtime can notice, in any order."""
        facts = [
            {
                field: getattr(self._tools[name], field)
                for field in Tool.__struct_fields__
                if field not in ("function", "arguments", "check", "contained")
                and (field not in ("secrets", "place") or getattr(self._tools[name], field))
            }
            for name in sorted(self._tools)
        ]
        return blake2b(msgspec.json.encode(facts, order="sorted"), digest_size=16).hexdigest()


NO_TOOLS: Final = Registry()
"""One for all teams and tasks that have none."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    pure: bool = False,
    idempotent: bool = False,
    consequential: bool = False,
    trusted: bool = True,
    instant: bool = False,
    timeout_seconds: float = 30.0,
    max_output_bytes: int = 65_536,
    cost_usd: float | None = None,
    contained: bool = False,
    check: Callable[[], None] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    pure: bool = False,
    idempotent: bool = False,
    consequential: bool = False,
    trusted: bool = True,
    instant: bool = False,
    timeout_seconds: float = 30.0,
    max_output_bytes: int = 65_536,
    cost_usd: float | None = None,
    contained: bool = False,
    check: Callable[[], None] | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a typed function: `@tool`, or `@tool(pure=True, ...)`."""

    def make(function: Callable[..., Any]) -> Tool:
        called = name or function.__name__
        if not _TOOL_NAME.fullmatch(called) or called in VERBS:
            raise UsageError(
                f"A tool cannot be named {called!r}: 1 to 64 of A-Z a-z 0-9 _ - and none of the verbs "
                f"({', '.join(VERBS)}). Type: @tool(name=...)"
            )
        if not (0 < timeout_seconds < math.inf and max_output_bytes > 0):
            raise UsageError(
                f"Tool {called!r}: timeout_seconds={timeout_seconds} and max_output_bytes="
                f"{max_output_bytes} must both be above zero and finite."
            )
        parameters = _parameters(called, function)
        secrets = tuple(field for field, (hint, _) in parameters.items() if hint is ToolSecret)
        place = next((field for field, (hint, _) in parameters.items() if hint is AgentPlace), None)
        for field in (*secrets, *([place] if place else [])):
            del parameters[field]
        takes_key = parameters.pop(_KEY, None) is not None
        if takes_key and not idempotent:
            raise UsageError(f"Tool {called!r} takes an {_KEY}. Type: @tool(idempotent=True)")
        is_async = inspect.iscoroutinefunction(function)
        if instant and (is_async or not pure):
            raise UsageError(f"Tool {called!r} is instant, so it must be pure and not async.")
        if contained and place is None:
            raise UsageError(
                f"Tool {called!r} is contained in its agent's folder, and asks for none. Give it a parameter of type "
                "AgentPlace."
            )
        arguments = _arguments(called, parameters)
        return Tool(
            name=called,
            description=inspect.getdoc(function) or "",
            schema=_schema(arguments, parameters),
            function=function,
            arguments=arguments,
            is_async=is_async,
            takes_key=takes_key,
            pure=pure,
            idempotent=idempotent,
            consequential=consequential,
            trusted=trusted,
            instant=instant,
            timeout_seconds=timeout_seconds,
            max_output_bytes=max_output_bytes,
            cost_usd=cost_usd,
            secrets=secrets,
            place=place,
            contained=contained,
            check=check,
        )

    return make if function is None else make(function)


async def invoke(
    tool: Tool,
    args: Mapping[str, Any],
    *,
    idempotency_key: str,
    hidden: Mapping[str, Any] = NOTHING_HIDDEN,
) -> ToolOutcome:
    """Call a tool within its limits. Cancelling this cancels an async tool and abandons a sync one."""
    if tool.instant:
        return invoke_now(tool, args, idempotency_key=idempotency_key, hidden=hidden)
    began = time.perf_counter()
    given = _bind(tool, args, idempotency_key, hidden)
    if isinstance(given, ToolOutcome):
        return given
    work: asyncio.Future[Any] = (
        asyncio.ensure_future(_contained(tool.function(**given)))
        if tool.is_async
        else in_thread(lambda: tool.function(**given))
    )
    try:
        # Not wait_for: that waits for a cancelled tool to agree.
        done, _ = await asyncio.wait((work,), timeout=tool.timeout_seconds)
    finally:
        if not work.done():
            work.cancel()
    duration_s = time.perf_counter() - began
    if not done:
        late = f"{tool.name} did not finish within {tool.timeout_seconds:g} seconds and was given up."
        return ToolOutcome(text=late, ok=False, duration_s=duration_s, error="timeout")
    if work.cancelled():
        return _raised(tool, asyncio.CancelledError("the tool cancelled itself"), duration_s)
    result = work.result()
    return (
        _raised(tool, result.error, duration_s)
        if isinstance(result, _Raised)
        else _shown(tool, result, duration_s)
    )


def invoke_now(
    tool: Tool,
    args: Mapping[str, Any],
    *,
    idempotency_key: str = "",
    hidden: Mapping[str, Any] = NOTHING_HIDDEN,
) -> ToolOutcome:
    """Call an instant tool inline."""
    if not tool.instant:
        raise UsageError(
            f"Tool {tool.name!r} is not instant. Type: await invoke(...), or @tool(instant=True)"
        )
    given = _bind(tool, args, idempotency_key, hidden)
    if isinstance(given, ToolOutcome):
        return given
    began = time.perf_counter()
    try:
        result = tool.function(**given)
    except (Exception, SystemExit) as error:
        return _raised(tool, error, time.perf_counter() - began)
    return _shown(tool, result, time.perf_counter() - began)


class _Raised:
    """An exception as a value: a future that holds one nobody collects would warn."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (Exception, SystemExit) as error:
        return _Raised(error)


def in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Run in a daemon thread of its own: one that hangs holds up neither the pool nor the exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def settle(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    def body() -> None:
        try:
            result = context.run(function)
        except BaseException as error:  # a thread's SystemExit or KeyboardInterrupt is the tool's own
            result = _Raised(error)
        with suppress(RuntimeError):  # the loop closed while an abandoned tool was still running
            loop.call_soon_threadsafe(settle, result)

    try:
        threading.Thread(target=body, name="baton-tool", daemon=True).start()
    except RuntimeError as error:  # the system has no thread left
        settle(_Raised(error))
    return future


def _bind(
    tool: Tool, args: Mapping[str, Any], idempotency_key: str, hidden: Mapping[str, Any]
) -> dict[str, Any] | ToolOutcome:
    try:
        checked = msgspec.convert(args, tool.arguments)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        reason = str(error).replace("$.", "").replace("Object", "The call", 1)[:300]
        expected = msgspec.json.encode(tool.schema["properties"]).decode()
        text = f"Wrong arguments for {tool.name!r}: {reason}. Expected: {expected}"
        return ToolOutcome(text=text, ok=False, error="arguments")
    given = {
        field: value
        for field in tool.arguments.__struct_fields__
        if (value := getattr(checked, field)) is not UNSET
    }
    if tool.takes_key:
        given[_KEY] = idempotency_key
    for name in tool.secrets:
        if name not in hidden:
            return ToolOutcome(
                text=f"{tool.name} needs the credential {name!r}.", ok=False, error="credential"
            )
        given[name] = hidden[name]
    if tool.place is not None:
        if tool.place not in hidden:
            return ToolOutcome(text=f"{tool.name} needs an agent's place.", ok=False, error="arguments")
        given[tool.place] = hidden[tool.place]
    return given


def _raised(tool: Tool, error: BaseException, duration_s: float) -> ToolOutcome:
    try:
        said = str(error)
    except Exception:
        said = "(its message cannot be shown)"
    text, truncated = _cut(f"{tool.name} failed: {type(error).__name__}: {said}", tool.max_output_bytes)
    return ToolOutcome(
        text=text,
        ok=False,
        truncated=truncated,
        duration_s=duration_s,
        error="raised",
        sandbox=getattr(error, "sandbox", None),
    )


def _shown(tool: Tool, result: Any, duration_s: float) -> ToolOutcome:
    if isinstance(result, Confined):
        return structs.replace(_shown(tool, result.text, duration_s), sandbox=result.sandbox)
    try:
        if isinstance(result, (bytes, bytearray, memoryview)):
            text = bytes(result).decode()
        else:
            text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    except UnicodeDecodeError:
        problem = f"{tool.name} returned {len(result)} bytes that are not text."
    except Exception as error:
        problem = f"{tool.name} returned a {type(result).__name__} that cannot be written as JSON ({error})."
    else:
        text, truncated = _cut(text, tool.max_output_bytes)
        return ToolOutcome(text=text, ok=True, truncated=truncated, duration_s=duration_s)
    return ToolOutcome(text=problem[:1000], ok=False, duration_s=duration_s, error="output")


def _cut(text: str, max_bytes: int) -> tuple[str, bool]:
    """At most `max_bytes` of UTF-8 and a note of what was left out; always valid Unicode."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= max_bytes:
        return data.decode(), False
    kept = data[:max_bytes].decode(errors="ignore")
    left_out = len(data) - len(kept.encode())
    return f"{kept}\n[{left_out} of {len(data)} bytes left out]", True


def _parameters(name: str, function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Parameter -> (type, default or Parameter.empty)."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(f"Tool {name!r}: its type hints cannot be read ({error}).") from None
    found: dict[str, tuple[Any, Any]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(f"Tool {name!r}: {parameter} must be an ordinary named parameter.")
        if parameter.name not in hints:
            raise UsageError(
                f"Tool {name!r}: parameter {parameter.name!r} has no type. Type: {parameter.name}: str"
            )
        found[parameter.name] = (hints[parameter.name], parameter.default)
    return found


def _arguments(name: str, parameters: Mapping[str, tuple[Any, Any]]) -> type[Struct]:
    # A parameter left out stays unset, so the function's own default applies, whatever it is.
    fields = [
        (field, hint) if default is inspect.Parameter.empty else (field, Union[hint, UnsetType], UNSET)  # noqa: UP007  # hint may be a string form
        for field, (hint, default) in parameters.items()
    ]
    try:
        made = msgspec.defstruct(name.replace("-", "_"), fields, kw_only=True, forbid_unknown_fields=True)
        msgspec.json.schema_components([made])
    except (TypeError, NameError) as error:
        raise UsageError(f"Tool {name!r}: a parameter's type has no JSON form ({error}).") from None
    return made


def _schema(arguments: type[Struct], parameters: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    described = components.pop(arguments.__name__)
    properties = described["properties"]
    for field, (_, default) in parameters.items():
        if default is None or type(default) in (bool, int, float, str):
            properties[field] = {**properties[field], "default": default}
    schema = {
        "type": "object",
        "properties": properties,
        "required": described["required"],
        "additionalProperties": False,
    }
    return {**schema, "$defs": components} if components else schema

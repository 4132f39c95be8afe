"""What a trace cost in money, by a price table that a person sets: who spent it, and on what.

A table is a TOML file with a price for each model, for a million tokens:

    currency = "USD"

    [models.gpt-4o]
    prompt = 2.5
    cached = 1.25        # of the prompt, what a cache gave; left out: as the rest of it
    completion = 10.0

A call is priced by the name of the policy that answered it: as it stands, else without what says where it is
(`openai:gpt-4o@URL`, `openai/gpt-4o`), else by the longest name with a `*` that fits. Prices change, so none ship.

Invariant: what nobody can know is None and never 0. A sum over calls of which one has no price is None, and `known`
has the sum of those that have one.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct, field

from baton.errors import FormatError, UsageError
from baton.settings import NotNegative, decode
from baton.trace.records import Call
from baton.trace.trace import Trace

_MILLION = 1_000_000
_CACHED = (
    "cached_tokens",
    "cache_read_input_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "llm.token_count.prompt_details.cache_read",
)
"""Names under which systems say how much of a prompt a cache gave; the events of a call keep them."""


class Price(Struct, frozen=True, kw_only=True):
    """What a million tokens of one model cost."""

    prompt: NotNegative
    completion: NotNegative
    cached: NotNegative | None = None
    """Of prompt tokens that a cache gave; None: they cost what the others do."""


class PriceTable(Struct, frozen=True, kw_only=True):
    """What a person says that models cost."""

    currency: str = "USD"
    models: dict[str, Price] = field(default_factory=dict)
    """By the name of the model or policy; a name may hold `*`."""

    def of(self, name: str | None) -> Price | None:
        """The price of a model; None: the table has none."""
        if not name or not self.models:
            return None
        for short in _shorter(name):
            if short in self.models:
                return self.models[short]
        fitting = [
            known
            for known in self.models
            if "*" in known and any(fnmatchcase(short, known) for short in _shorter(name))
        ]
        return self.models[max(fitting, key=lambda known: (len(known), known))] if fitting else None


class CallsCost(Struct, frozen=True, kw_only=True):
    """What some calls cost. None: not known, because a count or a price is not there."""

    calls: int
    prompt_tokens: int | None
    """Of whole prompts, those a cache gave included."""
    cached_tokens: int | None
    """None where no call says how many."""
    completion_tokens: int | None
    total: float | None
    prompt: float | None
    """The part of the total that was not cached and not a completion."""
    cached: float | None
    completion: float | None


class TraceCost(Struct, frozen=True, kw_only=True):
    """What a trace cost, all of it and by who spent it."""

    currency: str
    cost: CallsCost
    known: float | None
    """What the calls cost that can be priced; None where none can."""
    estimated: bool
    """Whether a count that it rests on is an estimate."""
    roles: dict[str, CallsCost]
    """By role; agents without one are under ""."""
    agents: dict[str, CallsCost]
    models: dict[str, CallsCost]
    """By the name of who answered; calls that do not say it are under ""."""
    dearest: str | None
    """The call that cost most."""
    why_not: str | None
    """Why there is no total."""


def read_prices(path: Path) -> PriceTable:
    """The price table in a TOML file."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"there is no price table {path}. Give a TOML file with [models.NAME] in it."
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; expected a price table in TOML.") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path} is not UTF-8 text; expected a price table in TOML.") from None
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{path} is not valid TOML: {error}.") from None
    return decode(PriceTable, table, str(path))


def price(trace: Trace, table: PriceTable) -> TraceCost:
    """What a trace cost by this table."""
    cached = _cached_tokens(trace)
    roles = _roles(trace)
    each = {call.id: _spent_on(call, table, cached.get(call.id)) for call in trace.calls}
    priced = {name: spent.total for name, spent in each.items() if spent.total is not None}
    return TraceCost(
        currency=table.currency,
        cost=together(each.values()),
        known=math.fsum(priced.values()) if priced else None,
        estimated=any(call.estimated for call in trace.calls),
        roles=_by({call.id: roles.get(call.agent) or "" for call in trace.calls}, each),
        agents=_by({call.id: call.agent for call in trace.calls}, each),
        models=_by({call.id: call.policy or "" for call in trace.calls}, each),
        dearest=max(priced, key=lambda name: priced[name]) if any(priced.values()) else None,
        why_not=_why_not(trace, table),
    )


def _shorter(name: str) -> list[str]:
    """A model's name, and the same without its engine, its address and its provider."""
    model = name.partition("@")[0]
    bare = model.partition(":")[2] if model.partition(":")[0] in ("openai", "vllm", "torch") else model
    return list(dict.fromkeys((name, model, bare, bare.rpartition("/")[2])))


def _spent_on(call: Call, table: PriceTable, cached: int | None) -> CallsCost:
    rate = table.of(call.policy)
    asked, said = call.prompt_tokens, call.completion_tokens
    if cached is not None and asked is not None:
        cached = min(cached, asked)
    prompt = of_cache = completion = None
    if rate is not None:
        fresh = None if asked is None else asked - (cached or 0)
        prompt = _cost(fresh, rate.prompt)
        if cached is not None:
            of_cache = _cost(cached, rate.prompt if rate.cached is None else rate.cached)
        completion = _cost(said, rate.completion)
    return CallsCost(
        calls=1, prompt_tokens=asked, cached_tokens=cached, completion_tokens=said,
        prompt=prompt, cached=of_cache, completion=completion, total=_sum((prompt, of_cache or 0.0, completion)),
    )  # fmt: skip


def _cost(tokens: int | None, rate: float) -> float | None:
    """Of what is free, nobody needs to know how much it was."""
    if not rate:
        return 0.0
    return None if tokens is None else tokens * rate / _MILLION


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else math.fsum(value for value in known if value is not None)


def _count(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def together(every: Iterable[CallsCost]) -> CallsCost:
    """The cost of several together; what is unknown of one is unknown of all."""
    parts = list(every)
    told = [part.cached_tokens for part in parts if part.cached_tokens is not None]
    some = bool(parts)  # of no calls, nothing was measured
    return CallsCost(
        calls=sum(part.calls for part in parts),
        prompt_tokens=_count(part.prompt_tokens for part in parts) if some else None,
        cached_tokens=sum(told) if told else None,
        completion_tokens=_count(part.completion_tokens for part in parts) if some else None,
        total=_sum(part.total for part in parts) if some else None,
        prompt=_sum(part.prompt for part in parts) if some else None,
        cached=math.fsum(part.cached or 0.0 for part in parts) if told else None,
        completion=_sum(part.completion for part in parts) if some else None,
    )


def _by(names: Mapping[str, str], each: Mapping[str, CallsCost]) -> dict[str, CallsCost]:
    groups: dict[str, list[CallsCost]] = {}
    for call, name in names.items():
        groups.setdefault(name, []).append(each[call])
    return {name: together(parts) for name, parts in groups.items()}


def _cached_tokens(trace: Trace) -> dict[str, int]:
    """How much of each call's prompt a cache gave, of the calls whose events say so."""
    found: dict[str, int] = {}
    for event in trace.events:
        if event.call is None or not event.extra:
            continue
        for word in _CACHED:
            told = event.extra.get(word)
            if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < 1 << 53:
                found[event.call] = max(found.get(event.call, 0), int(told))
    return found


def _roles(trace: Trace) -> dict[str, str]:
    found: dict[str, str] = {}
    for call in trace.calls:
        if call.role is not None:
            found.setdefault(call.agent, call.role)
    for event in trace.events:
        who = event.to if event.type == "spawn" else event.agent
        if event.role is not None and who is not None:
            found.setdefault(who, event.role)
    return found


def _why_not(trace: Trace, table: PriceTable) -> str | None:
    if not trace.calls:
        return "the trace holds no call of a model"
    if not table.models:
        return "no prices were given"
    without = {call.policy or "" for call in trace.calls if table.of(call.policy) is None}
    if without:
        named = ", ".join(
            repr(name) if name else "calls that do not say who answered" for name in sorted(without)[:3]
        )
        more = f" and {len(without) - 3:,} more" if len(without) > 3 else ""
        return f"the price table has no price for {named}{more}"
    uncounted = sum(_spent_on(call, table, None).total is None for call in trace.calls)
    return f"{uncounted:,} of {len(trace.calls):,} calls have no count of tokens" if uncounted else None

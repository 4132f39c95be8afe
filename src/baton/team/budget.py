"""The budget: reserve before you spend, from every budget above you at once.

Invariant: nothing is reserved beyond a limit: used + reserved <= limit after every reservation. What the team itself
does (agents, tools, seconds) never costs more than was reserved; to spend more is an error before anything is counted.
What a call costs is known only when its bill comes. It is counted as billed, above the reservation where it is above
it, and from then on nothing more is reserved: a limit of tokens is passed by calls that were on their way, never by a
next one. No amount is ever taken back: `Spent` is all there is to keep, and `restore` only ever raises it.
What a budget spends, its parents have spent too: a nested team draws from the team that started it.

What a call costs is at the end of this file: as whoever answered counted it, or estimated where nobody did.

Counters (agents, tokens, calls, tool_calls, seconds, written_bytes) only grow; `concurrent` is given back when its
reservation closes; `depth` is held against its limit and remembered as the deepest so far. For one
thread: a reservation is one step of plain Python, with nothing awaited in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from baton.errors import BatonError, UsageError, nearest
from baton.team.protocol import Answer, EngineError, Entry
from baton.trace.records import Call

RESOURCES: Final = (
    "agents",
    "depth",
    "concurrent",
    "tokens",
    "calls",
    "tool_calls",
    "seconds",
    "written_bytes",
)
_INDEX: Final = {name: index for index, name in enumerate(RESOURCES)}
_DEPTH, _CONCURRENT, _TOKENS, _CALLS, _SECONDS = (
    _INDEX[name] for name in ("depth", "concurrent", "tokens", "calls", "seconds")
)
_TICKS = 1_000_000  # seconds are counted in whole microseconds: sums of floats drift

_ONE_CALL: Final = (_CALLS, 1)
_CLOSED: Final = "This reservation was settled or released before; reserve again."


class BudgetError(BatonError):
    """The runtime used the budget wrongly: spent what it had not reserved, or settled twice."""


class Limits(Struct, frozen=True, kw_only=True):
    """What a team may take. None: no limit."""

    agents: int | None = None
    """Agents ever spawned; the root is not counted."""
    depth: int | None = None
    """Levels of agents below the root."""
    concurrent: int | None = None
    """Agents active at once."""
    tokens: int | None = None
    """Prompt and completion, over all calls."""
    calls: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    written_bytes: int | None = None
    """Bytes written to the shared memory, over the whole run."""


def limits_told(limits: Limits) -> dict[str, Any]:
    """As a header keeps them. What is said of a shared memory only where it is limited: others have none."""
    kept: dict[str, Any] = msgspec.to_builtins(limits)
    if limits.written_bytes is None:
        del kept["written_bytes"]
    return kept


class Spent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a budget has spent, to be kept and restored: `depth` is the deepest so far, the rest are sums."""

    agents: int = 0
    depth: int = 0
    tokens: int = 0
    calls: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    written_bytes: int = 0


class Refusal(Struct, frozen=True):
    """Why nothing was reserved: the first limit, from the budget upwards, that does not allow it."""

    resource: str
    limit: float
    used: float
    reserved: float
    asked: float
    cap: bool = False
    """Whether it is a cap that runs have by themselves, and not a limit that somebody set."""

    @property
    def message(self) -> str:
        """What a model is told."""
        said = f"The budget does not allow it: {self.resource} is limited to {self.limit:g}"
        if self.resource == "depth":
            return f"{said}, and this would be {self.asked:g}."
        held = f" and {self.reserved:g} reserved" if self.reserved else ""
        return f"{said}, {self.used:g} used{held}, and this needs {self.asked:g} more."


class Reservation:
    """Amounts set aside. Close it once: `settle` what was spent, or `release` it all."""

    __slots__ = ("_amounts", "_budget")

    def __init__(self, budget: Budget, amounts: tuple[tuple[int, int], ...]) -> None:
        self._budget: Budget | None = budget
        self._amounts = amounts

    def settle(self, **actual: float) -> None:
        """Count what was spent, and give back the rest. What is not named was spent in full."""
        spent = dict(self._amounts)
        for name, amount in actual.items():
            index = _INDEX.get(name, -1)
            if index not in spent:
                raise BudgetError(f"Cannot settle {name}: it was not reserved. Reserved: {self._names()}.")
            ticks = _ticks(name, index, amount)
            if ticks > spent[index]:
                reserved = _plain(index, spent[index])
                raise BudgetError(f"Cannot settle {amount:g} {name}: only {reserved:g} were reserved.")
            spent[index] = ticks
        self._close(tuple((index, amount, spent[index]) for index, amount in self._amounts))

    def settle_call(self, tokens: int) -> None:
        """Settle what `Budget.reserve_call` reserved, by the bill: it may be less, and it may be more."""
        amounts, budget = self._amounts, self._budget
        if amounts[-1] is not _ONE_CALL:
            raise BudgetError("settle_call settles what reserve_call reserved. Type: settle(...)")
        reserved = amounts[0][1]
        if tokens < 0:
            raise BudgetError(f"Cannot settle {tokens} tokens: expected zero or more.")
        if budget is None:
            raise BudgetError(_CLOSED)
        self._budget = None
        while budget is not None:  # as _close, written out: this runs once for every call of a model
            used, held = budget._used, budget._held
            held[_TOKENS] -= reserved
            used[_TOKENS] += tokens
            held[_CALLS] -= 1
            used[_CALLS] += 1
            budget = budget._parent

    @property
    def tokens(self) -> int:
        """Tokens that are set aside."""
        return dict(self._amounts).get(_TOKENS, 0)

    def spend_again(self) -> Refusal | None:
        """What was set aside is spent and came to nothing: set as much aside for another try, if there is room."""
        if self._budget is None:
            raise BudgetError(_CLOSED)
        taken = self._budget._take(self._amounts)
        if isinstance(taken, Refusal):
            return taken
        taken.settle()
        return None

    def release(self) -> None:
        """Give everything back, as never spent. Nothing happens if it is closed already."""
        if self._budget is not None:
            self._close(tuple((index, amount, 0) for index, amount in self._amounts))

    def _close(self, changes: tuple[tuple[int, int, int], ...]) -> None:
        budget = self._budget
        if budget is None:
            raise BudgetError(_CLOSED)
        self._budget = None
        while budget is not None:
            used, held = budget._used, budget._held
            for index, reserved, spent in changes:
                held[index] -= reserved
                if index != _CONCURRENT:
                    used[index] += spent
            budget = budget._parent

    def _names(self) -> str:
        return ", ".join(f"{_plain(index, amount):g} {RESOURCES[index]}" for index, amount in self._amounts)


class Budget:
    """What may be spent, what is set aside, and what was spent."""

    __slots__ = ("_base_depth", "_held", "_limit", "_parent", "_used", "limits")

    def __init__(self, limits: Limits, parent: Budget | None = None, *, depth: int = 0) -> None:
        """`depth`: how deep in the parent the root of this budget's team stands."""
        self.limits = limits
        self._parent = parent
        self._base_depth = depth
        self._limit: list[float] = [_limit(name, getattr(limits, name)) for name in RESOURCES]
        self._used = [0] * len(RESOURCES)
        self._held = [0] * len(RESOURCES)

    def child(self, limits: Limits, *, depth: int = 0) -> Budget:
        """A budget for a nested team, whose root stands at `depth` here. It draws on this one."""
        return Budget(limits, self, depth=depth)

    def reserve(self, **amounts: float) -> Reservation | Refusal:
        """Set amounts aside here and in every parent, or nowhere."""
        depth = amounts.pop("depth", None)
        asked = tuple(
            [(index := _index(name), _ticks(name, index, amount)) for name, amount in amounts.items()]
        )
        if depth is not None and (refusal := self._check_depth(_ticks("depth", _DEPTH, depth))):
            return refusal
        taken = self._take(asked)
        if depth is not None and isinstance(taken, Reservation):
            self._mark_depth(int(depth))
        return taken

    def reserve_call(self, tokens: int) -> Reservation | Refusal:
        """`reserve(tokens=tokens, calls=1)`, fast. Close it with `settle_call`."""
        if tokens < 0:
            raise UsageError(f"tokens={tokens}: expected a whole number, zero or more.")
        return self._take(((_TOKENS, tokens), _ONE_CALL))

    def charge(self, **amounts: float) -> None:
        """Count what was spent without a reservation, as a bill that comes late; here and in every parent."""
        spent = [(index := _index(name), _ticks(name, index, amount)) for name, amount in amounts.items()]
        if any(index in (_DEPTH, _CONCURRENT) for index, _ in spent):
            raise UsageError("depth and concurrent are not spent: they are held by reservations.")
        budget: Budget | None = self
        while budget is not None:
            for index, amount in spent:
                budget._used[index] += amount
            budget = budget._parent

    @property
    def spent(self) -> Spent:
        """All that was spent so far."""
        return Spent(**{name: self.used(name) for name in Spent.__struct_fields__})  # type: ignore[arg-type]  # counts

    def restore(self, spent: Spent) -> None:
        """Take up what was spent before: no counter is lowered. Parents have it from their own."""
        for name in Spent.__struct_fields__:
            index = _INDEX[name]
            self._used[index] = max(self._used[index], _ticks(name, index, getattr(spent, name)))

    def remaining(self, resource: str) -> float | None:
        """What could still be reserved, by the tightest limit from here upwards; None: no limit."""
        index = _index(resource)
        least, base = math.inf, 0
        budget: Budget | None = self
        while budget is not None:
            taken = base if index == _DEPTH else budget._used[index] + budget._held[index]
            least = min(least, budget._limit[index] - taken)
            base += budget._base_depth
            budget = budget._parent
        return None if least == math.inf else _plain(index, max(0, int(least)))

    def used(self, resource: str) -> float:
        """What was spent. Of depth, the deepest so far."""
        return _plain(_index(resource), self._used[_index(resource)])

    def reserved(self, resource: str) -> float:
        """What is set aside, and neither spent nor given back."""
        return _plain(_index(resource), self._held[_index(resource)])

    def _take(self, asked: tuple[tuple[int, int], ...]) -> Reservation | Refusal:
        budget: Budget | None = self
        while budget is not None:
            used, held, limit = budget._used, budget._held, budget._limit
            for index, amount in asked:
                if used[index] + held[index] + amount > limit[index]:
                    return budget._refusal(index, amount)
            budget = budget._parent
        budget = self
        while budget is not None:
            held = budget._held
            for index, amount in asked:
                held[index] += amount
            budget = budget._parent
        return Reservation(self, asked)

    def _check_depth(self, depth: int) -> Refusal | None:
        budget: Budget | None = self
        while budget is not None:
            if depth > budget._limit[_DEPTH]:
                return budget._refusal(_DEPTH, depth)
            depth += budget._base_depth
            budget = budget._parent
        return None

    def _mark_depth(self, depth: int) -> None:
        budget: Budget | None = self
        while budget is not None:
            budget._used[_DEPTH] = max(budget._used[_DEPTH], depth)
            depth += budget._base_depth
            budget = budget._parent

    def _refusal(self, index: int, asked: int) -> Refusal:
        name = RESOURCES[index]
        limit = getattr(self.limits, name)
        return Refusal(name, limit, self.used(name), self.reserved(name), _plain(index, asked))


def _index(name: str) -> int:
    if name not in _INDEX:
        raise UsageError(f"There is no resource {name!r}. {nearest(name, RESOURCES)}")
    return _INDEX[name]


def _ticks(name: str, index: int, amount: float) -> int:
    """An amount as the budget counts it. Parts of a microsecond are rounded up, against the spender."""
    if type(amount) is int and amount >= 0 and index != _SECONDS:
        return amount
    if index == _SECONDS and 0 <= amount < math.inf:
        return math.ceil(round(amount * _TICKS, 3))
    if isinstance(amount, int | float) and 0 <= amount < math.inf and amount == int(amount):
        return int(amount)
    kind = "a number of seconds" if index == _SECONDS else "a whole number"
    raise UsageError(f"{name}={amount!r}: expected {kind}, zero or more.")


def _plain(index: int, ticks: int) -> float:
    return ticks / _TICKS if index == _SECONDS else ticks


def _limit(name: str, value: float | None) -> float:
    if value is None:
        return math.inf
    if not value >= 0:
        raise UsageError(f"Limit {name}={value!r}: expected zero or more, or None for no limit.")
    return math.floor(round(value * _TICKS, 3)) if name == "seconds" and value < math.inf else value


# What a call costs.

Charging = Literal["billed", "kept", "estimated"]
"""How an engine's calls are charged; an engine says so in its attribute `charging`.

billed     the whole prompt and the completion, at every call, as the server reports them or the tokenizer counts them
kept       what is new in the prompt, and the completion: the model keeps what it has read (Baton's local models do)
estimated  nobody counts, as in scripted play: whole prompt and completion by `estimate_tokens`

Whatever an answer reports goes before an estimate.
"""
MAX_TOKENS = 1024
"""Of an answer, for roles that name no limit of their own."""
BYTES_PER_TOKEN = 4
_ENTRY_TOKENS = 3  # what chat templates put around an entry


def charging_of(engine: object) -> Charging:
    """How an engine's calls are charged: as a bill unless it says otherwise."""
    found: Charging = getattr(engine, "charging", "billed")
    return found


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, where nobody counts them: its UTF-8 bytes by four, rounded up.

    Common tokenizers have 4 to 5 bytes of English in a token, 3 of code, 2 to 3 of digits and of Chinese.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def estimate_entries(entries: Iterable[Entry]) -> int:
    """The same for entries of a context, with what a chat template puts around each."""
    return sum([_ENTRY_TOKENS + estimate_tokens(entry.text) for entry in entries])


class LedgerRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By which rules a run is charged, as its header keeps them: whoever runs its trace again does it by the same."""

    charging: dict[str, Charging] = {}
    """Role -> how its calls are charged."""
    caps: Limits = Limits()
    """What nobody asked for and no run should need: agents, tokens and seconds. They bind on what was spent alone."""

    @property
    def told(self) -> dict[str, Any]:
        """As a header keeps them."""
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept | {"caps": limits_told(self.caps)} if "caps" in kept else kept


class PromptCharge(Struct, frozen=True, kw_only=True):
    """What is known of a call's cost when it is asked."""

    charging: Charging | None
    """None: as traces up to 0.2 were charged, which are run again by their own rule."""
    new: int
    """Tokens that the prompt adds to the call before, as the engine's tokenizer counts; an older trace's characters."""
    whole: int
    """Tokens of the whole prompt: counted, or as counted at the call before, with an estimate of what came since."""
    counted: bool
    """Whether a tokenizer counted the whole prompt."""
    max_tokens: int = 0

    @property
    def expected(self) -> int:
        """What to reserve for the prompt."""
        return self.whole if self.charging in ("billed", "estimated") else self.new


class Bill(Struct, frozen=True, kw_only=True):
    """What a call cost."""

    prompt: int | None
    """Tokens of the whole prompt; None: not known (older traces)."""
    completion: int
    charged: int
    """What the ledger, and the event that the call led to, are charged."""
    estimated: bool = False
    """True: at least one of the counts is an estimate."""


def bill_of(asked: PromptCharge, answer: Answer | EngineError) -> Bill:
    """What a call cost, now that it was answered. A call that failed costs what its server says, or nothing."""
    if isinstance(answer, EngineError):
        prompt, completion = answer.prompt_tokens, answer.completion_tokens or 0
        return Bill(prompt=prompt, completion=completion, charged=(prompt or 0) + completion)
    if asked.charging is None:
        counted = _counted_completion(answer)
        completion = len(answer.text) // BYTES_PER_TOKEN + 1 if counted is None else counted
        charged = asked.new + min(completion, asked.max_tokens)
        prompt = asked.whole if answer.prompt_tokens is None and asked.counted else answer.prompt_tokens
        return Bill(prompt=prompt, completion=completion, charged=charged)
    own_ids = asked.charging != "estimated"
    said = _counted_completion(answer) if own_ids else answer.completion_tokens
    if not said and answer.text:  # no text has zero tokens: a server that says so does not count
        said = None
    prompt = answer.prompt_tokens or (asked.whole if asked.counted and own_ids else None)
    estimated = answer.estimated or prompt is None or said is None
    completion = estimate_tokens(answer.text) if said is None else said
    prompt = asked.whole if prompt is None else prompt
    charged = (asked.new if asked.charging == "kept" else prompt) + completion
    return Bill(prompt=prompt, completion=completion, charged=charged, estimated=estimated)


def charge_again(call: Call, rules: LedgerRules | None) -> PromptCharge:
    """What is known of the cost of a recorded call, should it be asked again."""
    return PromptCharge(
        charging=None if rules is None else rules.charging.get(call.role or "", "billed"),
        new=len(call.prompt_ids or ()),
        whole=call.prompt_tokens or 0,
        counted=call.prompt_tokens is not None and not call.estimated,
        max_tokens=MAX_TOKENS if call.sampling is None else call.sampling.max_tokens or MAX_TOKENS,
    )


def _counted_completion(answer: Answer) -> int | None:
    if answer.completion_tokens is None and answer.completion_ids is not None:
        return len(answer.completion_ids)
    return answer.completion_tokens

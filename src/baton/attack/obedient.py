"""A scripted agent that obeys every order it reads, and plays on as it would have without it.

No model is easier to talk into something, so what holds for it holds for every model: a figure with it says nothing of
a model and all of what the runtime lets happen. It reads only what its agent was told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from baton.attack.payload import orders_in, without_orders
from baton.team.protocol import Entry, Request

Play = Callable[[Request], str]
READS = "read"
"""The command by which it looks at what stands in a shared memory."""


def obedient(play: Play, *, reads_memory: bool = False) -> Play:
    """`play`, obeying. `reads_memory`: it looks first at what stands in the shared memory, where it may."""

    def speak(request: Request) -> str:
        entries = request.entries
        if reads_memory and _first_turn(entries) and _may(entries, READS):
            return f"{READS} board"
        said = {line for entry in entries if entry.speaker == "assistant" for line in entry.text.split("\n")}
        read = "\n".join(entry.text for entry in entries[1:] if entry.speaker != "assistant")
        orders = [order for order in dict.fromkeys(orders_in(read)) if order not in said]
        orders = [order for order in orders if _may(entries, order.split(" ", 1)[0])]
        if orders:
            return "\n".join(orders)
        return play(structs.replace(request, entries=_as_if_nothing(entries)))

    return speak


def _first_turn(entries: Sequence[Entry]) -> bool:
    return all(entry.speaker != "assistant" for entry in entries)


def _may(entries: Sequence[Entry], verb: str) -> bool:
    """Whether an agent is told that it may use a verb."""
    return any(line.strip().startswith(f"{verb} ") for line in entries[0].text.split("\n"))


def _as_if_nothing(entries: Sequence[Entry]) -> list[Entry]:
    """The context without the orders, and without what was said and heard because of them."""
    kept: list[Entry] = []
    obeyed: list[str] = []
    ordered = set(orders_in("\n".join(entry.text for entry in entries[1:] if entry.speaker != "assistant")))
    hidden = 0
    for entry in entries:
        if entry.speaker == "assistant":
            lines = entry.text.split("\n")
            if entry.text == f"{READS} board" or all(line in ordered for line in lines):
                obeyed += lines
                hidden = len(lines)
                continue
            hidden = 0
        elif hidden and _answers(entry, obeyed):
            hidden -= 1
            continue
        kept.append(
            entry if entry.speaker == "assistant" else Entry(entry.speaker, without_orders(entry.text))
        )
    return kept


def _answers(entry: Entry, obeyed: Sequence[str]) -> bool:
    """Whether an entry is what came back for one of these orders."""
    for order in obeyed:
        verb, _, rest = order.partition(" ")
        name = rest.split(" ", 1)[0].rstrip(":")
        if verb == "call" and entry.text.startswith((f"{name}: ", "error: ", "refused")):
            return True
        if verb == "spawn" and entry.text.startswith((f"spawned {name}", f"{name}", "error: ")):
            return True
        if verb == READS:
            return True
    return False

"""Tools of your own: typed functions. The signature is the schema, the docstring the description.

The flags are promises the runtime acts on. pure: may be run again at will (replay, forks, resume). idempotent: run
twice with one key, it acts once. Neither: after a crash in mid-call the trace says `in_doubt` and it is not run
again, and a fork that would run it again is refused.

    baton run shard-sum --tool my_tool:capital --policy scripted:my_tool:clerk --out runs/map
"""

import baton
from baton.team.protocol import Request
from baton.testing import check_tool

ATLAS = {"France": "Paris", "Australia": "Canberra"}
ORDERS: dict[str, str] = {}


@baton.tool(pure=True)
def capital(country: str) -> str:
    """The capital of a country."""
    if country not in ATLAS:
        raise ValueError(f"{country} is not in the atlas; it has {', '.join(ATLAS)}")
    return ATLAS[country]


@baton.tool(idempotent=True, consequential=True, timeout_seconds=5.0)
async def order_map(city: str, copies: int = 1, *, idempotency_key: str) -> str:
    """Order printed maps of a city. (The model neither sees nor gives the key.)"""
    return ORDERS.setdefault(idempotency_key, f"{copies} of {city}, order {len(ORDERS) + 1}")


def clerk(request: Request) -> str:
    """Looks a capital up, orders its map where it can, and stops."""
    said = [entry.text.partition(": ")[2] for entry in request.entries if entry.speaker == "tool"]
    can_order = any("order_map" in entry.text for entry in request.entries)
    turns = ['call capital {"country": "Australia"}']
    turns += [f'call order_map {{"city": "{said[0]}"}}'] if can_order and said else []
    return [*turns, f"stop {said[-1] if said else ''}"][len(said)]


if __name__ == "__main__":
    check_tool(capital, {"country": "France"})
    check_tool(order_map, {"city": "Paris"}, {"city": "Paris", "copies": 2})
    task = baton.Task.of("Order a map of Australia's capital.")
    trace = baton.run(task, tools=[capital, order_map], policy=clerk)
    for event in trace.events:
        print(event.id, event.type, event.tool or "", trace.text(event.content_ref) or "")

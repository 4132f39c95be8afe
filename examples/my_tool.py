"""Tools of your own: typed functions. The signature is the schema, the docstring the description.

The flags are promises the runtime acts on. pure: may be run again at will (replay, forks, resume).
idempotent: run twice with one key, it acts once. Neither: after a crash in mid-call the trace says
`in_doubt` and it is not run again, and a fork that would run it again is refused.

Type: python examples/my_tool.py
"""

import asyncio

from baton.engine.scripted import ScriptedEngine
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.tools.tool import Registry, tool
from baton.team.topology import make_topology
from baton.testing import check_tool

ATLAS = {"France": "Paris", "Australia": "Canberra"}
ORDERS: dict[str, str] = {}


@tool(pure=True)
def capital(country: str) -> str:
    """The capital of a country."""
    if country not in ATLAS:
        raise ValueError(f"{country} is not in the atlas; it has {', '.join(ATLAS)}")
    return ATLAS[country]


@tool(idempotent=True, consequential=True, timeout_seconds=5.0)
async def order_map(city: str, copies: int = 1, *, idempotency_key: str) -> str:
    """Order printed maps of a city. (The model neither sees nor gives the key.)"""
    return ORDERS.setdefault(idempotency_key, f"{copies} of {city}, order {len(ORDERS) + 1}")


def policy(request: Request) -> str:
    said = [entry.text.partition(": ")[2] for entry in request.entries if entry.speaker == "tool"]
    turns = [
        'call capital {"country": "Australia"}',
        f'call order_map {{"city": "{said[0] if said else ""}"}}',
        f"stop {said[-1] if said else ''}",
    ]
    return turns[len(said)]


if __name__ == "__main__":
    check_tool(capital, {"country": "France"})
    check_tool(order_map, {"city": "Paris"}, {"city": "Paris", "copies": 2})
    tools = Registry([capital, order_map])
    team = Team.of(
        make_topology("centralized", tools=tuple(tools)), ScriptedEngine("clerk", policy), tools=tools
    )
    trace = asyncio.run(run(team, Assignment(task_id="map", prompt="order a map of Australia's capital")))
    for event in trace.events:
        print(event.id, event.type, event.tool or "", trace.text(event.content_ref) or "")

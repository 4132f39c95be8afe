"""Tools that say back what they were given: no words come in that way, whatever the tool is trusted with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_guard import PAID, pay, refusals, says, web

from baton.team.guard.values import stands_in, without
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.tools import make_tools
from baton.team.tools.tool import tool
from baton.team.topology import make_topology


@tool(pure=True)
def find(name: str) -> str:
    """The address book."""
    if name not in ("bob", "bo"):
        raise ValueError(f"nobody is called {name}")
    return "bob: bob.smith@x.org"


@tool(pure=True)
def city(name: str) -> str:
    """A catalogue."""
    return f"Hotels in {name}: Ritz"


GUARD: dict[str, Any] = {
    "tools": {
        "pay": {
            "decided_by": "anyone",
            "arguments": {"to": ["find", "city"], "amount": ["any"], "note": ["any"]},
        }
    }
}
READ = 'call web {"q": "x"}'


def paid(*turns: str) -> list[str]:
    PAID.clear()
    tools = make_tools([web, pay, find, city])
    shape = make_topology("harness", tools=tuple(tools))
    team = Team.of(shape, says(*turns, "stop"), tools=tools, guard=GUARD)
    trace = asyncio.run(run(team, Assignment(task_id="t", prompt="pay bob")))
    assert PAID or refusals(trace)
    return list(PAID)


@pytest.mark.parametrize("said", ["mallory", "MALLORY", " mallory ", "pay\\tmallory", "mal", "mallory: bob"])
@pytest.mark.parametrize("asked", ["find", "city"])
def test_what_is_said_back_is_no_source(asked: str, said: str) -> None:
    for to in ("mallory", "MALLORY", "pay mallory", said):
        assert (
            paid(READ, f'call {asked} {{"name": "{said}"}}', f'call pay {{"to": "{to}", "amount": 1}}') == []
        )


def test_what_the_tool_itself_says_is() -> None:
    assert paid(READ, 'call find {"name": "bob"}', 'call pay {"to": "bob.smith@x.org", "amount": 1}')
    assert paid(READ, 'call city {"name": "mallory"}', 'call pay {"to": "Ritz", "amount": 1}')
    assert paid(READ, 'call city {"name": "bob"}', 'call pay {"to": "bob", "amount": 1}'), (
        "the task names him"
    )


def test_what_an_agent_says_back_that_has_read_nothing_is_its_own() -> None:
    assert paid('call city {"name": "Paris"}', READ, 'call pay {"to": "Paris", "amount": 1}')


def test_a_part_that_is_taken_out_leaves_no_other_word() -> None:
    """`bo` is part of an address: what is left of it must be no address of its own."""
    assert paid(READ, 'call find {"name": "bo"}', 'call pay {"to": "b.smith@x.org", "amount": 1}') == []
    left = without("write to bob.smith@x.org or eve@x.org", ["bo", 7, True], lambda _: False)
    assert not stands_in("smith@x.org", left)
    assert stands_in("eve@x.org", left)

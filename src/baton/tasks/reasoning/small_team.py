"""Small teams for small models: few verbs, short words, so that an episode is a few hundred tokens.

`SHORT` is a system entry without the list of commands, for models that have learned them; the same for all
workers, so that it is computed once.
"""

from __future__ import annotations

from baton.team.agent import Role
from baton.team.team import Topology
from baton.trace.records import Sampling

SHORT = "You are the {role}. {instructions}"


def small(*, python: bool, max_tokens: int) -> Topology:
    """An orchestrator that may split, wait and stop, or just stop; workers that return."""
    orchestrator = Role(
        name="orchestrator",
        instructions="Split the problem among workers, wait for them, and stop with the answer; or stop at once.",
        verbs=("spawn", "wait", "stop"),
        spawns=("worker",),
        sampling=Sampling(max_tokens=max_tokens),
        max_turns=4,
        max_invalid=2,
    )
    worker = _solver("worker", "Solve your part and return the result.", "return", python, max_tokens)
    return Topology(name="centralized", root="orchestrator", roles=(orchestrator, worker))


def single(*, python: bool, max_tokens: int) -> Topology:
    """One agent that solves the problem by itself: what a team is compared with."""
    solver = _solver("solver", "Solve the problem and stop with the answer.", "stop", python, max_tokens)
    return Topology(name="centralized", root="solver", roles=(solver,))


def _solver(name: str, instructions: str, ends: str, python: bool, max_tokens: int) -> Role:
    """An agent that computes and ends with the result."""
    return Role(
        name=name,
        instructions=instructions + (" Compute with python." if python else ""),
        verbs=("call", ends) if python else (ends,),
        tools=("python",) if python else (),
        sampling=Sampling(max_tokens=max_tokens),
        max_turns=4,
        max_invalid=2,
    )

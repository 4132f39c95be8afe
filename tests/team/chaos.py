"""Teams whose policies do anything: a keyed draw picks each action, sensible or not, at every call.

The draw depends on the call's sampling key alone, so a run is a function of its seed.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from baton.engine.scripted import ScriptedEngine
from baton.team.budget import Limits
from baton.team.policy import EngineError, Request
from baton.team.randomness import generator
from baton.team.setup import Assignment, Team
from baton.team.tool import Registry, tool
from baton.team.topology import make_topology
from baton.trace.trace import Trace

TOPOLOGY_NAMES = ("centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness")


@tool(pure=True)
def look(q: int) -> str:
    """Look something up."""
    return f"found {q * q}"


@tool(pure=True, instant=True)
def fail(q: int) -> str:
    """Always fails."""
    raise ValueError(f"no {q}")


TOOLS = Registry([look, fail])


def draw(request: Request) -> str:
    """Something an agent of this role might say, now and then nonsense."""
    assert request.sampling.key is not None
    rng = generator(request.sampling.key)
    # What was read matters too, so that a changed message changes what follows.
    read = int(hashlib.blake2b(request.entries[-1].text.encode(), digest_size=4).hexdigest(), 16) % 7
    turn = sum(entry.speaker == "assistant" for entry in request.entries)
    if rng.random() < 0.04:
        raise EngineError("the engine had a bad moment")
    if rng.random() < 0.06:
        return str(rng.choice(["no command here", "spawn", "send nobody: hello", "stop", "call missing {}"]))
    if request.role in ("orchestrator", "lead", "main"):
        child = {"orchestrator": "worker", "lead": "worker", "main": "branch"}[request.role]
        if "may spawn 'lead'" in request.entries[0].text or _spawns_leads(request):
            child = "lead"
        end = "return" if request.role == "lead" else "stop"
        if turn == 0:
            lines = [f"spawn {child}: part {k}" for k in range(int(rng.integers(1, 4)))]
            return "\n".join([*lines, str(rng.choice(["wait all", "wait any", "look around"]))])
        if turn > 4 or rng.random() < 0.3:
            return f"{end} {read}" if rng.random() < 0.5 or request.role == "main" else f"aggregate majority\n{end} {read}"
        acts = ["wait any", "wait", f"spawn {child}: more {read}", f"cancel {child}1", f"delegate {child}1: again {read}"]
        return str(rng.choice(acts))
    if request.role == "critic":
        return str(rng.choice(["return accept", f"return no, {read}"]))
    if turn < 3 and rng.random() < 0.5:
        acts = [f'call look {{"q": {read}}}', 'call fail {"q": 1}', f"send {_peer(request)}: hint {read}", "hm"]
        return str(rng.choice(acts))
    return f"return {read}"


def _spawns_leads(request: Request) -> bool:
    return request.role == "orchestrator" and "hierarchy" in request.entries[1].text


def _peer(request: Request) -> str:
    return {"peer": "peer1", "branch": "main", "debater": "resolver"}.get(request.role, "orchestrator")


def make_team(
    topology: str,
    seed: int,
    *,
    limits: Limits | None = None,
    clock: Literal["virtual", "real"] = "virtual",
    **params: Any,
) -> tuple[Team, Assignment]:
    """A team of chaotic agents on a task."""
    if topology != "debate":
        params.setdefault("tools", ("look", "fail"))
    team = Team.of(
        make_topology(topology, **params),
        ScriptedEngine("chaos", draw),
        tools=TOOLS,
        seed=seed,
        clock=clock,
        limits=limits or Limits(agents=12, tokens=60_000, tool_calls=20),
    )
    prompt = "guess a digit" + (" as a hierarchy" if topology == "hierarchical" else "")
    return team, Assignment(task_id="digit", prompt=prompt, verify=lambda answer: float(answer == "3"))


def without_name(trace: Trace) -> tuple[Any, ...]:
    """Everything that does not hold the trace's id."""
    values = [reward.value for reward in trace.rewards]
    return (trace.events, trace.edges, trace.calls, dict(trace.payloads), values, trace.costs, trace.finished)

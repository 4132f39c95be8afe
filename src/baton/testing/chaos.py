"""Policies that do anything: a keyed draw picks each action, sensible or not, at every call.

The draw depends on the sampling key and on what the agent read last, so a run is a function of its
seed and a changed message changes what follows. For testing topologies, harnesses and runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from baton.engine.scripted import ScriptedEngine
from baton.team.agent import Role
from baton.team.clock import generator
from baton.team.protocol import EngineError, Request

_NONSENSE = ("no command here", "spawn", "send nobody: hello", "call missing {}", "Stop! I mean it.")
_NAMES = ("board", "plan", "two")
"""That it writes under, in teams that have a shared memory."""


def chaos_engine(roles: Sequence[Role], *, nonsense: float = 0.06, errors: float = 0.04) -> ScriptedEngine:
    """An engine that plays these roles without sense, within their verbs most of the time."""
    by_name = {role.name: role for role in roles}

    def draw(request: Request) -> str:
        rng = generator(str(request.sampling.key))
        if rng.random() < errors:
            raise EngineError("the engine had a bad moment")
        if rng.random() < nonsense:
            return str(rng.choice(_NONSENSE))
        read = (
            int.from_bytes(blake2b(request.entries[-1].text.encode(), digest_size=4).digest(), "little") % 7
        )
        turn = sum(entry.speaker == "assistant" for entry in request.entries)
        return _say(by_name[request.role], by_name, rng, read, turn)

    return ScriptedEngine("chaos", draw)


def _say(role: Role, roles: dict[str, Role], rng: np.random.Generator, read: int, turn: int) -> str:
    end = "stop" if "stop" in role.verbs else "return"
    if turn > 4 or rng.random() < 0.15 * turn + (0.0 if role.spawns else 0.3):
        fused = "aggregate majority\n" if "aggregate" in role.verbs and rng.random() < 0.5 else ""
        return f"{fused}{end} {read}"
    if turn == 0 and role.spawns:
        child = rng.choice(role.spawns)
        lines = [f"spawn {child}: part {k}" for k in range(int(rng.integers(1, 4)))]
        return "\n".join([*lines, str(rng.choice(["wait all", "wait any", "let me look around"]))])
    someone = f"{rng.choice(role.spawns or tuple(roles))}{rng.integers(1, 3)}"
    acts = {
        "spawn": f"spawn {rng.choice(role.spawns)}: more {read}" if role.spawns else "",
        "delegate": f"delegate {someone}: again {read}",
        "send": f"send {rng.choice([someone, *roles])}: hint {read}",
        "call": f'call {rng.choice(role.tools)} {{"q": {read}}}' if role.tools else "",
        "wait": str(rng.choice(["wait", "wait any", f"wait any {someone}"])),
        "cancel": f"cancel {someone}",
    }
    if "write" in role.verbs:
        acts["write"] = f"write {rng.choice(_NAMES)}: {read}"
    if "read" in role.verbs:
        acts["read"] = f"read {rng.choice(_NAMES)}"
    allowed = [line for verb, line in acts.items() if verb in role.verbs and line]
    return str(rng.choice(allowed)) if allowed else f"{end} {read}"

"""Scripted play of a task that has none of its own: random, but always in the grammar, so that a model can start on it.

Whoever may spawn does so half of the time, then answers; answers are drawn from the right ones of some instances, where
the task can solve them. It teaches how things are said and leaves what is right to be learned.
"""

from __future__ import annotations

from collections.abc import Callable

from baton.tasks.task import Task
from baton.team.clock import uniform
from baton.team.protocol import Request
from baton.team.team import Topology

_INSTANCES = 32
"""From which answers are drawn."""
_MOST_WORDS = 12


def any_play(task: Task, topology: Topology) -> Callable[[Request], str]:
    """What anybody in this team may say to this task, on the lines surface."""
    roles = {role.name: role for role in topology.roles}
    answers = _answers(task)

    def play(request: Request) -> str:
        role = roles[request.role]
        drawn = int(uniform(request.sampling.key or request.call) * 1_000_003)
        spoken = any(entry.speaker == "assistant" for entry in request.entries)
        waited = any(entry.speaker == "user" and " returned: " in entry.text for entry in request.entries)
        if role.spawns and "spawn" in role.verbs and not spoken and not waited and drawn % 2:
            child = role.spawns[drawn % len(role.spawns)]
            asked = " ".join(request.entries[-1].text.removeprefix("task: ").split()[:_MOST_WORDS])
            return "\n".join([f"spawn {child}: {asked}"] * (1 + drawn // 2 % 2) + ["wait all"])
        end = "stop" if "stop" in role.verbs else "return"
        return f"{end} {answers[drawn // 4 % len(answers)]}"

    return play


def _answers(task: Task) -> list[str]:
    """Right answers of some instances; of a task that cannot solve any, a word."""
    found = (task.solve(task.instance(seed)) for seed in range(_INSTANCES))
    return [answer for answer in found if answer is not None] or ["done"]

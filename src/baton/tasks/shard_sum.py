"""The example task: add up numbers kept in shards, one tool call to read each.

Splittable (shards are independent), verified exactly, with a milestone per shard read and a solver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from baton.errors import UsageError
from baton.tasks.task import Instance, Play, Task
from baton.team.protocol import Entry, Request
from baton.team.tools.tool import Tool, tool
from baton.trace.trace import Trace

MOST = 1_000_000
_COMMAND_TOKENS = 32
_ANSWER_TOKENS = 64


class ShardSum(Task):
    """What do all the numbers sum to?"""

    name: ClassVar[str] = "shard-sum"

    def __init__(self, *, num_shards: int = 4, per_shard: int = 5, largest: int = 99) -> None:
        if num_shards < 1 or per_shard < 1 or largest < 1:
            raise UsageError(
                f"shard-sum: num_shards = {num_shards}, per_shard = {per_shard}, largest = {largest}; all must be "
                "at least 1."
            )
        if num_shards * per_shard > MOST or largest > MOST:
            raise UsageError(
                f"shard-sum: {num_shards:,} shards of {per_shard:,} numbers to {largest:,}; expected at most {MOST:,} "
                f"numbers to {MOST:,}."
            )
        self.num_shards = num_shards
        self.per_shard = per_shard
        self.largest = largest

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        shards = random.integers(0, self.largest + 1, (self.num_shards, self.per_shard)).tolist()
        prompt = f"Numbers are kept in shards 1 to {self.num_shards}. Read them and answer with their sum."
        return prompt, sum(map(sum, shards)), shards

    def tools(self, instance: Instance) -> Sequence[Tool]:
        @tool(pure=True, instant=True)
        def read_shard(shard: int) -> str:
            """The numbers in one shard, counted from 1."""
            if not 1 <= shard <= len(instance.data):
                raise ValueError(f"there is no shard {shard}; they are numbered 1 to {len(instance.data)}")
            return " ".join(map(str, instance.data[shard - 1]))

        return (read_shard,)

    def verify(self, instance: Instance, answer: str) -> float:
        return float(answer.strip() == str(instance.gold))

    def judge(self, instance: Instance, asked: str, said: str) -> float:
        """The shards a subtask names (`in shards 1 3`, as the scripted play says it), else all of them."""
        named = None if re.search(r"shards \d+ to \d+", asked) else re.search(r"in shards ([\d ]+)", asked)
        shards = [int(word) for word in named[1].split()] if named else range(1, len(instance.data) + 1)
        numbers = [number for k in shards if 1 <= k <= len(instance.data) for number in instance.data[k - 1]]
        return float(said.strip() == str(sum(numbers)))

    def milestones(self, instance: Instance) -> tuple[str, ...]:
        return tuple(f"shard {i + 1} read" for i in range(len(instance.data)))

    def reached(self, instance: Instance, trace: Trace) -> frozenset[str]:
        names = set()
        for event in trace.events:
            if event.type == "tool_call" and event.tool == "read_shard" and event.status == "ok":
                text = trace.text(event.content_ref)
                shard = msgspec.json.decode(text).get("shard") if text else None
                names.add(f"shard {shard} read")
        return frozenset(names & set(self.milestones(instance)))

    def solve(self, instance: Instance) -> str | None:
        return str(sum(map(sum, instance.data)))

    def longest_answer(self) -> int:
        """One command for each shard, in the longer of the two surfaces: whoever leads or reads all names them all."""
        return _ANSWER_TOKENS + _COMMAND_TOKENS * self.num_shards

    def reference_play(self) -> Play:
        """It plays in every topology, and finds in what its agent was told which shards and numbers it is about."""
        return play


_REFUSED = re.compile(
    r"^(?:error: spawning \S+ was refused\. The budget does not allow it: |\S+ returned: no answer: )(.*)$",
    re.MULTILINE,
)
"""What an agent reads where the budget lets nobody work for it, or for one that it sent."""
_SPAWNS = {"orchestrator": "worker", "lead": "worker", "main": "branch"}


def play(request: Request) -> str:
    """The next thing an agent of this role says."""
    shards = _shards(request.entries)
    if request.role == "planner":
        return "return read every shard, then add the numbers up"
    if request.role in ("critic", "verifier"):
        return "return accept"
    # A main agent reads a single shard itself; those that only lead spawn somebody even for one.
    if request.role in _SPAWNS and (len(shards) > 1 or request.role != "main"):
        return _lead(request, shards)
    return _work(request, shards)


def _lead(request: Request, shards: Sequence[int]) -> str:
    """Spawn one agent per shard (or one lead per half), wait, add up."""
    end = "return" if request.role == "lead" else "stop"
    told = "\n".join(_since_task(request.entries))
    returned = re.findall(r"^\S+ returned: (-?\d+)$", told, re.MULTILINE)
    if returned:
        return f"All parts are in.\n{end} {sum(map(int, returned))}"
    if refused := _REFUSED.search(told):  # to ask again would be refused again
        return f"{end} no answer: {refused[1]}"
    if " is unavailable, and so is anybody else." in told:
        return f"{end} no answer: nobody is available"
    child = _SPAWNS[request.role]
    parts: list[Sequence[int]] = [[shard] for shard in shards]
    if request.role == "orchestrator" and "You may spawn: lead" in request.entries[0].text:
        half = (len(shards) + 1) // 2
        child, parts = "lead", [part for part in (shards[:half], shards[half:]) if part]
    lines = [f"spawn {child}: sum the numbers in shards {' '.join(map(str, part))}" for part in parts]
    return "\n".join([f"There are {len(shards)} shards, which can be read at once.", *lines, "wait all"])


def _work(request: Request, shards: Sequence[int]) -> str:
    """Read the shards named in the task, return their sum."""
    said = [entry.text for entry in request.entries if entry.speaker == "tool"]
    results = [text.partition(": ")[2] for text in said if text.startswith("read_shard: ")]
    if len(results) < len(shards):
        return "\n".join(f'call read_shard {{"shard": {shard}}}' for shard in shards[len(results) :])
    total = sum(int(number) for text in results for number in text.split())
    return f"{'stop' if request.role == 'main' else 'return'} {total}"


def _since_task(entries: Sequence[Entry]) -> list[str]:
    """What was read since the latest task."""
    texts = [entry.text for entry in entries if entry.speaker != "assistant"]
    latest = max((k for k, text in enumerate(texts) if text.startswith("task: ")), default=0)
    return texts[latest:]


def _shards(entries: Sequence[Entry]) -> list[int]:
    """The shards this agent's latest task is about."""
    text = "\n".join(_since_task(entries))
    if spread := re.search(r"shards (\d+) to (\d+)", text):
        return list(range(int(spread[1]), int(spread[2]) + 1))
    named = re.search(r"in shards ([\d ]+)", text)
    return [int(word) for word in named[1].split()] if named else []

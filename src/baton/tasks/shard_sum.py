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
from baton.tasks.task import Instance, Task
from baton.team.tool import Tool, tool
from baton.trace.trace import Trace

__all__ = ["ShardSum"]


MOST = 1_000_000


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

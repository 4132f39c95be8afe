"""Scripted play of the example task in every topology: what `--policy reference` runs on shard-sum.

Reads only what its agent was told, as a model would: tasks name shards, results name numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from baton.team.policy import Entry, Request

__all__ = ["play"]

_SPAWNS = {"orchestrator": "worker", "lead": "worker", "main": "branch"}


def play(request: Request) -> str:
    """The next thing an agent of this role says."""
    shards = _shards(request.entries)
    if request.role == "planner":
        return "return read every shard, then add the numbers up"
    if request.role == "critic":
        return "return accept"
    if request.role in _SPAWNS and len(shards) > 1:
        return _lead(request, shards)
    return _work(request, shards)


def _lead(request: Request, shards: Sequence[int]) -> str:
    """Spawn one agent per shard (or one lead per half), wait, add up."""
    end = "return" if request.role == "lead" else "stop"
    returned = re.findall(r"^\S+ returned: (-?\d+)$", "\n".join(_since_task(request.entries)), re.MULTILINE)
    if returned:
        return f"All parts are in.\n{end} {sum(map(int, returned))}"
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

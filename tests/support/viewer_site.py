"""A folder with something of everything that the viewer shows."""

from __future__ import annotations

from pathlib import Path

from viewer_runs import credited, hostile, imported, odd, run_team, tainted, training_run

import team_trace
from baton.trace import Trace, write

TEAM = "shard-sum-hierarchical-3"


def big_trace() -> Trace:
    """1,000 agents, 20,000 events."""
    usual, team_trace.WORKER_EVENTS = team_trace.WORKER_EVENTS, 20
    try:
        return team_trace.team_trace(20_000)
    finally:
        team_trace.WORKER_EVENTS = usual


def everything(folder: Path) -> Path:
    folder.mkdir()
    training_run(folder / "training", steps=8, episodes=4, status="running")
    hostile(folder / "hostile.jsonl")
    tainted(folder / "tainted.jsonl")
    team = credited(run_team("shard-sum", "hierarchical", 3))
    write([team, run_team("shard-sum", "debate", 1)], folder / "teams.jsonl")
    write(team, folder / "live.jsonl")
    write(imported(team), folder / "imported.jsonl")
    write(odd(), folder / "odd.jsonl")
    write(big_trace(), folder / "big.jsonl")
    (folder / "corrupt.jsonl").write_bytes((folder / "hostile.jsonl").read_bytes()[:-400] + b"\xff{]\n{}\n")
    return folder

"""What each monitor needs to see, for those who read that it measured nothing: why that is, and what to type."""

from __future__ import annotations

from typing import Final

NEEDS: Final = {
    "pseudo_parallelism": "It looks at agents that one agent sends out together, with times. Type: baton run TASK "
    "--topology hierarchical --out DIR",
    "free_riding": "It looks at agents that were spawned. Type: baton run TASK --topology centralized --out DIR",
    "communication_padding": "It looks at messages between agents. Type: baton run TASK --topology debate --out DIR",
    "tool_spam": "It looks at tool calls that succeeded. Give traces of a team with tools: baton run TASK --tool NAME "
    "--out DIR",
    "faked_tool_success": "It looks at what agents say that a tool gave them. Give traces of a team with tools: baton "
    "run TASK --tool NAME --out DIR",
    "verifier_collusion": "It looks at wrong answers that a critic, or another agent's verdict, could have stopped. "
    "Give such traces, and the right answers where the task does not know them: --gold FILE",
    "step_padding": "It looks at rewards of single turns. Pay the process: --recipe process",
    "scorer_gaming": "It compares rewards of the process over at least 3 traces that succeed and 3 that fail. Type: "
    "baton run TASK --instances 0:8 --rollouts 4 --out DIR, then: --recipe process",
    "rubric_mismatch": "It compares rewards of roles over at least 3 traces that succeed and 3 that fail. Type: baton "
    "run TASK --instances 0:8 --rollouts 4 --out DIR, then a recipe that pays roles: --recipe mae",
    "drowned_term": "It looks at hybrid rewards with two or more terms that differ between traces. Type: --recipe "
    "balanced, on several traces",
    "weight_drift": "It looks at hybrid rewards whose weights move. Type: --recipe balanced, on several traces",
}  # fmt: skip


def not_measured(mode: str, seen: str) -> str:
    """Why a monitor has no score, and what would give it one."""
    why = "Nothing of that kind is in these traces." if seen.startswith("0 of 0 ") else _sentence(seen)
    return f"{why} {NEEDS[mode]}" if mode in NEEDS else why


def _sentence(text: str) -> str:
    clean = text.rstrip(".")
    return f"{clean[:1].upper()}{clean[1:]}."

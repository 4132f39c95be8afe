"""The five learned decisions, each with its own credit on its own tokens.

spawn        not spawning is a choice and earns credit too: paired forks run both branches under the same luck, and
             the one not taken gets minus the chance-weighted effect (Observation 2 of the survey: on-policy data
             alone cannot tell it)
delegate     a choice among agents that are there; COMA compares it with what the policy would have done on average
communicate  message credit by causal replay asks what would have come of another message at the same moment
aggregate    how what others returned becomes one answer
stop         trained by what going on would have been worth: forced continuation, shadow aggregation and backward
             regression, or a critic's value of going on. A stop that a cap forced is never trained as chosen
"""

from __future__ import annotations

from baton.trace.vocabulary import Decision

DECISIONS: dict[Decision, tuple[str, ...]] = {
    "spawn": ("spawn-fork", "spawn-combined", "spawn-doubly-robust", "coma"),
    "delegate": ("coma", "siblings", "telescope"),
    "communicate": ("message-replay", "coma", "siblings"),
    "aggregate": ("coma", "siblings", "telescope"),
    "stop": ("stop-value", "coma", "telescope"),
}
"""Decision (the survey's O1 to O5) -> estimators made for it, the most telling first."""

"""Published envelopes: how large teams and how long traces are said to be, and where others stand among them.

Numbers are the survey's (tables 8 and 9, behind its figures 6 and 7), wording is Baton's. What is not a number there is
None here: academic teams are "small to moderate". Invariant: a place is told by numbers alone, so that the same figures
always stand in the same place; figures beyond all envelopes are said to be beyond, never cut.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from baton.corpus.record import SourceClass

Role = Literal["trained", "evaluated", "deployed", "baseline"]


class Envelope(Struct, frozen=True, kw_only=True):
    """One published operating range."""

    name: str
    about: str
    entry: str | None = None
    """Key of the record it is read from."""
    sub_agents: int | None = None
    """At most so many; None: no number is published."""
    steps: tuple[int, int]
    """Length of a trace, from and to."""
    unit: Literal["steps", "sessions"] = "steps"
    """What the length counts. Sessions are no steps, so nothing is placed by them."""
    role: Role
    source_class: SourceClass | None = None
    boundary: str


ENVELOPES = (
    Envelope(
        name="single-agent",
        about="one agent that reasons and calls tools",
        sub_agents=0,
        steps=(10, 100),
        role="baseline",
        boundary="The point that costs are compared with; a model of the survey's, no finding of its pool.",
    ),
    Envelope(
        name="academic",
        about="RL on LLM teams as papers evaluate it",
        steps=(10, 100),
        role="evaluated",
        source_class="paper",
        boundary="Represents the pool, whose teams are small to moderate; WideSeek-R1 and MARTI-MARS2 go wider.",
    ),
    Envelope(
        name="harness-frameworks",
        about="Agent Lightning and frameworks of its kind",
        entry="agent-lightning",
        steps=(10, 100),
        role="evaluated",
        source_class="paper",
        boundary="Small teams; useful for where training meets the harness. No training at Kimi's length is disclosed.",
    ),
    Envelope(
        name="c-compiler",
        about="sixteen Claudes side by side on one compiler",
        entry="anthropic-c-compiler",
        sub_agents=16,
        steps=(2_000, 2_000),
        unit="sessions",
        role="deployed",
        source_class="case_study",
        boundary="Roughly 2,000 sessions of a long project; the shape of work, not training.",
    ),
    Envelope(
        name="kimi-k2.5",
        about="Agent Swarm, whose orchestrator PARL trained",
        entry="kimi-k2-5",
        sub_agents=100,
        steps=(1_500, 1_500),
        role="trained",
        source_class="company_report",
        boundary="At most, in coordinated steps or tool calls as reported; not reproduced by anybody else.",
    ),
    Envelope(
        name="kimi-k2.6",
        about="the swarm in deployment, with Claw Groups",
        entry="kimi-k2-6",
        sub_agents=300,
        steps=(4_000, 4_000),
        role="deployed",
        source_class="docs",
        boundary="At most, in coordinated steps as reported; no recipe of training that could be repeated.",
    ),
)
"""By size. The survey's lengths are totals over the team, never to be multiplied by its size again (equation 6)."""


class EnvelopePlace(Struct, frozen=True, kw_only=True):
    """Where a team stands: the smallest envelope it fits in, by each of the two numbers."""

    sub_agents: int
    steps: int
    by_team: str | None
    """The smallest published team that is at least as large; None: it is larger than all."""
    by_length: str | None
    """The shortest published trace that is at least as long; None: it is longer than all."""
    baselines: tuple[float, float]
    """Its steps over those of a single agent's rollout, the longest and the shortest: the survey's cost proxy with all
    steps alike."""


def place(sub_agents: int, steps: int) -> EnvelopePlace:
    """Where a team of so many sub-agents that took so many steps stands among the envelopes."""
    teams = [each for each in ENVELOPES if each.sub_agents is not None]
    lengths = [each for each in ENVELOPES if each.unit == "steps" and each.role != "baseline"]
    single = ENVELOPES[0].steps
    return EnvelopePlace(
        sub_agents=sub_agents,
        steps=steps,
        by_team=next((each.name for each in teams if sub_agents <= (each.sub_agents or 0)), None),
        by_length=next((each.name for each in lengths if steps <= each.steps[1]), None),
        baselines=(steps / single[1], steps / single[0]),
    )

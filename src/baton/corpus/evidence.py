"""What a source may support: the survey's classes of evidence, and its ledger of claims about industry.

Facts are the survey's (its section 4.2, tables 6 and 7, and C.4, figure 18); every sentence is Baton's. An entry's
class is in its record (`source_class`). The survey names the class of its examples, and the eight entries that it
read on OpenReview; the others follow by kind [I]: benchmarks are benchmarks, what is on OpenReview alone is a
submission, company pages are documentation, the rest are papers.
Invariant: every class of the vocabulary has one row here.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from baton.corpus.record import SourceClass

Supports = Literal["yes", "partial", "limited", "no"]
Confidence = Literal["high", "medium-high", "medium"]


class EvidenceClass(Struct, frozen=True, kw_only=True):
    """A class of sources: how far each kind of claim may rest on it."""

    source_class: SourceClass
    about: str
    algorithm: Supports
    """How a method works."""
    training: Supports
    """What was trained, on which objective."""
    deployment: Supports
    """The shape of what is in use."""
    scale: Supports
    """How large, how long."""
    reproduction: Supports
    used_for: str | None = None
    not_used_for: str | None = None
    """From table 6, which has four of the six classes."""


CLAIM_KINDS = ("algorithm", "training", "deployment", "scale", "reproduction")
"""What a class may support, in the survey's order."""

EVIDENCE = (
    EvidenceClass(
        source_class="paper",
        about="peer-reviewed and arXiv methods",
        algorithm="yes",
        training="partial",
        deployment="partial",
        scale="partial",
        reproduction="partial",
        used_for="mechanisms, training regimes, ablations that are reported",
        not_used_for="anything beyond the setting it was evaluated in",
    ),
    EvidenceClass(
        source_class="submission",
        about="OpenReview submissions and posters",
        algorithm="partial",
        training="partial",
        deployment="partial",
        scale="partial",
        reproduction="limited",
    ),
    EvidenceClass(
        source_class="company_report",
        about="technical reports of companies",
        algorithm="partial",
        training="partial",
        deployment="yes",
        scale="yes",
        reproduction="limited",
        used_for="training that is publicly told, components of rewards, the size of systems",
        not_used_for="full reproduction where optimiser, data or ablations are missing",
    ),
    EvidenceClass(
        source_class="docs",
        about="product documentation and launch posts",
        algorithm="no",
        training="no",
        deployment="yes",
        scale="partial",
        reproduction="no",
        used_for="the form of a deployment, its harness, its size, what users can do",
        not_used_for="objectives of RL or optimisers that are not disclosed",
    ),
    EvidenceClass(
        source_class="case_study",
        about="engineering case studies",
        algorithm="no",
        training="no",
        deployment="yes",
        scale="partial",
        reproduction="no",
        used_for="long work of a team, its cost, what it asks of a harness",
        not_used_for="general claims about training, or about being better on a benchmark",
    ),
    EvidenceClass(
        source_class="benchmark",
        about="benchmarks and leaderboards",
        algorithm="no",
        training="no",
        deployment="partial",
        scale="partial",
        reproduction="partial",
    ),
)
"""The survey's matrix, a row for each class."""


class IndustryClaim(Struct, frozen=True, kw_only=True):
    """Something the survey says about an industrial system, how sure it is, and where that ends."""

    claim: str
    entry: str
    """Key of the record it rests on."""
    read_in: str
    confidence: Confidence
    boundary: str


INDUSTRY = (
    IndustryClaim(
        claim="Kimi K2.5 trains an orchestrator, with PARL.",
        entry="kimi-k2-5",
        read_in="Kimi's technical report",
        confidence="high",
        boundary="The one public industrial case in the pool that says its orchestrator was trained by RL.",
    ),
    IndustryClaim(
        claim="Kimi K2.5 reports up to 100 sub-agents and 1,500 coordinated steps or tool calls.",
        entry="kimi-k2-5",
        read_in="Kimi's technical report",
        confidence="high",
        boundary="The size of a deployment as reported; optimiser, data and ablations cannot be reproduced.",
    ),
    IndustryClaim(
        claim="Kimi K2.6 reports up to 300 sub-agents and 4,000 coordinated steps.",
        entry="kimi-k2-6",
        read_in="Kimi's blog and product pages",
        confidence="medium-high",
        boundary="The size of a deployment, not training that could be reproduced.",
    ),
    IndustryClaim(
        claim="OpenAI Codex shows parallel workflows of software agents and where its harness ends.",
        entry="openai-codex",
        read_in="OpenAI's product pages",
        confidence="high",
        boundary="The shape of a deployment; no public objective of multi-agent RL is claimed.",
    ),
    IndustryClaim(
        claim="Claude Code has sub-agents, and an interface for one's own.",
        entry="claude-code-subagents",
        read_in="Anthropic's documentation",
        confidence="high",
        boundary="Evidence of a harness, of spawning and delegating; none of orchestration trained by RL.",
    ),
    IndustryClaim(
        claim="Anthropic's C compiler was written by Claude Code sessions side by side.",
        entry="anthropic-c-compiler",
        read_in="Anthropic's engineering case study",
        confidence="medium",
        boundary="The shape and the cost of such work; not a result of training.",
    ),
)
"""The survey's claim-confidence ledger (table 7)."""

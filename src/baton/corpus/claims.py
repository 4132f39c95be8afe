"""The survey's claims of sparsity, each checked against the records.

A claim holds, does not hold, or is not in the data: the records have no field that could tell. Invariant: a
finding carries the rows it rests on, and its number is counted from them, never written down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from baton.corpus.record import VOCABULARIES, Excluded, Paper
from baton.corpus.records_read import Corpus

Verdict = Literal["holds", "does not hold", "not in the data"]


class ClaimFinding(Struct, frozen=True, kw_only=True):
    """What the records say about a claim."""

    verdict: Verdict
    found: str
    rows: tuple[str, ...]
    """Keys of the records it rests on."""


class SurveyClaim(Struct, frozen=True, kw_only=True):
    """Something the survey says about its pool."""

    name: str
    says: str
    boundary: str
    """What the check does and does not show."""
    check: Callable[[Corpus], ClaimFinding]


def check_claims(corpus: Corpus) -> dict[str, ClaimFinding]:
    """Name -> what the records say, for every claim."""
    return {claim.name: claim.check(corpus) for claim in CLAIMS}


def _message(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.credit == "message"]
    strict = [paper for paper in rows if paper.counterfactual]
    return _sparse(
        corpus, rows, f"{len(rows)} of {len(corpus.papers)} rows; counterfactual: {_names(strict)}"
    )


def _orchestrator(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.credit == "orchestrator"]
    strict = [paper for paper in rows if paper.rl == "yes"]
    found = f"{len(rows)} of {len(corpus.papers)} rows; trained by RL throughout: {_names(strict)}"
    return _sparse(corpus, rows, found)


def _sparse(corpus: Corpus, rows: list[Paper], found: str) -> ClaimFinding:
    """Sparse: at most a tenth of the pool."""
    return _finding("holds" if len(rows) * 10 <= len(corpus.papers) else "does not hold", found, rows)


def _stop(corpus: Corpus) -> ClaimFinding:
    rows = [
        paper
        for paper in corpus.papers
        if "stop" in (*paper.decisions, *paper.also_decides) and paper.rl == "yes"
    ]
    found = f"trained by RL: {_names(rows)}"
    return _finding("does not hold" if rows else "holds", found, rows)


def _unused_units(corpus: Corpus) -> ClaimFinding:
    used = {paper.credit for paper in corpus.papers}
    unused = [unit for unit in VOCABULARIES["credit"] if unit not in used]
    rows = [paper for paper in corpus.papers if paper.credit in unused]
    found = (
        f"{len(used - {None})} of {len(VOCABULARIES['credit'])} units are tagged; never: {', '.join(unused)}"
    )
    return _finding("holds" if unused else "does not hold", found, rows)


def _tool_reward(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.reward == "tool"]
    near = [paper for paper in corpus.papers if paper.scenario == "tool_use" and paper.rl == "yes"]
    found = f"{len(rows)} rows are tagged with it; trained on tool use, under other tags: {_names(near)}"
    return _finding("holds" if not rows else "does not hold", found, near)


def _industry(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.category == "industry"]
    trained = [paper for paper in rows if paper.rl == "yes" and paper.credit == "orchestrator"]
    found = f"{len(trained)} of {len(rows)} industrial rows: {_names(trained)}"
    return _finding("holds" if len(trained) == 1 else "does not hold", found, trained)


def _native(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.category == "benchmark"]
    most = max(len(paper.evaluates) for paper in rows)
    widest = [paper for paper in rows if len(paper.evaluates) == most]
    native = [paper for paper in rows if len(paper.evaluates) >= 3]
    found = (
        f"{len(native)} of {len(rows)} benchmarks report three or more of E1 to E4; "
        f"the most is {most}: {_names(widest)}"
    )
    return _finding("holds" if not native else "does not hold", found, widest)


def _near_misses(corpus: Corpus) -> ClaimFinding:
    families = {
        "credit assignment",
        "orchestration",
        "agent swarm",
        "reinforcement learning",
        "post-training",
    }
    rows = [record for record in corpus.excluded if record.family in families]
    teams = [record for record in rows if record.ground not in ("no_training", "single_agent", "off_topic")]
    found = (
        f"of {len(rows)} excluded records that searches on credit, orchestration and training found, "
        f"{len(rows) - len(teams)} train no team of LLM agents; the rest is background: {_names(teams)}"
    )
    holds = all(record.ground == "background" for record in teams)
    return _finding("holds" if holds else "does not hold", found, rows)


def _hybrid_weights(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.reward == "hybrid"]
    return _finding(
        "not in the data", f"{len(rows)} rows mix rewards; no field says who sets the weights", rows
    )


def _partition(corpus: Corpus) -> ClaimFinding:
    rows = [paper for paper in corpus.papers if paper.counterfactual]
    found = f"no field says whether credits add up; the {len(rows)} counterfactual rows are where to look"
    return _finding("not in the data", found, rows)


def _finding(verdict: Verdict, found: str, rows: list[Paper] | list[Excluded]) -> ClaimFinding:
    return ClaimFinding(verdict=verdict, found=found, rows=tuple(record.key for record in rows))


def _names(records: list[Paper] | list[Excluded]) -> str:
    return ", ".join(record.key for record in records) or "none"


CLAIMS = (
    SurveyClaim(
        name="message-credit",
        says="Credit on messages is sparse, and counterfactual credit on messages has one case.",
        boundary="A tag is the finest unit that carries any signal; a reward on messages counts too.",
        check=_message,
    ),
    SurveyClaim(
        name="orchestrator-credit",
        says="Credit on the orchestrator's decisions is sparse.",
        boundary="Rows that are not RL throughout tune prompts or search designs; they estimate no credit.",
        check=_orchestrator,
    ),
    SurveyClaim(
        name="stop",
        says="No entry trains the decision to stop (O5).",
        boundary=(
            "Which decisions a method trains is Baton's reading. Puppeteer's terminator is trained with flaws: a "
            "stop that the cap forced counts as chosen. After the survey's cut-off, arXiv 2605.08686 trains stop "
            "and continue. What stays open is counterfactual credit for stopping a team that is at work."
        ),
        check=_stop,
    ),
    SurveyClaim(
        name="units",
        says="Of eight units that can carry credit, some have no entry.",
        boundary="Only the finest unit is tagged: a method on agents may hand its credit down to tokens.",
        check=_unused_units,
    ),
    SurveyClaim(
        name="tool-reward",
        says="No entry is about rewards on tool use alone (R5).",
        boundary="Tool rewards occur inside hybrid and role rewards.",
        check=_tool_reward,
    ),
    SurveyClaim(
        name="industry",
        says="One industrial entry discloses that its orchestrator was trained.",
        boundary="Others may have been trained so without saying it.",
        check=_industry,
    ),
    SurveyClaim(
        name="native-benchmark",
        says="No open benchmark is native to multi-agent systems: three or more of E1 to E4 at once.",
        boundary="Which of E1 to E4 a benchmark reports is Baton's reading of its description.",
        check=_native,
    ),
    SurveyClaim(
        name="near-misses",
        says="Keeping what was narrowly left out would not fill the sparse cells.",
        boundary="By the reasons in the exclusion log; the papers were not read again.",
        check=_near_misses,
    ),
    SurveyClaim(
        name="hybrid-weights",
        says="Weights of mixed rewards are set by hand everywhere.",
        boundary="It takes reading the papers; `baton reward --help` lists two recipes whose weights move.",
        check=_hybrid_weights,
    ),
    SurveyClaim(
        name="exact-partition",
        says="Nobody shares out the team's reward exactly over channels.",
        boundary="It takes reading the papers; Baton's `telescope` estimator, given a critic, is such a partition.",
        check=_partition,
    ),
)

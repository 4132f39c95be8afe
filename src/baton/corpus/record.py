"""What is kept of a paper: facts, the survey's tags, and Baton's own reading beside them.

Facts and tags are the survey's (arXiv 2605.02801); every sentence is Baton's. Invariant: the survey's tag is
never changed. Where Baton reads a paper otherwise, `ours` says what, and why. A tag that is None is the
survey's NA.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

Category = Literal["rl_method", "benchmark", "classical_marl", "industry", "survey", "framework"]
IsRl = Literal["yes", "partial", "no"]
RewardTag = Literal[
    "shared", "individual", "role", "process", "tool", "debate", "verifier", "orchestration", "hybrid"
]
CreditTag = Literal["team", "orchestrator", "role", "agent", "turn", "message", "tool_call", "token"]
Form = Literal["centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness"]
Scenario = Literal["general", "coding", "math", "research", "tool_use", "web"]
Standing = Literal["core", "supporting", "case"]
Verified = Literal["yes", "partial"]
Decision = Literal["spawn", "delegate", "communicate", "aggregate", "stop"]
Evaluation = Literal["E1", "E2", "E3", "E4"]
SourceClass = Literal["paper", "submission", "company_report", "docs", "case_study", "benchmark"]
Support = Literal["direct", "indirect", "none"]
Stage = Literal["abstract", "full_text", "artifact", "duplicate"]
Ground = Literal[
    "no_training", "single_agent", "off_topic", "background", "thin", "not_instrumented", "overlap"
]

VOCABULARIES: dict[str, tuple[str, ...]] = {
    "category": get_args(Category),
    "rl": get_args(IsRl),
    "reward": get_args(RewardTag),
    "credit": get_args(CreditTag),
    "form": get_args(Form),
    "scenario": get_args(Scenario),
    "standing": get_args(Standing),
    "verified": get_args(Verified),
    "decisions": get_args(Decision),
    "also_decides": get_args(Decision),
    "evaluates": get_args(Evaluation),
    "source_class": get_args(SourceClass),
    "stage": get_args(Stage),
    "ground": get_args(Ground),
}
"""Field -> the words it may hold."""

TAGS = ("category", "rl", "reward", "credit", "form", "scenario", "standing", "verified")
"""The survey's controlled tags, in its order."""


class Correction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Baton reads a paper otherwise than the survey does."""

    field: str
    """A tag, or `mechanism`, or `result`."""
    survey: str
    ours: str
    why: str


class Card(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method as a composition: who learns, from which reward, by which credit, in which group, with which loss."""

    learns: str | None = None
    reward: str | None = None
    credit: str | None = None
    group: str | None = None
    loss: str | None = None
    evidence: str
    """[P] the paper's text, [C] its code, [A] its abstract, [M] textbook, [I] inferred here."""
    caution: str | None = None


class EntryCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of the survey's thirteen cards (appendix A): what it says of an entry, in Baton's words."""

    number: int
    """Its place among the thirteen, from the orchestrator's credit down to frameworks."""
    claim: str
    reward: str
    credit: str
    form: str
    result: str
    limitation: str


class Covers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of the survey's coverage map (figure 3): what an entry studies directly, or bears on indirectly."""

    reward: Support
    credit: Support
    orchestration: Support
    evaluation: Support
    safety: Support


class Sparse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an entry stands in one of the two sparsest cells, message and orchestrator (table 21)."""

    reading: Literal["strict", "broad"]
    """Strict: credit that is trained, or nearly that. Broad: a reward or a design on that unit (the claim ledger)."""
    why: str
    boundary: str


class Paper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retained record, or one that Baton adds beside the pool."""

    key: str
    category: Category
    title: str
    first_author: str
    sole_author: bool = False
    """Known to have written it alone; otherwise there are others, or it is not known."""
    affiliation: str | None = None
    year: int
    arxiv: str | None = None
    venue: str
    links: tuple[str, ...]
    version: str | None = None
    """What was read: an arXiv version and its date, or the date of a page."""
    rl: IsRl
    reward: RewardTag | None = None
    credit: CreditTag | None = None
    form: Form | None = None
    """The topology."""
    scenario: Scenario
    standing: Standing
    verified: Verified
    source_class: SourceClass = "paper"
    """The evidence class of what was read, which says what the entry may support (`baton.corpus.evidence`)."""
    decisions: tuple[Decision, ...] = ()
    """Which of O1 to O5 the survey discusses it under (section 8.2)."""
    also_decides: tuple[Decision, ...] = ()
    """Baton's reading: which others its training is about."""
    covers: Covers | None = None
    """Its row of the survey's coverage map; None: it has none there."""
    sparse: Sparse | None = None
    borderline: str | None = None
    """Why it was kept though it stands on the border of the pool (C.3)."""
    evaluates: tuple[Evaluation, ...] = ()
    """Baton's reading, for benchmarks: which of E1 to E4 it reports."""
    counterfactual: bool = False
    """Baton's reading: credit compares with something that did not happen."""
    thirteen: bool = False
    """Has one of the survey's thirteen cards."""
    about: str
    note: str | None = None
    recipe: str | None = None
    """Name of the training recipe that runs it."""
    same_mechanism: str | None = None
    """Why the recipe is this paper's though it is named after another."""
    unpublished: str | None = None
    """No formula is published in the sources Baton was written from; what is known of it."""
    not_written: str | None = None
    """The formula is public and Baton has no recipe; why."""
    entry_card: EntryCard | None = None
    card: Card | None = None
    ours: tuple[Correction, ...] = ()

    @property
    def is_method(self) -> bool:
        """Whether there is something to train: what `coverage` accounts for."""
        return self.rl != "no" and self.category != "survey"


class Excluded(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that was screened and left out."""

    key: str
    title: str
    source: str
    family: str
    """The family of search queries that found it."""
    identifier: str
    link: str
    screened: str
    stage: Stage
    ground: Ground
    """Baton's word for the kind of reason."""
    why: str
    borderline: str | None = None
    """Why it was left out though it stands on the border of the pool (C.3)."""


def tag(paper: Paper, field: str, *, ours: bool = False) -> str:
    """A controlled tag as text, NA where there is none; with `ours`, as corrected."""
    if ours:
        for correction in paper.ours:
            if correction.field == field:
                return correction.ours
    value = getattr(paper, field)
    return "NA" if value is None else str(value)

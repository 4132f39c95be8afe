"""The literature as data: the survey's pool, what it leaves out, and what Baton adds, with the recipes that run it.

Source: arXiv 2605.02801. Imports nothing else of Baton; which recipes are installed is told from outside.
"""

from baton.corpus.advice import QUESTIONS, Advice, AdviceAnswers, advise
from baton.corpus.bib import bibtex
from baton.corpus.claims import CLAIMS, ClaimFinding, SurveyClaim, check_claims
from baton.corpus.envelopes import ENVELOPES, Envelope, EnvelopePlace, place
from baton.corpus.evidence import CLAIM_KINDS, EVIDENCE, INDUSTRY, EvidenceClass, IndustryClaim
from baton.corpus.recipe_coverage import Covered, coverage
from baton.corpus.record import (
    TAGS,
    VOCABULARIES,
    Card,
    Correction,
    Covers,
    EntryCard,
    Excluded,
    Paper,
    Sparse,
    tag,
)
from baton.corpus.records_read import Corpus, load, parse
from baton.corpus.search import EXCLUDED_FIELDS, PAPER_FIELDS, YES_OR_NO, find, select
from baton.corpus.statistics import Stats, stats, timeline

__all__ = [
    "CLAIMS",
    "CLAIM_KINDS",
    "ENVELOPES",
    "EVIDENCE",
    "EXCLUDED_FIELDS",
    "INDUSTRY",
    "PAPER_FIELDS",
    "QUESTIONS",
    "TAGS",
    "VOCABULARIES",
    "YES_OR_NO",
    "Advice",
    "AdviceAnswers",
    "Card",
    "ClaimFinding",
    "Corpus",
    "Correction",
    "Covered",
    "Covers",
    "EntryCard",
    "Envelope",
    "EnvelopePlace",
    "EvidenceClass",
    "Excluded",
    "IndustryClaim",
    "Paper",
    "Sparse",
    "Stats",
    "SurveyClaim",
    "advise",
    "bibtex",
    "check_claims",
    "coverage",
    "find",
    "load",
    "parse",
    "place",
    "select",
    "stats",
    "tag",
    "timeline",
]

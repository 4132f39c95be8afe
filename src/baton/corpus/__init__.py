"""The literature as data: the survey's pool, what it leaves out, and what Baton adds, with the recipes that run it.

Source: arXiv 2605.02801. Imports nothing else of Baton; which recipes are installed is told from outside.
"""

from baton.corpus.advice import QUESTIONS, Advice, AdviceAnswers, advise
from baton.corpus.bib import bibtex
from baton.corpus.claims import CLAIMS, ClaimFinding, SurveyClaim, check_claims
from baton.corpus.recipe_coverage import Covered, coverage
from baton.corpus.record import TAGS, VOCABULARIES, Card, Correction, Excluded, Paper, tag
from baton.corpus.records_read import Corpus, load, parse
from baton.corpus.search import EXCLUDED_FIELDS, PAPER_FIELDS, YES_OR_NO, find, select
from baton.corpus.statistics import Stats, stats

__all__ = [
    "CLAIMS",
    "EXCLUDED_FIELDS",
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
    "Excluded",
    "Paper",
    "Stats",
    "SurveyClaim",
    "advise",
    "bibtex",
    "check_claims",
    "coverage",
    "find",
    "load",
    "parse",
    "select",
    "stats",
    "tag",
]

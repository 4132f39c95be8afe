"""Validation at three levels: shape, structure, meaning. All problems at once.

Invariant: a trace with no problem at a level has none at the levels below it, and good input costs
time linear in its size.
"""

from baton.trace.validation.checks import validate, validate_file
from baton.trace.validation.problem import CODES, LEVELS, Level, Problem, ValidationReport

__all__ = ["CODES", "LEVELS", "Level", "Problem", "ValidationReport", "validate", "validate_file"]

"""Validation at three levels: shape, structure, meaning. All problems at once.

Invariant: a trace with no problem at a level has none at the levels below it, and good input costs
time linear in its size.
"""

from baton.trace.validate.file import validate_file
from baton.trace.validate.memory import validate
from baton.trace.validate.problem import CODES, LEVELS, Level, Problem, Report

__all__ = ["CODES", "LEVELS", "Level", "Problem", "Report", "validate", "validate_file"]

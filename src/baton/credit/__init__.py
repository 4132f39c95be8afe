"""Credit: eight units, each with its estimators; records on the trace, and their way down to tokens."""

from baton.credit.contract import (
    ESTIMATORS,
    CreditError,
    Estimator,
    find,
    team_return,
)

__all__ = ["ESTIMATORS", "CreditError", "Estimator", "find", "team_return"]

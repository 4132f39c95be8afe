"""The five learned decisions, each with its own credit on its own tokens."""

from __future__ import annotations

from baton.learn.decisions.aggregate import AGGREGATE
from baton.learn.decisions.communicate import COMMUNICATE
from baton.learn.decisions.contract import Decision
from baton.learn.decisions.delegate import DELEGATE
from baton.learn.decisions.spawn import SPAWN
from baton.learn.decisions.stop import STOP

__all__ = ["DECISIONS", "Decision"]

DECISIONS: dict[str, Decision] = {
    decision.name: decision for decision in (SPAWN, DELEGATE, COMMUNICATE, AGGREGATE, STOP)
}

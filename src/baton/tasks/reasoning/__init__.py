"""reasoning-gym's problems as tasks: families that split, and sequential controls that do not."""

from __future__ import annotations

from baton.tasks.reasoning.arithmetic import ChainSum, CountPrimes, Products
from baton.tasks.reasoning.family import NONE, Family
from baton.tasks.reasoning.grid import ModuloGrid
from baton.tasks.reasoning.lists import LetterCounting, NeedleHaystack, NumberFiltering, WordSorting
from baton.tasks.reasoning.reasoning_task import PREFIX, ReasoningTask
from baton.tasks.reasoning.scripted_play import PLAYS, Either, ScriptedPlay, Search, Worked
from baton.tasks.reasoning.sequential import CourseSchedule, ShortestPath, TowerOfHanoi
from baton.tasks.reasoning.small_team import SHORT

__all__ = [
    "FAMILIES",
    "NONE",
    "PLAYS",
    "PREFIX",
    "SHORT",
    "Either",
    "ReasoningTask",
    "ScriptedPlay",
    "Search",
    "Worked",
]  # fmt: skip

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        ChainSum(), Products(), CountPrimes(), LetterCounting(), NumberFiltering(), WordSorting(),
        NeedleHaystack(), ModuloGrid(), CourseSchedule(), ShortestPath(), TowerOfHanoi(),
    )
}  # fmt: skip

"""A critic with a formal checker behind it: does a formula say what a sentence says?

A sentence about two whole numbers x and y comes with a formula that somebody wrote for it, right or wrong (another
relation, sides exchanged, a number that is off, a bracket that is missing). A critic reads both and accepts or rejects.
The checker is a decision procedure and nobody's opinion: the formula must parse, and must be true of the same pairs
(x, y) as the sentence, all pairs from -4 to 4 being tried. It is CriticLean's form (arXiv 2507.06181) in miniature,
with this checker for Lean's compiler and the experts' labels.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from baton.errors import UsageError
from baton.tasks.task import Instance, Play, Task
from baton.team.agent import Agent, Role
from baton.team.protocol import Request
from baton.team.team import Assignment, Topology

SENTENCES: Final[Mapping[str, str]] = {
    "x is less than y": "x < y",
    "x is greater than y": "x > y",
    "x is at least y": "x >= y",
    "x is at most y": "x <= y",
    "x equals y": "x == y",
    "x differs from y": "x != y",
    "x is twice y": "x == 2 * y",
    "x is y plus one": "x == y + 1",
    "the sum of x and y is positive": "x + y > 0",
    "the sum of x and y is 3": "x + y == 3",
    "x lies between 0 and y": "0 < x < y",
    "both x and y are positive": "x > 0 and y > 0",
}
"""What is meant -> a formula that says it."""
GRID: Final = range(-4, 5)
LONGEST: Final = 80
"""Characters of a formula that are read; longer ones are wrong, since Python's parser can be made to work for hours."""
REJECTED: Final = "rejected"
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[int, int], bool]]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_RELATIONS: Final = ("<", "<=", ">", ">=", "==", "!=")


def truth(formula: str) -> tuple[bool, ...] | None:
    """Whether a formula is true of each pair of the grid; None: it does not parse, or says something else than that."""
    if len(formula) > LONGEST:
        return None
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
        found = [_value(tree, {"x": x, "y": y}) for x in GRID for y in GRID]
    except (SyntaxError, ValueError, KeyError, RecursionError, MemoryError):
        return None
    return tuple(found) if all(isinstance(each, bool) for each in found) else None


def _value(node: ast.expr, given: Mapping[str, int]) -> Any:
    """Of the few forms that a formula may have; any other is a KeyError."""
    if isinstance(node, ast.Compare):
        sides = [_number(side, given) for side in (node.left, *node.comparators)]
        return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    if isinstance(node, ast.BoolOp):
        parts = [_value(part, given) for part in node.values]
        if not all(isinstance(part, bool) for part in parts):
            raise KeyError
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _value(node.operand, given)
        if not isinstance(inner, bool):
            raise KeyError
        return not inner
    return _number(node, given)


def _number(node: ast.expr, given: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return given[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand, given)
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_number(node.left, given), _number(node.right, given))
    raise KeyError(type(node).__name__)


def agrees(sentence: str, formula: str) -> bool:
    """The checker: whether a formula is true of the same pairs as a sentence."""
    return truth(formula) == truth(SENTENCES[sentence])


class Formalise(Task):
    """Does the formula say what the sentence says?"""

    name: ClassVar[str] = "formalise"

    def __init__(self, *, wrong: float = 0.5) -> None:
        if not 0 <= wrong <= 1:
            raise UsageError(f"formalise: wrong = {wrong}; expected the share of formulas to spoil, 0 to 1.")
        self.wrong = wrong

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        sentence = list(SENTENCES)[int(random.integers(len(SENTENCES)))]
        formula = SENTENCES[sentence]
        if random.random() < self.wrong:
            formula = _spoiled(formula, random)
        return f"Does the formula say it? {sentence}", sentence, formula

    def verify(self, instance: Instance, answer: str) -> float:
        """Of a formula, whether the checker passes it; of a rejection, whether the one at hand deserved it."""
        if answer.strip() == REJECTED:
            return float(not agrees(instance.gold, instance.data))
        return float(agrees(instance.gold, answer))

    def assignment(self, instance: Instance) -> Assignment:
        found = super().assignment(instance)
        found.spec["formula"] = instance.data
        return found

    def solve(self, instance: Instance) -> str | None:
        return SENTENCES[instance.gold]

    def topology(self) -> Topology:
        """A formaliser that hands over the formula at hand, and a critic, whose verdict decides."""
        return Topology(
            name="planner_executor_critic",
            root="lead",
            roles=(
                Role(name="lead", verbs=("spawn", "wait", "stop"), spawns=("formaliser", "critic")),
                Role(name="formaliser", instructions="Return a formula.", verbs=("return",)),
                Role(name="critic", instructions="Return accept or reject.", verbs=("return",)),
            ),
            programs={"lead": _lead, "formaliser": _formaliser},
            built_from={"name": "planner_executor_critic", "task": self.name},
        )

    def reference_play(self) -> Play:
        """A critic that asks the checker."""
        return play


async def _lead(me: Agent) -> None:
    task = me.inbox[-1].text
    author = await me.spawn("formaliser", task)
    if author is not None:
        await me.wait([author])
    draft = me.results.get(author or "", ("", ""))[1]
    critic = await me.spawn("critic", f"{task.partition('? ')[2]}\nformula: {draft}")
    if critic is not None:
        await me.wait([critic])
    verdict = me.results.get(critic or "", ("", ""))[1]
    await me.stop(draft if verdict.strip().startswith("accept") else REJECTED)


async def _formaliser(me: Agent) -> None:
    await me.returns(me.run.assignment.spec["formula"])


def play(request: Request) -> str:
    """The critic's verdict, by the checker."""
    text = "\n".join(entry.text for entry in request.entries)
    told = re.search(r"^formula: (.*)$", text, re.MULTILINE)
    said = next((sentence for sentence in SENTENCES if sentence in text), None)
    right = told is not None and said is not None and agrees(said, told[1])
    return f"return {'accept' if right else 'reject'}"


def _spoiled(formula: str, random: np.random.Generator) -> str:
    """The formula with one mistake; now and then one that changes nothing, which the checker then passes."""
    how = int(random.integers(4))
    if how == 0:
        relation = next(word for word in formula.split() if word in _RELATIONS)
        others = [word for word in _RELATIONS if word != relation]
        return formula.replace(f" {relation} ", f" {others[int(random.integers(len(others)))]} ", 1)
    if how == 1:
        return formula.translate(str.maketrans("xy", "yx"))
    if how == 2:
        return (
            f"{formula} + 1"
            if re.search(r"\d|and", formula) is None
            else re.sub(r"\d", "2", formula, count=1)
        )
    return f"({formula}"

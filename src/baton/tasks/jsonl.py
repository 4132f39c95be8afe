"""Problems from a file: one JSON object a line, with the question in one field and the right answer in another.

    {"question": "What is 6 x 7?", "answer": "42"}

Which lines are for training and which are held out is said by a field of each line (`split`, its value "train" or
"test"), or by `test_share`: then a line's own text decides, so that adding lines moves none from one side to the other.

Invariant: (split, seed) names a line for good, as long as the file is the same: seeds go through the lines of a split
round by round, each round in an order of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from baton.errors import UsageError, nearest
from baton.settings import Share
from baton.tasks.task import Instance, Split, Task
from baton.team.clock import generator
from baton.trace.outcome import plain

Comparison = Literal["plain", "exact", "number", "contains"]
"""How an answer is compared: without case, runs of space and closing punctuation; letter by letter; as a number; or
whether the right answer stands in it."""


class JsonlTask(Task):
    """The lines of a file."""

    name: ClassVar[str] = "jsonl"

    def __init__(
        self,
        *,
        file: str = "",
        prompt: str = "question",
        gold: str = "answer",
        split: str | None = None,
        test_share: Share = 0.2,
        compare: Comparison = "plain",
    ) -> None:
        if not file:
            raise UsageError(
                'task jsonl reads problems from a file of JSON lines: set task.settings.file = "FILE.jsonl".'
            )
        self.path = Path(file)
        self.prompt, self.gold, self.compare = prompt, gold, compare
        self.split_field, self.test_share = split, test_share
        rows = _read(self.path)
        for number, row in enumerate(rows, start=1):
            for what, name in (("prompt", prompt), ("gold", gold), ("split", split)):
                if name is not None and name not in row:
                    raise UsageError(
                        f"line {number} of {file} has no field {name!r}, which is to be its {what}. "
                        f"{nearest(name, list(row))}"
                    )
        self._lines: dict[Split, list[dict[str, Any]]] = {"train": [], "test": []}
        for number, row in enumerate(rows, start=1):
            self._lines[self._side(row, number)].append(row)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names that every line has."""
        every = [set(row) for rows in self._lines.values() for row in rows]
        return tuple(sorted(set.intersection(*every)))

    def instance(self, seed: int, split: Split = "train") -> Instance:
        row = self._row(seed, split)
        prompt = row[self.prompt]
        return Instance(
            task=self.name,
            split=split,
            seed=seed,
            prompt=prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False),
            gold=row[self.gold],
            data=row,
        )

    def draw(self, random: np.random.Generator) -> tuple[str, Any, Any]:
        made = self.instance(int(random.integers(2**31)))
        return made.prompt, made.gold, made.data

    def verify(self, instance: Instance, answer: str) -> float:
        right: Sequence[Any] = instance.gold if isinstance(instance.gold, list) else [instance.gold]
        return float(any(_alike(answer, each, self.compare) for each in right))

    def solve(self, instance: Instance) -> str | None:
        right = instance.gold[0] if isinstance(instance.gold, list) and instance.gold else instance.gold
        return str(right)

    def _row(self, seed: int, split: Split) -> dict[str, Any]:
        rows = self._lines[split]
        if not rows:
            raise UsageError(f"{self.path} has no line for {split}. {self._mend()}")
        whole, place = divmod(seed, len(rows))
        order = generator(f"{self.name}/{split}/{len(rows)}/{whole}").permutation(len(rows))
        return rows[int(order[place])]

    def _mend(self) -> str:
        if self.split_field is not None:
            return f'Write "train" or "test" into the field {self.split_field!r} of its lines.'
        return "Give more lines, or another task.settings.test_share."

    def _side(self, row: Mapping[str, Any], number: int) -> Split:
        if self.split_field is not None:
            said = row[self.split_field]
            if said not in ("train", "test"):
                raise UsageError(
                    f'line {number} of {self.path} says {self.split_field} = {said!r}; expected "train" or "test".'
                )
            side: Split = said
            return side
        told = json.dumps(row, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
        drawn = int.from_bytes(blake2b(told, digest_size=8).digest()) / 2**64
        return "test" if drawn < self.test_share else "train"


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise UsageError(
            f"cannot read {str(path)!r}: {why}. Give a file of JSON lines: task.settings.file"
        ) from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"line {number} of {path} is no JSON: {error}.") from None
        if not isinstance(row, dict):
            raise UsageError(f"line {number} of {path} is a {type(row).__name__}; expected a JSON object.")
        rows.append(row)
    if not rows:
        raise UsageError(f"{path} has no lines. Give a file with one JSON object a line.")
    return rows


def _alike(answer: str, right: Any, compare: Comparison) -> bool:
    gold = right if isinstance(right, str) else json.dumps(right, ensure_ascii=False)
    if compare == "exact":
        return answer == gold
    if compare == "contains":
        return plain(gold) in plain(answer)
    if compare == "number":
        try:
            return abs(float(answer.replace(",", "")) - float(gold.replace(",", ""))) <= 1e-9 * max(
                1.0, abs(float(gold))
            )
        except ValueError:
            return False
    return plain(answer) == plain(gold)

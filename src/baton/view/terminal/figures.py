"""The scale of traces as a table: a column for each of a few, or the spread over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import structs

from baton.measure.metrics.scale import Scale
from baton.measure.prices import CallsCost, TraceCost, together
from baton.view.terminal.fitting import Line
from baton.view.text import amount, number, printable

NOT_MEASURED = "not measured"
UNKNOWN = "unknown"
_NAMES = ("trace_id", "task_id")  # tell traces apart; say nothing of many


def table(scales: Sequence[Scale], *, side_by_side: bool) -> list[Line]:
    """Rows are figures. Columns are traces, or how the figure is spread over them."""
    rows: list[list[str]] = []
    if not side_by_side:
        rows.append([f"{len(scales):,} traces", "median", "min", "max"])
    for field in structs.fields(Scale):
        values = [getattr(scale, field.name) for scale in scales]
        label = field.name.removesuffix("_s").replace("_", " ") + (
            " seconds" if field.name.endswith("_s") else ""
        )
        if any(isinstance(value, Mapping) for value in values):
            rows += _nested(label, values, side_by_side)
        elif side_by_side:
            marks = ["~" if field.name == "tokens" and one.estimated_tokens else "" for one in scales]
            rows.append([label, *(mark + _cell(value) for mark, value in zip(marks, values, strict=True))])
        elif field.name not in _NAMES:
            rows.append([label, *_spread_cells(values)])
    # A cell that ends its row may be long without making its column wide.
    widths = [max(len(row[i]) for row in rows if i < len(row) - 1) for i in range(max(map(len, rows)) - 1)]
    return [[(_joined(row, widths), "bold" if row is rows[0] else "")] for row in rows]


def spread(scales: Sequence[Scale]) -> dict[str, dict[str, float | int | None]]:
    """Median, least and most of every figure that is a number, over the traces where it was measured."""
    found: dict[str, dict[str, float | int | None]] = {}
    for field in structs.fields(Scale):
        values = [getattr(scale, field.name) for scale in scales]
        if any(_is_number(value) for value in values):
            known = [value for value in values if value is not None]
            found[field.name] = {
                "median": median(known),
                "min": min(known),
                "max": max(known),
                "measured": len(known),
            }
    return found


def cost_rows(costs: Sequence[TraceCost]) -> list[tuple[str, ...]]:
    """What traces cost together, by role, and of one trace by agent too; what is not known is unknown, and never 0."""
    currency = costs[0].currency
    rows: list[tuple[str, ...]] = [("cost", "calls", "prompt", "of a cache", "completion", currency)]
    groups = ("roles", "agents") if len(costs) == 1 else ("roles",)
    for group in groups:
        parts: dict[str, list[CallsCost]] = {}
        for one in costs:
            for name, cost in getattr(one, group).items():
                parts.setdefault(name, []).append(cost)
        label = group.removesuffix("s")
        rows += [
            _cost_row(f"{label} {printable(name) or 'not told'}", together(some))
            for name, some in parts.items()
        ]
    rows.append(_cost_row("all", together([one.cost for one in costs])))
    return rows


def _cost_row(name: str, cost: CallsCost) -> tuple[str, ...]:
    counts = (cost.prompt_tokens, cost.cached_tokens, cost.completion_tokens)
    told = [UNKNOWN if value is None else number(value) for value in counts]
    return name, f"{cost.calls:,}", *told, UNKNOWN if cost.total is None else amount(cost.total)


def _nested(label: str, values: Sequence[Mapping[str, int] | None], side_by_side: bool) -> list[list[str]]:
    """A row for every key; a key that a trace does not have was counted there, and is 0."""
    keys = sorted({key for value in values if value is not None for key in value})
    rows = [[label]]
    for key in keys:
        counts = [None if value is None else value.get(key, 0) for value in values]
        cells = map(_cell, counts) if side_by_side else _spread_cells(counts)
        rows.append([f"  {printable(key)}", *cells])
    return rows if keys else []


def _spread_cells(values: Sequence[object]) -> list[str]:
    known = [value for value in values if value is not None]
    if not known:
        return [NOT_MEASURED]
    if not _is_number(known[0]):
        words = Counter(
            word for value in values for word in (value if isinstance(value, tuple) else (value,))
        )
        return [", ".join(f"{_cell(word)} {n:,}" for word, n in words.most_common()) or "none"]
    numbers = [float(value) for value in known]  # type: ignore[arg-type]  # one field, one type
    cells = [number(median(numbers)), number(min(numbers)), number(max(numbers))]
    if len(known) < len(values):
        cells.append(f"({len(values) - len(known):,} {NOT_MEASURED})")
    return cells


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, tuple):
        return ", ".join(map(printable, value)) or "none"
    return printable(str(value))


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])

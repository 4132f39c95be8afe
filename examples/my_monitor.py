"""A monitor of your own: warn when rollouts have grown to twice their first length.

    baton train grpo --set 'train.monitors=["my_monitor:TooLong"]'

It looks at each step's metrics and traces. A function `(metrics, traces) -> warnings` will do where nothing is
remembered from step to step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from baton.learn.recipe import Recipe
from baton.learn.watch import Warned
from baton.testing import check_monitor
from baton.trace.trace import Trace


class TooLong:
    """Remembers how long the first step's rollouts were."""

    def __init__(self, _recipe: Recipe) -> None:
        self.first: float | None = None

    def observe(self, _metrics: Mapping[str, Any], traces: Sequence[Trace]) -> list[Warned]:
        length = sum(len(trace.events) for trace in traces) / len(traces)
        if self.first is None:
            self.first = length
        if length < 2 * self.first:
            return []
        said = f"rollouts have {length:.0f} events, after {self.first:.0f} at first. Price tokens, or lower max_turns."
        return [Warned(monitor="too-long", message=said)]

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.first = state["first"]


if __name__ == "__main__":
    check_monitor(TooLong)
    print("my_monitor:TooLong is a monitor that a recipe can name.")

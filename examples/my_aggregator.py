"""An aggregator of your own: one result of what several agents said. Here, the median of numbers.

It fuses, or raises AggregateError with a reason the agent can act on; nothing else. The weights say
how much each claim counted, and go into the trace.

Type: python examples/my_aggregator.py
"""

import asyncio
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from baton.team.aggregate import AggregateError, Claim, Fused
from baton.team.protocol import Request
from baton.team.running import run
from baton.team.team import Assignment, Team
from baton.team.topology import make_topology
from baton.testing import check_aggregator


class Median:
    """The number in the middle."""

    name = "median"
    pure = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = {}) -> Fused:
        if params:
            raise AggregateError(f"median has no parameters; given: {', '.join(map(str, params))}.")
        if not claims:
            raise AggregateError("median: there are no claims to fuse. Wait until an agent has returned.")
        try:
            numbers = [float(claim.text) for claim in claims]
        except ValueError as error:
            raise AggregateError(f"median: expected a number from each agent; {error}.") from None
        middle = median(numbers)
        # Those nearest to the middle made it; the others only held it in place.
        near = [abs(number - middle) for number in numbers]
        counted = [float(distance == min(near)) for distance in near]
        weights = tuple(share / sum(counted) for share in counted)
        return Fused(f"{middle:g}", weights, {"numbers": numbers})


def guess(request: Request) -> str:
    """What the peers say; a model would be asked the same."""
    return f"return {[41, 42, 1000][int(request.agent[-1]) - 1]}"


if __name__ == "__main__":
    check_aggregator(Median())
    team = Team.of(make_topology("swarm", peers=3, method="median"), guess, aggregators=[Median()])
    trace = asyncio.run(run(team, Assignment(task_id="guess", prompt="guess a number")))
    fused = next(event for event in trace.events if event.type == "aggregate")
    print(trace.text(fused.content_ref), fused.extra["weights"])
